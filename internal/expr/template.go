package expr

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/fault"
)

// Template is a text with any number of expressions in ${ … }. $${ stands for ${ itself.
type Template struct {
	constant string // the text, if there is no expression in it
	parts    []part // what it is made of, if there is
}

// part is a piece of a template: a text, or an expression.
type part struct {
	text    string
	program *program
	offset  int // of the expression
}

// CompileTemplate compiles a text. An error is a fault.List, whose offsets are bytes of text; the Template is never nil.
func CompileTemplate(text string, names Names) (*Template, error) {
	if !strings.Contains(text, "${") {
		return &Template{constant: text}, nil // the rule, and it costs nothing
	}
	t := &Template{}
	var faults fault.List
	var literal strings.Builder
	expressions := 0
	for at := 0; at < len(text) && len(faults) < maxTemplateFaults; {
		next := strings.Index(text[at:], "${")
		if next < 0 {
			literal.WriteString(text[at:])
			break
		}
		next += at
		if next > at && text[next-1] == '$' {
			literal.WriteString(text[at:next-1] + "${")
			at = next + 2
			continue
		}
		literal.WriteString(text[at:next])
		begin := next + 2
		end := endOfExpression(text, begin)
		if end < 0 {
			faults = append(faults, faultAt(next, "this ${ has no closing }; write $${ for a literal ${")...)
			break
		}
		if expressions++; expressions > maxExpressions {
			faults = append(faults, faultAt(next, "there are more than %d expressions in the text", maxExpressions)...)
			break
		}
		source := strings.TrimSpace(text[begin:end])
		lead := strings.Index(text[begin:end], source)
		if source == "" {
			faults = append(faults, faultAt(next, "there is no expression in this ${ }")...)
		} else if p, err := compile(source, names); err != nil {
			var list fault.List
			errors.As(err, &list)
			for _, f := range list {
				f.Offset += begin + lead
				faults = append(faults, f)
			}
		} else {
			if literal.Len() > 0 {
				t.parts = append(t.parts, part{text: literal.String()})
				literal.Reset()
			}
			t.parts = append(t.parts, part{program: p, offset: begin + lead})
		}
		at = end + 1
	}
	if len(t.parts) == 0 {
		t.constant = literal.String()
	} else if literal.Len() > 0 {
		t.parts = append(t.parts, part{text: literal.String()})
	}
	return t, faults.Err()
}

// endOfExpression finds the } that ends the expression that begins at an offset: braces inside are balanced, and those in
// strings and comments do not count. It is -1 if there is none.
func endOfExpression(text string, begin int) int {
	depth := 0
	for i := begin; i < len(text); i++ {
		switch c := text[i]; c {
		case '{':
			depth++
		case '}':
			if depth == 0 {
				return i
			}
			depth--
		case '"', '\'':
			if i = endOfString(text, i); i < 0 {
				return -1
			}
		case '/':
			if strings.HasPrefix(text[i:], "//") {
				line := strings.IndexByte(text[i:], '\n')
				if line < 0 {
					return -1
				}
				i += line
			}
		}
	}
	return -1
}

// endOfString finds the last byte of the CEL string whose quote is at an offset; -1 if it does not end.
func endOfString(text string, at int) int {
	raw := at > 0 && (text[at-1] == 'r' || text[at-1] == 'R')
	quote := text[at : at+1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(text[at:], triple) {
		quote = triple
	}
	for i := at + len(quote); i < len(text); i++ {
		if text[i] == '\\' && !raw {
			i++
		} else if strings.HasPrefix(text[i:], quote) {
			return i + len(quote) - 1
		}
	}
	return -1
}

// String evaluates the template to a text. Values that are not strings appear as JSON writes them.
func (t *Template) String(scope *workflow.Scope) (string, error) {
	if len(t.parts) == 0 {
		return t.constant, nil
	}
	var b strings.Builder
	for _, p := range t.parts {
		text := p.text
		if p.program != nil {
			out, err := p.program.eval(scope)
			if err != nil {
				return "", err
			}
			if text, err = asText(out); err != nil {
				return "", fmt.Errorf("%s: %w", p.program.shown(), err)
			}
		}
		if b.Len()+len(text) > maxResult {
			return "", errTooLarge
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// Value evaluates the template to a value: a text, or what the expression gives if it is one ${ … } and nothing else.
func (t *Template) Value(scope *workflow.Scope) (any, error) {
	if len(t.parts) == 1 && t.parts[0].program != nil {
		return (&Value{t.parts[0].program}).Eval(scope)
	}
	return t.String(scope)
}

// Constant gives the text of a template without expressions.
func (t *Template) Constant() (text string, ok bool) {
	return t.constant, len(t.parts) == 0
}

// Secret says whether the template reads the daemon's environment: its text must not be stored, logged or returned then.
func (t *Template) Secret() bool {
	return slices.ContainsFunc(t.parts, func(p part) bool { return p.program != nil && p.program.uses.env })
}

// Results lists the results the template refers to by name.
func (t *Template) Results() []Reference {
	var list []Reference
	for _, p := range t.parts {
		if p.program != nil {
			for _, r := range p.program.uses.results {
				list = append(list, Reference{r.State, p.offset + r.Offset})
			}
		}
	}
	return list
}

// TemplateValue is a JSON-like value whose strings, at any depth, are templates. Keys of objects are not.
type TemplateValue struct {
	constant any // the value, if there is no expression in it
	template *Template
	list     []*TemplateValue
	object   map[string]*TemplateValue
}

// CompileTemplateValue compiles a value. An error is a fault.List, whose fields are paths inside the value and whose
// offsets are bytes of the string there; the TemplateValue is never nil.
func CompileTemplateValue(value any, names Names) (*TemplateValue, error) {
	var faults fault.List
	v := compileValue(value, names, "", &faults)
	return v, faults.Err()
}

func compileValue(value any, names Names, path string, faults *fault.List) *TemplateValue {
	v := &TemplateValue{constant: value}
	switch x := value.(type) {
	case string:
		t, err := CompileTemplate(x, names)
		var list fault.List
		errors.As(err, &list)
		for _, f := range list {
			f.Field = path
			*faults = append(*faults, f)
		}
		if text, ok := t.Constant(); ok {
			v.constant = text
		} else {
			v.template = t
		}
	case []any:
		list, constants, constant := make([]*TemplateValue, len(x)), make([]any, len(x)), true
		for i := range x {
			list[i] = compileValue(x[i], names, fault.Index(path, i), faults)
			constants[i] = list[i].constant
			constant = constant && list[i].isConstant()
		}
		if v.constant = constants; !constant {
			v.list = list
		}
	case map[string]any:
		object, constants, constant := make(map[string]*TemplateValue, len(x)), make(map[string]any, len(x)), true
		for _, key := range slices.Sorted(maps.Keys(x)) {
			object[key] = compileValue(x[key], names, fault.Key(path, key), faults)
			constants[key] = object[key].constant
			constant = constant && object[key].isConstant()
		}
		if v.constant = constants; !constant {
			v.object = object
		}
	}
	return v
}

// Eval gives the value with every expression in it evaluated. It must not be changed: parts without expressions are shared.
func (v *TemplateValue) Eval(scope *workflow.Scope) (any, error) {
	switch {
	case v.template != nil:
		return v.template.Value(scope)
	case v.list != nil:
		list := make([]any, len(v.list))
		for i, inner := range v.list {
			var err error
			if list[i], err = inner.Eval(scope); err != nil {
				return nil, err
			}
		}
		return list, nil
	case v.object != nil:
		object := make(map[string]any, len(v.object))
		for key, inner := range v.object {
			var err error
			if object[key], err = inner.Eval(scope); err != nil {
				return nil, err
			}
		}
		return object, nil
	}
	return v.constant, nil
}

func (v *TemplateValue) isConstant() bool {
	return v.template == nil && v.list == nil && v.object == nil
}

// Walk calls f for every template with expressions in the value, with its path inside it.
func (v *TemplateValue) Walk(f func(path string, t *Template)) { v.walk("", f) }

func (v *TemplateValue) walk(path string, f func(string, *Template)) {
	if v.template != nil {
		f(path, v.template)
	}
	for i, inner := range v.list {
		inner.walk(fault.Index(path, i), f)
	}
	for _, key := range slices.Sorted(maps.Keys(v.object)) {
		v.object[key].walk(fault.Key(path, key), f)
	}
}
