package schedctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

type format string

const (
	formatTable format = "table"
	formatWide  format = "wide"
	formatJSON  format = "json"
	formatYAML  format = "yaml"
	formatName  format = "name"
)

var formats = []format{formatTable, formatWide, formatJSON, formatYAML, formatName}

// String, Set and Type make a flag of it.
func (f *format) String() string { return string(*f) }
func (f *format) Type() string   { return "table|wide|json|yaml|name" }
func (f *format) Set(text string) error {
	if !slices.Contains(formats, format(text)) {
		return fmt.Errorf("must be one of %s", f.Type())
	}
	*f = format(text)
	return nil
}

// printer writes responses in the format that was asked for.
type printer struct {
	out     io.Writer
	format  format
	canvas  canvas
	printed int
}

// view is one response in all its forms.
type view struct {
	message proto.Message            // for json and yaml
	names   []string                 // for name
	lines   func(wide bool) []string // for table and wide
	encode  func() ([]byte, error)   // JSON other than that of message
}

// human says whether the output is for people.
func (p *printer) human() bool { return p.format == formatTable || p.format == formatWide }

// show writes one response. Several in a row are several documents.
func (p *printer) show(v view) error {
	defer func() { p.printed++ }()
	switch p.format {
	case formatJSON, formatYAML:
		if v.encode == nil {
			v.encode = func() ([]byte, error) { return marshal(v.message) }
		}
		document, err := v.encode()
		if err != nil {
			return err
		}
		return p.document(document)
	case formatName:
		return p.lines(v.names)
	default:
		return p.lines(v.lines(p.format == formatWide))
	}
}

// stream writes one message of a stream: a JSON document takes one line.
func (p *printer) stream(v view) error {
	if p.format != formatJSON {
		return p.show(v)
	}
	line, err := compactJSON(v.message)
	if err != nil {
		return err
	}
	_, err = p.out.Write(append(line, '\n'))
	return err
}

// compactJSON is a message's JSON on one line.
func compactJSON(m proto.Message) ([]byte, error) {
	document, err := marshal(m)
	if err != nil {
		return nil, err
	}
	var line bytes.Buffer
	err = json.Compact(&line, document)
	return line.Bytes(), err
}

func (p *printer) document(document []byte) error {
	if p.format == formatYAML {
		text, err := yamlOf(document)
		if err != nil {
			return err
		}
		if p.printed > 0 {
			text = append([]byte("---\n"), text...)
		}
		_, err = p.out.Write(text)
		return err
	}
	var text bytes.Buffer
	if err := json.Indent(&text, document, "", "  "); err != nil {
		return err
	}
	text.WriteByte('\n')
	_, err := p.out.Write(text.Bytes())
	return err
}

func (p *printer) lines(lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	_, err := io.WriteString(p.out, strings.Join(lines, "\n")+"\n")
	return err
}

// marshal gives a message's JSON with the field names of the .proto files, which
// flows files use too. Fields without a value are there, so that scripts find them.
func marshal(m proto.Message) ([]byte, error) {
	return protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(m)
}

// marshalDefinition leaves out what is not set: a definition says no more than its author did.
func marshalDefinition(m proto.Message) ([]byte, error) {
	return protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
}

// yamlOf writes a JSON document as YAML, in the same order.
func yamlOf(document []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	node, err := yamlNode(decoder)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(node), encoder.Close()); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// oldYAML matches what is text in YAML 1.2, but a truth value or a number to base 60 in 1.1,
// which many still read: "no", "12:30".
var oldYAML = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|[-+]?[0-9][0-9_]*(:[0-9]+)+(\.[0-9_]*)?)$`)

func yamlNode(decoder *json.Decoder) (*yaml.Node, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Delim:
		node := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		if token == '[' {
			node = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		}
		for decoder.More() { // a key is a value of its own here
			child, err := yamlNode(decoder)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, child)
		}
		_, err := decoder.Token() // the closing one
		return node, err
	case json.Number:
		tag := "!!int"
		if strings.ContainsAny(token.String(), ".eE") {
			tag = "!!float"
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: token.String()}, nil
	case string:
		node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: token}
		if oldYAML.MatchString(token) {
			node.Style = yaml.DoubleQuotedStyle
		}
		return node, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(token)}, nil
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
	}
}

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
