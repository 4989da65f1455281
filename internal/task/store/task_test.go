package store

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/task"
	"github.com/schedulerd/schedulerd/internal/task/kindtest"
)

func config() task.Config {
	return task.Config{AllowExec: true, Resources: map[string]string{"s": "store", "d": "temp_dir"}}
}

func TestTask(t *testing.T) {
	dir := t.TempDir()
	set := kindtest.SetUp(t, ResourceKind, map[string]string{"s": `{"store": {"initial": {"n": 1, "people": [{"name": "Grace"}]}, "max_bytes": "200000"}}`})
	type object = map[string]any
	// One after the other: each sees what the ones before did.
	for _, test := range []struct {
		operation string
		want      object
		class     string
		message   string
	}{
		{`"get": {"key": "n"}`, object{"value": 1.0, "found": true}, "", ""},
		{`"get": {"key": "${'no' + 'pe'}"}`, object{"value": nil, "found": false}, "", ""},
		{`"put": {"key": "name/${params.name}", "value": {"list": "${params.list}"}}`, object{"value": object{"list": []any{1.0, "two"}}, "found": false}, "", ""},
		{`"put": {"key": "name/${params.name}", "value": "x"}`, object{"value": "x", "found": true}, "", ""},
		{`"list": {"prefix": "name/"}`, object{"value": object{"name/Ada": "x"}, "found": true}, "", ""},
		{`"list": {"prefix": "z"}`, object{"value": object{}, "found": false}, "", ""},
		{`"delete": {"key": "name/Ada"}`, object{"value": nil, "found": true}, "", ""},
		{`"delete": {"key": "name/Ada"}`, object{"value": nil, "found": false}, "", ""},
		{`"append": {"key": "people", "value": {"name": "${params.name}", "age": 36}}`, object{"length": 2.0, "found": true}, "", ""},
		{`"append": {"key": "recent", "value": null, "max_entries": 1}`, object{"length": 1.0, "found": false}, "", ""},
		{`"append": {"key": "recent", "value": 2, "max_entries": 1}`, object{"length": 1.0, "found": true}, "", ""},
		{`"increment": {"key": "n"}`, object{"value": 2.0, "found": true}, "", ""},
		{`"increment": {"key": "n", "by": "${-params.n}"}`, object{"value": -1.0, "found": true}, "", ""},
		{`"increment": {"key": "new", "by": 0.5}`, object{"value": 0.5, "found": false}, "", ""},
		{`"compare_and_set": {"key": "lock", "expected": null, "value": "${run.id}"}`, object{"value": "flow@7", "found": false}, "", ""},
		{`"compare_and_set": {"key": "lock", "value": 1}`, nil, "store:conflict", `the store holds another value: key "lock" does not hold what was expected`},
		{`"compare_and_set": {"key": "lock", "expected": "${run.id}", "value": null}`, object{"value": nil, "found": true}, "", ""},
		{`"export_csv": {"key": "people", "file": "out/${params.name}.csv", "columns": ["name", "age"]}`, object{"file": "out/Ada.csv", "rows": 2.0, "found": true}, "", ""},
		{`"export_csv": {"key": "nobody", "file": "x.csv"}`, nil, "store:missing", `there is no such key: "nobody"`},
		{`"export_csv": {"key": "people", "file": "../x.csv"}`, nil, "store:file", `the file is not below`},
		{`"append": {"key": "n", "value": 1}`, nil, "store:type", `the value is of another type: key "n" holds a number, not a list`},
		{`"increment": {"key": "people"}`, nil, "store:type", `the value is of another type: key "people" holds a list, not a number`},
		{`"increment": {"key": "n", "by": "${params.name}"}`, nil, "store:type", `the value is of another type: key "n" is to be incremented by a text`},
		{`"increment": {"key": "n", "by": null}`, nil, "store:type", `the value is of another type: key "n" is to be incremented by null`},
		{`"put": {"key": "${params.missing}", "value": 1}`, nil, "expression", "put: params.missing: "},
		{`"put": {"key": "a", "value": ["${params.missing}"]}`, nil, "expression", "put: params.missing: "},
		{`"compare_and_set": {"key": "a", "expected": "${params.missing}", "value": 1}`, nil, "expression", "compare_and_set: params.missing: "},
		{`"export_csv": {"key": "a", "file": "${params.missing}"}`, nil, "expression", "export_csv: params.missing: "},
		{`"put": {"key": "big", "value": "` + strings.Repeat("x", MaxValue) + `"}`, nil, "store:large", fmt.Sprintf(`the value is too large: the one for key "big" has %d bytes, and a task sets %d at most`, MaxValue+overhead, MaxValue)},
		{`"append": {"key": "big", "value": "` + strings.Repeat("x", 200000) + `"}`, nil, "store:full", `the store is full: key "big" needs`},
	} {
		call := kindtest.NewCall()
		call.Resources = set
		built := kindtest.Task(t, KindIn(dir), config(), `{"store": {"store": "s", `+test.operation+`}}`)
		result, err := built.Run(t.Context(), call.Invocation)
		if test.class == "" {
			if err != nil || !reflect.DeepEqual(result.Value, any(test.want)) {
				t.Errorf("%s: got %v, %v; want %v", test.operation, result.Value, err, test.want)
			}
			continue
		}
		failure := kindtest.Failure(t, err)
		if failure.Class != test.class || !failure.Permanent || !strings.HasPrefix(err.Error(), test.message) || result.Value != nil {
			t.Errorf("%.200s: got class %q, permanent %v: %v; want %q: %s…", test.operation, failure.Class, failure.Permanent, err, test.class, test.message)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "out/Ada.csv")); err != nil || string(text) != "name,age\nGrace,\nAda,36\n" {
		t.Errorf("exported %q, %v", text, err)
	}
	if _, found := set.Get("s").(*Store).Get("big"); found {
		t.Error("a value that was refused is there")
	}
}

// The largest value that a task can set fits into a result together with the rest of it.
func TestLargestValueFits(t *testing.T) {
	value := map[string]any{"value": strings.Repeat("x", MaxValue-overhead), "found": true}
	if size := weigh(value); size > workflow.MaxResultBytes {
		t.Errorf("the result has %d bytes", size)
	}
}

func TestFileSystemErrorsAreRetried(t *testing.T) {
	call := kindtest.NewCall()
	call.Resources = kindtest.SetUp(t, ResourceKind, map[string]string{"s": `{"store": {"initial": {"rows": []}}}`})
	built := kindtest.Task(t, KindIn("/no/such/dir"), config(), `{"store": {"store": "s", "export_csv": {"key": "rows", "file": "x.csv"}}}`)
	_, err := built.Run(t.Context(), call.Invocation)
	if failure := kindtest.Failure(t, err); failure.Class != "store" || failure.Permanent {
		t.Errorf("got %+v", failure)
	}
}

func TestNoStore(t *testing.T) {
	built := kindtest.Task(t, Kind, config(), `{"store": {"store": "s", "get": {"key": "a"}}}`)
	_, err := built.Run(t.Context(), kindtest.NewCall().Invocation)
	if failure := kindtest.Failure(t, err); failure.Class != "store" || !failure.Permanent {
		t.Errorf("got %+v", failure)
	}
}

func TestInvalid(t *testing.T) {
	restricted := config()
	restricted.AllowExec = false
	for name, test := range map[string]struct {
		config       task.Config
		fields, want string
	}{
		"unknown store":   {config(), `"store": "t", "get": {"key": "a"}`, `store.store: there is no resource "t"`},
		"another kind":    {config(), `"store": "d", "get": {"key": "a"}`, `store.store: resource "d" is of kind temp_dir; this needs store`},
		"bad key":         {config(), `"store": "s", "get": {"key": "${nope}"}`, `store.get.key: column 3: `},
		"bad value":       {config(), `"store": "s", "put": {"key": "a", "value": {"b": "${nope}"}}`, `store.put.value["b"]: column 3: `},
		"bad expectation": {config(), `"store": "s", "compare_and_set": {"key": "a", "expected": "${nope}"}`, `store.compare_and_set.expected: column 3: `},
		"bad file":        {config(), `"store": "s", "export_csv": {"key": "a", "file": "${nope}"}`, `store.export_csv.file: column 3: `},
		"not allowed":     {restricted, `"store": "s", "export_csv": {"key": "a", "file": "a"}`, `store.export_csv: flows that arrive over the API may not write files`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := kindtest.Compile(t, Kind, test.config, `{"store": {`+test.fields+`}}`)
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v, want %s…", err, test.want)
			}
		})
	}
}
