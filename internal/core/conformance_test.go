package core_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/schedule"
	"github.com/schedulerd/schedulerd/internal/core/store"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

// The cases of cano's scheduler tests (https://github.com/nassor/cano, cano/src/scheduler/{builder,running}.rs and
// cano/tests/scheduler_cancellation.rs) under these semantics. Where one differs, docs/differences.md says why. Those of the backoff
// formula are in package flow; those of split, timer and saga runs in package workflow, whose runs end the same way for all of them.

// attempts is a task that fails as long as fails says so, by the number of the attempt from 1.
func attempts(fails func(n int) bool) workflow.TaskFunc {
	n := 0
	return func(context.Context, *workflow.Invocation) (workflow.Result, error) {
		if n++; fails(n) {
			return workflow.Result{}, fmt.Errorf("attempt %d", n)
		}
		return workflow.Result{}, nil
	}
}

func trigger(t *testing.T, r *core.Running, id string) {
	t.Helper()
	if _, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: id}); err != nil {
		t.Fatal(err)
	}
}

func TestBuilder(t *testing.T) {
	s := core.New(core.Config{Store: store.NewMemory()})
	good := func(id string) *core.Flow { return &core.Flow{ID: id, Workflow: task(failing), Backoff: steady} }
	if err := s.Add(good("f")); err != nil { // that it will fail is no reason to refuse it
		t.Fatal(err)
	}
	noExit, noInitial := task(failing), task(failing)
	noExit.Exits, noInitial.Initial = nil, "nowhere"
	zero := good("z")
	zero.Backoff = flow.Policy{}
	for name, f := range map[string]*core.Flow{
		"twice": good("f"), "no id": good(""), "no text": good("a\x00b"), "no UTF-8": good("\xff"), "no workflow": {ID: "w", Backoff: steady}, "no exit": {ID: "e", Workflow: noExit, Backoff: steady},
		"no initial state": {ID: "i", Workflow: noInitial, Backoff: steady}, "no backoff": zero,
	} {
		if err := s.Add(f); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r, err := s.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, r)
	if _, err := s.Start(t.Context()); !errors.Is(err, core.ErrStarted) {
		t.Errorf("second start: %v", err)
	}
	if err := s.Add(good("late")); !errors.Is(err, core.ErrStarted) {
		t.Errorf("a flow after the start: %v", err)
	}
}

func TestFailedFlowIsParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, core.Config{}, &core.Flow{ID: "f", Workflow: task(failing), Backoff: flow.DefaultPolicy})
		trigger(t, r, "f")
		info := status(t, r, "f")
		expect(t, info, flow.Backoff, 1)
		if info.Streak != 1 || info.NextEligible == 0 {
			t.Errorf("parked with streak %d until %v", info.Streak, info.NextEligible)
		}
	})
}

func TestTriggerOverridesTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := flow.Policy{Initial: time.Minute, Multiplier: 2, MaxDelay: time.Hour}
		r := start(t, core.Config{}, &core.Flow{ID: "f", Workflow: task(attempts(func(n int) bool { return n == 1 })), Backoff: policy})
		trigger(t, r, "f")
		expect(t, status(t, r, "f"), flow.Backoff, 1)
		trigger(t, r, "f")
		info := status(t, r, "f")
		expect(t, info, flow.Completed, 2)
		if info.Streak != 0 || info.NextEligible != 0 || info.LastError != "" {
			t.Errorf("after a success: %+v", info.State)
		}
	})
}

func TestCronTicksInTheWindowAreSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := flow.Policy{Initial: time.Minute, Multiplier: 2, MaxDelay: time.Hour}
		r := start(t, core.Config{}, &core.Flow{
			ID: "f", Schedule: compile(t, schedule.Spec{Cron: "* * * * * *"}), Workflow: task(failing), Backoff: policy,
		})
		sleep(4200 * time.Millisecond)
		info := status(t, r, "f")
		expect(t, info, flow.Backoff, 1)
		if got := info.Skipped[flow.SkipBackoff]; got != 4 {
			t.Errorf("skipped %d ticks in the window, want 4", got)
		}
	})
}

func TestBackoffStretchesTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := flow.Policy{Initial: 150 * time.Millisecond, Multiplier: 2, MaxDelay: 600 * time.Millisecond}
		r := start(t, core.Config{}, &core.Flow{ID: "f", Schedule: every(t, 50*time.Millisecond), Workflow: task(failing), Backoff: policy})
		sleep(1300 * time.Millisecond) // at 0, 150, 450 and 1050 ms
		expect(t, status(t, r, "f"), flow.Backoff, 4)
	})
}

func TestTripResetTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := flow.Policy{Initial: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond, TripAfter: 2}
		r := start(t, core.Config{}, &core.Flow{
			ID: "f", Schedule: every(t, 10*time.Millisecond), Workflow: task(attempts(func(n int) bool { return n < 5 })), Backoff: policy,
		})
		for round := range 2 {
			sleep(100 * time.Millisecond)
			expect(t, status(t, r, "f"), flow.Tripped, uint64(2*round+2))
			info, err := r.Reset(t.Context(), "f", "")
			if err != nil || info.Status != flow.Idle || info.Streak != 0 || info.NextEligible != 0 {
				t.Fatalf("reset: %+v, %v", info, err)
			}
		}
		sleep(15 * time.Millisecond)
		if info := status(t, r, "f"); info.Status != flow.Completed || info.Streak != 0 {
			t.Errorf("the fifth attempt succeeds: %v, streak %d", info.Status, info.Streak)
		}
	})
}

func TestStreakEndsWithASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, core.Config{}, &core.Flow{ID: "f", Workflow: task(attempts(func(n int) bool { return n != 3 }))})
		for i, want := range []uint32{1, 2, 0, 1} {
			trigger(t, r, "f")
			if got := status(t, r, "f").Streak; got != want {
				t.Errorf("streak %d after run %d, want %d", got, i+1, want)
			}
		}
	})
}

func TestResetDuringARunCountsFromZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(ctx context.Context, in *workflow.Invocation) (workflow.Result, error) {
			time.Sleep(time.Second)
			return failing(ctx, in)
		}
		r := start(t, core.Config{}, &core.Flow{ID: "f", Workflow: task(slow)})
		for range 3 {
			trigger(t, r, "f")
			sleep(time.Second)
		}
		trigger(t, r, "f")
		if info, err := r.Reset(t.Context(), "f", ""); err != nil || info.Status != flow.Running || info.Streak != 0 {
			t.Fatalf("reset: %+v, %v", info, err)
		}
		sleep(time.Second)
		if got := status(t, r, "f").Streak; got != 1 {
			t.Errorf("streak %d after a failure that followed a reset, want 1", got)
		}
	})
}

func TestPanicDoesNotStrandAFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, core.Config{}, &core.Flow{ID: "f", Workflow: task(func(context.Context, *workflow.Invocation) (workflow.Result, error) { panic("boom") })})
		for range 2 {
			trigger(t, r, "f")
			if info := status(t, r, "f"); info.Status != flow.Backoff || info.LastError == "" {
				t.Errorf("after a panic: %v, %q", info.Status, info.LastError)
			}
		}
	})
}

func TestManyTriggers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, core.Config{}, &core.Flow{ID: "f", Workflow: task(lasting(0)), KeepRuns: 5})
		for range 20 {
			trigger(t, r, "f")
			synctest.Wait()
		}
		expect(t, status(t, r, "f"), flow.Completed, 20)
		runs, more, err := r.Runs(t.Context(), "f", core.RunListOptions{Limit: 3})
		if err != nil || len(runs) != 3 || !more || runs[0].Number != 20 {
			t.Fatalf("runs: %d, more %v, %v", len(runs), more, err)
		}
		rest, more, err := r.Runs(t.Context(), "f", core.RunListOptions{Limit: 3, Before: runs[2].Number})
		if err != nil || len(rest) != 2 || more || rest[1].Number != 16 {
			t.Errorf("the next page: %d, more %v, %v", len(rest), more, err)
		}
		if _, err := r.Run(t.Context(), "f@15"); !errors.Is(err, core.ErrRunNotFound) {
			t.Errorf("a run that is no longer kept: %v", err)
		}
	})
}

func TestStopInterruptsSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := flow.Policy{Initial: time.Minute, Multiplier: 2, MaxDelay: time.Hour}
		r := start(t, core.Config{},
			&core.Flow{ID: "interval", Schedule: every(t, time.Hour), Workflow: task(lasting(0))},
			&core.Flow{ID: "cron", Schedule: compile(t, schedule.Spec{Cron: "0 0 3 * * *"}), Workflow: task(lasting(0))},
			&core.Flow{ID: "backoff", Schedule: every(t, time.Hour), Workflow: task(failing), Backoff: policy},
		)
		sleep(time.Second)
		began := time.Now()
		stop(t, r)
		if took := time.Since(began); took != 0 {
			t.Errorf("the stop of a scheduler that sleeps took %v", took)
		}
		for name, err := range map[string]error{
			"reset":  second(r.Reset(t.Context(), "cron", "")),
			"pause":  second(r.Pause(t.Context(), "cron", "")),
			"resume": second(r.Resume(t.Context(), "cron", 0, "")),
		} {
			if !errors.Is(err, core.ErrStopping) {
				t.Errorf("%s after the stop: %v", name, err)
			}
		}
		if infos, _, _ := r.List(core.ListOptions{}); len(infos) != 3 || infos[0].Flow.ID != "backoff" {
			t.Errorf("the list after the stop has %d flows", len(infos))
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestCancelKeepsTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, core.Config{},
			&core.Flow{ID: "every", Schedule: every(t, 10*time.Second), Workflow: task(lasting(time.Hour))},
			&core.Flow{ID: "cron", Schedule: compile(t, schedule.Spec{Cron: "*/10 * * * * *"}), Workflow: task(lasting(time.Hour))},
		)
		sleep(11 * time.Second)
		for _, id := range []string{"every", "cron"} {
			if _, told, err := r.Cancel(t.Context(), id, "", ""); err != nil || told == "" {
				t.Fatalf("cancel of %s told %q, %v", id, told, err)
			}
			info := status(t, r, id)
			if info.Status != flow.Idle || info.Streak != 0 {
				t.Errorf("%s after the cancel: %v, streak %d", id, info.Status, info.Streak)
			}
		}
		sleep(10 * time.Second)
		for _, id := range []string{"every", "cron"} {
			if info := status(t, r, id); info.Status != flow.Running || info.RunCount != 2 {
				t.Errorf("%s runs on: %v, %d runs", id, info.Status, info.RunCount)
			}
		}
	})
}

func TestWatchOfARunEndsWithTheScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stubborn := func(context.Context, *workflow.Invocation) (workflow.Result, error) {
			time.Sleep(time.Hour)
			return workflow.Result{}, nil
		}
		r := start(t, core.Config{}, &core.Flow{ID: "f", Workflow: task(stubborn)})
		trigger(t, r, "f")
		synctest.Wait() // the task runs
		w, err := r.WatchRun(t.Context(), "f@1")
		if err != nil {
			t.Fatal(err)
		}
		if result := stop(t, r); len(result.UnfinishedRuns) != 1 {
			t.Errorf("unfinished: %v", result.UnfinishedRuns)
		}
		for {
			if _, _, err = w.Next(t.Context()); err != nil {
				break
			}
		}
		if !errors.Is(err, core.ErrWatchEnded) {
			t.Errorf("the watch ended with %v", err)
		}
		time.Sleep(time.Hour) // lets the task end
	})
}
