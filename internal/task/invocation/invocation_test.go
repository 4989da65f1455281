package invocation

import (
	"context"
	"strings"
	"testing"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/task/kindtest"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

func TestNew(t *testing.T) {
	deadline := time.Date(2031, 2, 3, 5, 0, 0, 0, time.UTC)
	ctx, cancel := context.WithDeadline(t.Context(), deadline)
	defer cancel()
	in := kindtest.NewCall().Invocation
	in.Scope.Results["before"] = map[string]any{"ok": true}
	got, err := New(ctx, "pack", map[string]any{"id": 7.0}, in, func(context.Context) string { return "00-aa-bb-01" })
	if err != nil {
		t.Fatal(err)
	}
	want := &schedulerdv1.TaskInvocation{}
	if err := protojson.Unmarshal([]byte(`{
		"task": "pack", "input": {"id": 7}, "flow_id": "flow", "run_id": "flow@7", "state": "work", "attempt": 2,
		"idempotency_key": "i1/flow@7/work/1", "fencing_token": "3", "fire_time": "2031-02-03T04:05:06Z",
		"params": {"name": "Ada", "n": 3, "list": [1, "two"]}, "results": {"before": {"ok": true}},
		"traceparent": "00-aa-bb-01", "deadline": "2031-02-03T05:00:00Z"
	}`), want); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestNewWithoutAll(t *testing.T) {
	in := kindtest.NewCall().Invocation
	identity := *in.Identity
	identity.FireTime = time.Time{}
	in.Identity = &identity
	in.Scope.Params = nil
	got, err := New(t.Context(), "pack", nil, in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.FireTime != nil || got.Deadline != nil || got.Traceparent != "" || len(got.Params.GetFields()) != 0 {
		t.Errorf("%v", got)
	}
	if _, null := got.Input.GetKind().(*structpb.Value_NullValue); !null {
		t.Errorf("input %v", got.Input)
	}
}

func TestNewTooLarge(t *testing.T) {
	for want, input := range map[string]any{
		"3.9 MiB that a call can carry":  strings.Repeat("x", MaxBytes),
		"input: ":                        "\xff", // not UTF-8
		"keep large data in a file or a": []any{strings.Repeat("x", 3<<20), strings.Repeat("y", 3<<20)},
	} {
		_, err := New(t.Context(), "pack", input, kindtest.NewCall().Invocation, nil)
		if e := kindtest.Failure(t, err); !e.Permanent || e.Class != "request" || !strings.Contains(e.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestResult(t *testing.T) {
	if r := Result(nil); r.Value != nil || r.Action != "" {
		t.Errorf("of nothing: %v", r)
	}
	r := Result(&schedulerdv1.TaskResult{Value: structpb.NewNumberValue(3), Action: "again"})
	if r.Value != 3.0 || r.Action != "again" {
		t.Errorf("%v", r)
	}
}
