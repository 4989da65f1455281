package core

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	storev1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/store/v1"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/resource"
)

// check tells what the engine cannot take.
func (f *Flow) check() error {
	switch {
	case f == nil || f.ID == "":
		return errors.New("a flow without an id")
	case strings.ContainsRune(f.ID, 0) || !utf8.ValidString(f.ID):
		return fmt.Errorf("the id %q is not text that a key can hold", f.ID)
	}
	if err := f.runnable(); err != nil {
		return fmt.Errorf("flow %q: %w", f.ID, err)
	}
	return nil
}

// Apply adds, changes and removes definitions, all or none. Flows keep their state; a run on its way keeps the definition it began
// with; a removed flow goes when its run has ended.
func (r *Running) Apply(ctx context.Context, req ApplyRequest) (*ApplyResult, error) {
	wanted := make([]*Definition, len(req.Flows))
	for i, f := range req.Flows {
		if err := f.check(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		wanted[i] = r.engine.defined(f)
	}
	done, err := r.changing(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	digest := digestOf("Apply", req.DryRun, req.Prune, req.Origin, req.ETag, digestOfAll(wanted))
	plan, err := ask(ctx, r, func(e *engine, now flow.Instant, answer func(*ApplyResult, error)) {
		if first, ok := e.requests.byID[req.RequestID]; ok && first.done {
			if first.digest != digest {
				answer(nil, fmt.Errorf("%w: request id %s was used for another call", ErrConflict, req.RequestID))
				return
			}
			again := *first.answer
			if again.ETag == "" { // answered before a restart
				again.ETag = etag(e.definitions)
			}
			answer(&again, nil)
			return
		}
		answer(e.compare(wanted, req))
	})
	if err != nil || req.DryRun || plan.Revision != 0 {
		return plan, err
	}
	// Nobody else changes definitions, so the plan holds until it is carried out.
	sets, err := r.engine.setUp(ctx, plan)
	if err != nil {
		return nil, err
	}
	settled := make(chan struct{})
	result, err := ask(ctx, r, func(e *engine, now flow.Instant, answer func(*ApplyResult, error)) {
		defer close(settled)
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
	if err != nil {
		select {
		case <-settled:
		case <-r.engine.over: // it may have come too late for the engine
			r.engine.drop(sets, settled)
		}
	}
	return result, err
}

// drop tears resources down that the engine did not take before it ended.
func (e *engine) drop(sets map[string]*resource.Set, taken <-chan struct{}) {
	select {
	case <-taken:
		return
	default:
	}
	for _, set := range sets {
		if set != e.bare {
			for _, err := range set.Teardown(context.Background()) {
				e.log.Error("teardown failed", "error", err)
			}
		}
	}
}

// changing waits until nobody else changes definitions. The function it returns lets the next one go on.
func (r *Running) changing(ctx context.Context) (done func(), err error) {
	select {
	case r.applying <- struct{}{}:
		return func() { <-r.applying }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-r.done:
		return nil, ErrStopping
	}
}

func digestOfAll(definitions []*Definition) uint64 {
	var sum uint64
	for _, d := range definitions {
		sum += d.hash()
	}
	return sum
}

// compare makes the plan: what the definitions asked for change in those there are.
func (e *engine) compare(definitions []*Definition, req ApplyRequest) (*ApplyResult, error) {
	result := &ApplyResult{ETag: etag(e.definitions)}
	if req.ETag != "" && req.ETag != result.ETag {
		return nil, fmt.Errorf("%w: the definitions changed since the plan was made", ErrConflict)
	}
	wanted := make(map[string]bool, len(definitions))
	for _, f := range definitions {
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
		if c.Type != Added && c.Type != Modified {
			continue
		}
		flow, err := c.New.flow()
		if err == nil && c.Type == Modified && c.Old.resourceKey() == flow.ResourceKey {
			continue
		}
		var set *resource.Set
		if err == nil {
			set, err = e.resources(ctx, flow)
		}
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

// resources sets up a flow's own resources. Flows without any share one set.
func (e *engine) resources(ctx context.Context, f *Flow) (*resource.Set, error) {
	if len(f.Resources) == 0 {
		return e.bare, nil
	}
	return resource.Setup(ctx, f.Resources, e.shared)
}

// resourceKey is the ResourceKey of the flow. One that is not understood has no resources.
func (d *Definition) resourceKey() string {
	f, err := d.flow()
	if err != nil {
		return ""
	}
	return f.ResourceKey
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
			e.remember(en.shard, key(definitionKey, en.id), nil)
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
func (e *engine) add(d *Definition, set *resource.Set, now flow.Instant) *entry {
	en := e.index.get(d.ID)
	if en == nil {
		en = &entry{id: d.ID, shard: shardOf(d.ID)}
		e.index.put(en)
	}
	if en.removing { // its last run is still on its way: it stays the flow's run
		en.removing = false
		e.pin(en)
	} else {
		// Run numbers go on where a deleted flow of that name ended: a run id is never used twice.
		f, err := d.flow()
		if err != nil {
			f = broken
		}
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
	en.flow, en.resources = d, set
	e.storeDefinition(en)
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
	if en.run != nil && !en.run.replaced.Swap(true) {
		e.remember(en.shard, key(pinnedKey, en.id), en.run.definition.Source)
	}
}

// replace gives a flow another definition. Its state stays; a fixed interval begins a new grid if its length changed.
func (e *engine) replace(en *entry, d *Definition, set *resource.Set, now flow.Instant) {
	e.definitions ^= en.flow.hash()
	old := en.flow
	e.pin(en)
	e.trim(en, old.keepRuns(), d.keepRuns())
	if set != nil {
		if en.run == nil || en.run.resources != en.resources { // else they go with the run
			e.retire(en.resources)
		}
		en.resources = set
	}
	another := old.schedule() != d.schedule()
	if another {
		e.settleDue(en, now)
	}
	en.flow = d
	if another {
		en.beginAnew(now)
	}
	e.storeDefinition(en)
	e.setDue(en, 0)
	e.reschedule(en, now)
}

// settleDue settles what a flow's schedule has named up to now, before it gets another one: a fire time that waits for a slot does so
// as a missed one from now on, and one that jitter holds up is acted on.
func (e *engine) settleDue(en *entry, now flow.Instant) {
	if w := en.waiting; w != nil && !w.catchUp {
		w.catchUp = true
		en.backlog = append(en.backlog, w.since)
		en.cursor = max(en.cursor, w.since)
	}
	if en.nextFire != 0 && en.nextFire <= now {
		e.tick(en, en.nextFire, now)
	}
}

// schedule is the schedule's canonical text; empty for none.
func (d *Definition) schedule() string {
	s, err := d.Schedule()
	if err != nil || s == nil {
		return ""
	}
	return s.Canonical()
}

// storeDefinition stores a flow's definition.
func (e *engine) storeDefinition(en *entry) {
	e.definitions ^= en.flow.hash()
	if e.Store.Durable() {
		e.change(en.shard, key(definitionKey, en.id), marshal(&storev1.DefinitionRecord{
			Source: en.flow.Source, Origin: uint32(en.flow.Origin), Resources: en.resources != e.bare,
		}))
	}
	e.touch(en)
}

// maxTombstones bounds the deleted flows remembered.
const maxTombstones = 10000

// remove deletes a flow. A tombstone stays, so that watchers learn of it and run numbers go on.
func (e *engine) remove(en *entry) {
	en.removing, en.deleted = false, true
	e.setDue(en, 0)
	e.unwait(en)
	keep := e.plan(en).keepRuns()
	for n := en.state.RunCount; n > 0 && n+keep > en.state.RunCount; n-- {
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
		// A flow that came back and went again is there twice: the entry may be another one by now.
		if oldest.deleted && oldest.settled() && e.index.get(oldest.id) == oldest {
			e.index.remove(oldest.id)
			e.remember(oldest.shard, key(stateKey, oldest.id), nil)
			e.horizon.Store(max(e.horizon.Load(), oldest.published.Load().Revision))
			e.remember(0, key(metaKey, horizonID), []byte(etag(e.horizon.Load())))
		}
	}
}

// retire tears resources down that nobody uses any more, beside the engine.
func (e *engine) retire(set *resource.Set) {
	if set == nil || set == e.bare {
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
	done, err := r.changing(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
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
		e.remember(en.shard, key(definitionKey, en.id), nil)
		e.remove(en)
		return 0, nil
	})
	if err != nil {
		return 0, err
	}
	return req.info.Revision, nil
}
