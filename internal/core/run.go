package core

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"

	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

// activeRun is a run on its way. It is also the run's journal.
type activeRun struct {
	engine     *engine
	entry      *entry
	definition *Definition // it began with
	flow       *Flow       // what that is compiled to
	resources  *resource.Set
	id         string
	number     uint64
	params     map[string]any
	resume     *workflow.Checkpoint
	ctx        context.Context
	cancel     context.CancelCauseFunc
	work       workflow.Run // what the workflow is given
	log        slog.Logger
	lines      runHandler
	history    history
	end        workflow.End
	stored     atomic.Bool // an open-run record exists and has to be deleted
	replaced   atomic.Bool // the flow's definition has changed since
	launched   bool        // the engine's: its goroutine was started
	current    Current     // the engine's
}

// begin makes a flow's run; its goroutine starts once the start is durable. The flow's state says RUNNING already.
func (e *engine) begin(en *entry, params map[string]any, now flow.Instant) *activeRun {
	r := e.newRun(en, params)
	r.current = Current{
		ID: r.id, Number: r.number, Cause: en.state.Cause, FireTime: en.state.FireTime, Start: now,
		State: r.flow.Workflow.Initial, StateTime: now, Attempt: 1,
	}
	if len(params) > 0 && e.Store.Durable() {
		r.stored.Store(true)
		e.change(en.shard, key(openRunKey, en.id), marshal(r.openRunRecord(nil)))
	}
	e.later(r.launch)
	if s := r.flow.Schedule; s != nil && s.FixedDelay() { // it counts from this run's end
		if s.Interval() { // also if its time has come, and it is held up by jitter or waits for a slot
			en.nextFire = 0
			if w := en.waiting; w != nil && !w.catchUp {
				e.unwait(en)
				e.skip(en, w.since, flow.SkipLimit, 1, now)
			}
		}
		e.reschedule(en, now)
	}
	return r
}

func (e *engine) newRun(en *entry, params map[string]any) *activeRun {
	r := &activeRun{
		engine: e, entry: en, definition: en.flow, flow: e.plan(en), resources: en.resources, id: runID(en.id, en.state.RunCount),
		number: en.state.RunCount, params: params,
	}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	en.run = r
	en.active.Store(r)
	e.running++
	return r
}

// launch lets a worker run it.
func (r *activeRun) launch() {
	r.launched = true
	// The engine may write current as soon as the goroutine runs, so what the goroutine needs of it is taken here.
	r.work.Identity = workflow.Identity{
		FlowID: r.entry.id, RunID: r.id, Number: r.number, Cause: r.current.Cause.String(),
		FireTime: r.current.FireTime.Time(), Start: r.current.Start.Time(),
		Instance: r.engine.instance, Fencing: r.engine.fencing,
	}
	r.engine.workers.run(r)
}

func (r *activeRun) main() {
	r.end = r.execute()
	r.cancel(nil)
	r.engine.inbox.put(r.report)
}

// report tells the engine of the end.
func (r *activeRun) report(e *engine, now flow.Instant) { e.ended(r, r.end, now) }

// execute runs the workflow. The workflow guards its tasks itself; a panic that gets here is a defect, and an error of this run.
func (r *activeRun) execute() (end workflow.End) {
	r.lines = runHandler{r.engine.log.Handler(), r.entry.id, r.id}
	r.log = *slog.New(&r.lines)
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("a run panicked", "panic", p, "stack", string(debug.Stack()))
			end = workflow.End{Outcome: workflow.Failed, Err: fmt.Errorf("panic: %v", p)}
		}
	}()
	defaults, err := r.definition.Describe()
	if err != nil {
		return workflow.End{Outcome: workflow.Failed, Err: err}
	}
	output := r.engine.Output(r.id)
	defer func() { output.End(outcomeOf(end.Outcome)) }()
	w := &r.work
	w.Params, w.Resume, w.Resources = mergeParams(defaults.Params, r.params), r.resume, r.resources
	w.Timeout, w.CompensationTimeout = r.flow.Timeout, r.flow.CompensationTimeout
	w.Flows, w.Log, w.Output, w.Journal = r.engine.callees, &r.log, output, r
	return r.flow.Workflow.Run(r.ctx, w)
}

// runHandler adds flow and run to the lines of a log. It does so when a line is written: most runs write none.
type runHandler struct {
	slog.Handler
	flow, run string
}

func (h *runHandler) attrs() []slog.Attr {
	return []slog.Attr{slog.String("flow", h.flow), slog.String("run", h.run)}
}

func (h *runHandler) Handle(ctx context.Context, line slog.Record) error {
	return h.Handler.WithAttrs(h.attrs()).Handle(ctx, line)
}

func (h *runHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.Handler.WithAttrs(append(h.attrs(), attrs...))
}

func (h *runHandler) WithGroup(name string) slog.Handler {
	return h.Handler.WithAttrs(h.attrs()).WithGroup(name)
}

// callee finds the flow that a state of another flow calls, as it is now.
func (e *engine) callee(id string) (*workflow.Callee, error) {
	en, err := e.index.find(id)
	if err != nil {
		return nil, err
	}
	info := en.published.Load()
	f, err := info.Flow.flow()
	if err != nil {
		return nil, err
	}
	defaults, err := info.Flow.Describe()
	if err != nil {
		return nil, err
	}
	return &workflow.Callee{Workflow: f.Workflow, Params: defaults.Params, Resources: info.resources}, nil
}

// mergeParams lays a trigger's parameters over the flow's own.
func mergeParams(defaults, params map[string]any) map[string]any {
	if len(params) == 0 {
		return defaults
	}
	merged := make(map[string]any, len(defaults)+len(params))
	for k, v := range defaults {
		merged[k] = v
	}
	for k, v := range params {
		merged[k] = v
	}
	return merged
}

// Checkpoint makes c durable and shows the state entered to watchers.
func (r *activeRun) Checkpoint(ctx context.Context, c *workflow.Checkpoint) error {
	var record []byte
	if r.engine.Store.Durable() {
		r.stored.Store(true)
		record = marshal(r.openRunRecord(c))
	}
	state, entered := validText(c.State), flow.At(c.Entered)
	done := make(chan struct{})
	ok := r.engine.inbox.put(func(e *engine, _ flow.Instant) {
		if record != nil {
			e.change(r.entry.shard, key(openRunKey, r.entry.id), record)
		}
		if r.current.State != state || r.current.StateTime != entered {
			r.current.State, r.current.StateTime, r.current.Attempt = state, entered, 1
			e.touch(r.entry)
		}
		e.later(func() { close(done) })
	})
	if !ok {
		return errStopped
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.engine.dead:
		return r.engine.halted
	case <-r.engine.over:
		return errStopped
	}
}

// Event keeps what happened. Repeated attempts of the current state show in the flow's state.
func (r *activeRun) Event(ev workflow.Event) {
	ev.State, ev.Err, ev.Detail = validText(ev.State), validText(ev.Err), validText(ev.Detail)
	r.history.add(ev)
	if ev.Type == workflow.AttemptStarted && ev.Attempt > 1 {
		r.engine.inbox.put(func(e *engine, _ flow.Instant) {
			if r.entry.run == r && r.current.State == ev.State {
				r.current.Attempt = ev.Attempt
				e.touch(r.entry)
			}
		})
	}
}

// ended records a run's end: one write decides it, and nobody ever sees a state between RUNNING and the final one.
func (e *engine) ended(r *activeRun, end workflow.End, now flow.Instant) {
	en := r.entry
	outcome := outcomeOf(end.Outcome)
	message := ""
	if end.Err != nil {
		message = validText(clip(end.Err.Error(), maxErrorBytes))
	}
	f := e.plan(en)
	state, _, err := flow.Apply(en.state, f.Backoff, flow.Event{
		Kind: flow.Ended, Now: now, Outcome: outcome, Error: message, Random: 2*e.Random() - 1,
	})
	if err != nil {
		e.log.Error("a run ended that was not on its way", "flow", en.id, "run", r.id)
		return
	}
	en.state = state
	en.run = nil
	e.running--
	e.touch(en)
	e.Observer.RunEnded(outcome, state.LastDuration)

	events, dropped := r.history.newest()
	run := &Run{
		ID: r.id, FlowID: en.id, Number: r.number, Cause: r.current.Cause, FireTime: r.current.FireTime, Start: r.current.Start,
		End: now, Outcome: outcome, Error: message, Exit: end.Exit, State: cmp.Or(end.State, r.current.State), Params: r.params, Result: end.Result,
		Events: events, EventsDropped: dropped, Resumed: r.current.Resumed,
	}
	e.keep(en, run)
	if r.stored.Load() {
		e.remember(en.shard, key(openRunKey, en.id), nil)
	}
	e.later(func() {
		r.history.finish(run)
		en.active.CompareAndSwap(r, nil)
	})
	if r.replaced.Load() {
		e.remember(en.shard, key(pinnedKey, en.id), nil)
		if r.resources != en.resources {
			e.retire(r.resources)
		}
	}
	if en.removing {
		e.remove(en)
	} else if s := f.Schedule; s != nil && (s.FixedDelay() || s.Interval()) {
		e.reschedule(en, now) // it counts from the run's end, or its tick moves to the end of the backoff window
	}
	e.nextBacklog(en, now)
	e.checkDrained()
}

// keep adds a run to those kept of its flow, and drops the one that is one too many.
func (e *engine) keep(en *entry, run *Run) {
	limit := e.plan(en).keepRuns()
	if limit == 0 {
		return
	}
	e.change(en.shard, historyKeyOf(en.id, run.Number), e.group.record(e.kept.fill(run)))
	if run.Number > limit {
		e.change(en.shard, historyKeyOf(en.id, run.Number-limit), nil)
	}
}

// trim drops kept runs that are too many for a new limit.
func (e *engine) trim(en *entry, old, limit uint64) {
	newest := en.state.RunCount
	for n := limit; n <= old && n < newest; n++ {
		e.change(en.shard, historyKeyOf(en.id, newest-n), nil)
	}
}

// maxErrorBytes bounds the error text kept of a run.
const maxErrorBytes = 4096

func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return s[:limit] + " … (cut)"
}

func outcomeOf(o workflow.Outcome) flow.Outcome {
	switch o {
	case workflow.Succeeded:
		return flow.Succeeded
	case workflow.Cancelled:
		return flow.Cancelled
	case workflow.TimedOut:
		return flow.TimedOut
	case workflow.Lost:
		return flow.Lost
	}
	return flow.Failed
}

// cancelRuns tells every run to stop.
func (e *engine) cancelRuns(cause error) []string {
	var ids []string
	e.index.each(func(en *entry) bool {
		if en.run != nil {
			ids = append(ids, en.run.id)
			en.run.cancel(cause)
		}
		return true
	})
	return ids
}

var _ workflow.Journal = (*activeRun)(nil)
