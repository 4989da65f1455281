package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/fault"
	"go.yaml.in/yaml/v3"
)

// document is one source: its lines for excerpts, its tree to find places in, and what is wrong with it.
type document struct {
	name     string
	text     string
	split    []string   // text in lines, once something is wrong
	root     *yaml.Node // nil: it is no YAML
	problems Problems
	partly   bool // reading ended before the end of the tree
}

// maxMarks bounds the marks that structure a file: each can make a value, and a value takes a hundred times its text.
const maxMarks = 1 << 20

// parse reads a source. What is wrong is in the document; what can be read is in the file.
func parse(source Source) (d *document, file *schedulerdv1.FlowsFile) {
	d = &document{name: source.Name}
	file = &schedulerdv1.FlowsFile{}
	if len(source.Content) > MaxFileBytes {
		d.problems = Problems{{Source: d.name, Message: fmt.Sprintf("the file is larger than %d MiB; put its flows into several files", MaxFileBytes>>20)}}
		return d, file
	}
	if marks(source.Content) > maxMarks {
		d.problems = Problems{{Source: d.name, Message: "the file has more values than can be read at once; put its flows into several files"}}
		return d, file
	}
	if at := invalidUTF8(source.Content); at >= 0 {
		line := 1 + bytes.Count(source.Content[:at], []byte("\n"))
		d.problems = Problems{{Source: d.name, Line: line, Column: 1, Message: "this line is not UTF-8 text"}}
		return d, file
	}
	source.Content = joinSurrogates(source.Content)
	d.text = string(source.Content)
	defer func() {
		// The parser is not ours, and the text is anybody's.
		if recover() != nil {
			d.problems = append(d.problems, Problem{Source: d.name, Message: "the file cannot be read as YAML"})
		}
	}()
	if d.read(source.Content); d.root != nil {
		decode(d, file)
	}
	return d, file
}

func marks(text []byte) int {
	n := 0
	for _, c := range text {
		switch c {
		case ',', ':', '-', '[', '{', '\n':
			n++
		}
	}
	return n
}

// lineBreak is what YAML 1.1 takes for the end of a line.
var lineBreak = regexp.MustCompile("\r\n|[\r\n\u0085\u2028\u2029]")

// lines are those of the text.
func (d *document) lines() []string {
	if d.split == nil {
		d.split = lineBreak.Split(d.text, -1)
	}
	return d.split
}

func invalidUTF8(text []byte) int {
	if utf8.Valid(text) {
		return -1
	}
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

// read makes the tree.
func (d *document) read(content []byte) {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var first, second yaml.Node
	err := decoder.Decode(&first)
	if errors.Is(err, io.EOF) || err == nil && isNull(first.Content[0]) {
		d.report(1, 1, "", "the file is empty; it needs flows, as in\n\n"+example)
		return
	}
	if err != nil {
		d.syntax(err)
		return
	}
	switch err := decoder.Decode(&second); {
	case err == nil:
		d.report(max(second.Line, 1), 1, "", "a second document begins here; a flows file has one, so remove the --- before it")
	case !errors.Is(err, io.EOF):
		d.syntax(err)
		return
	}
	d.root = first.Content[0]
}

const example = `flows:
  - id: hello
    schedule: {every: {interval: 10s}}
    task: {log: {message: "hello"}}`

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// report tells of a problem at a place. Reading ends when there are more than are told.
func (d *document) report(line, column int, field, format string, args ...any) {
	d.problems = append(d.problems, d.problem(line, column, field, fmt.Sprintf(format, args...)))
	d.partly = d.partly || len(d.problems) > maxProblems
}

// reportAt tells of a problem with a node.
func (d *document) reportAt(n *yaml.Node, field, format string, args ...any) {
	d.report(n.Line, n.Column, field, format, args...)
}

func (d *document) problem(line, column int, field, message string) Problem {
	p := Problem{Source: d.name, Line: line, Column: column, Field: field, Message: message}
	if line >= 1 && line <= len(d.lines()) && !strings.Contains(message, "\n") {
		p.Excerpt = excerpt(line, column, d.lines()[line-1])
	}
	return p
}

// surrogates is how JSON escapes a character beyond the 16-bit ones. YAML cannot read that.
var surrogates = regexp.MustCompile(`(?i)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})`)

// joinSurrogates writes such characters out, in a text that is JSON.
func joinSurrogates(content []byte) []byte {
	if !surrogates.Match(content) || !json.Valid(content) {
		return content
	}
	return surrogates.ReplaceAllFunc(content, func(pair []byte) []byte {
		high, _ := strconv.ParseUint(string(pair[2:6]), 16, 16) // the pattern has hexadecimal digits there
		low, _ := strconv.ParseUint(string(pair[8:12]), 16, 16)
		return []byte(string(utf16.DecodeRune(rune(high), rune(low))))
	})
}

// found is the node that a path leads to, or the nearest one above it.
type found struct {
	key, value *yaml.Node // key is nil for the root and for entries of lists
	exact      bool       // there is such a node
	name       bool       // the key is meant, not the value
}

// find follows a path.
func (d *document) find(path string, name bool) found {
	at := found{value: d.root, exact: true, name: name}
	for _, step := range fault.Split(path) {
		node := follow(at.value)
		switch {
		case step.Index >= 0 && node.Kind == yaml.SequenceNode && step.Index < len(node.Content):
			at.key, at.value = nil, node.Content[step.Index]
			continue
		case node.Kind == yaml.MappingNode:
			if key, value := lookup(node, step); value != nil {
				at.key, at.value = key, value
				continue
			}
		}
		at.exact = false
		break
	}
	return at
}

// lookup finds the entry of an object that a step leads to.
func lookup(object *yaml.Node, step fault.Step) (key, value *yaml.Node) {
	for _, e := range entries(object) {
		if e.key.Value == step.Key && step.Field == "" || step.Field != "" && (e.key.Value == step.Field || e.key.Value == camelCase(step.Field)) {
			return e.key, e.value
		}
	}
	return nil, nil
}

// follows says whether a fault follows from a problem that was told already: its field could not be read; it is missing where
// a name is unknown; or it is about an object with such a field.
func (d *document) follows(field string, at found) bool {
	for _, p := range d.problems {
		switch {
		case p.Field == "":
		case field == p.Field, !at.exact && fault.Within(field, p.Field), fault.Parent(p.Field) == field:
			return true
		}
	}
	return false
}

// place is the line and column of what was found; of a byte of its text, if offset is not negative.
func (d *document) place(at found, offset int) (line, column int) {
	n := at.value
	if at.key != nil && (at.name || !at.exact || n.Kind != yaml.ScalarNode || isNull(n)) {
		n = at.key
	}
	if n == at.value && at.exact && offset >= 0 && n.Kind == yaml.ScalarNode {
		return d.inside(n, offset)
	}
	return n.Line, n.Column
}

// inside is the place of a byte of a scalar's text. Where the text is not written as it is, it is where the scalar begins.
func (d *document) inside(n *yaml.Node, offset int) (line, column int) {
	if n.Line > len(d.lines()) || offset > len(n.Value) {
		return n.Line, n.Column
	}
	written := skip(d.lines()[n.Line-1], n.Column-1)
	switch {
	case n.Style&yaml.LiteralStyle != 0:
		return d.insideLiteral(n, offset)
	case n.Style&yaml.DoubleQuotedStyle != 0:
		if i := quotedOffset(written, n.Value, offset, '"'); i >= 0 {
			return n.Line, n.Column + utf8.RuneCountInString(written[:i])
		}
	case n.Style&yaml.SingleQuotedStyle != 0:
		if i := quotedOffset(written, n.Value, offset, '\''); i >= 0 {
			return n.Line, n.Column + utf8.RuneCountInString(written[:i])
		}
	case strings.HasPrefix(written, n.Value[:offset]):
		return n.Line, n.Column + utf8.RuneCountInString(n.Value[:offset])
	}
	return n.Line, n.Column
}

// insideLiteral is the place of a byte of a text that follows a |, whose lines are those of the value, indented.
func (d *document) insideLiteral(n *yaml.Node, offset int) (line, column int) {
	before := n.Value[:offset]
	line = n.Line + 1 + strings.Count(before, "\n")
	if line > len(d.lines()) {
		return n.Line, n.Column
	}
	before = before[strings.LastIndexByte(before, '\n')+1:]
	text := d.lines()[line-1]
	whole, _, _ := strings.Cut(n.Value[offset-len(before):], "\n")
	indent := strings.Index(text, whole)
	if indent < 0 || strings.TrimLeft(text[:indent], " ") != "" {
		return n.Line, n.Column
	}
	return line, indent + utf8.RuneCountInString(before) + 1
}

// quotedOffset is the offset in a quoted text, as written, of a byte of its value; -1 if the two part ways before.
func quotedOffset(written, value string, offset int, quote byte) int {
	i := 1
	for decoded := 0; decoded < offset; decoded++ {
		switch {
		case i >= len(written):
			return -1
		case written[i] == value[decoded] && written[i] != '\\' && written[i] != quote:
			i++
		case quote == '\'' && strings.HasPrefix(written[i:], "''") && value[decoded] == '\'':
			i += 2
		case quote == '"' && i+1 < len(written) && written[i] == '\\' && (written[i+1] == value[decoded] || simpleEscape[written[i+1]] == value[decoded] && value[decoded] != 0):
			i += 2
		default:
			return -1
		}
	}
	return i
}

var simpleEscape = map[byte]byte{'n': '\n', 't': '\t', 'r': '\r'}

// skip drops runes from the front of a line.
func skip(line string, runes int) string {
	for ; runes > 0 && line != ""; runes-- {
		_, n := utf8.DecodeRuneInString(line)
		line = line[n:]
	}
	return line
}
