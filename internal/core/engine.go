package core

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/core/store"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

// engine is the one goroutine that owns every flow's state and the queue of due times. All others send it messages, so there are no
// locks on flow state. What it decides gathers in a group, is committed, and only then told and acted on.
type engine struct {
	Config
	log      *slog.Logger
	instance string
	basis    string // that the stored next fire times were computed on
	fencing  uint64
	session  store.Session
	shared   *resource.Set
	bare     *resource.Set // of all flows without resources of their own
	index    *index
	hub      *hub
	inbox    *inbox
	commits  *committer

	due         dueQueue
	waiting     waitQueue
	workers     *workers
	callees     func(id string) (*workflow.Callee, error) // callee
	running     int                                       // runs on their way, those about to start included
	requests    *requests
	group       *group
	kept        runRecord   // used for each run that is kept
	spare       *group      // an empty one; may be nil
	sealed      chan *group // to the goroutine that commits
	committing  bool
	fired       flow.Instant  // when flows were last found due
	stopping    bool          // refuse triggers, dispatch nothing
	quit        bool          // end once nothing is left to commit
	halted      error         // the store takes no more: nothing is told or dispatched any more
	dead        chan struct{} // closed when halted; from then on halted does not change
	over        chan struct{} // closed when the loop has ended
	drained     chan struct{} // closed when stopping and no run is on its way
	drainedOnce sync.Once
	orders      int // flows added so far
	clock       clock

	definitions uint64         // hashes of all definitions, summed by xor
	tombstones  []*entry       // deleted flows, oldest first
	teardowns   sync.WaitGroup // of resources that nobody uses any more

	oldestDue atomic.Int64 // the earliest fire time that is neither run nor counted; 0: none
	active    atomic.Int64 // running, for readers
	flows     atomic.Int64 // flows, without deleted ones
	revision  atomic.Uint64
	horizon   atomic.Uint64 // deletions up to this revision may be forgotten
	trouble   atomic.Pointer[string]
}

func randomFloat() float64 { return rand.Float64() }

// missedAfter is how late a fire time may be acted on as if it were in time. Later ones were missed, whatever the reason: an outage, a
// suspended machine, a clock set forward. Then the flow's catch-up policy says what happens.
const missedAfter = 10 * time.Second

// slice bounds the due flows handled before the inbox is looked at again, so that a call waits microseconds while a million flows are due.
const slice = 512

// tick is the least time between two looks at the queue of due times, unless something else comes up: when many flows are due one after
// the other they are handled a millisecond at a time, which takes a third of the time. A flow that is due alone is not held up.
const tick = time.Millisecond

// loop runs until it is told to quit and nothing is left to commit.
func (e *engine) loop() {
	defer close(e.over)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var spare []message
	for {
		now := e.now()
		queue := e.inbox.take(spare)
		for i, m := range queue {
			m(e, now)
			queue[i] = nil
		}
		spare = queue
		more := e.fireDue(now)
		e.startWaiting(now)
		e.flush()
		e.publishHealth()
		switch {
		case e.quit && (e.halted != nil || e.group.empty() && !e.committing):
			return
		case more:
			continue
		}
		timer.Reset(e.sleep(now))
		select {
		case <-e.inbox.wake:
		case <-timer.C:
		}
	}
}

// now is the wall clock as an Instant; it also notices when the clock was set.
func (e *engine) now() flow.Instant {
	now, jump := e.clock.read()
	if jump != 0 {
		e.clockJumped(now, jump)
	}
	return now
}

// sleep is how long nothing is due.
func (e *engine) sleep(now flow.Instant) time.Duration {
	first := e.due.first()
	if first == nil || e.halted != nil || e.full() {
		return time.Hour
	}
	pause := min(e.fired.Add(tick).Sub(now), tick) // more: the clock was set back
	return min(max(first.dueAt.Sub(now), pause, 0), e.ClockCheck)
}

// touch notes that en's state changed: the group being gathered will carry it.
func (e *engine) touch(en *entry) {
	en.changes++
	if en.touched != e.group {
		en.touched = e.group
		e.group.entries = append(e.group.entries, en)
	}
}

// change adds a change to the group being gathered.
func (e *engine) change(shard store.Shard, key, value []byte) {
	e.group.changes = append(e.group.changes, store.Change{Shard: shard, Key: key, Value: value})
}

// remember is change for what only the next start reads. A store that ends with the process has none.
func (e *engine) remember(shard store.Shard, key, value []byte) {
	if e.Store.Durable() {
		e.change(shard, key, value)
	}
}

// later runs fn once the group being gathered is durable.
func (e *engine) later(fn func()) { e.group.after = append(e.group.after, fn) }

// answer runs fn once everything that en's state says is durable, at once if it is: nobody is told what could still be lost.
func (e *engine) answer(en *entry, fn func()) {
	if en.settled() {
		fn()
		return
	}
	en.touched.after = append(en.touched.after, fn)
}

// flush hands the group to the committer unless the one before is still on its way.
func (e *engine) flush() {
	if e.committing || e.group.empty() || e.halted != nil {
		return
	}
	g := e.group
	e.group, e.spare = cmp.Or(e.spare, &group{}), nil
	g.seal(uint64(e.session.Revision())+1, e.Store.Durable())
	e.committing = true
	if !e.Store.Durable() {
		// Nothing to wait for: a hand-over to another goroutine would cost more than the commit.
		e.commit(g)
		return
	}
	e.sealed <- g
}

// commitLoop writes the groups it is handed. It is a goroutine of its own so that the engine goes on while the disk works.
func (e *engine) commitLoop(ctx context.Context) {
	for g := range e.sealed {
		began := time.Now()
		err := e.commits.commit(ctx, g)
		took := time.Since(began)
		e.inbox.put(func(e *engine, _ flow.Instant) { e.committed(g, took, err) })
	}
}

func (e *engine) commit(g *group) {
	began := time.Now()
	err := e.commits.commit(context.Background(), g)
	e.committed(g, time.Since(began), err)
}

// committed publishes a durable group, then does what waited for it.
func (e *engine) committed(g *group, took time.Duration, err error) {
	e.committing = false
	switch {
	case err != nil:
		e.halt(err)
		return
	case e.halted != nil:
		return // nobody waits for it any more
	}
	e.Observer.Committed(len(g.changes), took)
	e.revision.Store(uint64(e.session.Revision()))
	for i, en := range g.entries {
		if en.touched == g {
			en.touched = nil
		}
		en.published.Store(g.infos[i])
	}
	e.hub.publish(g.entries, g.infos, uint64(e.session.Revision()))
	for _, fn := range g.after {
		fn()
	}
	g.reset()
	e.spare = g
}

// halt ends dispatching for good, since the store takes no more: another process took it over, or it cannot write. Readers still get
// what was durable last; everything else is refused. Only a restart helps.
func (e *engine) halt(err error) {
	if e.halted != nil {
		return
	}
	e.halted = fmt.Errorf("%w: %w", ErrStore, err)
	e.stopping = true
	close(e.dead)
	e.log.Error("the store takes no more changes: nothing runs until a restart", "error", err)
	e.cancelRuns(fmt.Errorf("%w: %w", workflow.ErrLost, e.halted)) // their next owner, or the next start, goes on with them
	e.index.each(func(en *entry) bool {
		if en.run != nil && !en.run.launched {
			en.run = nil
			e.running--
		}
		return true
	})
	e.checkDrained()
	text := e.halted.Error()
	e.trouble.Store(&text)
}

// publishHealth tells readers of the oldest fire time that is due and neither run nor counted.
func (e *engine) publishHealth() {
	var oldest flow.Instant
	if first := e.due.first(); first != nil {
		oldest = first.dueAt
	}
	if len(e.waiting.heap) > 0 && (oldest == 0 || e.waiting.heap[0].since < oldest) {
		oldest = e.waiting.heap[0].since
	}
	e.oldestDue.Store(int64(oldest))
	e.active.Store(int64(e.running))
}
