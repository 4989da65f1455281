package definition

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/fault"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

var validator = sync.OnceValues(func() (protovalidate.Validator, error) {
	return protovalidate.New(protovalidate.WithMessages(&schedulerdv1.Flow{}, &schedulerdv1.Resource{}, &schedulerdv1.Schedule{}))
})

// checkRules checks the protovalidate rules of the message at path, and says what is wrong in words that do not need the
// rule to be read.
func checkRules(path string, message proto.Message, faults *fault.List) {
	v, err := validator()
	if err == nil {
		err = v.Validate(message)
	}
	var broken *protovalidate.ValidationError
	if err != nil && !errors.As(err, &broken) {
		faults.Add(path, "the rules cannot be checked: %v", err) // a mistake in the contract
		return
	}
	if broken == nil {
		return
	}
	for _, violation := range broken.Violations {
		*faults = append(*faults, explainRule(path, message, violation))
	}
}

func explainRule(path string, message proto.Message, v *protovalidate.Violation) fault.Fault {
	elements := v.Proto.GetField().GetElements()
	f := fault.Fault{Offset: -1, Name: v.Proto.GetForKey()}
	if oneof := oneofAt(message.ProtoReflect().Descriptor(), elements); oneof != nil {
		// The oneof's name appears nowhere in a definition; its members do.
		f.Field = joined(path, elements[:len(elements)-1])
		f.Message = "needs one of " + members(oneof)
		return f
	}
	f.Field = joined(path, elements)
	f.Message = explainViolation(v)
	return f
}

func joined(path string, elements []*validate.FieldPathElement) string {
	if len(elements) == 0 {
		return path
	}
	return fault.Field(path, protovalidate.FieldPathString(validate.FieldPath_builder{Elements: elements}.Build()))
}

// oneofAt finds the oneof that a path leads to; nil if it leads to a field.
func oneofAt(message protoreflect.MessageDescriptor, elements []*validate.FieldPathElement) protoreflect.OneofDescriptor {
	for i, e := range elements {
		if message == nil {
			return nil
		}
		field := message.Fields().ByName(protoreflect.Name(e.GetFieldName()))
		if field == nil {
			if i == len(elements)-1 {
				return message.Oneofs().ByName(protoreflect.Name(e.GetFieldName()))
			}
			return nil
		}
		if message = field.Message(); field.IsMap() {
			message = field.MapValue().Message()
		}
	}
	return nil
}

func members(oneof protoreflect.OneofDescriptor) string {
	fields := oneof.Fields()
	names := make([]string, fields.Len())
	for i := range names {
		names[i] = string(fields.Get(i).Name())
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// patterns says what the patterns of the contract want.
var patterns = map[string]string{
	`^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$`:                `must have lower-case letters, digits, ".", "_" and "-" only, and a letter or digit at both ends`,
	`^[a-zA-Z0-9]([a-zA-Z0-9._/-]*[a-zA-Z0-9])?$`:      `a label's name must have letters, digits, ".", "_", "/" and "-" only, and a letter or digit at both ends`,
	`^[a-zA-Z_][a-zA-Z0-9_-]*$`:                        `a name must have letters, digits, "_" and "-" only, and begin with a letter or "_"`,
	`^[a-zA-Z_][a-zA-Z0-9_]*$`:                         `must have letters, digits and "_" only, and begin with a letter or "_"`,
	`^[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?$`:                `must be a time of day, hh:mm or hh:mm:ss`,
	`^[A-Z]{0,16}$`:                                    `must be a method in capital letters, such as POST`,
	`^[A-Za-z_][A-Za-z0-9_.]*/[A-Za-z_][A-Za-z0-9_]*$`: `must be a full method name, such as orders.v1.OrderService/Close`,
	`^[a-zA-Z0-9._-]*$`:                                `must have letters, digits, ".", "_" and "-" only`,
}

func explainViolation(v *protovalidate.Violation) string {
	value, rule, message := v.FieldValue, v.Proto.GetRuleId(), v.Proto.GetMessage()
	text, isText := "", false
	if value.IsValid() {
		text, isText = value.Interface().(string)
	}
	switch {
	case rule == "required", isText && text == "" && !v.Proto.GetForKey():
		return "must be set"
	case rule == "string.pattern":
		want, known := patterns[fmt.Sprint(v.RuleValue.Interface())]
		if !known {
			want = "must match the pattern " + fmt.Sprint(v.RuleValue.Interface())
		}
		return want + ", not " + shown(text)
	case rule == "string.uri":
		return "must be an address such as https://example.com/api, not " + shown(text)
	case rule == "repeated.min_items", rule == "map.min_pairs":
		return "needs at least one entry"
	case rule == "repeated.max_items", rule == "map.max_pairs":
		return fmt.Sprintf("has more than %v entries", v.RuleValue.Interface())
	case rule == "repeated.unique":
		return "has the same entry twice"
	case rule == "enum.not_in":
		return "must be set"
	case rule == "enum.defined_only":
		return "is not a known value"
	}
	if elements := v.Proto.GetField().GetElements(); len(elements) > 0 {
		// Who shows the message names the field before it.
		message = strings.TrimPrefix(message, elements[len(elements)-1].GetFieldName()+" ")
	}
	return explainBounds(message)
}

// shown quotes a text for a message, cut where it gets long.
func shown(text string) string {
	const most = 60
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return strconv.Quote(text)
}

var (
	comparison = strings.NewReplacer(
		"greater than or equal to", "at least", "less than or equal to", "at most",
		"greater than", "above", "less than", "below", " and ", ", ", "item(s)", "entries")
	seconds = regexp.MustCompile(`\b[0-9.]+s\b`)
)

// explainBounds says bounds shortly, and bounds of durations in units that people use.
func explainBounds(message string) string {
	return seconds.ReplaceAllStringFunc(comparison.Replace(message), func(text string) string {
		d, err := time.ParseDuration(text)
		switch day := 24 * time.Hour; {
		case err != nil:
			return text
		case d >= 365*day && d%(365*day) == 0:
			return fmt.Sprintf("%d days", d/day)
		case d >= day && d%day == 0:
			return fmt.Sprintf("%dh", d/time.Hour)
		case d >= time.Hour && d%time.Hour == 0:
			return fmt.Sprintf("%dh", d/time.Hour)
		}
		return d.String()
	})
}
