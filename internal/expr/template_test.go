package expr

import (
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/schedulerd/schedulerd/internal/fault"
	"pgregory.net/rapid"
)

func TestTemplate(t *testing.T) {
	for _, test := range []struct {
		text string
		want any // of Value; String gives its text
	}{
		{``, ""},
		{`plain`, "plain"},
		{`costs $5, {braces} and }`, "costs $5, {braces} and }"},
		{`${params.name}`, "night"},
		{`${ params.n }`, 2.0},
		{`${params.list}`, []any{1.0, "x", nil}},
		{`${params.none}`, nil},
		{`a ${params.name} b ${params.n} c`, "a night b 2 c"},
		{`${params.n}${params.n}`, "22"},
		{`<${params.list}>`, `<[1,"x",null]>`},
		{`<${params.none}>`, `<null>`},
		{`<${params.half}>`, `<0.5>`},
		{`<${1 == 1}>`, `<true>`},
		{`<${9007199254740993}>`, `<9007199254740993>`},
		{`<${run.fire_time}>`, `<2027-03-28T03:00:00Z>`},
		{`<${duration("90s")}>`, `<90s>`},
		{`$${params.name}`, "${params.name}"},
		{`$$${params.name}`, "$${params.name}"}, // $$ is $, then a literal ${
		{`a $${ b ${params.name}`, "a ${ b night"},
		{`${ {"a": {"b": "}"}}["a"].b }`, "}"},
		{`${ "a}" + '}' + """}"}""" + r"\" }`, `a}}}"}\`},
		{`${ "quote \" }" }`, `quote " }`},
		{"${ params.name // a comment with }\n }", "night"},
		{`${params.n} `, "2 "},
	} {
		compiled, err := CompileTemplate(test.text, Run)
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		if got, err := compiled.Value(scope()); err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %#v, %v; want %#v", test.text, got, err, test.want)
		}
		if want, isText := test.want.(string); isText {
			if got, err := compiled.String(scope()); err != nil || got != want {
				t.Errorf("%s: %q, %v; want %q", test.text, got, err, want)
			}
		}
	}
}

func TestTemplateFaults(t *testing.T) {
	for _, test := range []struct {
		text   string
		offset int
		want   string
	}{
		{`hi ${params.n`, 3, "this ${ has no closing }; write $${ for a literal ${"},
		{`hi ${"}`, 3, "this ${ has no closing }; write $${ for a literal ${"},
		{`hi ${ }`, 3, "there is no expression in this ${ }"},
		{`hi ${ parms.n }`, 6, "there is no parms; did you mean params?"},
		{`${params.n} and ${  1 + }`, 23, "the expression ends where a value is expected"},
		{`é ${x}`, 5, `there is no x; known: params, results, result, resources, run.flow, run.id, run.number, run.cause, run.start, run.fire_time; a text needs quotes: "x"`},
		{strings.Repeat("${1}", 1001), 4000, "there are more than 1000 expressions in the text"},
	} {
		_, err := CompileTemplate(test.text, Run)
		var faults fault.List
		if !errors.As(err, &faults) || len(faults) != 1 {
			t.Errorf("%.40s: %v", test.text, err)
			continue
		}
		if f := faults[0]; f.Offset != test.offset || f.Message != test.want {
			t.Errorf("%.40s: at %d: %s", test.text, f.Offset, f.Message)
		}
	}
	_, err := CompileTemplate(`${a.x} ${b.y}`, Run)
	var faults fault.List
	if !errors.As(err, &faults) || len(faults) != 2 {
		t.Errorf("both are wrong: %v", err)
	}
}

// Most texts are constant; they must cost nothing, neither CEL nor memory.
func TestConstantTemplate(t *testing.T) {
	text := "no expression in here: $5"
	compiled, err := CompileTemplate(text, Run)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := compiled.Constant(); !ok || got != text {
		t.Errorf("%q, %v", got, ok)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = compiled.String(nil) }); n != 0 {
		t.Errorf("%v allocations for a constant", n)
	}
	escaped, err := CompileTemplate("$${x}", Run)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := escaped.Constant(); !ok || got != "${x}" {
		t.Errorf("%q, %v", got, ok)
	}
}

func TestTemplateValue(t *testing.T) {
	value := map[string]any{
		"constant": []any{1.0, "a", nil, true, map[string]any{"$${k}": "$${v}"}},
		"name":     "${params.name}",
		"nested":   []any{map[string]any{"n": "${params.n + 1}"}, "x-${index}"},
	}
	compiled, err := CompileTemplateValue(value, Run|Item)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"constant": []any{1.0, "a", nil, true, map[string]any{"$${k}": "${v}"}}, // keys are taken as they are
		"name":     "night",
		"nested":   []any{map[string]any{"n": 3.0}, "x-4"},
	}
	if got, err := compiled.Eval(scope()); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	paths := map[string]bool{}
	compiled.Walk(func(path string, _ *Template) { paths[path] = true })
	if want := map[string]bool{`["name"]`: true, `["nested"][0]["n"]`: true, `["nested"][1]`: true}; !maps.Equal(paths, want) {
		t.Errorf("%v", paths)
	}

	_, err = CompileTemplateValue(map[string]any{"a": []any{"ok", "${ x + }"}}, Run)
	var faults fault.List
	if !errors.As(err, &faults) || len(faults) != 1 || faults[0].Field != `["a"][1]` || faults[0].Offset != 6 {
		t.Errorf("%#v", err)
	}
	broken, err := CompileTemplateValue([]any{"${params.nothing}"}, Run)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := broken.Eval(scope()); errorText(err) != `params.nothing: there is no "nothing"` {
		t.Errorf("%v", err)
	}
}

// A text in which every ${ is escaped comes out as it was, whatever else is in it.
func TestEscapeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune(`$${}"'\ab `))).Draw(t, "text")
		// A $ before ${ would be taken for part of the escape.
		text = strings.ReplaceAll(text, "$$", "$ $")
		compiled, err := CompileTemplate(strings.ReplaceAll(text, "${", "$${"), Run)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := compiled.String(nil); err != nil || got != text {
			t.Fatalf("%q, %v; want %q", got, err, text)
		}
	})
}

func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{
		`plain`, `${params.n}`, `a ${params.name} b`, `$${x}`, `${ "}" }`, `${ {"a": 1}.a }`, `${`, `${"`, `${ // }`, `${[1].map(x, x)}`,
		`${params.list.filter(x, x != null).map(x, string(x)).join(",")}`, `${json.decode(json.encode(params))}`, `${run.start.strftime("%F")}`,
		`${"%d".format([1])}`, `${cel.bind(a, params, a.n % 2)}`, `${optional.of(1)}`, `${1/0}`, `${type(1)}`, `${[1,2].sortBy(e, -e)}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		compiled, err := CompileTemplate(text, Run|Item|Action)
		var faults fault.List
		if errors.As(err, &faults) {
			for _, x := range faults {
				if x.Message == "" || x.Offset < 0 || x.Offset > len(text) {
					t.Fatalf("%#v", x)
				}
			}
			return
		}
		if err != nil {
			t.Fatalf("not a fault: %v", err)
		}
		if text, err := compiled.String(scope()); err == nil && len(text) > maxResult {
			t.Fatalf("%d bytes", len(text))
		}
		_, _ = compiled.Value(scope())
	})
}
