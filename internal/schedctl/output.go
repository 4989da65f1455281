package schedctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
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
