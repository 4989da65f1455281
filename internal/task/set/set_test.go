package set

import (
	"reflect"
	"strings"
	"testing"

	"github.com/schedulerd/schedulerd/internal/task/kindtest"
)

func TestSet(t *testing.T) {
	for definition, want := range map[string]map[string]any{
		`{"a": 1, "b": true, "c": null, "d": "text", "e": [1, {"f": "g"}]}`: {
			"a": 1.0, "b": true, "c": nil, "d": "text", "e": []any{1.0, map[string]any{"f": "g"}},
		},
		`{"n": "${params.n + 1}", "text": "n is ${params.n}", "list": "${params.list}", "deep": [{"name": "${params.name}"}], "literal": "$${params.n}"}`: {
			"n": 4.0, "text": "n is 3", "list": []any{1.0, "two"}, "deep": []any{map[string]any{"name": "Ada"}}, "literal": "${params.n}",
		},
	} {
		task := kindtest.Task(t, Kind, kindtest.Config(), `{"set": {"values": `+definition+`}}`)
		result, err := task.Run(t.Context(), kindtest.NewCall().Invocation)
		if err != nil || !reflect.DeepEqual(result.Value, any(want)) {
			t.Errorf("%s: got %v, %v; want %v", definition, result.Value, err, want)
		}
	}
}

func TestFailure(t *testing.T) {
	task := kindtest.Task(t, Kind, kindtest.Config(), `{"set": {"values": {"a": "${params.missing}"}}}`)
	_, err := task.Run(t.Context(), kindtest.NewCall().Invocation)
	if failure := kindtest.Failure(t, err); failure.Class != "expression" || !failure.Permanent || !strings.HasPrefix(err.Error(), "values: params.missing: ") {
		t.Errorf("got %+v", failure)
	}
}

func TestInvalid(t *testing.T) {
	_, err := kindtest.Compile(t, Kind, kindtest.Config(), `{"set": {"values": {"a": ["x", "${nope}"]}}}`)
	if err == nil || !strings.HasPrefix(err.Error(), `set.values["a"][1]: column 3: `) {
		t.Errorf("got %v", err)
	}
}
