package core

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	storev1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/store/v1"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/core/schedule"
)

// ETag changes with the flow's definition.
func (f *Flow) ETag() string { return etag(f.hash()) }

func (f *Flow) hash() uint64 {
	h := fnv.New64a()
	h.Write([]byte(f.ID))
	h.Write([]byte{0, byte(f.Origin)})
	h.Write(f.Source)
	return h.Sum64()
}

func etag(hash uint64) string { return fmt.Sprintf("%016x", hash) }

// check tells what the engine cannot run.
func (f *Flow) check() error {
	switch {
	case f == nil || f.ID == "":
		return errors.New("a flow without an id")
	case f.Workflow == nil:
		return fmt.Errorf("flow %q has no workflow", f.ID)
	}
	if err := f.Backoff.Validate(); err != nil {
		return fmt.Errorf("flow %q: backoff: %w", f.ID, err)
	}
	var errs []error
	for _, fault := range f.Workflow.Validate(nil) {
		errs = append(errs, fmt.Errorf("flow %q: %s", f.ID, fault))
	}
	return errors.Join(errs...)
}

// Apply adds, changes and removes definitions, all or none. Flows keep their state; a run on its way keeps the definition it began
// with; a removed flow goes when its run has ended.
func (r *Running) Apply(ctx context.Context, req ApplyRequest) (*ApplyResult, error) {
	for _, f := range req.Flows {
		if err := f.check(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	r.applying.Lock()
	defer r.applying.Unlock()
	digest := digestOf("Apply", req.DryRun, req.Prune, req.Origin, req.ETag, digestOfFlows(req.Flows))
	plan, err := ask(ctx, r, func(e *engine, now flow.Instant, answer func(*ApplyResult, error)) {
		if first, ok := e.requests.byID[req.RequestID]; ok && first.done {
			if first.digest != digest {
				answer(nil, fmt.Errorf("%w: request id %s was used for another call", ErrConflict, req.RequestID))
				return
			}
			answer(first.answer, nil)
			return
		}
		answer(e.plan(req))
	})
	if err != nil || req.DryRun || plan.Revision != 0 {
		return plan, err
	}
	// Only one Apply is on its way, so the plan holds until it is carried out.
	sets, err := r.engine.setUp(ctx, plan)
	if err != nil {
		return nil, err
	}
	return ask(ctx, r, func(e *engine, now flow.Instant, answer func(*ApplyResult, error)) {
		if e.halted != nil || e.stopping {
			for _, set := range sets {
				e.retire(set)
			}
			answer(nil, errors.Join(ErrStopping, e.halted))
			return
		}
		request, _ := e.repeated(req.RequestID, digest, nil, now, func(*request, error) {})
		e.carryOut(plan, sets, now)
		if request != nil {
			request.answer = plan
			e.record(request)
		}
		e.later(func() {
			plan.Revision, plan.ETag = e.revision.Load(), etag(e.definitions)
			answer(plan, nil)
		})
	})
}

func digestOfFlows(flows []*Flow) uint64 {
	var sum uint64
	for _, f := range flows {
		sum += f.hash()
	}
	return sum
}

// plan compares the definitions asked for with those there are.
func (e *engine) plan(req ApplyRequest) (*ApplyResult, error) {
	result := &ApplyResult{ETag: etag(e.definitions)}
	if req.ETag != "" && req.ETag != result.ETag {
		return nil, fmt.Errorf("%w: the definitions changed since the plan was made", ErrConflict)
	}
	wanted := make(map[string]bool, len(req.Flows))
	for _, f := range req.Flows {
		if wanted[f.ID] {
			return nil, fmt.Errorf("%w: flow %q is there twice", ErrInvalid, f.ID)
		}
		wanted[f.ID] = true
		change := DefinitionChange{FlowID: f.ID, Type: Added, New: f}
		if en := e.index.get(f.ID); en != nil && !en.deleted && !en.removing {
			change.Type, change.Old = Modified, en.flow
			if en.flow.Origin == FromFile && f.Origin == FromAPI {
				return nil, fmt.Errorf("%w: flow %q is defined in a flows file; change it there", ErrConflict, f.ID)
			}
			if en.flow.Origin == f.Origin && bytes.Equal(en.flow.Source, f.Source) {
				change.Type = Unchanged
			}
		}
		result.Changes = append(result.Changes, change)
	}
	if req.Prune {
		e.index.each(func(en *entry) bool {
			if !en.deleted && !en.removing && en.flow.Origin == req.Origin && !wanted[en.id] {
				result.Changes = append(result.Changes, DefinitionChange{FlowID: en.id, Type: Removed, Old: en.flow})
			}
			return true
		})
	}
	slices.SortFunc(result.Changes, func(a, b DefinitionChange) int { return bytes.Compare([]byte(a.FlowID), []byte(b.FlowID)) })
	return result, nil
}

// setUp sets up the resources that a plan needs; on a failure none is left.
func (e *engine) setUp(ctx context.Context, plan *ApplyResult) (sets map[string]*resource.Set, err error) {
	sets = map[string]*resource.Set{}
	for _, c := range plan.Changes {
		if c.Type != Added && c.Type != Modified || c.Type == Modified && c.Old.ResourceKey == c.New.ResourceKey {
			continue
		}
		set, err := resource.Setup(ctx, c.New.Resources, e.shared)
		if err != nil {
			for _, id := range slices.Backward(slices.Sorted(maps.Keys(sets))) {
				err = errors.Join(append([]error{err}, sets[id].Teardown(ctx)...)...)
			}
			return nil, &FlowError{Err: err, Flow: c.FlowID}
		}
		sets[c.FlowID] = set
	}
	return sets, nil
}

// carryOut makes a plan's changes.
func (e *engine) carryOut(plan *ApplyResult, sets map[string]*resource.Set, now flow.Instant) {
	for _, c := range plan.Changes {
		en := e.index.get(c.FlowID)
		switch c.Type {
		case Added:
			e.add(c.New, sets[c.FlowID], now)
		case Modified:
			e.replace(en, c.New, sets[c.FlowID], now)
		case Removed:
			e.definitions ^= en.flow.hash()
			en.removing = true
			e.change(en.shard, key(definitionKey, en.id), nil)
			if en.run == nil {
				e.remove(en)
			} else {
				e.setDue(en, 0)
				e.touch(en)
			}
		}
	}
}

// add makes a flow known that was not there, or no longer.
func (e *engine) add(f *Flow, set *resource.Set, now flow.Instant) *entry {
	en := e.index.get(f.ID)
	if en == nil {
		en = &entry{id: f.ID, shard: shardOf(f.ID)}
		e.index.put(en)
	}
	if en.removing { // its last run is still on its way: it stays the flow's run
		en.removing = false
		e.pin(en)
	} else {
		// Run numbers go on where a deleted flow of that name ended: a run id is never used twice.
		en.state = flow.State{Status: flow.Idle, Paused: f.Paused, RunCount: en.state.RunCount}
		en.pausedAt = 0
		if f.Paused {
			en.pausedAt = now
		}
		en.anchor, en.cursor, en.backlog = now, beginning(f, now), nil
		e.flows.Add(1)
	}
	e.orders++
	en.order = e.orders
	en.deleted = false
	en.flow, en.resources = f, set
	e.define(en)
	e.schedule(en, en.cursor)
	return en
}

// beginning is the instant after which the fire times of a new flow count: now, or that of a once which has passed since it was accepted.
func beginning(f *Flow, now flow.Instant) flow.Instant {
	if f.Schedule != nil {
		if at, ok := f.Schedule.Once(); ok {
			return min(now, flow.At(at)) - 1
		}
	}
	return now - 1
}

// pin keeps the definition that a flow's run goes by, for after a restart, since the flow gets another one.
func (e *engine) pin(en *entry) {
	if en.run != nil && !en.run.replaced.Swap(true) && e.Store.Durable() {
		e.change(en.shard, key(pinnedKey, en.id), en.run.flow.Source)
	}
}

// replace gives a flow another definition. Its state stays; a fixed interval begins a new grid if its length changed.
func (e *engine) replace(en *entry, f *Flow, set *resource.Set, now flow.Instant) {
	e.definitions ^= en.flow.hash()
	old := en.flow
	e.pin(en)
	e.trim(en, old.keepRuns(), f.keepRuns())
	if set != nil {
		if en.run == nil || en.run.resources != en.resources { // else they go with the run
			e.retire(en.resources)
		}
		en.resources = set
	}
	en.flow = f
	if canonical(old.Schedule) != canonical(f.Schedule) {
		en.beginAnew(now)
	}
	e.define(en)
	e.setDue(en, 0)
	e.reschedule(en, now)
}

func canonical(s *schedule.Schedule) string {
	if s == nil {
		return ""
	}
	return s.Canonical()
}

// define stores a flow's definition.
func (e *engine) define(en *entry) {
	e.definitions ^= en.flow.hash()
	e.change(en.shard, key(definitionKey, en.id), marshal(&storev1.DefinitionRecord{Source: en.flow.Source, Origin: uint32(en.flow.Origin)}))
	e.touch(en)
}

// maxTombstones bounds the deleted flows remembered.
const maxTombstones = 10000

// remove deletes a flow. A tombstone stays, so that watchers learn of it and run numbers go on.
func (e *engine) remove(en *entry) {
	en.removing, en.deleted = false, true
	e.setDue(en, 0)
	e.unwait(en)
	for n := en.state.RunCount; n > 0 && n+en.flow.keepRuns() > en.state.RunCount; n-- {
		e.change(en.shard, historyKeyOf(en.id, n), nil)
	}
	e.retire(en.resources)
	en.resources, en.backlog = nil, nil
	e.flows.Add(-1)
	e.touch(en)
	e.tombstones = append(e.tombstones, en)
	if len(e.tombstones) > maxTombstones {
		oldest := e.tombstones[0]
		e.tombstones = e.tombstones[1:]
		if oldest.deleted && oldest.settled() {
			e.index.remove(oldest.id)
			e.change(oldest.shard, key(stateKey, oldest.id), nil)
			e.horizon.Store(max(e.horizon.Load(), oldest.published.Load().Revision))
			e.change(0, key(metaKey, "horizon"), []byte(etag(e.horizon.Load())))
		}
	}
}

// retire tears resources down that nobody uses any more, beside the engine.
func (e *engine) retire(set *resource.Set) {
	if set == nil {
		return
	}
	e.teardowns.Go(func() {
		for _, err := range set.Teardown(context.Background()) {
			e.log.Error("teardown failed", "error", err)
		}
	})
}

// Delete removes one flow that is not running.
func (r *Running) Delete(ctx context.Context, id, tag, requestID string) (uint64, error) {
	req, err := r.alter(ctx, id, requestID, digestOf("Delete", id, tag), func(e *engine, en *entry, now flow.Instant) (uint64, error) {
		info := en.published.Load()
		switch {
		case tag != "" && tag != en.flow.ETag():
			return 0, &FlowError{Err: fmt.Errorf("%w: its definition changed since", ErrConflict), Flow: id, Info: info}
		case en.flow.Origin == FromFile:
			return 0, &FlowError{Err: fmt.Errorf("%w: it is defined in a flows file; remove it there", ErrConflict), Flow: id, Info: info}
		case en.run != nil:
			return 0, refusal(ErrFlowRunning, info)
		}
		e.definitions ^= en.flow.hash()
		e.change(en.shard, key(definitionKey, en.id), nil)
		e.remove(en)
		return 0, nil
	})
	if err != nil {
		return 0, err
	}
	return req.info.Revision, nil
}
