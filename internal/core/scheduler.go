package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	storev1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/store/v1"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/core/store"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

// Scheduler collects flows. Start consumes it.
type Scheduler struct {
	config  Config
	mu      sync.Mutex
	flows   []*Flow
	ids     map[string]bool
	started bool
}

// New makes a scheduler without flows.
func New(config Config) *Scheduler {
	return &Scheduler{config: config, ids: map[string]bool{}}
}

// Add registers a flow. The same id twice is an error, and so is a flow that cannot run.
func (s *Scheduler) Add(f *Flow) error {
	if err := f.check(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.started:
		return ErrStarted
	case s.ids[f.ID]:
		return fmt.Errorf("%w: flow %q is registered twice", ErrInvalid, f.ID)
	}
	s.ids[f.ID] = true
	s.flows = append(s.flows, f)
	return nil
}

// Start loads the store, sets up all resources in order, and begins to dispatch. If anything fails, what was set up is torn down
// again, newest first, and nothing has run. A second Start returns ErrStarted.
func (s *Scheduler) Start(ctx context.Context) (*Running, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return nil, ErrStarted
	}
	config, err := s.config.withDefaults()
	if err != nil {
		return nil, err
	}
	s.started = true
	e, err := open(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := e.begins(ctx, s.flows); err != nil {
		return nil, errors.Join(err, e.session.Close(ctx))
	}
	begun := make(chan struct{})
	e.later(func() { close(begun) })
	r := &Running{engine: e, applying: make(chan struct{}, 1), done: make(chan struct{}), hurry: make(chan struct{}), commitsEnded: make(chan struct{})}
	commits, giveUp := context.WithCancel(context.Background())
	r.giveUp = giveUp
	go func() {
		defer close(r.commitsEnded)
		e.commitLoop(commits)
	}()
	go e.loop()
	go r.watchSession()
	if e.basis != "" && e.Basis != "" && e.Basis != e.basis {
		r.rechecking.Go(r.recheck)
	}
	return r.begun(ctx, begun)
}

// begun waits until what the start changed is durable: from then on the flows are there to be asked about.
func (r *Running) begun(ctx context.Context, durable <-chan struct{}) (*Running, error) {
	var err error
	select {
	case <-durable:
		return r, nil
	case <-r.engine.dead:
		err = r.engine.halted
	case <-ctx.Done():
		err = ctx.Err()
	}
	_, _ = r.Stop(context.WithoutCancel(ctx), 0)
	return nil, err
}

// open joins the store.
func open(ctx context.Context, config Config) (*engine, error) {
	session, err := config.Store.Join(ctx)
	if err != nil {
		return nil, fmt.Errorf("joining the store: %w", err)
	}
	all := make([]store.Shard, Shards)
	for i := range all {
		all[i] = store.Shard(i)
	}
	owned, err := session.Acquire(ctx, all)
	if err == nil && len(owned) < Shards {
		err = fmt.Errorf("%w: it owns %d of %d shards", store.ErrLocked, Shards-len(owned), Shards)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("acquiring the store: %w", err), session.Close(ctx))
	}
	e := &engine{
		Config: config, log: config.Logger, instance: config.Store.Instance(), session: session, index: newIndex(),
		inbox: newInbox(), commits: newCommitter(session), requests: &requests{byID: map[string]*request{}},
		group: &group{}, sealed: make(chan *group, 1), workers: newWorkers(), dead: make(chan struct{}), over: make(chan struct{}), drained: make(chan struct{}), clock: newClock(config.Now),
	}
	e.callees = e.callee
	for _, o := range owned {
		e.fencing = max(e.fencing, o.Generation)
	}
	e.hub = newHub(uint64(session.Revision()))
	e.revision.Store(uint64(session.Revision()))
	return e, nil
}

// begins brings the engine to where it dispatches: the stored flows and the given ones, their resources, the runs a crash interrupted.
func (e *engine) begins(ctx context.Context, flows []*Flow) (err error) {
	if e.shared, err = resource.Setup(ctx, e.Shared, nil); err != nil {
		return fmt.Errorf("shared resources: %w", err)
	}
	var sets []*resource.Set
	defer func() {
		if err == nil {
			return
		}
		for i := len(sets) - 1; i >= 0; i-- {
			err = errors.Join(append([]error{err}, sets[i].Teardown(ctx)...)...)
		}
		err = errors.Join(append([]error{err}, e.shared.Teardown(ctx)...)...)
	}()
	if e.bare, err = resource.Setup(ctx, nil, e.shared); err != nil {
		return err
	}
	given := make([]*Definition, len(flows))
	for i, f := range flows {
		given[i] = e.defined(f)
	}
	loaded, err := e.load(ctx, given, e.now())
	if err != nil {
		return err
	}
	for _, l := range loaded {
		l.set = e.bare
		if f, err := l.definition.flow(); err == nil && len(f.Resources) > 0 {
			if l.set, err = e.resources(ctx, f); err != nil {
				return &FlowError{Err: err, Flow: l.definition.ID}
			}
			sets = append(sets, l.set)
		}
	}
	if e.basis == "" && e.Basis != "" {
		e.remember(0, key(metaKey, basisID), []byte(e.Basis))
	}
	now := e.now()
	for _, l := range loaded {
		e.revive(l, now)
	}
	// Only now that all interrupted runs have their slots others may start, the oldest fire time first.
	slices.SortStableFunc(loaded, func(a, b *loadedFlow) int { return cmp.Compare(a.waits(), b.waits()) })
	for _, l := range loaded {
		if l.lost != nil {
			r := l.entry.run
			r.cancel(l.lost)
			e.ended(r, workflow.End{Outcome: workflow.Lost, State: r.current.State, Err: l.lost}, now)
		} else if l.entry != nil {
			e.nextBacklog(l.entry, now)
		}
	}
	return nil
}

// revive makes a loaded flow live: its state as it was, its missed fire times counted or in the backlog, its run resumed or about to be
// lost.
func (e *engine) revive(l *loadedFlow, now flow.Instant) {
	if l.entry == nil || l.entry.deleted {
		if l.entry != nil {
			e.index.put(l.entry)
		}
		e.add(l.definition, l.set, now)
		return
	}
	en := l.entry
	en.resources = l.set
	e.orders++
	en.order = e.orders
	en.nextFire, en.dueAt = 0, 0 // computed anew
	e.enter(en)
	if l.changed {
		e.definitions ^= en.flow.hash() // storeDefinition adds it again
		e.storeDefinition(en)
	}
	if l.was != nil {
		e.trim(en, l.was.keepRuns(), l.definition.keepRuns())
	}
	if l.was != nil && l.was.schedule() != l.definition.schedule() {
		// What was missed was missed by the schedule of that time.
		en.flow = l.was
		e.catchUpAfter(en, now)
		e.setDue(en, 0)
		en.flow = l.definition
		en.beginAnew(now)
	}
	e.catchUpAfter(en, now)
	if l.open != nil {
		e.recover(en, l, now)
	}
	if l.unscheduled {
		e.touch(en)
	}
	if en.touched == nil {
		en.published.Store(en.info(l.revision))
	}
}

// catchUpAfter settles what a flow missed while the engine was down.
func (e *engine) catchUpAfter(en *entry, now flow.Instant) {
	e.setBackMeanwhile(en, now)
	e.schedule(en, en.cursor)
	if en.nextFire != 0 && en.nextFire < now {
		e.catchUp(en, now)
	}
}

// enter makes a stored flow known.
func (e *engine) enter(en *entry) {
	e.index.put(en)
	e.flows.Add(1)
	e.definitions ^= en.flow.hash()
	if en.nextFire != 0 {
		e.due.fix(en)
	}
}

// recover brings back the run that a crash interrupted, to go on or to end as lost. Either way no flow stays RUNNING without a run.
func (e *engine) recover(en *entry, l *loadedFlow, now flow.Instant) {
	o := l.open
	r := e.newRun(en, l.run.GetParams().AsMap())
	if l.by != nil {
		r.definition, r.flow = l.by, l.by.compiled.Load()
		r.replaced.Store(true)
		e.remember(en.shard, key(pinnedKey, en.id), l.by.Source)
	}
	r.stored.Store(l.run != nil)
	r.history.events, r.history.dropped = fromEvents(l.run.GetEvents()), l.run.GetEventsDropped()
	r.current = Current{
		ID: r.id, Number: o.Number, Cause: flow.Cause(o.Cause), FireTime: flow.Instant(o.FireTime), Start: flow.Instant(o.Start),
		State: o.State, StateTime: flow.Instant(o.StateTime), Attempt: 1, Cancelling: o.Cancelling, Resumed: int(o.Resumed) + 1,
	}
	e.BeforeResume(r.id)
	r.resume = fromCheckpoint(l.run.GetCheckpoint())
	if r.resume == nil {
		r.resume = &workflow.Checkpoint{} // it crashed in its first state
	}
	switch at := r.resume.State; {
	case r.flow == broken:
		_, l.lost = en.flow.flow()
	case e.plan(en).OnCrash == CrashFail:
		l.lost = errors.New("the scheduler ended while the run was on its way")
	case at != "" && r.flow.Workflow.States[at] == nil && r.flow.Workflow.Exits[at] == nil:
		l.lost = fmt.Errorf("the scheduler ended while the run was in state %q, which its workflow no longer has", r.resume.State)
	}
	if l.lost != nil {
		return
	}
	e.log.Info("an interrupted run goes on", "flow", en.id, "run", r.id, "state", r.resume.State)
	if o.Cancelling {
		r.cancel(errCancelled)
	}
	e.touch(en)
	e.later(r.launch)
}

// restoreRequests brings back answered requests.
func (e *engine) restoreRequests(records map[string]*storev1.RequestRecord) {
	for id, record := range records {
		r := &request{id: id, digest: record.Digest, at: flow.Instant(record.Time), run: record.Run, done: true}
		if record.FlowId != "" {
			en := &entry{id: record.FlowId, shard: shardOf(record.FlowId), flow: &Definition{ID: record.FlowId}}
			en.restore(record.State)
			r.entry = en
			r.info = en.info(record.Revision)
			if o := record.State.GetRun(); o != nil {
				r.info.Run = &Current{
					ID: runID(en.id, o.Number), Number: o.Number, Cause: flow.Cause(o.Cause), FireTime: flow.Instant(o.FireTime),
					Start: flow.Instant(o.Start), State: o.State, StateTime: flow.Instant(o.StateTime), Attempt: int(o.Attempt),
					Cancelling: o.Cancelling, Resumed: int(o.Resumed),
				}
			}
		} else {
			r.answer = &ApplyResult{Revision: record.Revision}
		}
		e.requests.byID[id] = r
		e.requests.order = append(e.requests.order, r)
	}
}
