package service

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"
)

// The numbers of the core's enums and of the contract's are the same, so names must be, too.
func TestEnumsAreTheSame(t *testing.T) {
	for name, c := range map[string]struct {
		contract map[int32]string
		prefix   string
		core     []string // by number, from 1
	}{
		"status":  {pb.FlowStatus_name, "FLOW_STATUS_", []string{flow.Idle.String(), flow.Running.String(), flow.Completed.String(), flow.Backoff.String(), flow.Tripped.String()}},
		"outcome": {pb.Outcome_name, "OUTCOME_", []string{flow.Succeeded.String(), flow.Failed.String(), flow.Cancelled.String(), flow.TimedOut.String(), flow.Lost.String()}},
		"cause":   {pb.RunCause_name, "RUN_CAUSE_", []string{flow.BySchedule.String(), flow.ByTrigger.String(), flow.ByCatchUp.String()}},
		"skip": {pb.SkipReason_name, "SKIP_REASON_", []string{
			flow.SkipOverlap.String(), flow.SkipBackoff.String(), flow.SkipTripped.String(), flow.SkipPaused.String(),
			flow.SkipOutage.String(), flow.SkipStopping.String(), flow.SkipLimit.String(),
		}},
	} {
		if len(c.contract) != len(c.core)+1 {
			t.Errorf("%s: the contract has %d values beside the unspecified one, the core %d", name, len(c.contract)-1, len(c.core))
		}
		for i, got := range c.core {
			if want := strings.TrimPrefix(c.contract[int32(i+1)], c.prefix); strings.ToUpper(got) != want {
				t.Errorf("%s %d is %s in the core and %s in the contract", name, i+1, got, want)
			}
		}
	}
	for _, c := range []struct {
		contract fmt.Stringer
		number   int32
		core     int
	}{
		{pb.CatchUpMode_CATCH_UP_MODE_SKIP, int32(pb.CatchUpMode_CATCH_UP_MODE_SKIP), int(core.CatchUpSkip)},
		{pb.CatchUpMode_CATCH_UP_MODE_LAST, int32(pb.CatchUpMode_CATCH_UP_MODE_LAST), int(core.CatchUpLast)},
		{pb.CatchUpMode_CATCH_UP_MODE_ALL, int32(pb.CatchUpMode_CATCH_UP_MODE_ALL), int(core.CatchUpAll)},
		{pb.FlowOrigin_FLOW_ORIGIN_FILE, int32(pb.FlowOrigin_FLOW_ORIGIN_FILE), int(core.FromFile)},
		{pb.FlowOrigin_FLOW_ORIGIN_API, int32(pb.FlowOrigin_FLOW_ORIGIN_API), int(core.FromAPI)},
		{pb.FlowChangeType_FLOW_CHANGE_TYPE_SNAPSHOT, int32(pb.FlowChangeType_FLOW_CHANGE_TYPE_SNAPSHOT), int(core.Snapshot)},
		{pb.FlowChangeType_FLOW_CHANGE_TYPE_UPDATED, int32(pb.FlowChangeType_FLOW_CHANGE_TYPE_UPDATED), int(core.Updated)},
		{pb.FlowChangeType_FLOW_CHANGE_TYPE_LEFT, int32(pb.FlowChangeType_FLOW_CHANGE_TYPE_LEFT), int(core.Left)},
		{pb.FlowChangeType_FLOW_CHANGE_TYPE_DELETED, int32(pb.FlowChangeType_FLOW_CHANGE_TYPE_DELETED), int(core.Deleted)},
		{pb.DefinitionChangeType_DEFINITION_CHANGE_TYPE_ADDED, int32(pb.DefinitionChangeType_DEFINITION_CHANGE_TYPE_ADDED), int(core.Added)},
		{pb.DefinitionChangeType_DEFINITION_CHANGE_TYPE_CHANGED, int32(pb.DefinitionChangeType_DEFINITION_CHANGE_TYPE_CHANGED), int(core.Modified)},
		{pb.DefinitionChangeType_DEFINITION_CHANGE_TYPE_REMOVED, int32(pb.DefinitionChangeType_DEFINITION_CHANGE_TYPE_REMOVED), int(core.Removed)},
		{pb.DefinitionChangeType_DEFINITION_CHANGE_TYPE_UNCHANGED, int32(pb.DefinitionChangeType_DEFINITION_CHANGE_TYPE_UNCHANGED), int(core.Unchanged)},
		{pb.RunEventType_RUN_EVENT_TYPE_STATE_ENTERED, int32(pb.RunEventType_RUN_EVENT_TYPE_STATE_ENTERED), int(workflow.StateEntered)},
		{pb.RunEventType_RUN_EVENT_TYPE_ATTEMPT_STARTED, int32(pb.RunEventType_RUN_EVENT_TYPE_ATTEMPT_STARTED), int(workflow.AttemptStarted)},
		{pb.RunEventType_RUN_EVENT_TYPE_ATTEMPT_SUCCEEDED, int32(pb.RunEventType_RUN_EVENT_TYPE_ATTEMPT_SUCCEEDED), int(workflow.AttemptSucceeded)},
		{pb.RunEventType_RUN_EVENT_TYPE_ATTEMPT_FAILED, int32(pb.RunEventType_RUN_EVENT_TYPE_ATTEMPT_FAILED), int(workflow.AttemptFailed)},
		{pb.RunEventType_RUN_EVENT_TYPE_ATTEMPT_CANCELLED, int32(pb.RunEventType_RUN_EVENT_TYPE_ATTEMPT_CANCELLED), int(workflow.AttemptCancelled)},
		{pb.RunEventType_RUN_EVENT_TYPE_RETRY_SCHEDULED, int32(pb.RunEventType_RUN_EVENT_TYPE_RETRY_SCHEDULED), int(workflow.RetryScheduled)},
		{pb.RunEventType_RUN_EVENT_TYPE_TIMER_ARMED, int32(pb.RunEventType_RUN_EVENT_TYPE_TIMER_ARMED), int(workflow.TimerArmed)},
		{pb.RunEventType_RUN_EVENT_TYPE_TIMER_FIRED, int32(pb.RunEventType_RUN_EVENT_TYPE_TIMER_FIRED), int(workflow.TimerFired)},
		{pb.RunEventType_RUN_EVENT_TYPE_SPLIT_DECIDED, int32(pb.RunEventType_RUN_EVENT_TYPE_SPLIT_DECIDED), int(workflow.SplitDecided)},
		{pb.RunEventType_RUN_EVENT_TYPE_COMPENSATED, int32(pb.RunEventType_RUN_EVENT_TYPE_COMPENSATED), int(workflow.Compensated)},
		{pb.RunEventType_RUN_EVENT_TYPE_COMPENSATION_FAILED, int32(pb.RunEventType_RUN_EVENT_TYPE_COMPENSATION_FAILED), int(workflow.CompensationFailed)},
		{pb.RunEventType_RUN_EVENT_TYPE_RESUMED, int32(pb.RunEventType_RUN_EVENT_TYPE_RESUMED), int(workflow.Resumed)},
		{pb.RunEventType_RUN_EVENT_TYPE_PROGRESS, int32(pb.RunEventType_RUN_EVENT_TYPE_PROGRESS), int(workflow.Progress)},
	} {
		if int(c.number) != c.core {
			t.Errorf("%v is %d in the core", c.contract, c.core)
		}
	}
}

func TestFlowInfo(t *testing.T) {
	info := testInfo("backup", flow.Running)
	info.Paused, info.Streak, info.NextEligible, info.LastError = true, 2, at(9), "exit \xff 3"
	info.LastOutcome = flow.TimedOut
	info.Skipped[flow.SkipOverlap], info.Skipped[flow.SkipLimit] = 4, 5
	info.ScheduleError = "no"
	info.Run = &core.Current{
		ID: "backup@8", Number: 8, Cause: flow.ByCatchUp, FireTime: at(5), Start: at(6), State: "copy", StateTime: at(7), Attempt: 2, Cancelling: true,
	}
	want := &pb.FlowInfo{
		Id: "backup", Status: pb.FlowStatus_FLOW_STATUS_RUNNING, Paused: true, RunCount: 7,
		LastRun: timestamp(at(1)), LastFinish: timestamp(at(3)), LastDuration: durationpb.New(2 * time.Second),
		LastOutcome: pb.Outcome_OUTCOME_TIMED_OUT, FailureStreak: 2, NextEligible: timestamp(at(9)), LastError: "exit \uFFFD 3",
		NextFire: timestamp(at(60)), Revision: 40, Schedule: "manual", Origin: pb.FlowOrigin_FLOW_ORIGIN_FILE, ScheduleError: "no",
		CurrentRun: &pb.CurrentRun{
			RunId: "backup@8", State: "copy", Attempt: 2, StartTime: timestamp(at(6)), Cause: pb.RunCause_RUN_CAUSE_CATCH_UP,
			FireTime: timestamp(at(5)), Cancelling: true, StateTime: timestamp(at(7)),
		},
		Skipped: []*pb.SkipCount{
			{Reason: pb.SkipReason_SKIP_REASON_OVERLAP, Count: 4}, {Reason: pb.SkipReason_SKIP_REASON_LIMIT, Count: 5},
		},
		Labels: map[string]string{"team": "ops"}, Description: "Makes a copy",
	}
	if got := flowInfo(info); !proto.Equal(got, want) {
		t.Errorf("full: got  %v\nwant %v", got, want)
	}
	basic := proto.Clone(want).(*pb.FlowInfo)
	basic.Labels, basic.Description, basic.Schedule, basic.Skipped, basic.LastError = nil, "", "", nil, ""
	if got := basicFlowInfo(info); !proto.Equal(got, basic) {
		t.Errorf("basic: got  %v\nwant %v", got, basic)
	}
	info.Deleted = true
	if got, want := flowInfo(info), (&pb.FlowInfo{Id: "backup", Revision: 40}); !proto.Equal(got, want) {
		t.Errorf("deleted: got %v", got)
	}
	fresh := flowInfo(&core.Info{Flow: core.Define(&core.Flow{ID: "new"}), State: flow.State{Status: flow.Idle}, Revision: 1})
	if want := (&pb.FlowInfo{Id: "new", Status: pb.FlowStatus_FLOW_STATUS_IDLE, Schedule: "manual", Revision: 1}); !proto.Equal(fresh, want) {
		t.Errorf("fresh: got %v", fresh)
	}
}

func TestRun(t *testing.T) {
	run := &core.Run{
		ID: "backup@7", FlowID: "backup", Number: 7, Cause: flow.BySchedule, FireTime: at(1), Start: at(2), End: at(3), Outcome: flow.Failed,
		Error: "bad \xfe", Exit: "failed", State: "copy", Params: map[string]any{"n": 1.5}, Result: []any{"x", nil, true},
		Events: []workflow.Event{
			{Time: at(2).Time(), Type: workflow.AttemptFailed, State: "copy", Attempt: 3, Err: "no", Detail: "d", Duration: time.Second},
			{Time: at(3).Time(), Type: workflow.StateEntered, State: "failed"},
		},
		EventsDropped: 9, Resumed: 1,
	}
	want := &pb.Run{
		Id: "backup@7", FlowId: "backup", Number: 7, Cause: pb.RunCause_RUN_CAUSE_SCHEDULE, FireTime: timestamp(at(1)),
		StartTime: timestamp(at(2)), EndTime: timestamp(at(3)), Outcome: pb.Outcome_OUTCOME_FAILED, Error: "bad \uFFFD", Exit: "failed",
		State: "copy", Params: map[string]*structpb.Value{"n": structpb.NewNumberValue(1.5)}, EventsDropped: 9, Resumed: 1,
	}
	if got := basicRun(run); !proto.Equal(got, want) {
		t.Errorf("basic: got  %v\nwant %v", got, want)
	}
	want.Result = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{
		structpb.NewStringValue("x"), structpb.NewNullValue(), structpb.NewBoolValue(true),
	}})
	want.Events = []*pb.RunEvent{
		{
			Time: timestamp(at(2)), Type: pb.RunEventType_RUN_EVENT_TYPE_ATTEMPT_FAILED, State: "copy", Attempt: 3, Error: "no", Detail: "d",
			Duration: durationpb.New(time.Second),
		},
		{Time: timestamp(at(3)), Type: pb.RunEventType_RUN_EVENT_TYPE_STATE_ENTERED, State: "failed"},
	}
	if got := fullRun(run); !proto.Equal(got, want) {
		t.Errorf("full: got  %v\nwant %v", got, want)
	}
}

// jsonLike draws values as tasks and params have them.
func jsonLike() *rapid.Generator[any] {
	return rapid.Deferred(func() *rapid.Generator[any] {
		return rapid.OneOf(
			rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.String().AsAny(),
			rapid.Float64Range(-1e9, 1e9).AsAny(),
			rapid.SliceOfN(jsonLike(), 0, 3).AsAny(), rapid.MapOfN(rapid.String(), jsonLike(), 0, 3).AsAny(),
		)
	})
}

func TestValuesKeepTheirMeaning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := jsonLike().Draw(t, "v")
		if got := value(v).AsInterface(); fmt.Sprint(got) != fmt.Sprint(v) {
			t.Fatalf("got %v", got)
		}
	})
	// What is not JSON-like, or not text, must not make an answer unsendable.
	for _, v := range []any{struct{ A int }{1}, 7, math.NaN(), math.Inf(1), "\xff", []any{"\xfe"}, map[string]any{"\xfd": "\xfc"}} {
		if _, err := proto.Marshal(value(v)); err != nil {
			t.Errorf("%v: %v", v, err)
		}
	}
}

func TestTextIsAlwaysUTF8(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOf(rapid.Byte()).Draw(t, "s"))
		if !utf8.ValidString(text(s)) || !utf8.ValidString(cut(s, 10)) || len(cut(s, 10)) > 13 {
			t.Fatalf("%q, %q", text(s), cut(s, 10))
		}
		if utf8.ValidString(s) && text(s) != s {
			t.Fatalf("%q became %q", s, text(s))
		}
	})
}

func TestParams(t *testing.T) {
	nested := structpb.NewNullValue()
	for range maxParamsDepth - 1 {
		nested = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{nested}})
	}
	deeper := structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"x": nested}})
	for _, c := range []struct {
		name  string
		in    map[string]*structpb.Value
		field string // "": fine
	}{
		{"none", nil, ""},
		{"some", map[string]*structpb.Value{"a": structpb.NewStringValue("b")}, ""},
		{"deep", map[string]*structpb.Value{"a": nested}, ""},
		{"too deep", map[string]*structpb.Value{"a": deeper}, `params["a"]`},
		{"too large", map[string]*structpb.Value{"a": structpb.NewStringValue(strings.Repeat("x", maxParamsBytes))}, "params"},
		{"without kind", map[string]*structpb.Value{"a": {}}, ""},
	} {
		got, err := params(c.in)
		if c.field == "" {
			if err != nil || len(got) != len(c.in) {
				t.Errorf("%s: %v, %v", c.name, got, err)
			}
			continue
		}
		if fields := tell(statusOf(t.Context(), nil, "", err)).fields; len(fields) != 1 || fields[0] != c.field {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestInstants(t *testing.T) {
	if got, err := instant("from", nil); !got.IsZero() || err != nil {
		t.Error(got, err)
	}
	if got, err := instant("from", timestamppb.New(time.Unix(5, 6))); !got.Equal(time.Unix(5, 6)) || err != nil {
		t.Error(got, err)
	}
	for _, bad := range []*timestamppb.Timestamp{{Seconds: math.MaxInt64}, {Seconds: math.MinInt64}, {Nanos: -1}, {Nanos: 1e9}} {
		if _, err := instant("from", bad); err == nil {
			t.Errorf("took %v", bad)
		}
	}
}
