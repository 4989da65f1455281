package manifest

import (
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// describe says what a node is, for "not …".
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	const most = 40
	text := n.Value
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	switch n.Tag {
	case "!!null":
		return "nothing"
	case "!!bool":
		return text
	case "!!int", "!!float":
		return "the number " + text
	}
	return "the text " + strconv.Quote(text)
}

// wanted says what a field's value is, for "must be …".
func wanted(field protoreflect.FieldDescriptor) string {
	switch field.Kind() {
	case protoreflect.StringKind:
		return "a text"
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.EnumKind:
		return choices(enumNames(field.Enum()))
	case protoreflect.DoubleKind:
		return "a number"
	case protoreflect.MessageKind:
		if field.Message().FullName() == durationName {
			return "a duration such as 30s or 1h30m"
		}
		return "an instant such as 2027-03-28T02:30:00Z"
	}
	return "a whole number"
}

// choices lists names for "one of".
func choices(names []string) string {
	switch len(names) {
	case 0:
		return "nothing in it"
	case 1:
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// some lists names, but not all of many.
func some(names []string) string {
	const most = 6
	if len(names) > most {
		return "fields such as " + strings.Join(names[:most-1], ", ")
	}
	return choices(names)
}

func standardTag(n *yaml.Node) bool {
	switch n.Tag {
	case "", "!", "!!str", "!!int", "!!float", "!!bool", "!!null", "!!timestamp":
		return true
	}
	return false
}

func fieldNames(message protoreflect.MessageDescriptor) []string {
	names := make([]string, message.Fields().Len())
	for i := range names {
		names[i] = string(message.Fields().Get(i).Name())
	}
	return names
}

// fieldByName finds a field by its name, in the spelling of the contract or in that of its JSON.
func fieldByName(message protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if f := message.Fields().ByName(protoreflect.Name(name)); f != nil {
		return f
	}
	return message.Fields().ByJSONName(name)
}

// enumSpelling is how the values of an enum are written: without the prefix that they share, and without the zero value,
// which stands for nothing.
type enumSpelling struct {
	names  []string
	values map[string]protoreflect.EnumValueDescriptor // by name in capitals, with and without prefix
}

var spellings sync.Map // protoreflect.FullName → *enumSpelling

func spellingOf(enum protoreflect.EnumDescriptor) *enumSpelling {
	if s, ok := spellings.Load(enum.FullName()); ok {
		return s.(*enumSpelling)
	}
	s := &enumSpelling{values: map[string]protoreflect.EnumValueDescriptor{}}
	prefix := strings.TrimSuffix(string(enum.Values().ByNumber(0).Name()), "UNSPECIFIED")
	for i := range enum.Values().Len() {
		v := enum.Values().Get(i)
		name := string(v.Name())
		s.values[name] = v
		if v.Number() != 0 {
			short := strings.TrimPrefix(name, prefix)
			s.values[short] = v
			s.names = append(s.names, short)
		}
	}
	kept, _ := spellings.LoadOrStore(enum.FullName(), s)
	return kept.(*enumSpelling)
}

func enumNames(enum protoreflect.EnumDescriptor) []string { return spellingOf(enum).names }

// enumValue finds the value of an enum by its name in any case; nil if there is none.
func enumValue(enum protoreflect.EnumDescriptor, name string) protoreflect.EnumValueDescriptor {
	return spellingOf(enum).values[strings.ToUpper(name)]
}
