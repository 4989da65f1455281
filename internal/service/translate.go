package service

import (
	"fmt"
	"strings"
	"time"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/definition"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// The enums of the core and of the contract have the same numbers, so translating one is a conversion; a test compares
// their names.

// flowInfo is a flow's state in the full view.
func flowInfo(info *core.Info) *pb.FlowInfo {
	if info.Deleted {
		return &pb.FlowInfo{Id: info.Flow.ID, Revision: info.Revision}
	}
	out := basicFlowInfo(info)
	description, _ := info.Flow.Describe() // what cannot be read is told as ScheduleError
	out.Labels = description.Labels
	out.Description = text(description.Description)
	out.Schedule = scheduleText(info.Flow)
	out.LastError = text(info.LastError)
	for reason, count := range info.Skipped {
		if count > 0 {
			out.Skipped = append(out.Skipped, &pb.SkipCount{Reason: pb.SkipReason(reason), Count: count})
		}
	}
	return out
}

// basicFlowInfo is a flow's state in the basic view.
func basicFlowInfo(info *core.Info) *pb.FlowInfo {
	out := &pb.FlowInfo{
		Id:            info.Flow.ID,
		Status:        pb.FlowStatus(info.Status),
		Paused:        info.Paused,
		RunCount:      info.RunCount,
		LastRun:       timestamp(info.LastRun),
		LastFinish:    timestamp(info.LastFinish),
		LastOutcome:   pb.Outcome(info.LastOutcome),
		FailureStreak: info.Streak,
		NextEligible:  timestamp(info.NextEligible),
		NextFire:      timestamp(info.NextFire),
		Revision:      info.Revision,
		Origin:        pb.FlowOrigin(info.Flow.Origin),
		ScheduleError: text(info.ScheduleError),
	}
	if info.LastFinish != 0 {
		out.LastDuration = durationpb.New(info.LastDuration)
	}
	if run := info.Run; run != nil {
		out.CurrentRun = &pb.CurrentRun{
			RunId:      run.ID,
			State:      text(run.State),
			Attempt:    uint32(run.Attempt),
			StartTime:  timestamp(run.Start),
			Cause:      pb.RunCause(run.Cause),
			FireTime:   timestamp(run.FireTime),
			Cancelling: run.Cancelling,
			StateTime:  timestamp(run.StateTime),
		}
	}
	return out
}

// scheduleText is a flow's schedule in words; empty if it is not understood.
func scheduleText(d *core.Definition) string {
	words, _ := definition.ScheduleText(d)
	return text(words)
}

// basicRun is a run without its events and result.
func basicRun(run *core.Run) *pb.Run {
	return &pb.Run{
		Id:            run.ID,
		FlowId:        run.FlowID,
		Number:        run.Number,
		Cause:         pb.RunCause(run.Cause),
		FireTime:      timestamp(run.FireTime),
		StartTime:     timestamp(run.Start),
		EndTime:       timestamp(run.End),
		Outcome:       pb.Outcome(run.Outcome),
		Error:         text(run.Error),
		Exit:          text(run.Exit),
		State:         text(run.State),
		Params:        values(run.Params),
		EventsDropped: run.EventsDropped,
		Resumed:       uint32(run.Resumed),
	}
}

// RunMessage is a run with everything, as clients see it.
func RunMessage(run *core.Run) *pb.Run { return fullRun(run) }

// fullRun is a run with everything.
func fullRun(run *core.Run) *pb.Run {
	out := basicRun(run)
	out.Events = runEvents(run.Events)
	if run.Result != nil {
		out.Result = value(run.Result)
	}
	return out
}

func runEvents(events []workflow.Event) []*pb.RunEvent {
	out := make([]*pb.RunEvent, len(events))
	for i, e := range events {
		out[i] = &pb.RunEvent{
			Time:    timestamppb.New(e.Time),
			Type:    pb.RunEventType(e.Type),
			State:   text(e.State),
			Attempt: uint32(e.Attempt),
			Error:   text(e.Err),
			Detail:  text(e.Detail),
		}
		if e.Duration != 0 {
			out[i].Duration = durationpb.New(e.Duration)
		}
	}
	return out
}

func stopResult(r *core.StopResult) *pb.StopResponse {
	out := &pb.StopResponse{
		CancelledRuns:  r.CancelledRuns,
		UnfinishedRuns: r.UnfinishedRuns,
		Duration:       durationpb.New(r.Duration),
	}
	for _, err := range r.TeardownErrors {
		out.TeardownErrors = append(out.TeardownErrors, text(err.Error()))
	}
	return out
}

// flowFilter is the filter f, the field of a request that is called path.
func flowFilter(path string, f *pb.FlowFilter) (core.Filter, error) {
	out := core.Filter{IDs: f.GetFlowIds(), Labels: f.GetLabels()}
	for i, s := range f.GetStatuses() {
		if !known(pb.FlowStatus_name, int32(s)) {
			return out, invalid(fmt.Sprintf("%s.statuses[%d]", path, i), "no status has the number %d", s)
		}
		out.Statuses = append(out.Statuses, flow.Status(s))
	}
	return out, nil
}

func outcomes(in []pb.Outcome) ([]flow.Outcome, error) {
	var out []flow.Outcome
	for i, o := range in {
		if !known(pb.Outcome_name, int32(o)) {
			return nil, invalid(fmt.Sprintf("outcomes[%d]", i), "no outcome has the number %d", o)
		}
		out = append(out, flow.Outcome(o))
	}
	return out, nil
}

// known reports whether an enum has the number, other than 0, which stands for nothing.
func known(names map[int32]string, number int32) bool {
	_, ok := names[number]
	return ok && number != 0
}

// timestamp is absent for no instant.
func timestamp(i flow.Instant) *timestamppb.Timestamp {
	if i == 0 {
		return nil
	}
	return timestamppb.New(i.Time())
}

// instant is the zero time for an absent timestamp.
func instant(field string, t *timestamppb.Timestamp) (time.Time, error) {
	if t == nil {
		return time.Time{}, nil
	}
	if err := t.CheckValid(); err != nil {
		return time.Time{}, invalid(field, "no valid time: seconds must lie in the years 1 to 9999, nanos in 0 to 999999999")
	}
	return t.AsTime(), nil
}

// Bounds of what a trigger may bring along.
const (
	maxParamsBytes = 64 << 10
	maxParamsDepth = 64
)

// params are the parameters of a trigger.
func params(in map[string]*structpb.Value) (map[string]any, error) {
	if len(in) == 0 {
		return nil, nil
	}
	if size := proto.Size(&structpb.Struct{Fields: in}); size > maxParamsBytes {
		return nil, invalid("params", "%d bytes are too many; at most %d", size, maxParamsBytes)
	}
	out := make(map[string]any, len(in))
	for name, v := range in {
		if deeper(v, maxParamsDepth) {
			return nil, invalid(fmt.Sprintf("params[%q]", name), "nested too deeply; at most %d levels", maxParamsDepth)
		}
		out[name] = v.AsInterface()
	}
	return out, nil
}

// deeper reports whether v is nested in more than the given number of levels.
func deeper(v *structpb.Value, levels int) bool {
	if levels == 0 {
		return true
	}
	for _, item := range v.GetListValue().GetValues() {
		if deeper(item, levels-1) {
			return true
		}
	}
	for _, item := range v.GetStructValue().GetFields() {
		if deeper(item, levels-1) {
			return true
		}
	}
	return false
}

func values(in map[string]any) map[string]*structpb.Value {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]*structpb.Value, len(in))
	for name, v := range in {
		out[text(name)] = value(v)
	}
	return out
}

// value is a JSON-like value. What is none is shown as Go prints it.
func value(v any) *structpb.Value {
	switch v := v.(type) {
	case nil:
		return structpb.NewNullValue()
	case bool:
		return structpb.NewBoolValue(v)
	case float64:
		return structpb.NewNumberValue(v)
	case string:
		return structpb.NewStringValue(text(v))
	case []any:
		list := make([]*structpb.Value, len(v))
		for i, item := range v {
			list[i] = value(item)
		}
		return structpb.NewListValue(&structpb.ListValue{Values: list})
	case map[string]any:
		return structpb.NewStructValue(&structpb.Struct{Fields: values(v)})
	}
	return structpb.NewStringValue(text(fmt.Sprint(v)))
}

// text is s as protobuf takes it: what commands print need not be UTF-8, and one bad byte would make the whole message
// unsendable.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// guards shows circuit breakers and rate limits.
func guards(all []resource.GuardStatus) (infos []*pb.GuardInfo) {
	for _, g := range all {
		info := &pb.GuardInfo{Resource: g.Resource}
		if b := g.Breaker; b != nil {
			info.Breaker = breakerStates[b.State]
			info.Failures, info.Opened, info.BreakerRefused = uint32(b.Failures), b.Opened, b.Refused
			if !b.Until.IsZero() {
				info.OpenUntil = timestamppb.New(b.Until)
			}
		}
		if l := g.Limiter; l != nil {
			info.Tokens, info.Waiting, info.LimitRefused = &l.Tokens, uint32(l.Waiting), l.Refused
		}
		infos = append(infos, info)
	}
	return infos
}

var breakerStates = map[resource.BreakerState]pb.BreakerState{
	resource.Closed: pb.BreakerState_BREAKER_STATE_CLOSED, resource.Open: pb.BreakerState_BREAKER_STATE_OPEN,
	resource.HalfOpen: pb.BreakerState_BREAKER_STATE_HALF_OPEN,
}
