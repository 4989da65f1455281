package expr

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/fault"
)

// scope is what the expressions of the tests see.
func scope() *workflow.Scope {
	return &workflow.Scope{
		Identity: &workflow.Identity{
			FlowID: "backup", RunID: "r-17", Number: 17, Cause: "schedule",
			FireTime: time.Date(2027, 3, 28, 3, 0, 0, 0, time.UTC),
			Start:    time.Date(2027, 3, 28, 3, 0, 0, 250e6, time.UTC),
		},
		Params: map[string]any{
			"n": 2.0, "half": 0.5, "name": "night", "flag": true, "none": nil,
			"list": []any{1.0, "x", nil}, "object": map[string]any{"a": map[string]any{"b": 3.0}},
		},
		Results: map[string]any{"fetch": map[string]any{"status": 200.0}, "a-b": "dashed"},
		Result:  map[string]any{"status": 503.0, "items": []any{"p", "q"}},
		Action:  "later",
		Item:    map[string]any{"city": "Kyiv"},
		Index:   4,
	}
}

func TestValue(t *testing.T) {
	for _, test := range []struct {
		text string
		want any
	}{
		// Names.
		{`params.name`, "night"},
		{`params.object.a.b`, 3.0},
		{`result.status`, 503.0},
		{`results.fetch.status`, 200.0},
		{`results["a-b"]`, "dashed"},
		{`action`, "later"},
		{`item.city`, "Kyiv"},
		{`index`, 4.0},
		{`run.flow + "/" + run.id`, "backup/r-17"},
		{`run.number`, 17.0},
		{`run.cause`, "schedule"},
		{`run.start`, "2027-03-28T03:00:00.25Z"},
		{`run.fire_time`, "2027-03-28T03:00:00Z"},
		{`has(params.name) && !has(params.nothing)`, true},
		{`params.?nothing.orValue("default")`, "default"},
		{`params.?nothing`, nil},
		{`params.?name`, "night"},

		// Numbers: JSON's are doubles, those in the text ints.
		{`params.n + 1`, 3.0},
		{`1 + params.n`, 3.0},
		{`params.n - 1`, 1.0},
		{`params.n * 3`, 6.0},
		{`3 * params.half`, 1.5},
		{`params.n / 4`, 0.5},
		{`7 / params.n`, 3.5},
		{`7 % params.n`, 1.0},
		{`params.n % 2`, 0.0},
		{`7 / 2`, 3.0},
		{`7 % 2`, 1.0},
		{`-params.n`, -2.0},
		{`params.n > 1 && params.n >= 2 && params.n < 2.5 && params.n == 2`, true},
		{`size(params.list) * 1.5`, 4.5},
		{`params.list[params.n - 2]`, 1.0},
		{`int(params.half * 5) + 1`, 3.0},
		{`math.ceil(params.half)`, 1.0},
		{`math.greatest(params.n, 7)`, 7.0},

		// Values of every kind.
		{`null`, nil},
		{`params.none == null`, true},
		{`[1, "two", [true]]`, []any{1.0, "two", []any{true}}},
		{`{"a": 1, "b": {"c": null}}`, map[string]any{"a": 1.0, "b": map[string]any{"c": nil}}},
		{`{1: "one", true: "yes"}`, map[string]any{"1": "one", "true": "yes"}},
		{`[]`, []any{}},
		{`{}`, map[string]any{}},
		{`b"\x00\xff"`, "AP8="},
		{`duration("90s")`, "90s"},
		{`duration("1500ms")`, "1.5s"},
		{`run.fire_time - run.start`, "-0.25s"},
		{`3u`, 3.0},

		// Functions.
		{`params.name.upperAscii().substring(0, 2)`, "NI"},
		{`"a,b".split(",")`, []any{"a", "b"}},
		{`["b", "a"].sort().join("-")`, "a-b"},
		{`lists.range(3).map(i, i * 2)`, []any{0.0, 2.0, 4.0}},
		{`[1, 2, 2, 1].distinct()`, []any{1.0, 2.0}},
		{`[[1], [2, [3]]].flatten()`, []any{1.0, 2.0, []any{3.0}}},
		{`"%s is %d".format(["it", 3])`, "it is 3"},
		{`"aXbX".replace("X", "--")`, "a--b--"},
		{`base64.encode(bytes("hello"))`, "aGVsbG8="},
		{`string(base64.decode("aGVsbG8="))`, "hello"},
		{`json.encode({"a": [1, null, 1.5]})`, `{"a":[1,null,1.5]}`},
		{`json.decode("{\"a\": [1, null]}")`, map[string]any{"a": []any{1.0, nil}}},
		{`json.decode("[3]")[0] + 1`, 4.0},
		{`"night-12".matches("^[a-z]+-[0-9]+$")`, true},
		{`result.items.exists(x, x == "q")`, true},
		{`"p" in result.items`, true},
		{`"a" in params.object`, true},
		{`params.object == {"a": {"b": 3}}`, true},
		{`params.object != {"a": {"b": 4}}`, true},
		{`params.flag ? "yes" : "no"`, "yes"},
		{`cel.bind(x, params.n + 1, x * x)`, 9.0},
		{`params.object.transformList(k, v, k)`, []any{"a"}},

		// Times.
		{`run.fire_time.strftime("%F %T")`, "2027-03-28 03:00:00"},
		{`run.fire_time.strftime("%F %H:%M %Z", "Europe/Kyiv")`, "2027-03-28 06:00 EEST"},
		{
			`run.fire_time.strftime("%Y%m%d %j %V %G %u %w %a %A %b %B %y %e %I %p %s %z %%")`,
			"20270328 087 12 2027 7 0 Sun Sunday Mar March 27 28 03 AM 1806202800 +0000 %",
		},
		{`run.fire_time + duration("24h") > run.start`, true},
		{`run.start.getHours("Europe/Kyiv")`, 6.0},
		{`timestamp("2027-01-01T00:00:00+01:00")`, "2026-12-31T23:00:00Z"},
		{`string(run.fire_time)`, "2027-03-28T03:00:00Z"},
	} {
		v, err := CompileValue(test.text, Run|Action|Item)
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		if got, err := v.Eval(scope()); err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %#v, %v; want %#v", test.text, got, err, test.want)
		}
	}
}

// A trigger has no fire time; what names its files by it must work all the same.
func TestFireTimeOfTrigger(t *testing.T) {
	s := scope()
	s.Identity.FireTime, s.Identity.Cause = time.Time{}, "trigger"
	v, err := CompileValue(`run.fire_time`, Run)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := v.Eval(s); err != nil || got != "2027-03-28T03:00:00.25Z" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestEmptyScope(t *testing.T) {
	v, err := CompileValue(`[size(params), size(results), result == null, run.flow, index]`, Run|Item)
	if err != nil {
		t.Fatal(err)
	}
	want := []any{0.0, 0.0, true, "", 0.0}
	for _, s := range []*workflow.Scope{nil, {Identity: &workflow.Identity{}}, {}} {
		if got, err := v.Eval(s); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v, %v", got, err)
		}
	}
}

func TestCompileFaults(t *testing.T) {
	for _, test := range []struct {
		text   string
		offset int
		want   string
	}{
		// Syntax.
		{``, 0, "the expression ends where a value is expected"},
		{`params.n ==`, 11, "the expression ends where a value is expected"},
		{`size(params`, 11, "the expression ends where ) is expected"},
		{`[1, 2`, 5, "the expression ends where ] is expected"},
		{`{"a": 1`, 7, "the expression ends where } is expected"},
		{`params.flag ? 1`, 15, "the expression ends where : is expected"},
		{`"open`, 0, "this text has no closing quote"},
		{`params.n = 2`, 9, "write == to compare"},
		{`params.a and params.b`, 9, "write && for and"},
		{`params.a or params.b`, 9, "write || for or"},
		{`params.a & params.b`, 9, "write && for and"},
		{`params.a | params.b`, 9, "write || for or"},
		{`not params.a`, 4, `"params.a" comes after the end of the expression; is an operator or a quote missing?`},
		{`1 2`, 2, `"2" comes after the end of the expression; is an operator or a quote missing?`},
		{`'it's'`, 4, `"s" comes after the end of the expression; is an operator or a quote missing?`},
		{`params..n`, 7, `a name is expected before "."`},
		{`1 + @`, 4, `"@" does not belong here`},
		{`if (true)`, 0, "if is a reserved word"},
		{"params.n +\n  )", 13, `")" does not belong here`},
		{`"é" + 1 +`, 10, "the expression ends where a value is expected"},

		// Names.
		{`reslt.status`, 0, "there is no reslt; did you mean result?"},
		{`1 + param.x`, 4, "there is no param; did you mean params?"},
		{`run.strat`, 0, "there is no run.strat; did you mean run.start?"},
		{`run.nothing`, 0, "there is no run.nothing; known: run.cause, run.fire_time, run.flow, run.id, run.number, run.start"},
		{`run`, 0, "run is not a value; it has run.flow, run.id, run.number, run.cause, run.start, run.fire_time"},
		{`done`, 0, `there is no done; known: params, results, result, resources, run.flow, run.id, run.number, run.cause, run.start, run.fire_time; a text needs quotes: "done"`},
		{`action == "x"`, 0, "action is known in transitions only"},
		{`item.x`, 0, "item is known inside a branch of for_each only"},
		{`index + 1`, 0, "index is known inside a branch of for_each only"},
		{`now() - run.start`, 0, "there is no clock in expressions, so that a resumed run computes the same again; use run.start or run.fire_time"},
		{`env("HOME")`, 0, `env("NAME") can be used in headers, metadata and the environment of commands only`},
		{`params.name.uperAscii()`, 12, "there is no function uperAscii; did you mean upperAscii?"},
		{`sizeof(params)`, 0, "there is no function sizeof; did you mean size?"},
		{`frobnicate(params)`, 0, "there is no function frobnicate"},

		// Types.
		{`"a" + 1`, 4, "+ does not take a string and an integer; string(…) makes a string of a value"},
		{`[1] + ["a"]`, 4, "+ does not take a list of integers and a list of strings"},
		{`run.start + 1`, 10, "+ does not take a timestamp and an integer"},
		{`size(3)`, 4, "size does not take an integer"},
		{`!3`, 0, "! does not take an integer"},
		{`run.start.year`, 9, "a timestamp has no fields"},
		{`run.flow.substring("a")`, 18, "substring does not take a string and a string"},
		{`duration("1x")`, 9, `this is not a duration, such as "90s" or "1h30m"`},
		{`timestamp("x")`, 10, `this is not a timestamp, such as "2027-03-28T02:30:00Z"`},
		{`run.flow.matches("(")`, 17, "this is not a regular expression (RE2 syntax)"},

		// Limits.
		{strings.Repeat(" ", 4097), 0, "the expression is longer than 4096 bytes"},
	} {
		_, err := CompileValue(test.text, Run)
		var faults fault.List
		if !errors.As(err, &faults) {
			t.Errorf("%.60s: no fault: %v", test.text, err)
			continue
		}
		if f := faults[0]; f.Offset != test.offset || f.Message != test.want {
			t.Errorf("%.60s: at %d: %s\nwant at %d: %s", test.text, f.Offset, f.Message, test.offset, test.want)
		}
	}
}

// Nesting that would exhaust the stack is a fault like any other.
func TestDeepExpression(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("(", 2000) + "1" + strings.Repeat(")", 2000),
		strings.Repeat("[", 2000) + strings.Repeat("]", 2000),
		strings.Repeat("!", 4000) + "true",
		strings.Repeat("-", 4000) + "1",
		strings.Repeat("true?true:", 400) + "true",
		"[1].map(a, [1].map(b, [1].map(c, [1].map(d, [1].map(e, [1].map(f, [1].map(g, [1].map(h, " + strings.Repeat("a+", 1800) + "a))))))))",
	} {
		if v, err := CompileValue(text, Run); err == nil {
			if _, err := v.Eval(scope()); err != nil {
				t.Logf("%.20s…: %v", text, err)
			}
		} else if err.Error() == "" {
			t.Errorf("%.20s…: an error without a text", text)
		}
	}
}

func TestFaultsAllAtOnce(t *testing.T) {
	_, err := CompileValue(`reslt.a + parms.b + (1 + "a")`, Run)
	var faults fault.List
	if !errors.As(err, &faults) || len(faults) != 3 {
		t.Errorf("%v", err)
	}
}

func TestEvalErrors(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{`params.nothing`, `params.nothing: there is no "nothing"`},
		{`results.later.x`, `results.later.x: there is no "later"`},
		{`params.name + params.n`, "params.name + params.n: + does not take a string and a number; string(…) makes a string of a value"},
		{`params.list + 1`, "params.list + 1: + does not take a list and an integer"},
		{`1 / 0`, "1 / 0: division by zero"},
		{`params.n % 0`, "params.n % 0: modulus by zero"},
		{`params.n / 0`, "params.n / 0: the result is +Inf, which JSON has no number for"},
		{`int("x")`, `int("x"): a string cannot be converted to an integer`},
		{`params.list[9]`, "params.list[9]: index out of bounds: 9"},
		{`json.decode("{")`, `json.decode("{"): this is not JSON: unexpected end of JSON input`},
		{`run.start.strftime("%Q")`, `run.start.strftime("%Q"): strftime: there is no %Q; known are %Y %m %d %H %M %S %F %T %y %e %j %I %p %a %A %b %B %G %V %u %w %s %z %Z %%`},
		{`run.start.strftime("%")`, `run.start.strftime("%"): strftime: the format ends in %; write %% for a percent sign`},
		{`run.start.strftime("%F", "Europe/Kyjiw")`, `run.start.strftime("%F", "Europe/Kyjiw"): there is no time zone "Europe/Kyjiw"`},
		{`run.start.strftime("%F", "Local")`, `run.start.strftime("%F", "Local"): there is no time zone "Local"`},
		{`params.n.size()`, "params.n.size(): size does not take values of these types"},
		{`type(1)`, "type(1): the result is a type, which is not a value"},
	} {
		v, err := CompileValue(test.text, Run)
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		if got, err := v.Eval(scope()); err == nil || err.Error() != test.want {
			t.Errorf("%s: %v, %v\nwant %s", test.text, got, err, test.want)
		}
	}
}

func TestCondition(t *testing.T) {
	for _, test := range []struct {
		text  string
		holds bool
		err   string
	}{
		{`result.status >= 500`, true, ""},
		{`action == "sooner"`, false, ""},
		{`params.flag`, true, ""},
		{`params.name`, false, "params.name: a condition must be true or false, this is a string"},
	} {
		c, err := CompileCondition(test.text, Run|Action)
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		holds, err := c.Eval(scope())
		if holds != test.holds || errorText(err) != test.err {
			t.Errorf("%s: %v, %v", test.text, holds, err)
		}
	}
	if _, err := CompileCondition(`run.flow`, Run); errorText(err) != "a condition must be true or false, this is a string" {
		t.Errorf("%v", err)
	}
	if _, err := CompileCondition(`run.number + 1`, Run); err == nil {
		t.Error("an integer is taken for a condition")
	}
}

func TestMoment(t *testing.T) {
	start := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		text string
		want time.Time
		err  string
	}{
		{`duration("90s")`, start.Add(90 * time.Second), ""},
		{`run.fire_time + duration("1h")`, time.Date(2027, 3, 28, 4, 0, 0, 0, time.UTC), ""},
		{`"45s"`, start.Add(45 * time.Second), ""},
		{`"2027-06-01T12:00:00+02:00"`, time.Date(2027, 6, 1, 10, 0, 0, 0, time.UTC), ""},
		{`duration(string(params.n) + "s")`, start.Add(2 * time.Second), ""},
		{`params.name`, time.Time{}, "params.name: this must be a duration or a timestamp, it is a string"},
		{`params.n`, time.Time{}, "params.n: this must be a duration or a timestamp, it is a number"},
	} {
		m, err := CompileMoment(test.text, Run)
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		got, err := m.Eval(scope(), start)
		if !got.Equal(test.want) || errorText(err) != test.err {
			t.Errorf("%s: %v, %v", test.text, got, err)
		}
	}
	if _, err := CompileMoment(`3`, Run); errorText(err) != "this must be a duration or a timestamp, it is an integer" {
		t.Errorf("%v", err)
	}
}

func TestResults(t *testing.T) {
	v, err := CompileValue(`results.fetch.x + results["a-b"] + (has(results.maybe) ? "" : string(results.?other.orValue("")))`, Run)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := v.Results(), []Reference{{"fetch", 0}, {"a-b", 18}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	text, err := CompileTemplate(`<${ results.one }> ${results.two.x}`, Run)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := text.Results(), []Reference{{"one", 4}, {"two", 21}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
