package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/store/v1"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/store"
)

// StoredFlow is what a store holds of a flow, in a form to be shown. Times that are not set are left out.
type StoredFlow struct {
	ID           string            `json:"id"`
	Origin       string            `json:"origin,omitempty"` // "file" or "api"; empty: there is no definition, the flow is deleted
	Deleted      bool              `json:"deleted,omitempty"`
	Status       string            `json:"status"`
	Paused       bool              `json:"paused,omitempty"`
	RunCount     uint64            `json:"run_count"`
	Streak       uint32            `json:"failure_streak,omitempty"`
	LastRun      *time.Time        `json:"last_run,omitempty"`
	LastFinish   *time.Time        `json:"last_finish,omitempty"`
	LastOutcome  string            `json:"last_outcome,omitempty"`
	LastError    string            `json:"last_error,omitempty"`
	NextEligible *time.Time        `json:"next_eligible,omitempty"`
	NextFire     *time.Time        `json:"next_fire,omitempty"`
	Anchor       *time.Time        `json:"anchor,omitempty"`  // where the grid of an every schedule starts
	Settled      *time.Time        `json:"settled,omitempty"` // up to here every fire time ran or is counted
	Backlog      []time.Time       `json:"backlog,omitempty"` // missed fire times that shall still run
	Skipped      map[string]uint64 `json:"skipped,omitempty"` // fire times that did not become runs, by reason
	OpenRun      *StoredOpenRun    `json:"open_run,omitempty"`
	KeptRuns     uint64            `json:"kept_runs"`
	Revision     uint64            `json:"revision"` // the commit that wrote this state

	// Source is the definition; see Flow.Source.
	Source []byte `json:"-"`
}

// StoredOpenRun is a run that was on its way.
type StoredOpenRun struct {
	ID         string     `json:"id"`
	Cause      string     `json:"cause"`
	FireTime   *time.Time `json:"fire_time,omitempty"`
	Start      time.Time  `json:"start"`
	State      string     `json:"state"`
	Attempt    uint32     `json:"attempt"`
	Cancelling bool       `json:"cancelling,omitempty"`
	Resumed    uint32     `json:"resumed,omitempty"`
}

// StoredCounts tells how much a store holds.
type StoredCounts struct {
	Flows    int `json:"flows"`
	Deleted  int `json:"deleted"` // flows of which only the run number is left
	OpenRuns int `json:"open_runs"`
	KeptRuns int `json:"kept_runs"`
	Requests int `json:"requests"` // calls whose answers are remembered
}

// CountStored reads all of a store that no scheduler uses, and checks that every record can be read.
func CountStored(ctx context.Context, s store.Store) (StoredCounts, error) {
	var n StoredCounts
	err := EachStored(ctx, s, func(f *StoredFlow) error {
		if f.Deleted {
			n.Deleted++
			return nil
		}
		n.Flows++
		if f.OpenRun != nil {
			n.OpenRuns++
		}
		return nil
	})
	for shard := store.Shard(0); err == nil && shard < Shards; shard++ {
		err = errors.Join(
			scanRecords(ctx, s, shard, historyKey, func(id string, value []byte) error {
				n.KeptRuns++
				return proto.Unmarshal(value, new(storev1.RunRecord))
			}),
			scanRecords(ctx, s, shard, requestKey, func(id string, value []byte) error {
				n.Requests++
				return proto.Unmarshal(value, new(storev1.RequestRecord))
			}),
			scanRecords(ctx, s, shard, openRunKey, func(id string, value []byte) error {
				return proto.Unmarshal(value, new(storev1.OpenRunRecord))
			}),
		)
	}
	return n, err
}

// EachStored calls fn for each flow in a store that no scheduler uses, in no order.
func EachStored(ctx context.Context, s store.Store, fn func(*StoredFlow) error) error {
	for shard := range store.Shard(Shards) {
		definitions := map[string]*storev1.DefinitionRecord{}
		kept := map[string]uint64{}
		err := errors.Join(
			scanRecords(ctx, s, shard, definitionKey, into(definitions)),
			scanRecords(ctx, s, shard, historyKey, func(id string, _ []byte) error {
				flowID, _, _ := strings.Cut(id, "\x00")
				kept[flowID]++
				return nil
			}),
		)
		if err != nil {
			return err
		}
		states := map[string]*storev1.StateRecord{}
		if err := scanRecords(ctx, s, shard, stateKey, into(states)); err != nil {
			return err
		}
		for _, id := range slices.Sorted(maps.Keys(states)) {
			f := storedFlowOf(id, definitions[id], states[id])
			f.KeptRuns = kept[id]
			if err := fn(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// StoredRuns reads one flow in a store that no scheduler uses, with its kept runs, newest first. The flow is nil if there is none.
func StoredRuns(ctx context.Context, s store.Store, id string) (*StoredFlow, []*Run, error) {
	shard := shardOf(id)
	value, err := s.Get(ctx, shard, key(stateKey, id))
	if err != nil || value == nil {
		return nil, nil, err
	}
	var state storev1.StateRecord
	if err := proto.Unmarshal(value, &state); err != nil {
		return nil, nil, fmt.Errorf("record %s%s: %w: %w", stateKey, id, store.ErrCorrupt, err)
	}
	definitions := map[string]*storev1.DefinitionRecord{}
	if value, err = s.Get(ctx, shard, key(definitionKey, id)); err == nil && value != nil {
		err = into(definitions)(id, value)
	}
	if err != nil {
		return nil, nil, err
	}
	var runs []*Run
	err = s.Scan(ctx, shard, historyPrefix(id), true, func(_, value []byte) bool {
		var run *Run
		if run, err = decodeRun(id, value); err == nil {
			runs = append(runs, run)
		}
		return err == nil
	})
	f := storedFlowOf(id, definitions[id], &state)
	f.KeptRuns = uint64(len(runs))
	return f, runs, err
}

func storedFlowOf(id string, definition *storev1.DefinitionRecord, r *storev1.StateRecord) *StoredFlow {
	en := &entry{id: id}
	en.restore(r)
	f := &StoredFlow{
		ID: id, Deleted: r.Deleted, Status: en.state.Status.String(), Paused: r.Paused, RunCount: r.RunCount, Streak: r.Streak,
		LastRun: shownTime(r.LastRun), LastFinish: shownTime(r.LastFinish), LastError: r.LastError, NextEligible: shownTime(r.NextEligible),
		NextFire: shownTime(r.NextFire), Anchor: shownTime(r.Anchor), Settled: shownTime(r.Cursor), Revision: r.Revision,
	}
	if definition != nil {
		f.Source, f.Origin = definition.Source, Origin(definition.Origin).String()
	}
	if en.state.LastOutcome != 0 {
		f.LastOutcome = en.state.LastOutcome.String()
	}
	for _, at := range en.backlog {
		f.Backlog = append(f.Backlog, at.Time())
	}
	for reason, count := range en.state.Skipped {
		if count > 0 {
			if f.Skipped == nil {
				f.Skipped = map[string]uint64{}
			}
			f.Skipped[flow.SkipReason(reason).String()] = count
		}
	}
	if o := r.Run; o != nil {
		f.OpenRun = &StoredOpenRun{
			ID: runID(id, o.Number), Cause: flow.Cause(o.Cause).String(), FireTime: shownTime(o.FireTime), Start: flow.Instant(o.Start).Time(),
			State: o.State, Attempt: o.Attempt, Cancelling: o.Cancelling, Resumed: o.Resumed,
		}
	}
	return f
}

// shownTime leaves out what is not set.
func shownTime(at int64) *time.Time {
	if at == 0 {
		return nil
	}
	t := flow.Instant(at).Time()
	return &t
}

var originNames = [...]string{"", "file", "api"}

func (o Origin) String() string {
	if int(o) < len(originNames) {
		return originNames[o]
	}
	return ""
}
