package schedctl

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// enumPrefix is what the names of an enum's values begin with: "FLOW_STATUS_".
func enumPrefix(values protoreflect.EnumValueDescriptors) string {
	return strings.TrimSuffix(string(values.ByNumber(0).Name()), "UNSPECIFIED")
}

// short is an enum value's name without its prefix: "RUNNING".
func short(value protoreflect.Enum) string {
	values := value.Descriptor().Values()
	known := values.ByNumber(value.Number())
	if known == nil {
		return fmt.Sprintf("UNKNOWN(%d)", value.Number())
	}
	return strings.TrimPrefix(string(known.Name()), enumPrefix(values))
}

// words is an enum value's name in lower case with blanks: "timed out".
func words(value protoreflect.Enum) string {
	return strings.ReplaceAll(strings.ToLower(short(value)), "_", " ")
}

// enumFlag is a list of enum values given by their short names, in any case: --status running,tripped.
type enumFlag[E interface {
	~int32
	protoreflect.Enum
}] struct{ values []E }

func (f *enumFlag[E]) names() []string {
	var zero E
	values := zero.Descriptor().Values()
	var names []string
	for i := range values.Len() {
		if v := values.Get(i); v.Number() != 0 {
			names = append(names, strings.TrimPrefix(string(v.Name()), enumPrefix(values)))
		}
	}
	return names
}

func (f *enumFlag[E]) String() string {
	names := make([]string, len(f.values))
	for i, v := range f.values {
		names[i] = short(v)
	}
	return strings.Join(names, ",")
}

func (f *enumFlag[E]) Type() string { return strings.ToLower(strings.Join(f.names(), "|")) }

func (f *enumFlag[E]) Set(text string) error {
	var zero E
	values := zero.Descriptor().Values()
	for name := range strings.SplitSeq(text, ",") {
		name = strings.ToUpper(strings.NewReplacer("-", "_", " ", "_").Replace(strings.TrimSpace(name)))
		v := values.ByName(protoreflect.Name(enumPrefix(values) + name))
		if v == nil || v.Number() == 0 {
			return fmt.Errorf("%q is none of %s", strings.ToLower(name), strings.ToLower(strings.Join(f.names(), ", ")))
		}
		f.values = append(f.values, E(v.Number()))
	}
	return nil
}
