package simtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/store"
	"github.com/schedulerd/schedulerd/internal/core/store/storetest"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

// world is one simulation: a disk, the lives of the engine on it, and everybody who uses it. It lives in a synctest bubble.
type world struct {
	t     *testing.T
	seed  uint64
	rng   *rand.Rand // the driver's
	pace  pace
	model *model
	disk  *storetest.Disk
	shift atomic.Int64 // of the wall clock
	life  *life
	lives int

	files   map[string]*plan // flows files
	version int
	ids     []string
	streams []*Stream
	asked   []*asked // triggers with a request id

	mu       sync.Mutex // of the fields below
	log      []string
	failures []string
	commits  int           // until the crash in the middle of one; 0: none
	tries    int           // commits tried
	trouble  bool          // the disk forgets
	collapse chan struct{} // told when a commit has to be crashed

	calls sync.WaitGroup
	stats Stats
}

// Stats is what simulations went through.
type Stats struct {
	Seeds, Crashes, Restarts, Starts, Jumps, Calls uint64
	Commits, Runs, Resumed, Shown                  uint64
	Time                                           time.Duration
}

// Add adds up.
func (s *Stats) Add(o Stats) {
	s.Seeds += o.Seeds
	s.Crashes += o.Crashes
	s.Restarts += o.Restarts
	s.Starts += o.Starts
	s.Jumps += o.Jumps
	s.Calls += o.Calls
	s.Commits += o.Commits
	s.Runs += o.Runs
	s.Resumed += o.Resumed
	s.Shown += o.Shown
	s.Time += o.Time
}

func (s Stats) String() string {
	return fmt.Sprintf("%d seeds, %.1f virtual years, %d lives: %d crashes (%d of them in a start), %d graceful restarts; %d runs (%d times resumed), %d commits, %d calls, %d clock jumps, %d changes shown to watchers",
		s.Seeds, s.Time.Hours()/24/365, s.Crashes+s.Restarts+s.Seeds, s.Crashes, s.Starts, s.Restarts, s.Runs, s.Resumed, s.Commits, s.Calls, s.Jumps, s.Shown)
}

// asked is a trigger with a request id and what it was told.
type asked struct {
	flow, id string
	at       time.Time // by the wall clock
	jumps    int
	run      string // empty: never told
	version  int
}

func newWorld(t *testing.T, seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 0))
	w := &world{
		t: t, seed: seed, rng: rng, pace: paces[int(seed)%len(paces)], disk: storetest.NewDisk(seed), files: map[string]*plan{}, collapse: make(chan struct{}, 1),
	}
	w.model = &model{
		fail: w.fail, wall: w.now, random: pick(rng, 0, 0.5, rng.Float64(), 0.999999), maxRuns: pick(rng, 1, 2, 5, 1000),
		flows: map[string]*flowModel{}, truth: NewTruth(),
	}
	w.disk.Inject(w.fault)
	for i := range 3 + rng.IntN(8) {
		id := fmt.Sprintf("f%d", i)
		w.ids = append(w.ids, id)
		if chance(rng, 60) {
			w.files[id] = w.plan(id, core.FromFile)
		}
	}
	filters := Filters(w.ids)
	for i := range 3 {
		w.streams = append(w.streams, &Stream{Name: fmt.Sprint("stream ", i), Options: core.WatchOptions{Filter: filters[(int(seed)+i)%len(filters)]}, Overrun: true})
	}
	return w
}

func (w *world) plan(id string, origin core.Origin) *plan {
	w.version++
	return newPlan(w.rng, id, w.version, origin, w.pace, w.now())
}

// now is the wall clock.
func (w *world) now() time.Time { return time.Now().Add(time.Duration(w.shift.Load())) }

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf("%s %s", w.now().UTC().Format("2006-01-02 15:04:05.000"), fmt.Sprintf(format, args...)))
}

// fail notes a broken promise. It may be called from anywhere.
func (w *world) fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.note("FAILED: %s", text)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = append(w.failures, text)
}

func (w *world) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.failures) > 0
}

// report prints the first failure and the steps before it.
func (w *world) report() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.failures) == 0 {
		return
	}
	at := max(slices.IndexFunc(w.log, func(line string) bool { return strings.Contains(line, "FAILED") }), 0)
	w.t.Errorf("seed %d (%s, at most %d runs): %s\nthe last steps:\n%s", w.seed, w.pace.name, w.model.maxRuns, w.failures[0], strings.Join(w.log[max(at-40, 0):at], "\n"))
}

// fault decides what happens to a commit.
func (w *world) fault() storetest.Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tries++
	if w.commits > 0 {
		if w.commits--; w.commits == 0 {
			select {
			case w.collapse <- struct{}{}:
			default:
			}
			return storetest.Fault{Delay: 10000 * time.Hour}
		}
	}
	f := func(what string) float64 { return fate(w.seed, what, w.tries) }
	n := f("fault")
	switch {
	case w.trouble && n < 0.7:
		return storetest.Fault{Dropped: f("dropped") < 0.5, Lost: true}
	case n < 0.00003:
		return storetest.Fault{Broken: true}
	case n < 0.01:
		return storetest.Fault{Lost: true, Delay: time.Second}
	case n < 0.02:
		return storetest.Fault{Dropped: true}
	case n < 0.04:
		return storetest.Fault{Delay: time.Duration(f("delay") * float64(5*time.Second))}
	case n < 0.3:
		return storetest.Fault{Delay: time.Duration(f("delay") * float64(20*time.Millisecond))}
	}
	return storetest.Fault{}
}

// life is the engine from a start to a crash or a stop.
type life struct {
	world   *world
	number  int
	running *core.Running
	store   store.Store
	cancel  context.CancelFunc // of those who watch
	watches sync.WaitGroup
	dead    atomic.Bool // what is left of it counts no more

	mu     sync.Mutex
	active map[string]map[uint64]int // tasks at work, by flow and run
	tools  map[*tool]int
}

// auditing is the disk as a life has it open: the model is told of every commit.
type auditing struct {
	store.Store
	life *life
}

func (a auditing) Join(ctx context.Context) (store.Session, error) {
	s, err := a.Store.Join(ctx)
	return auditingSession{s, a.life}, err
}

type auditingSession struct {
	store.Session
	life *life
}

func (s auditingSession) Commit(ctx context.Context, g store.Group) (store.Revision, error) {
	s.life.world.model.handed(g)
	revision, err := s.Session.Commit(ctx, g)
	if err == nil {
		s.life.world.model.committed(g.Changes)
	}
	return revision, err
}

// begin begins a life, however often that takes.
func (w *world) begin() {
	for !w.failed() {
		w.lives++
		opened, err := w.disk.Open()
		if err != nil {
			w.fail("opening the disk: %v", err)
			return
		}
		w.model.recovered(w.read(opened))
		l := &life{world: w, number: w.lives, active: map[string]map[uint64]int{}, tools: map[*tool]int{}}
		l.store = auditing{opened, l}
		w.note("life %d begins with %d flows in files", l.number, len(w.files))
		s := core.New(core.Config{
			Store: l.store, MaxConcurrentRuns: w.model.maxRuns, Now: w.now, ClockCheck: time.Hour, Random: func() float64 { return w.model.random },
			Basis: fmt.Sprint(fate(w.seed, "basis", l.number) < 0.2), // of the time zones, say
			Compile: func(source []byte, origin core.Origin) (*core.Flow, error) {
				p, err := parsePlan(source)
				if err != nil {
					return nil, err
				}
				p.Origin = origin
				return p.flow(l), nil
			},
		})
		for _, id := range w.ids {
			if p := w.files[id]; p != nil {
				if err := s.Add(p.flow(l)); err != nil {
					w.fail("adding a flow: %v", err)
				}
			}
		}
		if chance(w.rng, 10) {
			w.crashInCommit(1)
		}
		if running := w.start(s); running != nil {
			l.running = running
			w.life = l
			w.follow(l)
			return
		}
		w.note("life %d was none", l.number)
		w.stats.Starts++
		w.end(l)
	}
}

// start starts a scheduler, unless the disk breaks or there is a crash meanwhile.
func (w *world) start(s *core.Scheduler) *core.Running {
	type result struct {
		running *core.Running
		err     error
	}
	done := make(chan result, 1)
	go func() {
		r, err := s.Start(context.Background())
		done <- result{r, err}
	}()
	crashed := false
	for {
		select {
		case r := <-done:
			switch {
			case r.err == nil && !crashed:
				return r.running
			case r.err == nil:
				r.running.Stop(context.Background(), 0)
			case !crashed && !errors.Is(r.err, store.ErrIO):
				w.fail("a start failed: %v", r.err)
			}
			return nil
		case <-w.collapse:
			crashed = true
			w.disk.Crash()
		case <-time.After(time.Hour):
			w.fail("a start takes longer than an hour")
			w.disk.Crash()
			crashed = true
		}
	}
}

// read is all that a store holds.
func (w *world) read(s store.Store) (all []store.Change) {
	for shard := range store.Shard(core.Shards) {
		err := s.Scan(context.Background(), shard, nil, false, func(key, value []byte) bool {
			all = append(all, store.Change{Shard: shard, Key: slices.Clone(key), Value: slices.Clone(value)})
			return true
		})
		if err != nil {
			w.fail("reading the disk: %v", err)
		}
	}
	return all
}

// follow lets the streams go on.
func (w *world) follow(l *life) {
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	for i, s := range w.streams {
		n := 0
		dice := func(what string) float64 { n++; return fate(w.seed, what, i, l.number, n) }
		l.watches.Go(func() {
			pause := func() time.Duration { return time.Duration(dice("pause") * float64(w.pace.watch)) }
			if err := s.Follow(ctx, l.running, pause, func() bool { return dice("broken") < 0.1 }); err != nil && !l.dead.Load() {
				w.fail("%s: %v", s.Name, err)
			}
		})
	}
}

// crash is a power cut.
func (w *world) crash() {
	w.note("crash")
	w.stats.Crashes++
	w.end(w.life)
}

// end takes a life's disk away and clears up what is left of it: whatever it still does counts no more and reaches nothing.
func (w *world) end(l *life) {
	l.dead.Store(true)
	w.disarm()
	w.disk.Crash()
	if l.running != nil {
		l.cancel()
		l.running.Stop(context.Background(), 0)
		l.watches.Wait()
	}
	w.calls.Wait()
	w.life = nil
}

func (w *world) crashInCommit(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commits = n
}

// disarm mends the disk, and reports whether a commit is stuck that was to be crashed.
func (w *world) disarm() (stuck bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commits, w.trouble = 0, false
	select {
	case <-w.collapse:
		return true
	default:
		return false
	}
}

// restart stops the engine in order and starts it again.
func (w *world) restart(grace time.Duration) {
	if w.disarm() {
		w.crash()
		return
	}
	w.note("stop within %v", grace)
	w.stats.Restarts++
	l := w.life
	w.model.cancelled()
	began := time.Now()
	result, err := l.running.Stop(context.Background(), grace)
	if err != nil {
		w.fail("stop: %v", err)
		return
	}
	if took := time.Since(began); took > grace+core.DefaultKillTime+time.Minute {
		w.fail("a stop with a grace of %v took %v", grace, took)
	}
	l.watches.Wait()
	w.calls.Wait()
	l.dead.Store(true)
	halted := false
	select {
	case <-l.running.Halted():
		halted = true
	default:
	}
	l.mu.Lock()
	for tool, n := range l.tools {
		if n != 0 {
			w.fail("%s was set up %d times more than torn down", tool.name, n)
		}
	}
	l.mu.Unlock()
	if len(result.TeardownErrors) > 0 {
		w.fail("teardown: %v", result.TeardownErrors)
	}
	if !halted && !w.model.settled() {
		w.fail("a stop left a commit on its way")
	}
	if err := l.store.Close(); err != nil {
		w.fail("closing the disk: %v", err)
	}
	w.life = nil
}

// begin is told of a task that begins.
func (l *life) begin(in *workflow.Invocation) error {
	if l.dead.Load() {
		return errors.New("the engine is dead")
	}
	l.world.model.taskStarts(in.FlowID, in.Number, in.State)
	l.mu.Lock()
	defer l.mu.Unlock()
	runs := l.active[in.FlowID]
	if runs == nil {
		runs = map[uint64]int{}
		l.active[in.FlowID] = runs
	}
	runs[in.Number]++
	if len(runs) > 1 {
		l.world.fail("flow %s: two runs at once: %v", in.FlowID, runs)
	}
	return nil
}

func (l *life) end(in *workflow.Invocation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	runs := l.active[in.FlowID]
	if runs[in.Number]--; runs[in.Number] == 0 {
		delete(runs, in.Number)
	}
}

// tool is told of a resource's setup and teardown.
func (l *life) tool(t *tool, by int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tools[t] += by
	if n := l.tools[t]; (n < 0 || n > 1) && !l.dead.Load() {
		l.world.fail("%s was set up %d times more than torn down", t.name, n)
	}
}

// check compares the engine with the model at a moment when nothing is on its way.
func (w *world) check() {
	l := w.life
	select {
	case <-l.running.Halted():
		return
	default:
	}
	if !w.model.settled() || w.armed() {
		return
	}
	var infos []*core.Info
	after := ""
	for {
		page, more, _ := l.running.List(core.ListOptions{After: after, Limit: 3})
		infos = append(infos, page...)
		if !more {
			break
		}
		after = page[len(page)-1].Flow.ID
	}
	server := l.running.Info()
	w.model.same(infos, server.Running == w.model.maxRuns)
	running, waiting := 0, false
	for _, info := range infos {
		if info.ScheduleError != "" {
			w.fail("flow %s: %s", info.Flow.ID, info.ScheduleError)
		}
		if info.Run != nil {
			running++
			if age := time.Since(l.world.virtual(info.Run.Start)); age > 1000*w.pace.tick+24*time.Hour && w.model.jumps == 0 {
				w.fail("run %s is stuck: it started %v ago", info.Run.ID, age)
			}
		} else if w.model.backlogged(info.Flow.ID) {
			waiting = true
			w.note("waits: %s %v", info.Flow.ID, w.model.flow(info.Flow.ID).state)
		}
	}
	if server.Running != running || server.Flows != len(infos) || !server.Ready {
		w.fail("%d of %d flows are running, the engine says %+v", running, len(infos), server)
	}
	if (waiting || server.OldestDue > 0) && running < w.model.maxRuns {
		w.fail("fire times wait (the oldest for %v), and %d of %d slots are free", server.OldestDue, w.model.maxRuns-running, w.model.maxRuns)
	}
}

func (w *world) virtual(i flow.Instant) time.Time {
	return i.Time().Add(-time.Duration(w.shift.Load()))
}

func (w *world) armed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.trouble
}
