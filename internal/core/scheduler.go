package core

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

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
	r := &Running{engine: e, done: make(chan struct{}), hurry: make(chan struct{}), commitsEnded: make(chan struct{})}
	commits, giveUp := context.WithCancel(context.Background())
	r.giveUp = giveUp
	go func() {
		defer close(r.commitsEnded)
		e.commitLoop(commits)
	}()
	go e.loop()
	go r.watchSession()
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
		group: &group{}, sealed: make(chan *group, 1), workers: make(chan func()), dead: make(chan struct{}), over: make(chan struct{}), drained: make(chan struct{}), clock: newClock(config.Now),
	}
	for _, o := range owned {
		e.fencing = max(e.fencing, o.Generation)
	}
	e.hub = newHub(uint64(session.Revision()))
	e.revision.Store(uint64(session.Revision()))
	return e, nil
}

// begins brings the engine to where it dispatches: the stored flows and the given ones, their resources, the runs a crash interrupted.
func (e *engine) begins(ctx context.Context, flows []*Flow) (err error) {
	loaded, err := e.load(ctx, flows)
	if err != nil {
		return err
	}
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
	for _, l := range loaded {
		set, err := resource.Setup(ctx, l.flow.Resources, e.shared)
		if err != nil {
			return &FlowError{Err: err, Flow: l.flow.ID}
		}
		sets = append(sets, set)
		l.set = set
	}
	now := e.now()
	for _, l := range loaded {
		e.revive(l, now)
	}
	// Only now that all interrupted runs have their slots others may start, the oldest fire time first.
	slices.SortStableFunc(loaded, func(a, b *loadedFlow) int { return cmp.Compare(a.waits(), b.waits()) })
	for _, l := range loaded {
		if l.lost != nil {
			r := l.old.run
			r.cancel(l.lost)
			e.ended(r, workflow.End{Outcome: workflow.Lost, State: r.current.State, Err: l.lost}, now)
		} else if l.old != nil {
			e.nextBacklog(l.old, now)
		}
	}
	return nil
}

// loadedFlow is a flow at the start: its definition, and what the store knows of it.
type loadedFlow struct {
	flow *Flow
	set  *resource.Set
	old  *entry // as it was; nil: it is new
	open *storev1.OpenRun
	run  *storev1.OpenRunRecord
	was  *Flow // its definition at the end of the life before, if that was another one
	by   *Flow // the definition its open run goes by, if that is another one
	lost error // why its open run cannot go on
}

// waits is the oldest missed fire time that shall still run.
func (l *loadedFlow) waits() flow.Instant {
	if l.old == nil || len(l.old.backlog) == 0 {
		return 0
	}
	return l.old.backlog[0]
}

// load reads the store and lays the given flows over it. Flows that came from a file before and are not given any more go.
func (e *engine) load(ctx context.Context, given []*Flow) ([]*loadedFlow, error) {
	records := newLoad()
	for shard := range store.Shard(Shards) {
		if err := records.read(ctx, e.Store, shard); err != nil {
			return nil, err
		}
	}
	e.horizon.Store(records.horizon)
	var out []*loadedFlow
	add := func(f *Flow) error {
		l := &loadedFlow{flow: f}
		if record := records.states[f.ID]; record != nil {
			l.old = &entry{id: f.ID, shard: shardOf(f.ID), flow: f}
			l.old.restore(record)
			l.open, l.run = record.Run, records.open[f.ID]
			if d := records.definitions[f.ID]; d != nil && !bytes.Equal(d.Source, f.Source) {
				l.was = e.earlier(f, d.Source)
			}
			if source := records.pinned[f.ID]; source != nil {
				l.by = e.earlier(f, source)
			} else {
				l.by = l.was
			}
			delete(records.states, f.ID)
		}
		delete(records.definitions, f.ID)
		out = append(out, l)
		return nil
	}
	for _, f := range given {
		if d := records.definitions[f.ID]; d != nil && Origin(d.Origin) == FromAPI && f.Origin == FromFile {
			e.log.Warn("a flow that came over the API is now defined in a flows file", "flow", f.ID)
		}
		if err := add(f); err != nil {
			return nil, err
		}
	}
	for id, d := range records.definitions {
		if Origin(d.Origin) == FromFile {
			e.change(shardOf(id), key(definitionKey, id), nil)
			continue // the state left without a definition becomes a tombstone below
		}
		f, err := e.Compile(d.Source, FromAPI)
		if err == nil {
			err = f.check()
		}
		if err != nil {
			// One bad definition must not keep all others from running.
			e.log.Error("a stored flow is not understood and left out", "flow", id, "error", err)
			delete(records.states, id)
			continue
		}
		if err := add(f); err != nil {
			return nil, err
		}
	}
	for id, record := range records.states {
		en := &entry{id: id, shard: shardOf(id), flow: &Flow{ID: id}}
		en.restore(record)
		if !en.deleted {
			en.deleted = true
			e.touch(en)
			e.change(en.shard, key(openRunKey, id), nil)
			e.change(en.shard, key(pinnedKey, id), nil)
			err := e.Store.Scan(ctx, en.shard, historyPrefix(id), false, func(key, _ []byte) bool {
				e.change(en.shard, slices.Clone(key), nil)
				return true
			})
			if err != nil {
				return nil, err
			}
		}
		e.index.put(en)
		en.published.Store(en.info(record.Revision))
		e.tombstones = append(e.tombstones, en)
	}
	e.restoreRequests(records.requests)
	return out, nil
}

// earlier compiles a definition that a flow had before; nil if it is no longer understood.
func (e *engine) earlier(f *Flow, source []byte) *Flow {
	was, err := e.Compile(source, f.Origin)
	if err != nil {
		e.log.Warn("the definition that a flow had before is no longer understood; the present one takes its place", "flow", f.ID, "error", err)
		return nil
	}
	return was
}

// load is what the store holds, by flow.
type load struct {
	definitions map[string]*storev1.DefinitionRecord
	states      map[string]*storev1.StateRecord
	open        map[string]*storev1.OpenRunRecord
	pinned      map[string][]byte
	requests    map[string]*storev1.RequestRecord
	horizon     uint64
}

func newLoad() *load {
	return &load{
		definitions: map[string]*storev1.DefinitionRecord{}, states: map[string]*storev1.StateRecord{},
		open: map[string]*storev1.OpenRunRecord{}, pinned: map[string][]byte{}, requests: map[string]*storev1.RequestRecord{},
	}
}

// read takes in a shard.
func (l *load) read(ctx context.Context, s store.Store, shard store.Shard) error {
	var fault error
	scan := func(kind string, take func(id string, value []byte) error) error {
		err := s.Scan(ctx, shard, []byte(kind), false, func(key, value []byte) bool {
			id := string(key[len(kind):])
			if err := take(id, value); err != nil {
				fault = fmt.Errorf("record %s%s: %w: %w", kind, id, store.ErrCorrupt, err)
			}
			return fault == nil
		})
		return errors.Join(err, fault)
	}
	return errors.Join(
		scan(definitionKey, into(l.definitions)), scan(stateKey, into(l.states)), scan(openRunKey, into(l.open)),
		scan(requestKey, into(l.requests)),
		scan(pinnedKey, func(id string, value []byte) error {
			l.pinned[id] = append([]byte(nil), value...)
			return nil
		}),
		scan(metaKey, func(id string, value []byte) error {
			_, err := fmt.Sscanf(string(value), "%x", &l.horizon)
			return err
		}),
	)
}

// into decodes records into a map.
func into[T any, M interface {
	*T
	proto.Message
}](m map[string]M,
) func(id string, value []byte) error {
	return func(id string, value []byte) error {
		record := M(new(T))
		m[id] = record
		return proto.Unmarshal(value, record)
	}
}

// revive makes a loaded flow live: its state as it was, its missed fire times counted or in the backlog, its run resumed or about to be
// lost.
func (e *engine) revive(l *loadedFlow, now flow.Instant) {
	if l.old == nil || l.old.deleted {
		if l.old != nil {
			e.index.put(l.old)
		}
		e.add(l.flow, l.set, now)
		return
	}
	en := l.old
	en.resources = l.set
	e.orders++
	en.order = e.orders
	e.index.put(en)
	e.flows.Add(1)
	e.define(en)
	if l.was != nil {
		e.trim(en, l.was.keepRuns(), l.flow.keepRuns())
	}
	if l.was != nil && canonical(l.was.Schedule) != canonical(l.flow.Schedule) {
		// What was missed was missed by the schedule of that time.
		en.flow = l.was
		e.catchUpAfter(en, now)
		e.setDue(en, 0)
		en.flow = l.flow
		en.beginAnew(now)
	}
	e.catchUpAfter(en, now)
	if l.open != nil {
		e.recover(en, l, now)
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

// recover brings back the run that a crash interrupted, to go on or to end as lost. Either way no flow stays RUNNING without a run.
func (e *engine) recover(en *entry, l *loadedFlow, now flow.Instant) {
	o := l.open
	r := e.newRun(en, l.run.GetParams().AsMap())
	if l.by != nil {
		r.flow = l.by
		r.replaced.Store(true)
		e.change(en.shard, key(pinnedKey, en.id), l.by.Source)
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
	case en.flow.OnCrash == CrashFail:
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
			en := &entry{id: record.FlowId, shard: shardOf(record.FlowId), flow: &Flow{ID: record.FlowId}}
			en.restore(record.State)
			r.entry = en
			r.info = en.info(record.Revision)
			if o := record.State.GetRun(); o != nil {
				r.info.Run = &Current{
					ID: runID(en.id, o.Number), Number: o.Number, Cause: flow.Cause(o.Cause), FireTime: flow.Instant(o.FireTime),
					Start: flow.Instant(o.Start), State: o.State, StateTime: flow.Instant(o.StateTime), Attempt: int(o.Attempt),
				}
			}
		} else {
			r.answer = &ApplyResult{Revision: record.Revision, ETag: etag(e.definitions)}
		}
		e.requests.byID[id] = r
		e.requests.order = append(e.requests.order, r)
	}
	sortByTime(e.requests.order)
}
