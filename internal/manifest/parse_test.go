package manifest

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"buf.build/go/protoyaml"
	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/fault"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"
)

// read gives what a text comes to, without compiling it.
func read(t interface {
	Helper()
	Fatal(...any)
}, text string,
) *schedulerdv1.FlowsFile {
	t.Helper()
	set, problems := Parse([]Source{{"test", []byte(text)}})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return set.File
}

// What a flows file may write beside the JSON of protobuf, with what it stands for there.
func TestSpellings(t *testing.T) {
	for _, test := range []struct{ ours, theirs string }{
		{`flows: [{schedule: {weekly: {days: [MONDAY, sunday, Weekday_Friday]}}}]`, `flows: [{schedule: {weekly: {days: [WEEKDAY_MONDAY, WEEKDAY_SUNDAY, WEEKDAY_FRIDAY]}}}]`},
		{`flows: [{catch_up: {mode: LAST}, on_crash: resume, on_resume: All}]`, `flows: [{catch_up: {mode: CATCH_UP_MODE_LAST}, on_crash: ON_CRASH_RESUME, on_resume: CATCH_UP_MODE_ALL}]`},
		{`flows: [{task: {exec: {output: json}}}]`, `flows: [{task: {exec: {output: EXEC_OUTPUT_JSON}}}]`},
		{`flows: [{schedule: {monthly: {short_month: LAST_DAY}}}]`, `flows: [{schedule: {monthly: {short_month: SHORT_MONTH_LAST_DAY}}}]`},
		{`flows: [{timeout: 1h30m, compensation_timeout: 250ms}]`, `flows: [{timeout: 5400s, compensation_timeout: 0.25s}]`},
		{`flows: [{timeout: 1.5s}]`, `flows: [{timeout: "1.5s"}]`},
		{`flows: [{schedule: {manual: }}]`, `flows: [{schedule: {manual: {}}}]`},
		{`flows: [{workflow: {exits: {done: , failed: ~}}}]`, `flows: [{workflow: {exits: {done: {}, failed: {}}}}]`},
		{`flows: [{resources: , params: , labels: null, id: a}]`, `flows: [{id: a}]`},
		{"flows: [&a {id: a, paused: true}, {<<: *a, id: b}]", `flows: [{id: a, paused: true}, {id: b, paused: true}]`},
		{"flows: [&a {id: a}, &b {paused: true}, {<<: [*a, *b], labels: {}}]", `flows: [{id: a}, {paused: true}, {id: a, paused: true}]`},
		{"flows: [&a {id: a, description: x}, &b {<<: *a, id: b}, {<<: *b, id: c}]", `flows: [{id: a, description: x}, {id: b, description: x}, {id: c, description: x}]`},
		{"flows: [{id: a, labels: &l {x: y}}, {id: b, labels: *l}]", `flows: [{id: a, labels: {x: y}}, {id: b, labels: {x: y}}]`},
		{"flows: [{id: &id a}, {description: *id}]", `flows: [{id: a}, {description: a}]`},
		{`flows: [{labels: {number: 1, bool: true, date: 2027-01-01}}]`, `flows: [{labels: {number: "1", bool: "true", date: "2027-01-01"}}]`},
		{
			`flows: [{params: {a: 1, b: 0x1F, c: 1e3, d: "1", e: yes, f: true, g: 2027-01-01, h: , i: [1, {j: k}]}}]`,
			`flows: [{params: {a: 1, b: 31, c: 1000, d: "1", e: "yes", f: true, g: "2027-01-01", h: null, i: [1, {j: k}]}}]`,
		},
		{
			`flows: [{keepRuns: 3, catchUp: {max: "4"}, task: {http: {maxResponseBytes: 1e6, noRedirects: TRUE}}}]`,
			`flows: [{keep_runs: 3, catch_up: {max: 4}, task: {http: {max_response_bytes: "1000000", no_redirects: true}}}]`,
		},
		{`{"flows": [{"description": "\ud83d\ude00 \u00e9 \\ud83d"}]}`, `flows: [{description: "😀 é \\ud83d"}]`},
		{"\ufeffflows: [{id: a}]", `flows: [{id: a}]`},
		{"flows:\r\n  - id: a\r\n    description: b\r\n", `flows: [{id: a, description: b}]`},
	} {
		var want schedulerdv1.FlowsFile
		if err := protoyaml.Unmarshal([]byte(test.theirs), &want); err != nil {
			t.Fatalf("%s: %v", test.theirs, err)
		}
		if got := read(t, test.ours); !proto.Equal(got, &want) {
			t.Errorf("%s: %v", test.ours, got)
		}
		if got := read(t, test.theirs); !proto.Equal(got, &want) {
			t.Errorf("%s: %v", test.theirs, got)
		}
	}
}

// What protobuf writes as JSON reads back the same, whatever is in the messages, and the same as protoyaml reads it.
func TestReadsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		file := &schedulerdv1.FlowsFile{Flows: []*schedulerdv1.Flow{{Id: "x"}}}
		draw(t, file.Flows[0].ProtoReflect(), 0)
		for _, o := range []protojson.MarshalOptions{{}, {UseProtoNames: true, Multiline: true}} {
			text, err := o.Marshal(file)
			if err != nil {
				t.Fatal(err)
			}
			if got := read(t, string(text)); !proto.Equal(got, file) {
				t.Fatalf("%s\ngives %v", text, got)
			}
			var theirs schedulerdv1.FlowsFile
			if err := protoyaml.Unmarshal(text, &theirs); err != nil || !proto.Equal(&theirs, file) {
				t.Fatalf("%s\nprotoyaml: %v, %v", text, &theirs, err)
			}
		}
	})
}

// draw fills a message at random.
func draw(t *rapid.T, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	chosen := map[protoreflect.OneofDescriptor]int{}
	for i := range m.Descriptor().Oneofs().Len() {
		oneof := m.Descriptor().Oneofs().Get(i)
		chosen[oneof] = rapid.IntRange(0, oneof.Fields().Len()-1).Draw(t, string(oneof.Name()))
	}
	for i := range fields.Len() {
		f := fields.Get(i)
		if oneof := f.ContainingOneof(); oneof != nil && !oneof.IsSynthetic() && oneof.Fields().Get(chosen[oneof]) != f {
			continue
		}
		if depth > 5 && f.Message() != nil || rapid.IntRange(0, 2).Draw(t, string(f.Name())) == 0 {
			continue
		}
		n := rapid.IntRange(1, 2).Draw(t, "entries")
		switch {
		case f.IsMap():
			for range n {
				key := protoreflect.ValueOfString(drawText(t)).MapKey()
				m.Mutable(f).Map().Set(key, drawValue(t, f.MapValue(), m.Mutable(f).Map().NewValue, depth))
			}
		case f.IsList():
			for range n {
				m.Mutable(f).List().Append(drawValue(t, f, m.Mutable(f).List().NewElement, depth))
			}
		default:
			m.Set(f, drawValue(t, f, func() protoreflect.Value { return m.NewField(f) }, depth))
		}
	}
}

func drawText(t *rapid.T) string {
	return rapid.StringOf(rapid.SampledFrom([]rune("ab é:#\"'\\\t\n-*&!|>%@`{}[],?~0123 €😀"))).Draw(t, "text")
}

func drawValue(t *rapid.T, f protoreflect.FieldDescriptor, empty func() protoreflect.Value, depth int) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(drawText(t))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rapid.Bool().Draw(t, "bool"))
	case protoreflect.EnumKind:
		values := f.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(rapid.IntRange(0, values.Len()-1).Draw(t, "enum")).Number())
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(rapid.Int32().Draw(t, "int32"))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(rapid.Uint32().Draw(t, "uint32"))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(rapid.Uint64().Draw(t, "uint64"))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(rapid.Float64().Draw(t, "double"))
	}
	switch f.Message().FullName() {
	case durationName:
		return protoreflect.ValueOfMessage(durationpb.New(time.Duration(rapid.Int64().Draw(t, "duration"))).ProtoReflect())
	case timestampName:
		seconds := rapid.Int64Range(-1e10, 1e11).Draw(t, "seconds")
		return protoreflect.ValueOfMessage((&timestamppb.Timestamp{Seconds: seconds, Nanos: rapid.Int32Range(0, 999_999_999).Draw(t, "nanos")}).ProtoReflect())
	case valueName:
		return protoreflect.ValueOfMessage(drawJSON(t, 0).ProtoReflect())
	}
	value := empty()
	draw(t, value.Message(), depth+1)
	return value
}

func drawJSON(t *rapid.T, depth int) *structpb.Value {
	switch kind := rapid.IntRange(0, 5).Draw(t, "kind"); {
	case kind == 0:
		return structpb.NewNullValue()
	case kind == 1:
		return structpb.NewBoolValue(rapid.Bool().Draw(t, "bool"))
	case kind == 2:
		return structpb.NewNumberValue(math.Trunc(rapid.Float64Range(-1e15, 1e15).Draw(t, "number")) / 4)
	case kind == 3 || depth > 3:
		return structpb.NewStringValue(drawText(t))
	case kind == 4:
		list := &structpb.ListValue{}
		for range rapid.IntRange(0, 2).Draw(t, "entries") {
			list.Values = append(list.Values, drawJSON(t, depth+1))
		}
		return structpb.NewListValue(list)
	}
	object := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for range rapid.IntRange(0, 2).Draw(t, "entries") {
		object.Fields[drawText(t)] = drawJSON(t, depth+1)
	}
	return structpb.NewStructValue(object)
}

func TestBounds(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"too large", "flows:\n" + strings.Repeat("# comment\n", MaxFileBytes/10), "test: the file is larger than 4 MiB; put its flows into several files"},
		{"not UTF-8", "flows:\n  - id: \xff\n", "test:2:1: this line is not UTF-8 text"},
		{"too many values", "flows: [" + strings.Repeat("1,", 1<<20), "test: the file has more values than can be read at once; put its flows into several files"},
		{"deep brackets", strings.Repeat("[", 1<<20-10), "test:1:1: this is nested too deep"},
		{"one long line", "flows: [" + strings.Repeat("a,", 500_000) + "]", "test:1:9: flows[0]: must be an object"},
		{"deep value", "flows: [{id: x, params: {a: " + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + "}}]", "this is nested more than 64 deep"},
		{"deep blocks", "flows: [{id: x, params: {a:\n" + nested(200) + "}}]", ""},
		{"long chain of aliases", "flows: [{id: x, params: {a: &a0 1" + chained(40) + "}}]", ""},
	} {
		_, problems := Parse([]Source{{"test", []byte(test.text)}}) // unbounded, some would not end
		if got := problems.Error(); !strings.Contains(got, test.want) {
			t.Errorf("%s: %.300s", test.name, got)
		}
	}
}

func nested(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i+1) + "- \n")
	}
	return b.String()
}

func chained(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ", a%d: &a%d [*a%d]", i+1, i+1, i)
	}
	return b.String()
}

func TestManyProblems(t *testing.T) {
	text := "flows:\n" + strings.Repeat("  - {no: 1}\n", 5000)
	if _, problems := Parse([]Source{{"test", []byte(text)}}); len(problems) != maxProblems+1 {
		t.Errorf("%d problems", len(problems))
	}
	if n := len(check(Source{"test", []byte("flows:\n" + strings.Repeat("  - {id: X}\n", 5000))})); n != maxProblems+1 {
		t.Errorf("%d problems", n)
	}
}

// Faults of the merged file are told at home, with the paths of the file they are in.
func TestLocate(t *testing.T) {
	set, problems := Parse([]Source{
		{"a.yaml", []byte("flows:\n  - id: one\n")},
		{"b.yaml", []byte("resources:\n  - name: kept\nflows:\n  - id: two\n  - id: three\n")},
	})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	got := set.Locate(fault.List{
		{Field: "flows[2].id", Offset: 2, Message: "c"},
		{Field: "resources[0].name", Offset: -1, Message: "b"},
		{Field: "flows[0].id", Offset: -1, Message: "a", Other: "flows[1].id"},
		{Field: "flows[9].id", Offset: -1, Message: "nowhere"},
		{Field: "flows[1].labels", Offset: -1, Message: "missing"},
		{Offset: -1, Message: "all of it"},
	})
	var places []string
	for _, p := range got {
		places = append(places, fmt.Sprintf("%s:%d:%d %s %s", p.Source, p.Line, p.Column, p.Field, p.Message))
	}
	want := []string{
		"a.yaml, b.yaml:0:0 flows[9].id nowhere",
		"a.yaml, b.yaml:0:0  all of it",
		"a.yaml:2:9 flows[0].id a; the other one is at b.yaml:4:9",
		"b.yaml:2:11 resources[0].name b",
		"b.yaml:4:5 flows[0].labels missing",
		"b.yaml:5:11 flows[1].id c",
	}
	if !reflect.DeepEqual(places, want) {
		t.Errorf("%s", strings.Join(places, "\n"))
	}
}

func TestLoad(t *testing.T) {
	folder := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"b.yaml", "a.yml", "c.json", "D.YAML", ".hidden.yaml", "notes.txt", "inner/e.yaml", "folder.yaml/f.yaml", "empty/notes.txt", "single.flows"} {
		write(name, name)
	}
	if err := os.Symlink("b.yaml", filepath.Join(folder, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	names := func(sources []Source) []string {
		var list []string
		for _, s := range sources {
			name, err := filepath.Rel(folder, s.Name)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, name+"="+string(s.Content))
		}
		return list
	}
	in := func(name string) string { return filepath.Join(folder, name) }
	for _, test := range []struct {
		paths []string
		want  []string
		err   string
	}{
		{[]string{folder}, []string{"D.YAML=D.YAML", "a.yml=a.yml", "b.yaml=b.yaml", "c.json=c.json", "link.yaml=b.yaml"}, ""},
		{[]string{in("single.flows"), in("b.yaml"), in("inner/../b.yaml")}, []string{"single.flows=single.flows", "b.yaml=b.yaml"}, ""},
		{[]string{in("inner"), in("b.yaml")}, []string{"inner/e.yaml=inner/e.yaml", "b.yaml=b.yaml"}, ""},
		{[]string{in("missing.yaml"), in("b.yaml")}, []string{"b.yaml=b.yaml"}, in("missing.yaml") + ": cannot be read: no such file or directory"},
		{[]string{in("empty")}, nil, in("empty") + ": no flows files in this folder; they end in .yaml, .yml, .json"},
		{nil, nil, ""},
	} {
		sources, err := Load(test.paths...)
		if got := names(sources); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%v: %v", test.paths, got)
		}
		if message := fmt.Sprint(err); test.err != "" && message != test.err || test.err == "" && err != nil {
			t.Errorf("%v: %v", test.paths, err)
		}
	}
	write("large.yaml", strings.Repeat("#", MaxFileBytes+100))
	sources, err := Load(in("large.yaml"))
	if err != nil || len(sources) != 1 {
		t.Fatal(err)
	}
	if got := check(sources...).Error(); !strings.HasSuffix(got, "larger than 4 MiB; put its flows into several files") {
		t.Errorf("%s", got)
	}
	for i := range MaxFiles + 1 {
		write(fmt.Sprintf("many/%04d.yaml", i), "")
	}
	if _, err := Load(in("many")); err == nil || !strings.Contains(err.Error(), "more than 1000 flows files") {
		t.Errorf("%v", err)
	}
}

func TestPlan(t *testing.T) {
	old := read(t, `flows: [{id: a, description: x}, {id: b, paused: true}, {id: c}]`).Flows
	new := read(t, `flows: [{id: d}, {id: c}, {id: a, description: y, timeout: 5s}]`).Flows
	got := Plan(old, new)
	want := []Change{
		{FlowID: "a", Type: Changed, Fields: []string{"description", "timeout"}},
		{FlowID: "b", Type: Removed},
		{FlowID: "c", Type: Unchanged},
		{FlowID: "d", Type: Added},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	if words := fmt.Sprint(Added, Changed, Removed, Unchanged); words != "added changed removed unchanged" {
		t.Errorf("%s", words)
	}
	if got := Plan(nil, nil); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// The flows files that people read must be right.
func TestDocumentedFlows(t *testing.T) {
	block := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	checked := 0
	for _, path := range []string{"../../README.md", "../../docs/flows-file.md"} {
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range block.FindAllSubmatchIndex(page, -1) {
			text := page[m[2]:m[3]]
			if !regexp.MustCompile(`(?m)^flows:`).Match(text) {
				continue
			}
			checked++
			line := 1 + strings.Count(string(page[:m[2]]), "\n")
			if err := check(Source{fmt.Sprintf("%s (block at line %d)", path, line), text}).Err(); err != nil {
				t.Error(err)
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d blocks", checked)
	}
	sources, err := Load("../../examples/flows")
	if err != nil {
		t.Fatal(err)
	}
	if err := check(sources...).Err(); err != nil {
		t.Error(err)
	}
}

func FuzzCheck(f *testing.F) {
	archives, err := filepath.Glob("testdata/faults/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range archives {
		content, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		input, _, _ := strings.Cut(string(content), wantMark)
		for _, s := range sourcesIn(input) {
			f.Add(s.Content)
		}
	}
	f.Add([]byte("flows:\r  - id: a\r    ids: b"))
	f.Fuzz(func(t *testing.T, content []byte) {
		lines := len(lineBreak.Split(string(content), -1))
		for _, p := range check(Source{"test", content}) {
			if p.Message == "" || p.Line < 0 || p.Line > lines || p.Line > 0 && p.Column < 1 || !utf8.ValidString(p.Error()) {
				t.Fatalf("%#v", p)
			}
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	var text strings.Builder
	text.WriteString("flows:\n")
	for i := range 1000 {
		fmt.Fprintf(&text, `  - id: flow-%d
    schedule: {every: {interval: 30s}}
    workflow:
      initial: ask
      states:
        ask:
          task: {http: {url: "https://example.com/${params.id}"}}
          transitions:
            - {when: result.status == 200, next: done}
            - {next: failed}
      exits:
        done:
        failed: {failure: "status ${result.status}"}
`, i)
	}
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if err := check(Source{"test", []byte(text.String())}).Err(); err != nil {
			b.Fatal(err)
		}
	}
}
