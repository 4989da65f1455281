package core

import (
	"context"
	"errors"
	"fmt"

	"github.com/schedulerd/schedulerd/internal/core/flow"
)

// result is what a call gets.
type result[T any] struct {
	value T
	err   error
}

// ask sends the engine a question and waits for its answer. While the store fails no answer comes: then the outcome is unknown, and
// the caller is told so.
func ask[T any](ctx context.Context, r *Running, question func(e *engine, now flow.Instant, answer func(T, error))) (T, error) {
	answers := make(chan result[T], 1)
	var none T
	ok := r.engine.inbox.put(func(e *engine, now flow.Instant) {
		question(e, now, func(value T, err error) { answers <- result[T]{value, err} })
	})
	if !ok {
		return none, ErrStopping
	}
	for {
		var err error
		select {
		case a := <-answers:
			return a.value, a.err
		case <-ctx.Done():
			err = ctx.Err()
		case <-r.engine.commits.trouble():
			err = r.engine.commits.err() // nil if it is over already
		case <-r.engine.dead:
			err = r.engine.halted
		case <-r.done:
			err = ErrStopping
		}
		select { // an answer may have come with that
		case a := <-answers:
			return a.value, a.err
		default:
			if err != nil {
				return none, err
			}
		}
	}
}

// find is a flow that is not deleted.
func (x *index) find(id string) (*entry, error) {
	en := x.get(id)
	if en == nil {
		return nil, &FlowError{Err: ErrFlowNotFound, Flow: id}
	}
	if info := en.published.Load(); info == nil || info.Deleted {
		return nil, &FlowError{Err: ErrFlowNotFound, Flow: id}
	}
	return en, nil
}

// known is a flow that a call with a request id may be about: the answer to a repeated call outlives its flow.
func (x *index) known(id, requestID string) (*entry, error) {
	if en := x.get(id); en != nil && requestID != "" {
		return en, nil
	}
	return x.find(id)
}

// triggerCall is a trigger on its way through the engine.
type triggerCall struct {
	ctx     context.Context // of the caller
	entry   *entry
	params  map[string]any
	wait    bool
	request *request
	answer  func(*Info, error)
}

// Trigger starts a run now, and returns when the start is durable.
func (r *Running) Trigger(ctx context.Context, req TriggerRequest) (*Run, uint64, error) {
	en, err := r.engine.index.known(req.FlowID, req.RequestID)
	if err != nil {
		return nil, 0, err
	}
	// A flow that is published as running or tripped refuses at once: that state was true at some time during this call.
	if info := en.published.Load(); req.RequestID == "" {
		if _, _, err := flow.Apply(info.State, flow.Policy{}, flow.Event{Kind: flow.Trigger}); err != nil {
			return nil, 0, refusal(err, info)
		}
	}
	info, err := ask(ctx, r, func(e *engine, now flow.Instant, answer func(*Info, error)) {
		call := &triggerCall{ctx: ctx, entry: en, params: req.Params, wait: req.WaitForSlot, answer: answer}
		var seen bool
		call.request, seen = e.repeated(req.RequestID, digestOf("Trigger", req.FlowID, req.Params), en, now, func(first *request, err error) {
			if err != nil {
				answer(nil, err)
				return
			}
			answer(first.info, nil)
		})
		if !seen {
			call.run(e, now)
		}
	})
	if err != nil {
		return nil, 0, err
	}
	return runOf(info, req.Params), info.Revision, nil
}

// run starts the run, refuses it, or waits for a slot.
func (c *triggerCall) run(e *engine, now flow.Instant) {
	en := c.entry
	state, _, err := flow.Apply(en.state, flow.Policy{}, flow.Event{Kind: flow.Trigger, Now: now})
	if err == nil {
		_, err = en.flow.flow()
	}
	switch {
	case e.halted != nil:
		c.refuse(e, e.halted)
	case e.stopping:
		c.refuse(e, ErrStopping)
	case c.wait && c.ctx.Err() != nil && (c.request == nil || len(c.request.waiting) == 0):
		c.refuse(e, c.ctx.Err()) // nobody waits for a slot any more
	case en.deleted || en.removing:
		c.refuse(e, &FlowError{Err: ErrFlowNotFound, Flow: en.id})
	case errors.Is(err, ErrBroken):
		c.refuse(e, err)
	case err != nil:
		e.answer(en, func() { c.refuse(e, refusal(err, en.published.Load())) })
	case e.running >= e.MaxConcurrentRuns && c.wait:
		e.waiting.add(&waiter{entry: en, since: now, trigger: c})
	case e.running >= e.MaxConcurrentRuns:
		c.refuse(e, &FlowError{Err: fmt.Errorf("%w (%d): try again, or wait for a slot", ErrLimit, e.MaxConcurrentRuns), Flow: en.id})
	default:
		en.state = state
		e.Observer.RunStarted(flow.ByTrigger, 0)
		run := e.begin(en, c.params, now)
		e.touch(en)
		info := en.info(0)
		e.later(func() {
			info.Revision = en.published.Load().Revision
			c.answer(info, nil)
		})
		if c.request != nil {
			c.request.run, c.request.info = run.number, info
		}
		e.record(c.request)
	}
}

func (c *triggerCall) refuse(e *engine, err error) {
	e.forget(c.request)
	c.answer(nil, err)
}

// refusal is a flow's reason to take no trigger, with the state it was in.
func refusal(reason error, info *Info) error {
	err := &FlowError{Err: reason, Flow: info.Flow.ID, Info: info}
	if info.Run != nil {
		err.Run = info.Run.ID
	}
	return err
}

// runOf is the run on its way of a flow's state.
func runOf(info *Info, params map[string]any) *Run {
	c := info.Run
	if c == nil { // a repeated request whose run is long over
		return &Run{ID: runID(info.Flow.ID, info.RunCount), FlowID: info.Flow.ID, Number: info.RunCount, Cause: flow.ByTrigger, Params: params}
	}
	return &Run{
		ID: c.ID, FlowID: info.Flow.ID, Number: c.Number, Cause: c.Cause, FireTime: c.FireTime, Start: c.Start,
		State: c.State, Params: params, Resumed: c.Resumed,
	}
}

// alter is a call that changes one flow's state: the change, then the flow as it is once the change is durable.
func (r *Running) alter(ctx context.Context, id, requestID string, digest uint64, change func(e *engine, en *entry, now flow.Instant) (run uint64, err error)) (*request, error) {
	en, err := r.engine.index.known(id, requestID)
	if err != nil {
		return nil, err
	}
	return ask(ctx, r, func(e *engine, now flow.Instant, answer func(*request, error)) {
		req, seen := e.repeated(requestID, digest, en, now, answer)
		if seen {
			return
		}
		err := e.halted
		if err == nil && (en.deleted || en.removing) {
			err = &FlowError{Err: ErrFlowNotFound, Flow: id}
		}
		var run uint64
		if err == nil {
			run, err = change(e, en, now)
		}
		if err != nil {
			e.forget(req)
			answer(nil, err)
			return
		}
		record := req != nil
		if !record {
			req = &request{entry: en}
		}
		req.run, req.info = run, en.info(0)
		reply := func() {
			req.info.Revision = en.published.Load().Revision
			answer(req, nil)
		}
		if !record {
			e.answer(en, reply)
			return
		}
		e.later(reply) // also if nothing changed: a repeated call relies on the record
		e.record(req)
	})
}

// Reset clears a flow's failures and wakes its schedule.
func (r *Running) Reset(ctx context.Context, id, requestID string) (*Info, error) {
	req, err := r.alter(ctx, id, requestID, digestOf("Reset", id), func(e *engine, en *entry, now flow.Instant) (uint64, error) {
		en.state, _, _ = flow.Apply(en.state, flow.Policy{}, flow.Event{Kind: flow.Reset, Now: now})
		e.touch(en)
		e.reschedule(en, now)
		return 0, nil
	})
	return req.infoOr(err)
}

func (r *request) infoOr(err error) (*Info, error) {
	if err != nil {
		return nil, err
	}
	return r.info, nil
}

// Cancel tells a flow's run to stop, and returns when that is durable. The run ends in its own time. With only, another run is left
// alone. It returns the id of the run that was told; empty: none was on its way.
func (r *Running) Cancel(ctx context.Context, id, only, requestID string) (*Info, string, error) {
	req, err := r.alter(ctx, id, requestID, digestOf("Cancel", id, only), func(e *engine, en *entry, now flow.Instant) (uint64, error) {
		run := en.run
		if run == nil || only != "" && run.id != only {
			return 0, nil
		}
		if !run.current.Cancelling {
			run.current.Cancelling = true
			e.touch(en)
			e.later(func() { run.cancel(errCancelled) })
		}
		return run.number, nil
	})
	if err != nil {
		return nil, "", err
	}
	told := ""
	if req.run != 0 {
		told = runID(id, req.run)
	}
	return req.info, told, nil
}

// Pause makes a flow's fire times be skipped.
func (r *Running) Pause(ctx context.Context, id, requestID string) (*Info, error) {
	req, err := r.alter(ctx, id, requestID, digestOf("Pause", id), func(e *engine, en *entry, now flow.Instant) (uint64, error) {
		if !en.state.Paused {
			en.state, _, _ = flow.Apply(en.state, flow.Policy{}, flow.Event{Kind: flow.Pause, Now: now})
			en.pausedAt = now
			e.touch(en)
		}
		return 0, nil
	})
	return req.infoOr(err)
}

// Resume ends a pause. Mode says what happens to the fire times that passed meanwhile; 0: what the flow says.
func (r *Running) Resume(ctx context.Context, id string, mode CatchUpMode, requestID string) (*Info, error) {
	req, err := r.alter(ctx, id, requestID, digestOf("Resume", id, mode), func(e *engine, en *entry, now flow.Instant) (uint64, error) {
		if en.state.Paused {
			e.resume(en, mode, now)
		}
		return 0, nil
	})
	return req.infoOr(err)
}

// resume ends a pause. Fire times were counted as PAUSED when they came; those that now run after all are taken back out of the count,
// so that each has run or is counted, once.
func (e *engine) resume(en *entry, mode CatchUpMode, now flow.Instant) {
	f := e.plan(en)
	setDefault(&mode, f.OnResume)
	setDefault(&mode, CatchUpSkip)
	policy := f.CatchUp.withDefaults()
	policy.Mode = mode
	en.state, _, _ = flow.Apply(en.state, flow.Policy{}, flow.Event{Kind: flow.Resume, Now: now})
	e.touch(en)
	if mode != CatchUpSkip && en.state.Status != flow.Tripped {
		first, _ := e.next(en, en.pausedAt)
		missed := e.missed(en, first, min(now, en.cursor), now.Add(-policy.Window), policy.most())
		taken := min(uint64(len(missed.run)), en.state.Skipped[flow.SkipPaused])
		en.state.Skipped[flow.SkipPaused] -= taken
		en.backlog = append(en.backlog, missed.run[uint64(len(missed.run))-taken:]...)
	}
	en.pausedAt = 0
	e.reschedule(en, now)
	e.nextBacklog(en, now)
}
