package manifest

import (
	"bytes"
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

var syntaxError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// maxSearched bounds the files in which the line of a syntax error is searched for.
const maxSearched = 256 << 10

// syntax tells why the text is no YAML.
func (d *document) syntax(err error) {
	line, message := 1, err.Error()
	if m := syntaxError.FindStringSubmatch(message); m != nil {
		message = m[2]
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = min(max(n, 1), len(d.lines()))
		}
	}
	if found := d.lineOf(message); found > 0 {
		line = found
	}
	text := d.lines()[line-1]
	column := 1 + len(text) - len(strings.TrimLeft(text, " "))
	at := func(i int) int { return 1 + utf8.RuneCountInString(text[:i]) }
	switch {
	case strings.Contains(message, "cannot start any token"), strings.Contains(message, "tab character"):
		if i := strings.IndexByte(text, '\t'); i >= 0 && strings.TrimLeft(text[:i], " ") == "" {
			column, message = at(i), "a tab cannot be used to indent; use spaces"
		} else if i := strings.IndexAny(text, "@`%"); i >= 0 {
			column, message = at(i), fmt.Sprintf("text that begins with %c needs quotes", text[i])
		}
	case strings.Contains(message, "alphabetic or numeric character"):
		message = "text that begins with * or & needs quotes"
		if i := strings.IndexAny(text, "*&"); i >= 0 {
			column = at(i)
			message += fmt.Sprintf(", as in %s\"%s\"", strings.TrimLeft(text[:i], " -"), strings.TrimRight(text[i:], " \r"))
		}
	case strings.HasPrefix(message, "unknown anchor"):
		name := strings.Trim(strings.TrimSuffix(strings.TrimPrefix(message, "unknown anchor "), " referenced"), "'")
		message = fmt.Sprintf("there is no anchor &%s; text that begins with * needs quotes", name)
		if i := strings.Index(text, "*"+name); i >= 0 {
			column = at(i)
		}
	case strings.HasPrefix(message, "mapping values are not allowed"):
		message = `a ": " cannot be here; text that holds one needs quotes, and the keys of an object have the same indentation`
		if first := strings.Index(text, ": "); first >= 0 {
			if second := strings.Index(text[first+2:], ":"); second >= 0 {
				column = at(first + 2 + second)
			}
		}
	case strings.HasPrefix(message, "did not find expected key"), strings.HasPrefix(message, "did not find expected '-' indicator"):
		message = "the indentation does not fit the lines above, or a quote or bracket there is not closed"
	case strings.HasPrefix(message, "could not find expected ':'"):
		message = "a key without a : after it, or a line that belongs to the text above and is not indented"
	case strings.Contains(message, "unexpected end of stream"), strings.HasPrefix(message, "did not find expected ',' or"):
		message = "a quote or bracket that is opened here or above is not closed"
	case strings.HasPrefix(message, "did not find expected node content"):
		message = "a value is missing here, or there is a comma or bracket too many"
	case strings.HasPrefix(message, "exceeded max depth"):
		message = "this is nested too deep"
	}
	d.report(line, column, "", "%s", message)
}

// lineOf finds the line that a syntax error is on. The parser itself tells where the thing around it began, at best. But it
// stops at the first error, so that the lines up to the wrong one give the same error, and those before it do not. It is 0 if
// the file is too large to be read so often.
func (d *document) lineOf(message string) int {
	size := 0
	for _, l := range d.lines() {
		size += len(l) + 1
	}
	if size > maxSearched {
		return 0
	}
	same := func(n int) bool {
		err := readable(strings.Join(d.lines()[:n], "\n"))
		if err == nil {
			return false
		}
		m := syntaxError.FindStringSubmatch(err.Error())
		return m != nil && m[2] == message
	}
	return min(1+sort.Search(len(d.lines()), func(i int) bool { return same(i + 1) }), len(d.lines()))
}

func readable(text string) error {
	var n yaml.Node
	return yaml.NewDecoder(bytes.NewReader([]byte(text))).Decode(&n)
}
