package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/core/store"
	"github.com/schedulerd/schedulerd/internal/core/store/storetest"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

// diary is what happened, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) write(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *diary) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.lines, " ")
}

// expect compares the diary with what should be in it, and empties it.
func (d *diary) expect(t *testing.T, want string) {
	t.Helper()
	if got := d.String(); got != want {
		t.Errorf("it went %q\nwant    %q", got, want)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = nil
}

// tool is a resource that writes its life into a diary.
type tool struct {
	diary    *diary
	name     string
	setup    func(context.Context) error
	teardown func(context.Context) error
}

func (r *tool) Setup(ctx context.Context) error {
	r.diary.write("+%s", r.name)
	if r.setup != nil {
		return r.setup(ctx)
	}
	return nil
}

func (r *tool) Teardown(ctx context.Context) error {
	r.diary.write("-%s", r.name)
	if r.teardown != nil {
		return r.teardown(ctx)
	}
	return nil
}

// tools declares resources that only write their lives down.
func tools(d *diary, names ...string) []resource.Declaration {
	var decls []resource.Declaration
	for _, name := range names {
		decls = append(decls, resource.Declaration{Name: name, Resource: &tool{diary: d, name: name}})
	}
	return decls
}

func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestResourcesAreSetUpInOrderAndTornDownTheOtherWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		used := func(_ context.Context, in *workflow.Invocation) (workflow.Result, error) {
			for _, name := range []string{"shared", "z1", "z2", "a1"} {
				if in.Resources.Get(name) != nil {
					d.write("has:%s", name)
				}
			}
			return workflow.Result{}, nil
		}
		r := start(t, core.Config{Shared: tools(&d, "shared")},
			&core.Flow{ID: "z", Workflow: task(used), Resources: tools(&d, "z1", "z2")},
			&core.Flow{ID: "a", Workflow: task(used), Resources: tools(&d, "a1")},
			&core.Flow{ID: "m", Workflow: task(used)},
		)
		d.expect(t, "+shared +z1 +z2 +a1")
		for range 2 { // set up once, not for each run
			if _, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "z"}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		d.expect(t, "has:shared has:z1 has:z2 has:shared has:z1 has:z2")
		if result := stop(t, r); result.TeardownErrors != nil {
			t.Error(result.TeardownErrors)
		}
		d.expect(t, "-a1 -z2 -z1 -shared")
	})
}

func TestStartRollsBackWhenASetupFails(t *testing.T) {
	boom := errors.New("boom")
	for name, test := range map[string]struct {
		setup    func(context.Context) error
		teardown func(context.Context) error // of a resource that was set up before
		want     []error
	}{
		"an error":           {setup: func(context.Context) error { return boom }, want: []error{boom}},
		"a panic":            {setup: func(context.Context) error { panic("bang") }},
		"a hanging one":      {setup: hang, want: []error{context.DeadlineExceeded}},
		"one ignoring ctx":   {setup: func(context.Context) error { time.Sleep(time.Hour); return nil }, want: []error{resource.ErrAbandoned}},
		"a teardown too":     {setup: func(context.Context) error { return boom }, teardown: func(context.Context) error { return errors.New("no way back") }, want: []error{boom}},
		"a panicky teardown": {setup: func(context.Context) error { return boom }, teardown: func(context.Context) error { panic("and this") }, want: []error{boom}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var d diary
				memory := store.NewMemory()
				s := core.New(core.Config{Store: memory, Shared: tools(&d, "shared")})
				first := tools(&d, "a1", "a2")
				first[0].Resource.(*tool).teardown = test.teardown
				second := tools(&d, "b1", "b2", "b3")
				second[1].Resource.(*tool).setup = test.setup
				ran := false
				for _, f := range []*core.Flow{
					{ID: "first", Resources: first, Schedule: every(t, time.Second)},
					{ID: "second", Resources: second},
					{ID: "third", Resources: tools(&d, "c1")},
				} {
					f.Backoff = steady
					f.Workflow = task(func(context.Context, *workflow.Invocation) (workflow.Result, error) {
						ran = true
						return workflow.Result{}, nil
					})
					if err := s.Add(f); err != nil {
						t.Fatal(err)
					}
				}
				_, err := s.Start(t.Context())
				if err == nil {
					t.Fatal("it started")
				}
				for _, want := range test.want {
					if !errors.Is(err, want) {
						t.Errorf("%v, want %v", err, want)
					}
				}
				var of *core.FlowError
				if !errors.As(err, &of) || of.Flow != "second" || !strings.Contains(err.Error(), `"b2"`) {
					t.Errorf("the error does not name flow and resource: %v", err)
				}
				if test.teardown != nil && !strings.Contains(err.Error(), `teardown of resource "a1"`) {
					t.Errorf("the failed teardown is not reported: %v", err)
				}
				sleep(2 * time.Hour)
				if ran {
					t.Error("a flow ran")
				}
				d.expect(t, "+shared +a1 +a2 +b1 +b2 -b1 -a2 -a1 -shared")
				// The store is free for another try.
				again := core.New(core.Config{Store: memory})
				r, err := again.Start(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				stop(t, r)
			})
		})
	}
}

func TestTeardownErrorsAreCollectedAndNoneIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		first, second := tools(&d, "a1", "a2", "a3"), tools(&d, "b1")
		first[0].Resource.(*tool).teardown = hang
		first[1].Resource.(*tool).teardown = func(context.Context) error { panic("bang") }
		first[1].TeardownTimeout = time.Second
		second[0].Resource.(*tool).teardown = func(context.Context) error { return errors.New("boom") }
		r := start(t, core.Config{Shared: tools(&d, "shared")},
			&core.Flow{ID: "a", Resources: first, Workflow: task(failing)}, &core.Flow{ID: "b", Resources: second, Workflow: task(failing)})
		began := time.Now()
		result := stop(t, r)
		d.expect(t, "+shared +a1 +a2 +a3 +b1 -b1 -a3 -a2 -a1 -shared")
		got := ""
		for _, err := range result.TeardownErrors {
			got += err.Error() + "\n"
		}
		for _, want := range []string{`flow "b": teardown of resource "b1": boom`, `resource "a2": panic: bang`, `resource "a1": `} {
			if !strings.Contains(got, want) {
				t.Errorf("%q is not among the errors:\n%s", want, got)
			}
		}
		if len(result.TeardownErrors) != 3 || time.Since(began) > resource.DefaultTimeout+resource.AbandonAfter {
			t.Errorf("%d errors after %v", len(result.TeardownErrors), time.Since(began))
		}
	})
}

func TestAddRejects(t *testing.T) {
	good := func() *core.Flow { return &core.Flow{ID: "good", Backoff: steady, Workflow: task(failing)} }
	for name, test := range map[string]struct {
		change func(*core.Flow)
		want   string
	}{
		"no id":       {func(f *core.Flow) { f.ID = "" }, "id"},
		"no workflow": {func(f *core.Flow) { f.Workflow = nil }, "no workflow"},
		"no exit": {func(f *core.Flow) {
			f.Workflow = &workflow.Workflow{Initial: "run", States: f.Workflow.States}
		}, "exit"},
		"no states":             {func(f *core.Flow) { f.Workflow = &workflow.Workflow{} }, "state"},
		"unknown initial state": {func(f *core.Flow) { f.Workflow.Initial = "nowhere" }, "nowhere"},
		"bad backoff":           {func(f *core.Flow) { f.Backoff.Initial = 0 }, "backoff"},
		"the same id twice":     {func(f *core.Flow) { f.ID = "taken" }, "twice"},
	} {
		s := core.New(core.Config{Store: store.NewMemory()})
		taken := good()
		taken.ID = "taken"
		if err := s.Add(taken); err != nil {
			t.Fatal(err)
		}
		f := good()
		test.change(f)
		if err := s.Add(f); !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want ErrInvalid that speaks of %q", name, err, test.want)
		}
	}
}

func TestStartRejects(t *testing.T) {
	for name, config := range map[string]core.Config{
		"no store":       {},
		"negative limit": {Store: store.NewMemory(), MaxConcurrentRuns: -1},
		"negative grace": {Store: store.NewMemory(), Grace: -1},
		"negative kill":  {Store: store.NewMemory(), KillTime: -1},
		"negative check": {Store: store.NewMemory(), ClockCheck: -1},
	} {
		if _, err := core.New(config).Start(t.Context()); err == nil {
			t.Errorf("%s: it started", name)
		}
	}
	closed := store.NewMemory()
	closed.Close()
	if _, err := core.New(core.Config{Store: closed}).Start(t.Context()); !errors.Is(err, store.ErrClosed) {
		t.Errorf("with a closed store: %v", err)
	}
}

func TestAStoreServesOneSchedulerAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := store.NewMemory()
		r := start(t, core.Config{Store: memory})
		second := core.New(core.Config{Store: memory})
		if _, err := second.Start(t.Context()); !errors.Is(err, store.ErrLocked) {
			t.Errorf("a second scheduler on the store: %v", err)
		}
		stop(t, r)
		third, err := core.New(core.Config{Store: memory}).Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		stop(t, third)
	})
}

func TestStartIsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := core.New(core.Config{Store: store.NewMemory()})
		r, err := s.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Start(t.Context()); !errors.Is(err, core.ErrStarted) {
			t.Errorf("second start: %v", err)
		}
		if err := s.Add(&core.Flow{ID: "late", Backoff: steady, Workflow: task(failing)}); !errors.Is(err, core.ErrStarted) {
			t.Errorf("adding after the start: %v", err)
		}
		stop(t, r)
		if _, err := s.Start(t.Context()); !errors.Is(err, core.ErrStarted) {
			t.Errorf("start after the stop: %v", err)
		}
	})
}

// Who gets a Running can ask about its flows at once.
func TestFlowsAreThereWhenStartReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := core.New(core.Config{Store: slowDisk(t, time.Second)})
		if err := s.Add(&core.Flow{ID: "f", Backoff: steady, Workflow: task(lasting(time.Hour))}); err != nil {
			t.Fatal(err)
		}
		r, err := s.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer stop(t, r)
		if _, err := r.Status("f"); err != nil {
			t.Errorf("status right after the start: %v", err)
		}
		if infos, _, _ := r.List(core.ListOptions{}); len(infos) != 1 {
			t.Errorf("%d flows are listed right after the start", len(infos))
		}
		if _, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "f"}); err != nil {
			t.Errorf("trigger right after the start: %v", err)
		}
	})
}

func TestEmptySchedulerStartsAndStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, core.Config{})
		if infos, more, _ := r.List(core.ListOptions{}); len(infos) != 0 || more {
			t.Errorf("%d flows, more %v", len(infos), more)
		}
		sleep(24 * time.Hour)
		if result := stop(t, r); result.Duration != 0 || result.CancelledRuns != nil || result.UnfinishedRuns != nil {
			t.Errorf("stopping nothing: %+v", result)
		}
	})
}

func TestConcurrentStopsShareOneResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, core.Config{}, &core.Flow{ID: "f", Schedule: every(t, time.Hour), Workflow: task(lasting(5 * time.Second))})
		waited := make(chan *core.StopResult, 1)
		go func() { waited <- r.Wait() }()
		var all sync.WaitGroup
		results := make([]*core.StopResult, 8)
		for i := range results {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				results[i] = stopWithin(t, r, time.Duration(10-i)*time.Second) // the first one's grace counts
			})
		}
		// A caller that does not want to wait any longer leaves, and the stop goes on.
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Stop(impatient, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("impatient stop: %v", err)
		}
		select {
		case <-r.Done():
			t.Error("done too early")
		default:
		}
		all.Wait()
		for _, result := range append(results, <-waited) {
			if result != results[0] {
				t.Error("two stops have two results")
			}
		}
		if d := results[0].Duration; d != 5*time.Second || results[0].CancelledRuns != nil {
			t.Errorf("the stop took %v, the run 5s; cancelled %v", d, results[0].CancelledRuns)
		}
		<-r.Done()
	})
}

func stopWithin(t *testing.T, r *core.Running, grace time.Duration) *core.StopResult {
	t.Helper()
	result, err := r.Stop(context.Background(), grace)
	if err != nil {
		t.Error(err)
	}
	return result
}

func TestWaitDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, core.Config{}, &core.Flow{ID: "f", Schedule: every(t, time.Minute), Workflow: task(lasting(time.Second))})
		waited := make(chan struct{})
		go func() {
			r.Wait()
			close(waited)
		}()
		sleep(time.Hour)
		select {
		case <-waited:
			t.Fatal("Wait returned, and nobody had stopped")
		default:
		}
		expect(t, status(t, r, "f"), flow.Running, 61)
		stop(t, r)
		<-waited
	})
}

func TestEndGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, core.Config{}, &core.Flow{ID: "f", Schedule: every(t, time.Hour), Workflow: task(lasting(30 * time.Minute))})
		began := time.Now()
		go func() {
			time.Sleep(7 * time.Second)
			r.EndGrace()
			r.EndGrace()
		}()
		result := stopWithin(t, r, time.Hour)
		if took := time.Since(began); took != 7*time.Second || !slices.Equal(result.CancelledRuns, []string{"f@1"}) {
			t.Errorf("the stop took %v and cancelled %v", took, result.CancelledRuns)
		}
		if info := status(t, r, "f"); info.LastOutcome != flow.Cancelled || info.Streak != 0 || info.Status != flow.Idle {
			t.Errorf("the cancelled run left %+v", info.State)
		}
	})
}

func TestEndGraceBeforeTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, core.Config{}, &core.Flow{ID: "f", Schedule: every(t, time.Hour), Workflow: task(lasting(30 * time.Minute))})
		r.EndGrace()
		sleep(time.Minute)
		expect(t, status(t, r, "f"), flow.Running, 1)
		if result := stopWithin(t, r, time.Hour); result.Duration != 0 || len(result.CancelledRuns) != 1 {
			t.Errorf("the stop took %v", result.Duration)
		}
	})
}

func TestNegativeGraceIsTheConfiguredOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, core.Config{Grace: 3 * time.Minute}, &core.Flow{ID: "f", Schedule: every(t, time.Hour), Workflow: task(lasting(30 * time.Minute))})
		if result := stopWithin(t, r, -1); result.Duration != 3*time.Minute {
			t.Errorf("the stop took %v", result.Duration)
		}
	})
}

// From the first moment of a stop on nothing is dispatched: fire times are counted, triggers and waiting triggers refused, readers served.
func TestStopRefusesAndCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := opened(t, storetest.NewDisk(1))
		long := &core.Flow{ID: "long", Schedule: every(t, time.Hour), Workflow: task(lasting(10 * time.Second))}
		flows := func() []*core.Flow {
			return []*core.Flow{long, {ID: "tick", Schedule: every(t, time.Second), Workflow: task(lasting(time.Millisecond))}, {ID: "m", Workflow: task(lasting(time.Second))}}
		}
		began := time.Now()
		r := start(t, core.Config{Store: disk, MaxConcurrentRuns: 2}, flows()...)
		sleep(1500 * time.Millisecond)
		ticks := status(t, r, "tick").RunCount
		if _, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "m"}); err != nil {
			t.Fatal(err)
		}
		waiting := make(chan error, 1)
		go func() {
			_, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "tick", WaitForSlot: true})
			waiting <- err
		}()
		synctest.Wait()
		go r.Stop(context.Background(), time.Minute)
		synctest.Wait()
		if err := <-waiting; !errors.Is(err, core.ErrStopping) {
			t.Errorf("a trigger that waited for a slot: %v", err)
		}
		for name, call := range map[string]func() error{
			"trigger": func() error {
				_, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "tick"})
				return err
			},
			"apply": func() error { _, err := r.Apply(t.Context(), core.ApplyRequest{}); return err },
		} {
			if err := call(); !errors.Is(err, core.ErrStopping) {
				t.Errorf("%s while stopping: %v", name, err)
			}
		}
		if _, told, err := r.Cancel(t.Context(), "long", "nothing", ""); err != nil || told != "" {
			t.Errorf("a cancel while stopping: %q, %v", told, err)
		}
		sleep(3 * time.Second)
		info := status(t, r, "tick")
		if info.RunCount != ticks || info.Skipped[flow.SkipStopping] != 3 {
			t.Errorf("%d runs and %d fire times counted after the stop began; want none and 3", info.RunCount-ticks, info.Skipped[flow.SkipStopping])
		}
		r.Wait()
		sleep(time.Minute)
		info = status(t, r, "tick")
		stopping := info.Skipped[flow.SkipStopping]
		if stopping < 8 || stopping > 9 {
			t.Errorf("%d fire times counted in a stop of 8.5 s", stopping)
		}
		if infos, _, _ := r.List(core.ListOptions{}); len(infos) != 3 {
			t.Errorf("%d flows are listed after the stop", len(infos))
		}
		if _, err := r.Reset(t.Context(), "tick", ""); !errors.Is(err, core.ErrStopping) {
			t.Errorf("reset after the stop: %v", err)
		}
		if _, err := r.Apply(t.Context(), core.ApplyRequest{Prune: true, Origin: core.FromFile}); !errors.Is(err, core.ErrStopping) {
			t.Errorf("apply after the stop: %v", err)
		}
		// What came between the stop and the next start was missed, and nothing is counted twice.
		again := start(t, core.Config{Store: disk}, flows()...)
		info = status(t, again, "tick")
		if info.Skipped[flow.SkipStopping] != stopping || info.Skipped[flow.SkipOutage] < 59 {
			t.Errorf("after the restart: skipped %v", info.Skipped)
		}
		accounted(t, info, 1+uint64(time.Since(began)/time.Second))
	})
}

// accounted checks that each of a flow's fire times ran or was counted, once.
func accounted(t *testing.T, info *core.Info, fireTimes uint64) {
	t.Helper()
	got := info.RunCount
	for _, n := range info.Skipped {
		got += n
	}
	if got != fireTimes {
		t.Errorf("flow %s: %d runs and %v skipped, together %d; it had %d fire times", info.Flow.ID, info.RunCount, info.Skipped, got, fireTimes)
	}
}

// A stop with a saga on its way rolls it back within the kill time.
func TestStopRollsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		r := start(t, core.Config{}, &core.Flow{ID: "f", Workflow: saga(&d, time.Hour)})
		if _, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "f"}); err != nil {
			t.Fatal(err)
		}
		sleep(time.Second)
		if result := stopWithin(t, r, time.Second); result.UnfinishedRuns != nil {
			t.Errorf("unfinished: %v", result.UnfinishedRuns)
		}
		d.expect(t, "reserve charge undo:charge undo:reserve")
		expect(t, status(t, r, "f"), flow.Idle, 1)
	})
}

// saga reserves, charges, and then takes its time to ship.
func saga(d *diary, ship time.Duration) *workflow.Workflow {
	note := func(word string) *workflow.Step {
		return &workflow.Step{Retry: &workflow.Retry{}, Task: workflow.TaskFunc(func(context.Context, *workflow.Invocation) (workflow.Result, error) {
			d.write("%s", word)
			return workflow.Result{}, nil
		})}
	}
	return &workflow.Workflow{
		Initial: "reserve",
		States: map[string]*workflow.State{
			"reserve": {Work: note("reserve"), Compensate: note("undo:reserve"), Next: "charge"},
			"charge":  {Work: note("charge"), Compensate: note("undo:charge"), Next: "ship"},
			"ship":    {Work: &workflow.Step{Task: lasting(ship), Retry: &workflow.Retry{}}, Next: "done"},
		},
		Exits: map[string]*workflow.Exit{"done": {}},
	}
}
