package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

// Running is a scheduler that has started. Its methods are safe for concurrent use.
type Running struct {
	engine       *engine
	applying     chan struct{} // holds a token while somebody changes definitions
	stopOnce     sync.Once
	hurryOnce    sync.Once
	hurry        chan struct{} // closed: end the grace now
	commitsEnded chan struct{}
	giveUp       context.CancelFunc // ends the commit under way
	rechecking   sync.WaitGroup
	done         chan struct{} // closed when stopped
	result       *StopResult
}

// Done is closed when the scheduler has stopped.
func (r *Running) Done() <-chan struct{} { return r.done }

// Halted is closed when the store takes no more, for good: nothing is dispatched any more, and only a new start helps. Stop still
// stops the rest in order.
func (r *Running) Halted() <-chan struct{} { return r.engine.dead }

// Wait blocks until the scheduler has stopped, without stopping it.
func (r *Running) Wait() *StopResult {
	<-r.done
	return r.result
}

// Info tells about the scheduler.
func (r *Running) Info() ServerInfo {
	e := r.engine
	info := ServerInfo{
		Instance: e.instance, Store: e.Store.Name(), Start: e.clock.start, Flows: int(e.flows.Load()),
		Running: int(e.active.Load()), MaxConcurrentRuns: e.MaxConcurrentRuns, Revision: e.revision.Load(), Ready: true,
	}
	if oldest := flow.Instant(e.oldestDue.Load()); oldest != 0 {
		info.OldestDue = max(flow.At(e.Now()).Sub(oldest), 0)
	}
	if err := e.commits.err(); err != nil {
		info.Ready, info.NotReady = false, err.Error()
	}
	if text := e.trouble.Load(); text != nil {
		info.Ready, info.NotReady = false, *text
	}
	return info
}

// Status is one flow's state.
func (r *Running) Status(id string) (*Info, error) {
	en, err := r.engine.index.find(id)
	if err != nil {
		return nil, err
	}
	return en.published.Load(), nil
}

// Guards is the state of the circuit breakers and rate limits that a flow's tasks can reach; with an empty id, of the shared ones.
func (r *Running) Guards(id string) []resource.GuardStatus {
	if id == "" {
		return r.engine.shared.Guards()
	}
	en, err := r.engine.index.find(id)
	if err != nil {
		return nil
	}
	return en.published.Load().resources.Guards()
}

// List is a page of flows' states in order of id, whether there are more, and a revision they are at least as new as.
func (r *Running) List(o ListOptions) (infos []*Info, more bool, revision uint64) {
	_, revision = r.engine.hub.position()
	match := newFilter(o.Filter)
	limit := o.Limit
	if limit <= 0 {
		limit = 100
	}
	take := func(en *entry) bool {
		info := en.published.Load()
		if info == nil || info.Deleted || !match.matches(info) {
			return true
		}
		if len(infos) == limit {
			more = true
			return false
		}
		infos = append(infos, info)
		return true
	}
	if match.ids != nil { // a few by name, rather than all
		for _, id := range slices.Sorted(slices.Values(o.Filter.IDs)) {
			if en := r.engine.index.get(id); en != nil && id > o.After && !take(en) {
				break
			}
		}
		return slices.Compact(infos), more, revision
	}
	r.engine.index.from(o.After, take)
	return infos, more, revision
}

// Runs is a page of a flow's runs, newest first, the one on its way included, and whether there are more.
func (r *Running) Runs(ctx context.Context, id string, o RunListOptions) (runs []*Run, more bool, err error) {
	en, err := r.engine.index.find(id)
	if err != nil {
		return nil, false, err
	}
	limit := o.Limit
	if limit <= 0 {
		limit = 100
	}
	take := func(run *Run) bool {
		if o.Before != 0 && run.Number >= o.Before || len(o.Outcomes) > 0 && !slices.Contains(o.Outcomes, run.Outcome) {
			return true
		}
		if len(runs) == limit {
			more = true
			return false
		}
		runs = append(runs, run)
		return true
	}
	newest := uint64(0)
	if info := en.published.Load(); info.Run != nil {
		newest = info.Run.Number
		take(runOf(info, en.paramsOf(newest)))
	}
	scan := r.engine.Store.Scan(ctx, en.shard, historyPrefix(id), true, func(_, value []byte) bool {
		run, e := decodeRun(id, value)
		if e != nil {
			err = e
			return false
		}
		return run.Number == newest || take(run)
	})
	return runs, more, errors.Join(err, scan)
}

func (en *entry) paramsOf(number uint64) map[string]any {
	if run := en.active.Load(); run != nil && run.number == number {
		return run.params
	}
	return nil
}

// Run is one run with its events.
func (r *Running) Run(ctx context.Context, id string) (*Run, error) {
	flowID, number, ok := parseRunID(id)
	if !ok {
		return nil, fmt.Errorf("%w: %q is not a run id: it is a flow's id, '@' and a number", ErrInvalid, id)
	}
	notFound := &FlowError{Err: ErrRunNotFound, Flow: flowID, Run: id}
	en, err := r.engine.index.find(flowID)
	if err != nil {
		return nil, notFound
	}
	if info := en.published.Load(); info.Run != nil && info.Run.Number == number {
		run := runOf(info, nil)
		if active := en.active.Load(); active != nil && active.number == number {
			run.Params = active.params
			run.Events, run.EventsDropped = active.history.snapshot()
		}
		return run, nil
	}
	data, err := r.engine.Store.Get(ctx, en.shard, historyKeyOf(flowID, number))
	switch {
	case err != nil:
		return nil, err
	case data == nil:
		return nil, notFound
	}
	return decodeRun(flowID, data)
}

// RunWatch shows what happens in one run. It is for one goroutine.
type RunWatch struct {
	first *Run
	run   *activeRun // nil: the run has ended
	next  uint64
	ended bool
}

// WatchRun begins to watch a run, on its way or kept.
func (r *Running) WatchRun(ctx context.Context, id string) (*RunWatch, error) {
	first, err := r.Run(ctx, id)
	if err != nil {
		return nil, err
	}
	w := &RunWatch{first: first}
	if first.End == 0 {
		if active := r.engine.index.get(first.FlowID).active.Load(); active != nil && active.number == first.Number {
			w.run = active
		} else if w.first, err = r.Run(ctx, id); err != nil { // it ended meanwhile
			return nil, err
		}
	}
	return w, nil
}

// Next gives events not given before. The run comes with the first answer, and with the last, ended; after that Next gives io.EOF. If
// the scheduler stops before the run has ended, it gives ErrWatchEnded.
func (w *RunWatch) Next(ctx context.Context) (events []workflow.Event, run *Run, err error) {
	if w.ended {
		return nil, nil, io.EOF
	}
	if w.run == nil {
		w.ended = true
		return w.first.Events, w.first, nil
	}
	for {
		events, next, end, more := w.run.history.since(w.next)
		first := w.first
		if len(events) > 0 || end != nil || first != nil {
			w.next, w.first = next, nil
			if end != nil {
				w.ended = true
				return events, end, nil
			}
			return events, first, nil
		}
		select {
		case <-more:
		case <-w.run.engine.over: // the run outlived its scheduler
			return nil, nil, ErrWatchEnded
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

func sortByTime(requests []*request) {
	slices.SortFunc(requests, func(a, b *request) int { return cmp.Compare(a.at, b.at) })
}

// Stop stops the scheduler: refuses triggers and dispatches nothing more, lets runs finish until the grace ends (negative: the
// configured one), then cancels them and gives them the kill time, tears down resources newest first, and tells watchers. A second
// Stop, also a concurrent one, waits for and returns the same result. ctx bounds the caller's wait, not the stop.
func (r *Running) Stop(ctx context.Context, grace time.Duration) (*StopResult, error) {
	r.stopOnce.Do(func() {
		if grace < 0 {
			grace = r.engine.Grace
		}
		go r.stop(grace)
	})
	select {
	case <-r.done:
		return r.result, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// EndGrace makes a stop cancel the runs now instead of when its grace ends.
func (r *Running) EndGrace() { r.hurryOnce.Do(func() { close(r.hurry) }) }

func (r *Running) stop(grace time.Duration) {
	e := r.engine
	began := time.Now()
	result := &StopResult{}
	e.inbox.put(func(e *engine, now flow.Instant) { e.beginStop(now) })
	if !r.drain(grace, r.hurry) {
		told := make(chan []string, 1)
		e.inbox.put(func(e *engine, _ flow.Instant) { told <- e.cancelRuns(errStopped) })
		result.CancelledRuns = <-told
		if !r.drain(e.KillTime, nil) {
			left := make(chan []string, 1)
			e.inbox.put(func(e *engine, _ flow.Instant) { left <- e.runIDs() })
			result.UnfinishedRuns = <-left
		}
	}
	result.TeardownErrors = r.tearDown()
	e.inbox.put(func(e *engine, _ flow.Instant) { e.quit = true })
	// The last commit has its time too, then the stop goes on without it.
	last := time.AfterFunc(e.KillTime, func() {
		r.giveUp()
		e.inbox.put(func(e *engine, _ flow.Instant) { e.halt(errStopped) })
	})
	<-e.over
	r.rechecking.Wait()
	close(e.sealed)
	e.workers.end()
	if last.Stop() {
		<-r.commitsEnded
	}
	r.giveUp()
	for _, m := range e.inbox.close() {
		_ = m // runs that ended after the kill time: their flows are recovered at the next start
	}
	select { // whoever changes definitions may have resources to tear down
	case r.applying <- struct{}{}:
		<-r.applying
	case <-time.After(e.KillTime):
	}
	e.hub.end()
	closing, cancel := context.WithTimeout(context.Background(), e.KillTime)
	defer cancel()
	if err := e.session.Close(closing); err != nil {
		e.log.Error("closing the session", "error", err)
	}
	result.Duration = time.Since(began)
	r.result = result
	close(r.done)
}

// drain waits until no run is on its way, and reports whether that came before the time was up.
func (r *Running) drain(limit time.Duration, hurry <-chan struct{}) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-r.engine.drained:
		return true
	case <-timer.C:
	case <-hurry:
	}
	select {
	case <-r.engine.drained:
		return true
	default:
		return false
	}
}

// tearDown tears down every flow's resources, the newest flow's first, then the shared ones. None is skipped.
func (r *Running) tearDown() (errs []error) {
	e := r.engine
	sets := make(chan []*entry, 1)
	e.inbox.put(func(e *engine, _ flow.Instant) { sets <- e.inOrder() })
	ctx := context.Background() // each teardown has its own bound
	for _, en := range slices.Backward(<-sets) {
		for _, err := range en.resources.Teardown(ctx) {
			errs = append(errs, &FlowError{Err: err, Flow: en.id})
		}
	}
	e.teardowns.Wait()
	if e.shared != nil {
		errs = append(errs, e.shared.Teardown(ctx)...)
	}
	return errs
}

// watchSession halts the engine when the session ends behind its back.
func (r *Running) watchSession() {
	select {
	case <-r.engine.session.Done():
		r.engine.inbox.put(func(e *engine, _ flow.Instant) {
			if !e.quit {
				e.halt(e.session.Err())
			}
		})
	case <-r.done:
	}
}

// beginStop is the first step of a stop: nothing more is dispatched, and those who wait for a slot are answered or counted.
func (e *engine) beginStop(now flow.Instant) {
	e.stopping = true
	for e.waiting.Len() > 0 {
		w := e.waiting.next()
		if w.trigger != nil {
			w.trigger.refuse(e, ErrStopping)
			continue
		}
		w.entry.waiting = nil
		if !w.catchUp {
			e.skip(w.entry, w.since, flow.SkipStopping, 1, now)
		}
	}
	e.checkDrained()
}

// checkDrained tells the stop when no run is left.
func (e *engine) checkDrained() {
	if e.stopping && e.running == 0 {
		e.drainedOnce.Do(func() { close(e.drained) })
	}
}

func (e *engine) runIDs() []string {
	var ids []string
	e.index.each(func(en *entry) bool {
		if en.run != nil {
			ids = append(ids, en.run.id)
		}
		return true
	})
	return ids
}

// inOrder is all flows with resources in the order they were added.
func (e *engine) inOrder() []*entry {
	var all []*entry
	e.index.each(func(en *entry) bool {
		if en.resources != nil && en.resources != e.bare {
			all = append(all, en)
		}
		return true
	})
	slices.SortStableFunc(all, func(a, b *entry) int { return cmp.Compare(a.order, b.order) })
	return all
}
