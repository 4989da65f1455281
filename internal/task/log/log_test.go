package log

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/schedulerd/schedulerd/internal/task/kindtest"
)

func TestLog(t *testing.T) {
	for definition, want := range map[string]map[string]any{
		`{"message": "hello ${params.name}"}`:                               {"level": "INFO", "msg": "hello Ada"},
		`{"message": "x", "level": "LOG_LEVEL_DEBUG"}`:                      {"level": "DEBUG", "msg": "x"},
		`{"message": "x", "level": "LOG_LEVEL_WARN"}`:                       {"level": "WARN", "msg": "x"},
		`{"message": "two\nlines", "level": "LOG_LEVEL_ERROR"}`:             {"level": "ERROR", "msg": "two\nlines"},
		`{"message": "x", "fields": {"n": "${params.n}", "list": [1, {}]}}`: {"level": "INFO", "msg": "x", "n": 3.0, "list": []any{1.0, map[string]any{}}},
	} {
		call := kindtest.NewCall()
		task := kindtest.Task(t, Kind, kindtest.Config(), `{"log": `+definition+`}`)
		result, err := task.Run(t.Context(), call.Invocation)
		if err != nil || result.Value != nil {
			t.Errorf("%s: got %v, %v", definition, result, err)
		}
		var got map[string]any
		if err := json.Unmarshal(call.Logged.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		maps.DeleteFunc(got, func(k string, _ any) bool { return k == "time" })
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", definition, got, want)
		}
	}
}

func TestFailure(t *testing.T) {
	for definition, want := range map[string]string{
		`{"message": "${params.missing}"}`:                       "message: params.missing: ",
		`{"message": "x", "fields": {"a": "${params.missing}"}}`: "fields: params.missing: ",
	} {
		call := kindtest.NewCall()
		_, err := kindtest.Task(t, Kind, kindtest.Config(), `{"log": `+definition+`}`).Run(t.Context(), call.Invocation)
		if failure := kindtest.Failure(t, err); failure.Class != "expression" || !failure.Permanent || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %+v", definition, failure)
		}
		if call.Logged.Len() > 0 {
			t.Errorf("logged %s", call.Logged)
		}
	}
}

func TestInvalid(t *testing.T) {
	for definition, want := range map[string]string{
		`{"message": "${"}`: "log.message: ",
		`{"message": "x", "fields": {"run": "${params.name}"}}`: `log.fields["run"]: every line has a field run already`,
	} {
		if _, err := kindtest.Compile(t, Kind, kindtest.Config(), `{"log": `+definition+`}`); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s…", definition, err, want)
		}
	}
}
