package core_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/store"
	"github.com/schedulerd/schedulerd/internal/core/store/storetest"
)

// A commit whose outcome is unknown is repeated until it is known. Callers meanwhile are told so, readers are served, runs start late
// and nothing is counted twice.
func TestUnknownOutcomesAreRepeated(t *testing.T) {
	for name, fault := range map[string]storetest.Fault{"dropped": {Dropped: true}, "lost": {Lost: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := storetest.NewDisk(1)
				r := start(t, core.Config{Store: opened(t, d)}, &core.Flow{ID: "f", Workflow: task(lasting(time.Second))}, &core.Flow{ID: "tick", Schedule: every(t, time.Second), Workflow: task(lasting(0))})
				failing := time.Now().Add(10 * time.Second)
				d.Inject(func() storetest.Fault {
					if time.Now().Before(failing) {
						return fault
					}
					return storetest.Fault{}
				})
				sleep(1500 * time.Millisecond)
				before := status(t, r, "f")
				if info := r.Info(); info.Ready || info.NotReady == "" {
					t.Errorf("ready while the store fails: %+v", info)
				}
				_, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "f", RequestID: "once"})
				if !errors.Is(err, core.ErrStore) || !errors.Is(err, store.ErrUnknown) {
					t.Errorf("trigger while the store fails: %v", err)
				}
				if got := status(t, r, "f"); got != before {
					t.Errorf("readers see %+v that is not durable", got.State)
				}
				sleep(12 * time.Second)
				if info := r.Info(); !info.Ready {
					t.Errorf("not ready after the store recovered: %s", info.NotReady)
				}
				expect(t, status(t, r, "f"), flow.Completed, 1)
				run, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "f", RequestID: "once"})
				if err != nil || run.ID != "f@1" {
					t.Errorf("asking again for what the store took in the end: %v, %v", run, err)
				}
				if info := status(t, r, "tick"); info.RunCount+info.Skipped[flow.SkipOverlap]+info.Skipped[flow.SkipOutage] != 14 || info.RunCount < 4 {
					t.Errorf("%d runs, skipped %v; want 14 fire times in all", info.RunCount, info.Skipped)
				}
			})
		})
	}
}

// A store that cannot write ends dispatching for good: nothing runs, commands are refused, readers get what was durable last, and a
// restart goes on from there.
func TestIOErrorsHalt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := storetest.NewDisk(3)
		var runs, compensated atomic.Int64
		flows := func() []*core.Flow {
			undo := saga(&diary{}, time.Hour)
			undo.States["reserve"].Compensate.Task = counting(&compensated)
			return []*core.Flow{
				{ID: "tick", Schedule: every(t, time.Second), Workflow: task(counting(&runs))},
				{ID: "saga", Workflow: undo},
			}
		}
		r := start(t, core.Config{Store: opened(t, d)}, flows()...)
		if _, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "saga"}); err != nil {
			t.Fatal(err)
		}
		sleep(3500 * time.Millisecond)
		d.Inject(func() storetest.Fault { return storetest.Fault{Broken: true} })
		sleep(time.Second)
		before, count := status(t, r, "tick"), runs.Load()
		if info := r.Info(); info.Ready || info.NotReady == "" {
			t.Errorf("ready with a broken disk: %+v", info)
		}
		sleep(time.Hour)
		if runs.Load() != count {
			t.Errorf("%d runs after the disk broke", runs.Load()-count)
		}
		if got := status(t, r, "tick"); got != before {
			t.Errorf("a state that is not durable was published: %+v", got.State)
		}
		for name, call := range calls(t, r, "tick") {
			if err := call(); !errors.Is(err, core.ErrStore) {
				t.Errorf("%s with a broken disk: %v, want ErrStore", name, err)
			}
		}
		if infos, _, _ := r.List(core.ListOptions{}); len(infos) != 2 {
			t.Errorf("%d flows are listed with a broken disk", len(infos))
		}
		if runs, _, err := r.Runs(t.Context(), "tick", core.RunListOptions{}); err != nil || len(runs) == 0 {
			t.Errorf("runs with a broken disk: %d, %v", len(runs), err)
		}
		if compensated.Load() != 0 {
			t.Error("a run that goes on after the restart was compensated")
		}
		if result := stop(t, r); result.Duration > time.Second {
			t.Errorf("the stop took %v", result.Duration)
		}
		d.Crash()
		d.Inject(nil)
		again := start(t, core.Config{Store: opened(t, d)}, flows()...)
		if info := status(t, again, "tick"); info.RunCount < before.RunCount || info.Skipped[flow.SkipOutage] < 3500 {
			t.Errorf("after the restart: %d runs, skipped %v", info.RunCount, info.Skipped)
		}
		if info := status(t, again, "saga"); info.Status != flow.Running || info.Run.State != "ship" || info.Run.Resumed != 1 {
			t.Errorf("the saga after the restart: %v, %+v", info.Status, info.Run)
		}
	})
}

// calls is every call that changes something.
func calls(t *testing.T, r *core.Running, id string) map[string]func() error {
	return map[string]func() error{
		"trigger": func() error {
			_, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: id, RequestID: "1"})
			return err
		},
		"reset":  func() error { _, err := r.Reset(t.Context(), id, ""); return err },
		"cancel": func() error { _, _, err := r.Cancel(t.Context(), id, "", ""); return err },
		"pause":  func() error { _, err := r.Pause(t.Context(), id, ""); return err },
		"resume": func() error { _, err := r.Resume(t.Context(), id, 0, ""); return err },
		"delete": func() error { _, err := r.Delete(t.Context(), id, "", ""); return err },
		"apply":  func() error { _, err := r.Apply(t.Context(), core.ApplyRequest{}); return err },
	}
}

// A session that another process took over ends dispatching too, also when it is noticed while nothing is written, and its runs are
// left to the other: they are not compensated.
func TestFencedSessionsHalt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := storetest.NewDisk(3)
		var compensated atomic.Int64
		undo := saga(&diary{}, time.Hour)
		undo.States["charge"].Compensate.Task = counting(&compensated)
		expirer := &joining{Store: opened(t, d)}
		r := start(t, core.Config{Store: expirer}, &core.Flow{ID: "saga", Workflow: undo}, &core.Flow{ID: "tick", Schedule: every(t, time.Minute), Workflow: task(failing)})
		if _, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "saga"}); err != nil {
			t.Fatal(err)
		}
		d.Inject(func() storetest.Fault { return storetest.Fault{Delay: time.Second} })
		sleep(10 * time.Second)
		// One call is being committed and one gathers behind it when the lease is lost.
		answers := make(chan error, 2)
		for i := range 2 {
			go func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				_, err := r.Pause(t.Context(), []string{"saga", "tick"}[i], "")
				answers <- err
			}()
		}
		sleep(500 * time.Millisecond)
		expirer.session.(storetest.Expirer).Expire()
		synctest.Wait()
		if info := r.Info(); info.Ready {
			t.Error("ready after another session took over")
		}
		for range 2 {
			select {
			case err := <-answers:
				if !errors.Is(err, core.ErrStore) || !errors.Is(err, store.ErrFenced) {
					t.Errorf("a call that was on its way: %v", err)
				}
			case <-time.After(time.Minute):
				t.Fatal("a call that was on its way gets no answer")
			}
		}
		for name, call := range calls(t, r, "saga") {
			if err := call(); !errors.Is(err, core.ErrStore) {
				t.Errorf("%s after another session took over: %v, want ErrStore", name, err)
			}
		}
		stop(t, r)
		if compensated.Load() != 0 {
			t.Error("the run was compensated, and the other process goes on with it")
		}
	})
}

// joining remembers the session it gave.
type joining struct {
	store.Store
	session store.Session
}

func (j *joining) Join(ctx context.Context) (store.Session, error) {
	var err error
	j.session, err = j.Store.Join(ctx)
	return j.session, err
}

// A stop ends in time also when the store never answers clearly again.
func TestStopWithAStoreThatNeverAnswers(t *testing.T) {
	for name, fault := range map[string]storetest.Fault{"unknown": {Dropped: true}, "silent": {Delay: 1000 * time.Hour}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := storetest.NewDisk(1)
				r := start(t, core.Config{Store: opened(t, d)}, &core.Flow{ID: "tick", Schedule: every(t, time.Second), Workflow: task(lasting(time.Minute))})
				d.Inject(func() storetest.Fault { return fault })
				sleep(5 * time.Second)
				if result := stopWithin(t, r, 10*time.Second); result.Duration > time.Minute {
					t.Errorf("the stop took %v", result.Duration)
				}
				d.Crash()
			})
		})
	}
}

// A start whose first commit fails is no start.
func TestStartWithABrokenDisk(t *testing.T) {
	for name, test := range map[string]struct {
		fault storetest.Fault
		want  error
	}{
		"broken":  {storetest.Fault{Broken: true}, store.ErrIO},
		"unknown": {storetest.Fault{Dropped: true}, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var diary diary
				d := storetest.NewDisk(1)
				d.Inject(func() storetest.Fault { return test.fault })
				s := core.New(core.Config{Store: opened(t, d)})
				if err := s.Add(&core.Flow{ID: "f", Backoff: steady, Schedule: every(t, time.Second), Workflow: task(failing), Resources: tools(&diary, "r")}); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if _, err := s.Start(ctx); !errors.Is(err, test.want) {
					t.Errorf("start: %v, want %v", err, test.want)
				}
				diary.expect(t, "+r -r")
			})
		})
	}
}

// More flows are due than one commit takes while the disk is slow: the engine waits for it and does not spin.
func TestManyDueFlowsOnASlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		flows := make([]*core.Flow, n)
		var runs atomic.Int64
		work, schedule := task(counting(&runs)), every(t, time.Hour)
		for i := range flows {
			flows[i] = &core.Flow{ID: fmt.Sprintf("f%05d", i), Schedule: schedule, Workflow: work, KeepRuns: -1}
		}
		r := start(t, core.Config{Store: slowDisk(t, 100*time.Millisecond)}, flows...)
		sleep(2*time.Hour + time.Minute)
		if got := runs.Load(); got != 3*n {
			t.Errorf("%d runs, want %d", got, 3*n)
		}
		if oldest := r.Info().OldestDue; oldest != 0 {
			t.Errorf("a fire time has been due for %v", oldest)
		}
	})
}
