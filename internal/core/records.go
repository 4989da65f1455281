package core

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	storev1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/store/v1"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/store"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

// Shards is how many parts flows are spread over. It is fixed: it is in every key.
const Shards = 64

// shardOf is the shard of a flow.
func shardOf(flowID string) store.Shard {
	h := fnv.New32a()
	h.Write([]byte(flowID))
	return store.Shard(h.Sum32() % Shards)
}

// Keys begin with the kind of their record.
const (
	definitionKey = "d/"
	stateKey      = "s/"
	openRunKey    = "o/"
	historyKey    = "h/"
	requestKey    = "q/"
	pinnedKey     = "p/" // the definition that a run goes by whose flow has another one now
	metaKey       = "m/"
	basisID       = "basis"   // see Config.Basis
	horizonID     = "horizon" // deletions up to that revision may be forgotten
)

func key(kind, id string) []byte {
	return append(append(make([]byte, 0, len(kind)+len(id)), kind...), id...)
}

// historyPrefix is what the keys of a flow's kept runs begin with. An id holds no zero byte, so no prefix begins another.
func historyPrefix(flowID string) []byte {
	prefix := append(make([]byte, 0, len(historyKey)+len(flowID)+1+8), historyKey...) // room for the number
	return append(append(prefix, flowID...), 0)
}

func historyKeyOf(flowID string, number uint64) []byte {
	return binary.BigEndian.AppendUint64(historyPrefix(flowID), number)
}

// marshal encodes a record.
func marshal(m proto.Message) []byte { return appendRecord([]byte{}, m) } // never nil, which would delete

// appendRecord encodes a record. It cannot fail: records hold valid text and no required fields.
func appendRecord(data []byte, m proto.Message) []byte {
	data, err := proto.MarshalOptions{AllowPartial: true}.MarshalAppend(data, m)
	if err != nil {
		panic(fmt.Sprintf("core: a record does not encode: %v", err))
	}
	return data
}

func (en *entry) record(revision uint64) *storev1.StateRecord {
	r := new(storev1.StateRecord)
	en.fill(r, revision)
	return r
}

// fill makes r the record of the state. The engine fills the same one again and again.
func (en *entry) fill(r *storev1.StateRecord, revision uint64) {
	s := &en.state
	skipped, backlog, run := r.Skipped[:0], r.Backlog[:0], r.Run
	*r = storev1.StateRecord{
		Status: uint32(s.Status), Before: uint32(s.Before), Paused: s.Paused, RunCount: s.RunCount,
		LastRun: int64(s.LastRun), LastFinish: int64(s.LastFinish), LastDuration: int64(s.LastDuration),
		LastOutcome: uint32(s.LastOutcome), LastError: s.LastError, Streak: s.Streak, NextEligible: int64(s.NextEligible),
		Anchor: int64(en.anchor), Cursor: int64(en.cursor), PausedAt: int64(en.pausedAt),
		Revision: revision, Deleted: en.deleted, Changes: en.changes, NextFire: int64(en.nextFire), Unscheduled: en.scheduleError != "",
	}
	if en.dueAt != en.nextFire {
		r.Due = int64(en.dueAt)
	}
	if w := en.waiting; w != nil && !w.catchUp {
		r.NextFire, r.Due = int64(w.since), 0 // it has not run yet
	}
	if s.Skipped != ([flow.SkipReasons]uint64{}) {
		r.Skipped = append(skipped, s.Skipped[:]...)
	}
	for _, f := range en.backlog {
		backlog = append(backlog, int64(f))
	}
	r.Backlog = backlog
	if en.run != nil {
		c := &en.run.current
		if run == nil {
			run = new(storev1.OpenRun)
		}
		r.Run = run
		*run = storev1.OpenRun{
			Number: c.Number, Cause: uint32(c.Cause), FireTime: int64(c.FireTime), Start: int64(c.Start),
			State: c.State, StateTime: int64(c.StateTime), Attempt: uint32(c.Attempt), Cancelling: c.Cancelling, Resumed: uint32(c.Resumed),
		}
	}
}

// restore is the inverse of record, but for the run, which the caller brings back to life, or not.
func (en *entry) restore(r *storev1.StateRecord) {
	en.state = flow.State{
		Status: flow.Status(r.Status), Before: flow.Status(r.Before), Paused: r.Paused, RunCount: r.RunCount,
		LastRun: flow.Instant(r.LastRun), LastFinish: flow.Instant(r.LastFinish), LastDuration: time.Duration(r.LastDuration),
		LastOutcome: flow.Outcome(r.LastOutcome), LastError: r.LastError, Streak: r.Streak, NextEligible: flow.Instant(r.NextEligible),
	}
	copy(en.state.Skipped[:], r.Skipped)
	if r.Run != nil {
		en.state.Cause, en.state.FireTime = flow.Cause(r.Run.Cause), flow.Instant(r.Run.FireTime)
	}
	en.anchor, en.cursor, en.pausedAt = flow.Instant(r.Anchor), flow.Instant(r.Cursor), flow.Instant(r.PausedAt)
	en.deleted, en.changes = r.Deleted, r.Changes
	en.nextFire, en.dueAt = flow.Instant(r.NextFire), flow.Instant(cmp.Or(r.Due, r.NextFire))
	for _, f := range r.Backlog {
		en.backlog = append(en.backlog, flow.Instant(f))
	}
}

// openRunRecord is what a run needs to go on after a crash; nil if its flow's state is enough.
func (r *activeRun) openRunRecord(c *workflow.Checkpoint) *storev1.OpenRunRecord {
	events, dropped := r.history.snapshot()
	return &storev1.OpenRunRecord{
		Number: r.number, Params: toStruct(r.params), Checkpoint: toCheckpoint(c),
		Events: toEvents(events), EventsDropped: dropped,
	}
}

// runRecord is the record of a run. The engine fills the same one again and again.
type runRecord struct {
	storev1.RunRecord
	events   []storev1.Event
	pointers []*storev1.Event
}

func (out *runRecord) fill(r *Run) proto.Message {
	out.events, out.pointers = appendEvents(out.events[:0], out.pointers[:0], r.Events)
	out.RunRecord = storev1.RunRecord{
		Number: r.Number, Cause: uint32(r.Cause), FireTime: int64(r.FireTime), Start: int64(r.Start), End: int64(r.End),
		Outcome: uint32(r.Outcome), Error: r.Error, Exit: r.Exit, State: r.State, Params: toStruct(r.Params),
		Result: toValue(r.Result), Events: out.pointers, EventsDropped: r.EventsDropped, Resumed: uint32(r.Resumed),
	}
	return &out.RunRecord
}

func decodeRun(flowID string, data []byte) (*Run, error) {
	var r storev1.RunRecord
	if err := proto.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("a kept run of flow %q: %w: %w", flowID, store.ErrCorrupt, err)
	}
	return &Run{
		ID: runID(flowID, r.Number), FlowID: flowID, Number: r.Number, Cause: flow.Cause(r.Cause),
		FireTime: flow.Instant(r.FireTime), Start: flow.Instant(r.Start), End: flow.Instant(r.End),
		Outcome: flow.Outcome(r.Outcome), Error: r.Error, Exit: r.Exit, State: r.State, Params: r.Params.AsMap(),
		Result: fromValue(r.Result), Events: fromEvents(r.Events), EventsDropped: r.EventsDropped, Resumed: int(r.Resumed),
	}, nil
}

func toEvents(events []workflow.Event) []*storev1.Event {
	_, pointers := appendEvents(nil, nil, events)
	return pointers
}

// appendEvents makes records of events, in arrays that are used again.
func appendEvents(records []storev1.Event, pointers []*storev1.Event, events []workflow.Event) ([]storev1.Event, []*storev1.Event) {
	records = slices.Grow(records, len(events))[:len(events)]
	pointers = slices.Grow(pointers, len(events))
	for i := range events {
		ev, r := &events[i], &records[i]
		r.Time, r.Type, r.State, r.Attempt = ev.Time.UnixNano(), uint32(ev.Type), ev.State, uint32(ev.Attempt)
		r.Error, r.Detail, r.Duration = ev.Err, ev.Detail, int64(ev.Duration)
		pointers = append(pointers, r)
	}
	return records, pointers
}

func fromEvents(records []*storev1.Event) []workflow.Event {
	events := make([]workflow.Event, len(records))
	for i, r := range records {
		events[i] = workflow.Event{
			Time: flow.Instant(r.Time).Time(), Type: workflow.EventType(r.Type), State: r.State, Attempt: int(r.Attempt),
			Err: r.Error, Detail: r.Detail, Duration: time.Duration(r.Duration),
		}
	}
	return events
}

func toCheckpoint(c *workflow.Checkpoint) *storev1.Checkpoint {
	if c == nil {
		return nil
	}
	r := &storev1.Checkpoint{
		State: c.State, Transitions: uint64(c.Transitions), Entered: int64(flow.At(c.Entered)), Deadline: int64(flow.At(c.Deadline)),
		Retries: uint32(c.Retries), Results: toStruct(c.Results), Result: toValue(c.Result), Inner: toCheckpoint(c.Inner),
	}
	r.Compensations = toCompensations(c.Compensations)
	if b := c.Rollback; b != nil {
		r.Rollback = &storev1.Rollback{Outcome: uint32(b.Outcome), Exit: b.Exit, Error: validText(b.Err)}
		for _, undone := range b.Undone {
			r.Rollback.Undone = append(r.Rollback.Undone, validText(undone))
		}
	}
	return r
}

func fromCheckpoint(r *storev1.Checkpoint) *workflow.Checkpoint {
	if r == nil {
		return nil
	}
	c := &workflow.Checkpoint{
		State: r.State, Transitions: int(r.Transitions), Entered: flow.Instant(r.Entered).Time(), Deadline: flow.Instant(r.Deadline).Time(),
		Retries: int(r.Retries), Results: r.Results.AsMap(), Result: fromValue(r.Result), Inner: fromCheckpoint(r.Inner),
	}
	c.Compensations = fromCompensations(r.Compensations)
	if b := r.Rollback; b != nil {
		c.Rollback = &workflow.Rollback{Outcome: workflow.Outcome(b.Outcome), Exit: b.Exit, Err: b.Error, Undone: b.Undone}
	}
	return c
}

func toCompensations(done []workflow.Compensation) (records []*storev1.Compensation) {
	for _, comp := range done {
		r := &storev1.Compensation{State: comp.State, Visit: uint64(comp.Visit), Result: toValue(comp.Result)}
		for _, f := range comp.Inner {
			r.Inner = append(r.Inner, &storev1.Frame{
				Branch: uint32(f.Branch), Params: toStruct(f.Params), Results: toStruct(f.Results),
				Item: toValue(f.Item), Index: uint32(f.Index), Compensations: toCompensations(f.Compensations),
			})
		}
		records = append(records, r)
	}
	return records
}

func fromCompensations(records []*storev1.Compensation) (done []workflow.Compensation) {
	for _, r := range records {
		comp := workflow.Compensation{State: r.State, Visit: int(r.Visit), Result: fromValue(r.Result)}
		for _, f := range r.Inner {
			comp.Inner = append(comp.Inner, workflow.Frame{
				Branch: int(f.Branch), Params: f.Params.AsMap(), Results: f.Results.AsMap(),
				Item: fromValue(f.Item), Index: int(f.Index), Compensations: fromCompensations(f.Compensations),
			})
		}
		done = append(done, comp)
	}
	return done
}

// toStruct encodes a JSON-like object.
func toStruct(m map[string]any) *structpb.Struct {
	if len(m) == 0 {
		return nil
	}
	s := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(m))}
	for k, v := range m {
		s.Fields[validText(k)] = toJSON(v)
	}
	return s
}

// toValue encodes a JSON-like value; nil is left out.
func toValue(v any) *structpb.Value {
	if v == nil {
		return nil
	}
	return toJSON(v)
}

// toJSON takes whatever a task returned: what is not JSON-like becomes text, since a run's end must never fail to be recorded.
func toJSON(v any) *structpb.Value {
	switch v := v.(type) {
	case nil:
		return structpb.NewNullValue()
	case bool:
		return structpb.NewBoolValue(v)
	case float64:
		return structpb.NewNumberValue(v)
	case int:
		return structpb.NewNumberValue(float64(v))
	case int64:
		return structpb.NewNumberValue(float64(v))
	case string:
		return structpb.NewStringValue(validText(v))
	case []any:
		list := &structpb.ListValue{Values: make([]*structpb.Value, len(v))}
		for i := range v {
			list.Values[i] = toJSON(v[i])
		}
		return structpb.NewListValue(list)
	case map[string]any:
		fields := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(v))}
		for k, e := range v {
			fields.Fields[validText(k)] = toJSON(e)
		}
		return structpb.NewStructValue(fields)
	}
	return structpb.NewStringValue(validText(fmt.Sprint(v)))
}

// validText makes text that a protobuf string can hold.
func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func fromValue(v *structpb.Value) any {
	if v == nil {
		return nil
	}
	return v.AsInterface()
}
