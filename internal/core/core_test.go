package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/schedule"
	"github.com/schedulerd/schedulerd/internal/core/store"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// task is a workflow of one state that runs fn, without retries.
func task(fn workflow.TaskFunc) *workflow.Workflow {
	return &workflow.Workflow{
		Initial: "run",
		States:  map[string]*workflow.State{"run": {Work: &workflow.Step{Task: fn, Retry: &workflow.Retry{}}, Next: "done"}},
		Exits:   map[string]*workflow.Exit{"done": {}},
	}
}

// lasting is a task that takes d, or less when it is cancelled.
func lasting(d time.Duration) workflow.TaskFunc {
	return func(ctx context.Context, _ *workflow.Invocation) (workflow.Result, error) {
		select {
		case <-time.After(d):
			return workflow.Result{}, nil
		case <-ctx.Done():
			return workflow.Result{}, context.Cause(ctx)
		}
	}
}

func failing(context.Context, *workflow.Invocation) (workflow.Result, error) {
	return workflow.Result{}, errors.New("boom")
}

// every makes a schedule of a fixed interval.
func every(t *testing.T, d time.Duration) *schedule.Schedule {
	t.Helper()
	return compile(t, schedule.Spec{Every: &schedule.Every{Interval: d}})
}

func compile(t *testing.T, spec schedule.Spec) *schedule.Schedule {
	t.Helper()
	s, err := schedule.Compile(spec, schedule.Options{FlowID: "test", Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// steady is a policy without randomness.
var steady = flow.Policy{Initial: time.Second, Multiplier: 2, MaxDelay: time.Minute}

// start starts a scheduler with flows; it is stopped when the test ends.
func start(t *testing.T, config core.Config, flows ...*core.Flow) *core.Running {
	t.Helper()
	if config.Store == nil {
		config.Store = store.NewMemory()
	}
	s := core.New(config)
	for _, f := range flows {
		if f.Backoff == (flow.Policy{}) {
			f.Backoff = steady
		}
		if err := s.Add(f); err != nil {
			t.Fatal(err)
		}
	}
	r, err := s.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, r) })
	synctest.Wait()
	return r
}

func stop(t *testing.T, r *core.Running) *core.StopResult {
	t.Helper()
	result, err := r.Stop(context.Background(), 0)
	if err != nil {
		t.Error(err)
	}
	return result
}

func status(t *testing.T, r *core.Running, id string) *core.Info {
	t.Helper()
	synctest.Wait()
	info, err := r.Status(id)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// sleep lets virtual time pass, and everything that is due happen.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func expect(t *testing.T, info *core.Info, want flow.Status, runs uint64) {
	t.Helper()
	if info.Status != want || info.RunCount != runs {
		t.Errorf("flow %s: status %v after %d runs, want %v after %d", info.Flow.ID, info.Status, info.RunCount, want, runs)
	}
}

func TestEveryRunsAtStartAndOnItsGrid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, core.Config{}, &core.Flow{ID: "f", Schedule: every(t, 30*time.Second), Workflow: task(lasting(45 * time.Second))})
		began := time.Now()
		expect(t, status(t, r, "f"), flow.Running, 1)
		sleep(59 * time.Second)
		info := status(t, r, "f")
		expect(t, info, flow.Completed, 1)
		if got := info.Skipped[flow.SkipOverlap]; got != 1 {
			t.Errorf("overlaps: %d, want 1", got)
		}
		sleep(2 * time.Second)
		info = status(t, r, "f")
		expect(t, info, flow.Running, 2)
		if got := info.LastRun.Time().Sub(began); got != time.Minute {
			t.Errorf("second run at %v, want 1m", got)
		}
	})
}

func TestBackoffTripAndReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := steady
		policy.TripAfter = 3
		r := start(t, core.Config{}, &core.Flow{ID: "f", Schedule: every(t, 100*time.Millisecond), Workflow: task(failing), Backoff: policy})
		info := status(t, r, "f")
		expect(t, info, flow.Backoff, 1)
		if info.NextFire != info.NextEligible {
			t.Errorf("next fire %v, want the end of the window, %v", info.NextFire.Time(), info.NextEligible.Time())
		}
		sleep(time.Second)
		expect(t, status(t, r, "f"), flow.Backoff, 2)
		sleep(2 * time.Second)
		info = status(t, r, "f")
		expect(t, info, flow.Tripped, 3)
		if info.Streak != 3 || info.NextEligible != 0 || info.LastError == "" {
			t.Errorf("tripped with streak %d, window %v, error %q", info.Streak, info.NextEligible, info.LastError)
		}
		if _, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "f"}); !errors.Is(err, core.ErrFlowTripped) {
			t.Errorf("trigger of a tripped flow: %v", err)
		}
		sleep(time.Second)
		if got := status(t, r, "f").Skipped[flow.SkipTripped]; got != 10 {
			t.Errorf("skipped as tripped: %d, want 10", got)
		}
		info, err := r.Reset(t.Context(), "f", "")
		if err != nil || info.Status != flow.Idle || info.Streak != 0 || info.LastError != "" {
			t.Errorf("after the reset: %+v, %v", info, err)
		}
		sleep(100 * time.Millisecond)
		expect(t, status(t, r, "f"), flow.Backoff, 4)
	})
}

func TestTriggerOverlapCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, core.Config{}, &core.Flow{ID: "f", Workflow: task(lasting(time.Hour))})
		run, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "f", Params: map[string]any{"a": 1.0}})
		if err != nil || run.ID != "f@1" {
			t.Fatalf("trigger: %v, %v", run, err)
		}
		synctest.Wait() // the task runs
		var refused *core.FlowError
		if _, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "f"}); !errors.As(err, &refused) || !errors.Is(err, core.ErrFlowRunning) || refused.Run != "f@1" {
			t.Errorf("second trigger: %v", err)
		}
		if _, told, err := r.Cancel(t.Context(), "f", "f@7", ""); err != nil || told != "" {
			t.Errorf("cancel of another run told %q, %v", told, err)
		}
		if _, told, err := r.Cancel(t.Context(), "f", "", ""); err != nil || told != "f@1" {
			t.Errorf("cancel told %q, %v", told, err)
		}
		info := status(t, r, "f")
		expect(t, info, flow.Idle, 1)
		if info.LastOutcome != flow.Cancelled || info.Streak != 0 {
			t.Errorf("after the cancel: %+v", info.State)
		}
		got, err := r.Run(t.Context(), "f@1")
		if err != nil || got.Outcome != flow.Cancelled || got.Params["a"] != 1.0 || len(got.Events) == 0 {
			t.Errorf("kept run: %+v, %v", got, err)
		}
		if _, _, err := r.Cancel(t.Context(), "f", "", ""); err != nil {
			t.Errorf("cancel of an idle flow: %v", err)
		}
		for _, call := range []func() error{
			func() error { _, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "g"}); return err },
			func() error { _, err := r.Reset(t.Context(), "g", ""); return err },
			func() error { _, _, err := r.Cancel(t.Context(), "g", "", ""); return err },
			func() error { _, err := r.Pause(t.Context(), "g", ""); return err },
			func() error { _, err := r.Status("g"); return err },
		} {
			if err := call(); !errors.Is(err, core.ErrFlowNotFound) {
				t.Errorf("call about an unknown flow: %v", err)
			}
		}
	})
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, core.Config{}, &core.Flow{ID: "a", Workflow: task(lasting(time.Second))}, &core.Flow{ID: "b", Workflow: task(failing)})
		w, err := r.Watch(core.WatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		next := func() core.Batch {
			b, err := w.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		if b := next(); len(b.Changes) != 2 || !b.InitialComplete || b.Changes[0].Type != core.Snapshot {
			t.Fatalf("initial state: %+v", b)
		}
		r.Trigger(t.Context(), core.TriggerRequest{FlowID: "a"})
		if b := next(); len(b.Changes) != 1 || b.Changes[0].Info.Status != flow.Running || b.Changes[0].Type != core.Updated {
			t.Fatalf("running: %+v", b)
		}
		b := next()
		if len(b.Changes) != 1 || b.Changes[0].Info.Status != flow.Completed {
			t.Fatalf("completed: %+v", b)
		}
		began := time.Now()
		if b := next(); len(b.Changes) != 0 || time.Since(began) != 20*time.Second {
			t.Fatalf("bookmark: %+v after %v", b, time.Since(began))
		}
		r.Trigger(t.Context(), core.TriggerRequest{FlowID: "b"})
		synctest.Wait()
		resumed, err := r.Watch(core.WatchOptions{From: b.Revision, Instance: r.Info().Instance})
		if err != nil {
			t.Fatal(err)
		}
		if b, err := resumed.Next(t.Context()); err != nil || len(b.Changes) != 1 || b.Changes[0].Info.Flow.ID != "b" || b.Changes[0].Type != core.Updated {
			t.Fatalf("resumed: %+v, %v", b, err)
		}
		stop(t, r)
		for {
			b := next()
			if b.Ending {
				break
			}
		}
		if _, err := w.Next(t.Context()); !errors.Is(err, core.ErrWatchEnded) {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestStopWaitsThenCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stubborn := func(ctx context.Context, _ *workflow.Invocation) (workflow.Result, error) {
			time.Sleep(2 * time.Minute)
			return workflow.Result{}, nil
		}
		r := start(t, core.Config{Logger: slog.New(slog.DiscardHandler)},
			&core.Flow{ID: "short", Workflow: task(lasting(5 * time.Second))},
			&core.Flow{ID: "long", Workflow: task(lasting(time.Hour))},
			&core.Flow{ID: "stubborn", Workflow: task(stubborn)},
		)
		for _, id := range []string{"short", "long", "stubborn"} {
			if _, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: id}); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		result, err := r.Stop(t.Context(), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 15*time.Second {
			t.Errorf("the stop took %v, want grace and kill time, 15s", took)
		}
		if got := fmt.Sprint(result.CancelledRuns, result.UnfinishedRuns); got != "[long@1 stubborn@1] [stubborn@1]" {
			t.Errorf("cancelled and unfinished: %s", got)
		}
		again, err := r.Stop(t.Context(), time.Hour)
		if again != result || err != nil {
			t.Errorf("a second stop gave another result")
		}
		if _, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "short"}); !errors.Is(err, core.ErrStopping) {
			t.Errorf("trigger after the stop: %v", err)
		}
		if info := status(t, r, "short"); info.Status != flow.Completed {
			t.Errorf("short run: %v", info.Status)
		}
		time.Sleep(3 * time.Minute) // lets the stubborn task end
	})
}

// counting is a task that counts its calls and ends at once.
func counting(n *atomic.Int64) workflow.TaskFunc {
	return func(context.Context, *workflow.Invocation) (workflow.Result, error) {
		n.Add(1)
		return workflow.Result{}, nil
	}
}

func TestOnceThatPassesBeforeTheStartIsCaughtUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			late, window time.Duration
			runs, missed uint64
		}{
			"a moment late":     {time.Second, 0, 1, 0},
			"in the window":     {time.Minute, 0, 1, 0},
			"before the window": {time.Minute, 30 * time.Second, 0, 1},
		} {
			once := compile(t, schedule.Spec{Once: time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)})
			time.Sleep(time.Second + c.late)
			r := start(t, core.Config{}, &core.Flow{ID: "f", Schedule: once, Workflow: task(lasting(0)), CatchUp: core.CatchUp{Window: c.window}})
			info := status(t, r, "f")
			if info.RunCount != c.runs || info.Skipped[flow.SkipOutage] != c.missed || info.NextFire != 0 {
				t.Errorf("%s: %d runs, %d missed, next %v", name, info.RunCount, info.Skipped[flow.SkipOutage], info.NextFire)
			}
		}
	})
}

// Short names, for tasks written in place.
type (
	ctx        = context.Context
	invocation = workflow.Invocation
	result     = workflow.Result
)

func cron(t *testing.T, expr string) *schedule.Schedule {
	t.Helper()
	return compile(t, schedule.Spec{Cron: expr})
}
