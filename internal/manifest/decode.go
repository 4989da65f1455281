package manifest

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/fault"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Bounds of what a file can come to. The text is bounded already; these bound what aliases make of it.
const (
	maxAliased = 100_000 // nodes reached through aliases
	maxNesting = 64      // of nodes
)

// decoder fills a message from a tree.
type decoder struct {
	*document
	aliased int          // nodes reached through aliases so far
	aliases []*yaml.Node // those that lead to the node at hand
	depth   int
}

func decode(d *document, file *schedulerdv1.FlowsFile) {
	x := &decoder{document: d}
	if d.root.Kind != yaml.MappingNode {
		d.reportAt(d.root, "", "a flows file is an object with flows and resources, this is %s; write\n\n%s", describe(d.root), example)
		return
	}
	before := len(d.problems)
	x.message(d.root, "", file.ProtoReflect())
	if len(file.Flows) == 0 && len(file.Resources) == 0 && len(d.problems) == before {
		d.reportAt(d.root, "", "the file defines no flows")
	}
}

// enter counts a node and follows aliases. It is nil if the file comes to too much.
func (x *decoder) enter(n *yaml.Node, path string) *yaml.Node {
	if x.partly {
		return nil
	}
	x.depth++
	if n.Kind == yaml.AliasNode {
		x.aliases = append(x.aliases, n)
	}
	if len(x.aliases) > 0 {
		x.aliased++
	}
	node := follow(n)
	switch {
	case x.aliased > maxAliased:
		x.stop(x.aliases[0], path, "aliases repeat too much: they come to more than %d values", maxAliased)
	case node.Kind == yaml.AliasNode, x.around(n):
		x.stop(n, path, "this alias stands for something that it is part of")
	case x.depth > maxNesting:
		x.stop(n, path, "this is nested more than %d deep", maxNesting)
	default:
		return node
	}
	return nil
}

// around says whether an alias stands for the same as one of those that lead to it.
func (x *decoder) around(n *yaml.Node) bool {
	return n.Kind == yaml.AliasNode && slices.ContainsFunc(x.aliases[:len(x.aliases)-1], func(outer *yaml.Node) bool { return outer.Alias == n.Alias })
}

// stop ends the reading of a file.
func (x *decoder) stop(n *yaml.Node, path, format string, args ...any) {
	x.partly = true
	x.reportAt(n, path, format, args...)
}

func (x *decoder) leave(n *yaml.Node) {
	x.depth--
	if n.Kind == yaml.AliasNode && len(x.aliases) > 0 {
		x.aliases = x.aliases[:len(x.aliases)-1]
	}
}

// message fills a message from an object. A key with nothing after it is an object without entries.
func (x *decoder) message(n *yaml.Node, path string, m protoreflect.Message) {
	node := x.enter(n, path)
	defer x.leave(n)
	switch {
	case node == nil || isNull(node):
		return
	case node.Kind != yaml.MappingNode:
		x.reportAt(node, path, "must be an object with %s, not %s%s", some(fieldNames(m.Descriptor())), describe(node), x.insteadOfObject(node, path, m.Descriptor()))
		return
	}
	chosen := map[protoreflect.OneofDescriptor]*yaml.Node{}
	for _, e := range x.object(node, path) {
		field := fieldByName(m.Descriptor(), e.key.Value)
		if field == nil {
			x.unknown(e.key, path, m.Descriptor())
			continue
		}
		at := fault.Field(path, string(field.Name()))
		if oneof := field.ContainingOneof(); oneof != nil && !oneof.IsSynthetic() {
			if other := chosen[oneof]; other != nil {
				x.reportAt(e.key, at, "stands beside %s (line %d); only one of the two can be set", other.Value, other.Line)
				continue
			}
			chosen[oneof] = e.key
		}
		switch {
		case field.IsMap():
			x.mapping(e.value, at, field, m)
		case field.IsList():
			x.list(e.value, at, field, m)
		default:
			if value, ok := x.value(e.value, at, field, func() protoreflect.Value { return m.NewField(field) }); ok {
				m.Set(field, value)
			}
		}
	}
}

// object lists the entries of an object, and tells of keys given twice and of keys that are no words.
func (x *decoder) object(node *yaml.Node, path string) []entry {
	first := map[string]*yaml.Node{}
	return slices.DeleteFunc(entries(node), func(e entry) bool {
		switch {
		case e.key.Kind != yaml.ScalarNode:
			x.reportAt(e.key, path, "a key must be a word or a text, not %s", describe(e.key))
			return true
		case first[e.key.Value] != nil:
			x.reportAt(e.key, path, "%s is given twice; the first is on line %d", e.key.Value, first[e.key.Value].Line)
			return true
		}
		first[e.key.Value] = e.key
		return false
	})
}

func (x *decoder) unknown(key *yaml.Node, path string, message protoreflect.MessageDescriptor) {
	hint := fault.DidYouMean(key.Value, fieldNames(message))
	what := "has no field"
	if path == "" {
		what = "a flows file has no field"
		if flow := (&schedulerdv1.Flow{}).ProtoReflect().Descriptor(); fieldByName(flow, key.Value) != nil {
			hint = "; it belongs to a flow, in the list flows"
		}
	}
	x.reportAt(key, path, "%s %s%s", what, strconv.Quote(key.Value), hint)
}

// insteadOfObject shows how to write an object whose first field was written in its place; empty if that is not so.
func (x *decoder) insteadOfObject(node *yaml.Node, path string, message protoreflect.MessageDescriptor) string {
	if node.Kind != yaml.ScalarNode || message.Fields().Len() == 0 || path == "" {
		return ""
	}
	first := message.Fields().Get(0)
	if first.IsMap() || first.IsList() || first.Message() != nil && first.Message().FullName() != durationName {
		return ""
	}
	return fmt.Sprintf("; write {%s: %s}", first.Name(), node.Value)
}

// mapping fills a map field.
func (x *decoder) mapping(n *yaml.Node, path string, field protoreflect.FieldDescriptor, m protoreflect.Message) {
	node := x.enter(n, path)
	defer x.leave(n)
	switch {
	case node == nil || isNull(node):
		return
	case node.Kind != yaml.MappingNode:
		x.reportAt(node, path, "must be an object of names and values, not %s", describe(node))
		return
	}
	entries := m.Mutable(field).Map()
	for _, e := range x.object(node, path) {
		if value, ok := x.value(e.value, fault.Key(path, e.key.Value), field.MapValue(), entries.NewValue); ok {
			entries.Set(protoreflect.ValueOfString(e.key.Value).MapKey(), value)
		}
	}
}

// list fills a repeated field.
func (x *decoder) list(n *yaml.Node, path string, field protoreflect.FieldDescriptor, m protoreflect.Message) {
	node := x.enter(n, path)
	defer x.leave(n)
	switch {
	case node == nil || isNull(node):
		return
	case node.Kind == yaml.ScalarNode:
		x.reportAt(node, path, "must be a list, not %s%s", describe(node), insteadOfList(node.Value))
		return
	case node.Kind != yaml.SequenceNode:
		x.reportAt(node, path, "must be a list, not %s; put a - before each entry", describe(node))
		return
	}
	list := m.Mutable(field).List()
	for i, element := range node.Content {
		at := fault.Index(path, i)
		if isNull(follow(element)) {
			x.reportAt(element, at, "is an entry without a value")
			list.Append(list.NewElement())
			continue
		}
		value, ok := x.value(element, at, field, list.NewElement)
		if !ok {
			value = list.NewElement() // so that the indices after it stay true
		}
		list.Append(value)
	}
}

// insteadOfList shows how to write a list that was written as a line; empty if the line is more than words.
func insteadOfList(text string) string {
	if text == "" || len(text) > 40 || strings.ContainsAny(text, `"'|&;<>$*{}[],#`) {
		return ""
	}
	return "; write [" + strings.Join(strings.Fields(text), ", ") + "]"
}

const (
	durationName  = "google.protobuf.Duration"
	timestampName = "google.protobuf.Timestamp"
	valueName     = "google.protobuf.Value"
)

// value reads one value of a field's kind. It is not ok if there is none to set.
func (x *decoder) value(n *yaml.Node, path string, field protoreflect.FieldDescriptor, empty func() protoreflect.Value) (protoreflect.Value, bool) {
	if message := field.Message(); message != nil {
		switch message.FullName() {
		case durationName, timestampName:
			return x.scalar(n, path, field)
		case valueName:
			return protoreflect.ValueOfMessage(x.json(n, path).ProtoReflect()), true
		}
		value := empty()
		x.message(n, path, value.Message())
		return value, true
	}
	return x.scalar(n, path, field)
}

// scalar reads a value that is written as one word or text.
func (x *decoder) scalar(n *yaml.Node, path string, field protoreflect.FieldDescriptor) (protoreflect.Value, bool) {
	node := x.enter(n, path)
	defer x.leave(n)
	if node == nil {
		return protoreflect.Value{}, false
	}
	want := wanted(field)
	switch {
	case isNull(node):
		x.reportAt(node, path, "has no value; it must be %s", want)
		return protoreflect.Value{}, false
	case node.Kind != yaml.ScalarNode:
		x.reportAt(node, path, "must be %s, not %s", want, describe(node))
		return protoreflect.Value{}, false
	case !standardTag(node):
		x.reportAt(node, path, "the tag %s means nothing here; remove it", node.Tag)
		return protoreflect.Value{}, false
	}
	value, problem := scalarOf(node, field)
	if problem == "" {
		return value, true
	}
	if problem == asWanted {
		problem = "must be " + want + ", not " + describe(node)
	}
	x.reportAt(node, path, "%s", problem)
	return protoreflect.Value{}, false
}

// asWanted stands for the problem that a value is not what is wanted.
const asWanted = "\x00"

// scalarOf reads a scalar; problem is empty if it is one of the field's kind.
func scalarOf(node *yaml.Node, field protoreflect.FieldDescriptor) (value protoreflect.Value, problem string) {
	text := node.Value
	switch field.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(text), ""
	case protoreflect.BoolKind:
		switch text {
		case "true", "True", "TRUE":
			return protoreflect.ValueOfBool(true), ""
		case "false", "False", "FALSE":
			return protoreflect.ValueOfBool(false), ""
		}
	case protoreflect.EnumKind:
		if v := enumValue(field.Enum(), text); v != nil {
			return protoreflect.ValueOfEnum(v.Number()), ""
		}
		return value, fmt.Sprintf("there is no %s%s", strconv.Quote(text), fault.DidYouMean(text, enumNames(field.Enum())))
	case protoreflect.DoubleKind:
		if f, err := strconv.ParseFloat(text, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return protoreflect.ValueOfFloat64(f), ""
		}
	case protoreflect.Int32Kind, protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Int64Kind:
		return integerOf(text, field.Kind())
	case protoreflect.MessageKind:
		if field.Message().FullName() == durationName {
			return durationOf(node)
		}
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return value, asWanted
		}
		return protoreflect.ValueOfMessage(timestamppb.New(t).ProtoReflect()), ""
	}
	return value, asWanted
}

func integerOf(text string, kind protoreflect.Kind) (value protoreflect.Value, problem string) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || math.IsInf(f, 0) {
		return value, asWanted
	}
	switch kind {
	case protoreflect.Int32Kind:
		if f < math.MinInt32 || f > math.MaxInt32 {
			return value, fmt.Sprintf("must be from %d to %d, not %s", math.MinInt32, math.MaxInt32, text)
		}
		return protoreflect.ValueOfInt32(int32(f)), ""
	case protoreflect.Uint32Kind:
		if f < 0 || f > math.MaxUint32 {
			return value, fmt.Sprintf("must be from 0 to %d, not %s", uint32(math.MaxUint32), text)
		}
		return protoreflect.ValueOfUint32(uint32(f)), ""
	case protoreflect.Int64Kind:
		if i, err := strconv.ParseInt(text, 10, 64); err == nil {
			return protoreflect.ValueOfInt64(i), ""
		}
		if math.Abs(f) > 1<<53 {
			return value, fmt.Sprintf("%s is out of range", text)
		}
		return protoreflect.ValueOfInt64(int64(f)), ""
	}
	if u, err := strconv.ParseUint(text, 10, 64); err == nil {
		return protoreflect.ValueOfUint64(u), ""
	}
	if f < 0 || f > 1<<53 {
		return value, fmt.Sprintf("%s is out of range", text)
	}
	return protoreflect.ValueOfUint64(uint64(f)), ""
}

func durationOf(node *yaml.Node) (value protoreflect.Value, problem string) {
	d, err := time.ParseDuration(node.Value)
	if err == nil && node.Value != "0" {
		return protoreflect.ValueOfMessage(durationpb.New(d).ProtoReflect()), ""
	}
	number := strings.TrimRight(node.Value, "dw ")
	n, notNumber := strconv.ParseFloat(number, 64)
	switch {
	case notNumber != nil:
		return value, asWanted
	case number == node.Value:
		return value, fmt.Sprintf("%s has no unit; write %ss for seconds, or use ms, m or h", number, number)
	case strings.HasSuffix(node.Value, "d"):
		return value, fmt.Sprintf("days are not a unit; write %gh", n*24)
	case strings.HasSuffix(node.Value, "w"):
		return value, fmt.Sprintf("weeks are not a unit; write %gh", n*24*7)
	}
	return value, asWanted
}

// json reads a JSON-like value.
func (x *decoder) json(n *yaml.Node, path string) *structpb.Value {
	node := x.enter(n, path)
	defer x.leave(n)
	if node == nil {
		return structpb.NewNullValue()
	}
	switch node.Kind {
	case yaml.MappingNode:
		object := &structpb.Struct{Fields: map[string]*structpb.Value{}}
		for _, e := range x.object(node, path) {
			object.Fields[e.key.Value] = x.json(e.value, fault.Key(path, e.key.Value))
		}
		return structpb.NewStructValue(object)
	case yaml.SequenceNode:
		list := &structpb.ListValue{}
		for i, element := range node.Content {
			list.Values = append(list.Values, x.json(element, fault.Index(path, i)))
		}
		return structpb.NewListValue(list)
	}
	if !standardTag(node) {
		x.reportAt(node, path, "the tag %s means nothing here; remove it", node.Tag)
		return structpb.NewNullValue()
	}
	switch node.Tag {
	case "!!null":
		return structpb.NewNullValue()
	case "!!bool":
		return structpb.NewBoolValue(strings.EqualFold(node.Value, "true"))
	case "!!int", "!!float":
		return x.number(node, path)
	}
	return structpb.NewStringValue(node.Value) // also a date: JSON has none
}

// number reads a number, unless it has more digits than JSON's kind of number keeps.
func (x *decoder) number(node *yaml.Node, path string) *structpb.Value {
	var number any
	_ = node.Decode(&number) // its tag says that it is a number
	var f float64
	exact := true
	switch v := number.(type) {
	case int:
		f, exact = float64(v), int64(float64(v)) == int64(v) && v != math.MaxInt64
	case int64:
		f, exact = float64(v), int64(float64(v)) == v && v != math.MaxInt64
	case uint64:
		f, exact = float64(v), false // it is above 2^63
	case float64:
		f = v
	}
	switch {
	case math.IsInf(f, 0) || math.IsNaN(f):
		x.reportAt(node, path, "%s is not a finite number", node.Value)
	case !exact:
		x.reportAt(node, path, "%s has more digits than a number keeps; put it in quotes", node.Value)
	}
	return structpb.NewNumberValue(f)
}
