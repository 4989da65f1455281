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
	"github.com/schedulerd/schedulerd/internal/core/schedule"
	"github.com/schedulerd/schedulerd/internal/core/store/storetest"
)

// A due flow that finds no slot waits, is not RUNNING, and starts in order of fire time. If its next fire time comes first, the one that
// waited is counted.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logbook{since: time.Now()}
		at := func(s string) *schedule.Schedule { return cron(t, s) }
		hog := &core.Flow{ID: "hog", Workflow: task(lasting(100 * time.Second))}
		flows := []*core.Flow{hog}
		for id, expr := range map[string]string{"a": "30 1 * * * *", "b": "20 1 * * * *", "c": "10 1 * * * *"} {
			flows = append(flows, &core.Flow{ID: id, Schedule: at(expr), Workflow: task(l.task(time.Second))})
		}
		flows = append(flows, &core.Flow{ID: "often", Schedule: compile(t, schedule.Spec{Every: &schedule.Every{Interval: 30 * time.Second, InitialDelay: 35 * time.Second}}), Workflow: task(l.task(time.Second))})
		r := start(t, core.Config{MaxConcurrentRuns: 1}, flows...)
		if _, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "hog"}); err != nil {
			t.Fatal(err)
		}
		sleep(95 * time.Second)
		expect(t, status(t, r, "c"), flow.Idle, 0)
		if info := r.Info(); info.Running != 1 || info.OldestDue < 25*time.Second {
			t.Errorf("while flows wait: %+v", info)
		}
		if _, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "a"}); !errors.Is(err, core.ErrLimit) {
			t.Errorf("a trigger without a slot: %v", err)
		}
		sleep(6500 * time.Millisecond)
		l.expect(t, "1m10s@1m40s 1m20s@1m41s")
		sleep(5 * time.Second)
		l.expect(t, "1m30s@1m42s 1m35s@1m43s") // 35s and 65s had their time
		info := status(t, r, "often")
		if info.Skipped[flow.SkipLimit] != 2 || info.RunCount != 1 {
			t.Errorf("often: %d runs, skipped %v", info.RunCount, info.Skipped)
		}
		if r.Info().OldestDue != 0 {
			t.Error("something is due, and all has run")
		}
	})
}

func TestTriggersWaitForASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logbook{since: time.Now()}
		r := start(t, core.Config{MaxConcurrentRuns: 1},
			&core.Flow{ID: "hog", Workflow: task(lasting(10 * time.Second))},
			&core.Flow{ID: "a", Workflow: task(l.task(time.Second))}, &core.Flow{ID: "b", Workflow: task(l.task(time.Second))},
		)
		trigger := func(ctx context.Context, id string) chan error {
			answer := make(chan error, 1)
			go func() {
				_, _, err := r.Trigger(ctx, core.TriggerRequest{FlowID: id, WaitForSlot: true})
				answer <- err
			}()
			sleep(time.Second)
			return answer
		}
		if err := <-trigger(t.Context(), "hog"); err != nil {
			t.Fatal(err)
		}
		first := trigger(t.Context(), "a")
		twice := trigger(t.Context(), "a")
		hog := trigger(t.Context(), "hog") // refused at once
		if err := <-hog; !errors.Is(err, core.ErrFlowRunning) {
			t.Errorf("a trigger of a running flow: %v", err)
		}
		ctx, leave := context.WithCancel(t.Context())
		left := trigger(ctx, "b")
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that left: %v", err)
		}
		if err := <-first; err != nil {
			t.Errorf("the first trigger: %v", err)
		}
		if err := <-twice; err != nil && !errors.Is(err, core.ErrFlowRunning) {
			t.Errorf("the second trigger of the same flow: %v", err)
		}
		sleep(10 * time.Second)
		if info := status(t, r, "b"); info.RunCount != 0 {
			t.Error("a run was started for a caller that had left")
		}
		if info := status(t, r, "a"); info.RunCount < 1 {
			t.Error("the trigger that waited started nothing")
		}
	})
}

// Missed fire times that wait for a slot are not forgotten when a later one takes their place in the queue.
func TestBacklogGoesOnAfterTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logbook{since: time.Now()}
		flows := func() []*core.Flow {
			return []*core.Flow{
				{ID: "hog", Workflow: task(lasting(time.Hour))},
				{ID: "f", Schedule: every(t, 10*time.Minute), Workflow: task(l.task(time.Second)), CatchUp: core.CatchUp{Mode: core.CatchUpAll}},
			}
		}
		disk := storetest.NewDisk(1)
		r := start(t, core.Config{Store: opened(t, disk), MaxConcurrentRuns: 1}, flows()...)
		sleep(5 * time.Minute)
		l.expect(t, "0s@0s")
		if _, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "hog"}); err != nil {
			t.Fatal(err)
		}
		crash(t, disk, r)
		sleep(30 * time.Minute) // 10m, 20m and 30m are missed
		r = start(t, core.Config{Store: opened(t, disk), MaxConcurrentRuns: 1}, flows()...)
		if _, err := r.Pause(t.Context(), "f", ""); err != nil {
			t.Fatal(err)
		}
		sleep(10 * time.Minute) // the tick of 40m takes the place of 10m, and is skipped
		if info := status(t, r, "f"); info.Skipped[flow.SkipLimit] != 1 || info.Skipped[flow.SkipPaused] != 3 {
			t.Errorf("skipped %v", info.Skipped)
		}
		if _, err := r.Resume(t.Context(), "f", core.CatchUpSkip, ""); err != nil {
			t.Fatal(err)
		}
		accounted(t, status(t, r, "f"), 5)
	})
}

func TestFixedDelay(t *testing.T) {
	fixed := func(t *testing.T) *schedule.Schedule {
		return compile(t, schedule.Spec{Every: &schedule.Every{Interval: 10 * time.Minute, FixedDelay: true}})
	}
	synctest.Test(t, func(t *testing.T) {
		l := &logbook{since: time.Now()}
		r := start(t, core.Config{}, &core.Flow{ID: "f", Schedule: fixed(t), Workflow: task(l.task(3 * time.Minute))})
		if info := status(t, r, "f"); info.NextFire != 0 {
			t.Errorf("while it runs the next fire time is %v", info.NextFire.Time())
		}
		sleep(20 * time.Minute)
		l.expect(t, "0s@0s 13m0s@13m0s") // ends at 16m
		if _, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "f"}); err != nil {
			t.Fatal(err)
		}
		sleep(16 * time.Minute)
		l.expect(t, "trigger@20m0s 33m0s@33m0s") // the trigger's run ended at 23m
		if info := status(t, r, "f"); info.Skipped != [flow.SkipReasons]uint64{} {
			t.Errorf("skipped %v", info.Skipped)
		}
	})
	// A run that begins while a fire time waits for a slot voids it.
	synctest.Test(t, func(t *testing.T) {
		l := &logbook{since: time.Now()}
		r := start(t, core.Config{MaxConcurrentRuns: 1}, &core.Flow{ID: "hog", Workflow: task(lasting(15 * time.Minute))},
			&core.Flow{ID: "f", Schedule: compile(t, schedule.Spec{Every: &schedule.Every{Interval: 10 * time.Minute, InitialDelay: 5 * time.Minute, FixedDelay: true}}), Workflow: task(l.task(time.Minute))})
		if _, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "hog"}); err != nil {
			t.Fatal(err)
		}
		sleep(40 * time.Minute)
		// Due at 5m and 15m; one of them runs at 15m, when the slot is free, and ends at 16m.
		if got := l.String(); got != "5m0s@15m0s 26m0s@26m0s 37m0s@37m0s" && got != "15m0s@15m0s 26m0s@26m0s 37m0s@37m0s" {
			t.Errorf("it ran %s", got)
		}
	})
}

// Of a schedule of several parts those that do not count from the run's end are due while it is on its way.
func TestAnyOfWithAFixedDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := compile(t, schedule.Spec{AnyOf: []schedule.Spec{
			{Every: &schedule.Every{Interval: time.Hour, InitialDelay: 90 * time.Second, FixedDelay: true}}, {Cron: "* * * * *"},
		}})
		r := start(t, core.Config{}, &core.Flow{ID: "f", Schedule: s, Workflow: task(lasting(5 * time.Minute))})
		sleep(4*time.Minute + time.Second)
		info := status(t, r, "f")
		if info.RunCount != 1 || info.Skipped[flow.SkipOverlap] != 4 {
			t.Errorf("%d runs, skipped %v; want the four minutes as overlaps", info.RunCount, info.Skipped)
		}
	})
}

// Jitter puts a fire time off, not what it is called. One that it holds up moves to the end of a backoff window like any other.
func TestJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logbook{since: time.Now()}
		s := compile(t, schedule.Spec{Every: &schedule.Every{Interval: time.Minute}, Jitter: 40 * time.Second})
		r := start(t, core.Config{Random: func() float64 { return 0.5 }}, &core.Flow{ID: "f", Schedule: s, Workflow: task(l.task(time.Second))})
		sleep(2*time.Minute + 10*time.Second)
		l.expect(t, "0s@20s 1m0s@1m20s")
		// A reset while it is held up neither loses nor doubles it.
		if _, err := r.Reset(t.Context(), "f", ""); err != nil {
			t.Fatal(err)
		}
		sleep(30 * time.Second)
		l.expect(t, "2m0s@2m20s")
		accounted(t, status(t, r, "f"), 3)
	})
	synctest.Test(t, func(t *testing.T) {
		l := &logbook{since: time.Now()}
		s := compile(t, schedule.Spec{Every: &schedule.Every{Interval: time.Minute}, Jitter: 40 * time.Second})
		work := func(ctx ctx, in *invocation) (result, error) {
			_, err := l.task(50*time.Second)(ctx, in) // from 20s to 1m10s, while the tick of 1m is held up
			return result{}, errors.Join(err, errors.New("boom"))
		}
		start(t, core.Config{Random: func() float64 { return 0.5 }}, &core.Flow{
			ID: "f", Schedule: s, Workflow: task(work), Backoff: flow.Policy{Initial: 15 * time.Second, Multiplier: 1, MaxDelay: 15 * time.Second},
		})
		sleep(2 * time.Minute)
		l.expect(t, "0s@20s 1m25s@1m45s")
	})
}

// Splay and jitter cannot make a flow run for an instant that does not fit.
func TestInstantsBeyondTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := compile(t, schedule.Spec{Once: "2640-01-01T00:00:00Z"})
		r := start(t, core.Config{}, &core.Flow{ID: "f", Schedule: s, Workflow: task(failing)})
		info := status(t, r, "f")
		if info.NextFire != 0 || info.ScheduleError == "" {
			t.Errorf("next fire %v, error %q", info.NextFire.Time(), info.ScheduleError)
		}
		if _, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "f"}); err != nil {
			t.Errorf("trigger of a parked flow: %v", err)
		}
	})
}

func TestPauseAndResume(t *testing.T) {
	for name, test := range map[string]struct {
		flow core.Flow
		mode core.CatchUpMode
		runs string // that the resume at 95m starts, of a flow every 10m that was paused at 25m
	}{
		"by default they are skipped": {core.Flow{}, 0, ""},
		"skip":                        {core.Flow{OnResume: core.CatchUpAll}, core.CatchUpSkip, ""},
		"the flow says last":          {core.Flow{OnResume: core.CatchUpLast}, 0, "1h30m0s@1h35m0s"},
		"last":                        {core.Flow{}, core.CatchUpLast, "1h30m0s@1h35m0s"},
		"all, in the window":          {core.Flow{CatchUp: core.CatchUp{Window: 20 * time.Minute}}, core.CatchUpAll, "1h20m0s@1h35m0s 1h30m0s@1h35m1s"},
		"all, a few":                  {core.Flow{CatchUp: core.CatchUp{Max: 1}}, core.CatchUpAll, "1h30m0s@1h35m0s"},
		"none in the window":          {core.Flow{CatchUp: core.CatchUp{Window: time.Minute}}, core.CatchUpAll, ""},
	} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", restart ", restart), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := &logbook{since: time.Now()}
					f := test.flow
					f.ID, f.Schedule, f.Workflow = "f", every(t, 10*time.Minute), task(l.task(time.Second))
					disk := storetest.NewDisk(1)
					r := start(t, core.Config{Store: opened(t, disk)}, &f)
					sleep(25 * time.Minute)
					for range 2 {
						if info, err := r.Pause(t.Context(), "f", ""); err != nil || !info.Paused {
							t.Fatalf("pause: %+v, %v", info, err)
						}
					}
					if restart {
						crash(t, disk, r)
						sleep(40 * time.Minute)
						r = start(t, core.Config{Store: opened(t, disk)}, &f)
						sleep(30 * time.Minute)
					} else {
						sleep(70 * time.Minute)
					}
					l.expect(t, "0s@0s 10m0s@10m0s 20m0s@20m0s")
					if info := status(t, r, "f"); info.Skipped[flow.SkipPaused] != 7 || !info.Paused {
						t.Errorf("while paused: %+v", info.State)
					}
					if info, err := r.Resume(t.Context(), "f", test.mode, ""); err != nil || info.Paused {
						t.Fatalf("resume: %+v, %v", info, err)
					}
					sleep(3 * time.Second)
					l.expect(t, test.runs)
					accounted(t, status(t, r, "f"), 10)
					if _, err := r.Resume(t.Context(), "f", core.CatchUpAll, ""); err != nil { // nothing to resume
						t.Fatal(err)
					}
					sleep(5 * time.Minute)
					l.expect(t, "1h40m0s@1h40m0s")
				})
			})
		}
	}
}

func TestPausedFlowsStillTakeTriggers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, core.Config{}, &core.Flow{ID: "f", Paused: true, Schedule: every(t, time.Minute), Workflow: task(lasting(time.Second))})
		sleep(90 * time.Second)
		info := status(t, r, "f")
		if info.RunCount != 0 || info.Skipped[flow.SkipPaused] != 2 {
			t.Errorf("a flow that starts paused: %d runs, %v", info.RunCount, info.Skipped)
		}
		if _, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "f"}); err != nil {
			t.Fatal(err)
		}
		sleep(2 * time.Second)
		if info := status(t, r, "f"); info.Status != flow.Completed || !info.Paused {
			t.Errorf("after the trigger: %+v", info.State)
		}
	})
}

// Ten thousand flows are due at once, quickly.
func TestTenThousandFlows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		var runs atomic.Int64
		work, schedule := task(counting(&runs)), every(t, time.Minute)
		flows := make([]*core.Flow, n)
		for i := range flows {
			flows[i] = &core.Flow{ID: fmt.Sprintf("f%05d", i), Schedule: schedule, Workflow: work, KeepRuns: 1}
		}
		r := start(t, core.Config{}, flows...)
		sleep(2*time.Minute + time.Second)
		if got := runs.Load(); got != 3*n {
			t.Errorf("%d runs, want %d", got, 3*n)
		}
		infos, _, _ := r.List(core.ListOptions{Limit: n})
		for _, info := range infos {
			accounted(t, info, 3)
		}
	})
}
