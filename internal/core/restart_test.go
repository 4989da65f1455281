package core_test

import (
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

// What was missed is run or counted, as the flow's catch-up policy says; a crash or a clock that was set forward makes no difference.
func TestCatchUp(t *testing.T) {
	const m = time.Minute
	for name, test := range map[string]struct {
		policy core.CatchUp
		runs   string // in the outage from 25m to 95m of a flow every 10m
		missed uint64
	}{
		"skip":                 {core.CatchUp{Mode: core.CatchUpSkip}, "", 7},
		"by default the last":  {core.CatchUp{}, "1h30m0s", 6},
		"last":                 {core.CatchUp{Mode: core.CatchUpLast}, "1h30m0s", 6},
		"last, too old":        {core.CatchUp{Mode: core.CatchUpLast, Window: 4 * m}, "", 7},
		"last, just in time":   {core.CatchUp{Mode: core.CatchUpLast, Window: 5*m + 10*time.Second}, "1h30m0s", 6},
		"all of the last hour": {core.CatchUp{Mode: core.CatchUpAll}, "40m0s 50m0s 1h0m0s 1h10m0s 1h20m0s 1h30m0s", 1},
		"all":                  {core.CatchUp{Mode: core.CatchUpAll, Window: 24 * time.Hour}, "30m0s 40m0s 50m0s 1h0m0s 1h10m0s 1h20m0s 1h30m0s", 0},
		"all, a few":           {core.CatchUp{Mode: core.CatchUpAll, Max: 2}, "1h20m0s 1h30m0s", 5},
		"all, in a window":     {core.CatchUp{Mode: core.CatchUpAll, Window: 25*m + 10*time.Second}, "1h10m0s 1h20m0s 1h30m0s", 4},
	} {
		for _, jump := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", jump ", jump), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var d diary
					began := time.Now()
					var shift atomic.Int64
					now := func() time.Time { return time.Now().Add(time.Duration(shift.Load())) }
					f := &core.Flow{ID: "f", Schedule: every(t, 10*m), CatchUp: test.policy, Workflow: task(func(ctx ctx, in *invocation) (result, error) {
						d.write("%v", in.FireTime.Sub(began.UTC()))
						return result{}, lastingErr(ctx, time.Second)
					})}
					disk := storetest.NewDisk(1)
					r := start(t, core.Config{Store: opened(t, disk), Now: now}, f)
					sleep(25 * m)
					d.expect(t, "0s 10m0s 20m0s")
					if jump {
						shift.Store(int64(70 * m))
						sleep(time.Second)
					} else {
						crash(t, disk, r)
						sleep(70 * m)
						r = start(t, core.Config{Store: opened(t, disk), Now: now}, f)
					}
					sleep(10 * time.Second)
					d.expect(t, test.runs)
					info := status(t, r, "f")
					if got := info.Skipped[flow.SkipOutage]; got != test.missed {
						t.Errorf("%d are counted as missed, want %d", got, test.missed)
					}
					accounted(t, info, 10)
					sleep(5 * m)
					d.expect(t, "1h40m0s") // and the grid goes on
				})
			})
		}
	}
}

// While a run was lost, paused, or in a backoff window, fire times are counted as well, each once.
func TestMissedFireTimesAreAllCounted(t *testing.T) {
	boom := task(failing)
	slow := flow.Policy{Initial: 17 * time.Minute, Multiplier: 1, MaxDelay: time.Hour}
	for name, test := range map[string]struct {
		flow  core.Flow
		pause bool
		fires uint64 // that there were in 95 minutes
		want  map[flow.SkipReason]uint64
		runs  uint64
	}{
		"a run is lost": {
			flow:  core.Flow{Schedule: every(t, 10*time.Minute), Workflow: task(lasting(3 * time.Hour)), OnCrash: core.CrashFail, Backoff: slow},
			fires: 10, runs: 1, want: map[flow.SkipReason]uint64{flow.SkipOverlap: 2, flow.SkipOutage: 6, flow.SkipBackoff: 1},
		},
		"a run is resumed": {
			flow:  core.Flow{Schedule: every(t, 10*time.Minute), Workflow: task(lasting(3 * time.Hour)), CatchUp: core.CatchUp{Mode: core.CatchUpSkip}},
			fires: 10, runs: 1, want: map[flow.SkipReason]uint64{flow.SkipOverlap: 2, flow.SkipOutage: 7},
		},
		"paused": {
			flow:  core.Flow{Schedule: every(t, 10*time.Minute), Workflow: boom},
			pause: true,
			fires: 10, runs: 1, want: map[flow.SkipReason]uint64{flow.SkipPaused: 9}, // the tick at 10m moved to 17m, then 20m
		},
		"tripped": {
			flow:  core.Flow{Schedule: cronEvery10(t), Workflow: boom, Backoff: flow.Policy{Initial: 1, Multiplier: 1, MaxDelay: 1, TripAfter: 1}},
			fires: 10, runs: 1, want: map[flow.SkipReason]uint64{flow.SkipTripped: 9},
		},
		// The run at 0m fails and holds off until 47m: what comes before that would not have run anyway. The one caught up with, for
		// 50m, fails too and holds off those after it.
		"a backoff window of a cron": {
			flow: core.Flow{
				Schedule: cronEvery10(t), Workflow: boom, CatchUp: core.CatchUp{Mode: core.CatchUpAll, Window: 24 * time.Hour},
				Backoff: flow.Policy{Initial: 47 * time.Minute, Multiplier: 1, MaxDelay: 47 * time.Minute},
			},
			fires: 10, runs: 2, want: map[flow.SkipReason]uint64{flow.SkipBackoff: 8},
		},
		// It fails at 0m and holds off until 47m: the tick of 10m moves there and is missed there, as are those of 50m to 90m.
		"a backoff window of an interval": {
			flow: core.Flow{
				Schedule: every(t, 10*time.Minute), Workflow: boom, CatchUp: core.CatchUp{Mode: core.CatchUpSkip},
				Backoff: flow.Policy{Initial: 47 * time.Minute, Multiplier: 1, MaxDelay: 47 * time.Minute},
			},
			fires: 7, runs: 1, want: map[flow.SkipReason]uint64{flow.SkipOutage: 6},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := test.flow
				f.ID = "f"
				if f.Backoff == (flow.Policy{}) {
					f.Backoff = slow
				}
				disk := storetest.NewDisk(1)
				r := start(t, core.Config{Store: opened(t, disk)}, &f)
				if test.pause {
					if _, err := r.Pause(t.Context(), "f", ""); err != nil {
						t.Fatal(err)
					}
				}
				sleep(25 * time.Minute)
				crash(t, disk, r)
				sleep(70 * time.Minute)
				info := status(t, start(t, core.Config{Store: opened(t, disk)}, &f), "f")
				accounted(t, info, test.fires)
				if info.RunCount != test.runs {
					t.Errorf("%d runs, want %d", info.RunCount, test.runs)
				}
				for reason, n := range test.want {
					if info.Skipped[reason] != n {
						t.Errorf("skipped %v, want %d as %v", info.Skipped, n, reason)
					}
				}
			})
		})
	}
}

func cronEvery10(t *testing.T) *schedule.Schedule { return cron(t, "*/10 * * * *") }

// Interrupted runs get their slots back before any missed fire time gets one; then the oldest goes first.
func TestRestartKeepsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		note := func(id string, d *diary, takes time.Duration) *core.Flow {
			return &core.Flow{ID: id, Workflow: task(func(ctx ctx, in *invocation) (result, error) {
				d.write("%s", id)
				return result{}, lastingErr(ctx, takes)
			})}
		}
		flows := func() []*core.Flow {
			a, b, z := note("a", &d, time.Second), note("b", &d, time.Second), note("z", &d, time.Hour)
			a.Schedule, b.Schedule = cron(t, "0 40 * * * *"), cron(t, "0 30 * * * *")
			return []*core.Flow{a, b, z}
		}
		disk := storetest.NewDisk(1)
		r := start(t, core.Config{Store: opened(t, disk), MaxConcurrentRuns: 1}, flows()...)
		if _, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "z"}); err != nil {
			t.Fatal(err)
		}
		sleep(time.Minute)
		crash(t, disk, r)
		d.expect(t, "z")
		sleep(50 * time.Minute)
		r = start(t, core.Config{Store: opened(t, disk), MaxConcurrentRuns: 1}, flows()...)
		d.expect(t, "z")
		if info := r.Info(); info.Running != 1 {
			t.Errorf("%d runs at once, one is allowed", info.Running)
		}
		sleep(time.Hour + 10*time.Second)
		d.expect(t, "b a")
	})
}

// A file whose schedule was changed while the engine was down: what was missed was missed by the old schedule, the new one counts from
// now, and the interrupted run goes on by the definition it began with.
func TestDefinitionThatChangedWhileDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b book
		var d diary
		work := func(word string) *core.Flow {
			return &core.Flow{ID: "f", Origin: core.FromFile, CatchUp: core.CatchUp{Mode: core.CatchUpSkip}, Workflow: task(func(ctx ctx, in *invocation) (result, error) {
				d.write("%s", word)
				return result{}, lastingErr(ctx, 3*time.Hour)
			})}
		}
		old, edited := work("old"), work("new")
		old.Schedule, edited.Schedule = every(t, 10*time.Minute), every(t, time.Second)
		disk := storetest.NewDisk(1)
		r := start(t, b.config(t, disk), b.enter(*old))
		sleep(25 * time.Minute)
		crash(t, disk, r)
		sleep(70 * time.Minute)
		r = start(t, b.config(t, disk), b.enter(*edited))
		d.expect(t, "old old")
		info := status(t, r, "f")
		if info.Skipped[flow.SkipOutage] != 7 {
			t.Errorf("%d missed, want 7 by the old schedule", info.Skipped[flow.SkipOutage])
		}
		// Also after another crash it goes on by the old definition, which is kept as long.
		crash(t, disk, r)
		r = start(t, b.config(t, disk), b.enter(*edited))
		d.expect(t, "old")
		sleep(3*time.Hour + time.Second)
		status(t, r, "f")
		d.expect(t, "new")
	})
}

// Flows that left their file are gone, with all they had; their run numbers go on if they come back.
func TestFlowThatLeftItsFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b book
		f := core.Flow{ID: "f", Origin: core.FromFile, Schedule: every(t, time.Minute), Workflow: task(lasting(time.Second))}
		disk := storetest.NewDisk(1)
		r := start(t, b.config(t, disk), b.enter(f))
		sleep(5*time.Minute + 10*time.Second)
		crash(t, disk, r)
		r = start(t, b.config(t, disk))
		if _, err := r.Status("f"); !errors.Is(err, core.ErrFlowNotFound) {
			t.Errorf("status: %v", err)
		}
		crash(t, disk, r)
		r = start(t, b.config(t, disk), b.enter(f))
		expect(t, status(t, r, "f"), flow.Running, 7)
		runs, _, err := r.Runs(t.Context(), "f", core.RunListOptions{})
		if err != nil || len(runs) != 1 || runs[0].ID != "f@7" {
			t.Errorf("kept runs: %v, %v", runs, err)
		}
	})
}

// Interval grids keep their anchor, and a once that fired never fires again.
func TestGridsAndOnceOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logbook{since: time.Now()}
		flows := func() []*core.Flow {
			at := schedule.Spec{Once: l.since.Add(90 * time.Second).UTC().Format(time.RFC3339Nano)}
			once, err := schedule.Compile(at, schedule.Options{AllowPast: true})
			if err != nil {
				t.Fatal(err)
			}
			return []*core.Flow{
				{ID: "grid", Schedule: every(t, time.Minute), Workflow: task(l.task(0)), CatchUp: core.CatchUp{Mode: core.CatchUpSkip}},
				{ID: "once", Schedule: once, Workflow: task(l.task(0))},
			}
		}
		disk := storetest.NewDisk(1)
		for range 6 {
			r := start(t, core.Config{Store: opened(t, disk)}, flows()...)
			sleep(35 * time.Second)
			crash(t, disk, r)
			sleep(7 * time.Second)
		}
		// Up from 0s to 35s, 42s to 77s, 84s to 119s, 126s to 161s, 168s to 203s, 210s to 245s: the tick of 120s was missed.
		l.expect(t, "0s@0s 1m0s@1m0s 1m30s@1m30s 3m0s@3m0s 4m0s@4m0s")
	})
}

// The wall clock is set back: intervals go on in elapsed time, calendar times wait for their instant, and after more than three hours the
// old time was wrong. It makes no difference whether somebody was there to notice.
func TestClockSetBack(t *testing.T) {
	for _, test := range []struct {
		by    time.Duration
		spec  schedule.Spec
		after time.Duration // the jump: until the next fire time
		down  bool
	}{
		{time.Minute, schedule.Spec{Every: &schedule.Every{Interval: 10 * time.Minute}}, 5 * time.Minute, false},
		{24 * time.Hour, schedule.Spec{Every: &schedule.Every{Interval: 10 * time.Minute}}, 5 * time.Minute, false},
		{24 * time.Hour, schedule.Spec{Every: &schedule.Every{Interval: 10 * time.Minute, FixedDelay: true}}, 5 * time.Minute, false},
		{time.Hour, schedule.Spec{Cron: "*/10 * * * *"}, 65 * time.Minute, false},
		{24 * time.Hour, schedule.Spec{Cron: "*/10 * * * *"}, 5 * time.Minute, false},
		// Down: the last thing known is the fire time five minutes before.
		{24 * time.Hour, schedule.Spec{Every: &schedule.Every{Interval: 10 * time.Minute}}, 10 * time.Minute, true},
		{24 * time.Hour, schedule.Spec{Every: &schedule.Every{Interval: 10 * time.Minute, FixedDelay: true}}, 10 * time.Minute, true},
		{time.Hour, schedule.Spec{Cron: "*/10 * * * *"}, 65 * time.Minute, true},
		{24 * time.Hour, schedule.Spec{Cron: "*/10 * * * *"}, 5 * time.Minute, true},
	} {
		t.Run(fmt.Sprint(test.by, test.spec.Cron, test.down), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var shift atomic.Int64
				config := core.Config{Now: func() time.Time { return time.Now().Add(time.Duration(shift.Load())) }}
				var runs atomic.Int64
				f := &core.Flow{ID: "f", Schedule: compile(t, test.spec), Workflow: task(counting(&runs))}
				disk := storetest.NewDisk(1)
				config.Store = opened(t, disk)
				r := start(t, config, f)
				sleep(35*time.Minute + 100*time.Millisecond)
				if test.down {
					crash(t, disk, r)
				}
				shift.Store(-int64(test.by))
				if test.down {
					config.Store = opened(t, disk)
					r = start(t, config, f)
				}
				sleep(2 * time.Second)
				before := runs.Load()
				next := status(t, r, "f").NextFire.Time()
				if got := next.Sub(config.Now()).Round(5 * time.Second); got != test.after {
					t.Errorf("the next fire time comes in %v, want %v", got, test.after)
				}
				sleep(test.after - 5*time.Second)
				if runs.Load() != before {
					t.Error("it ran too early")
				}
				sleep(15 * time.Second)
				if runs.Load() != before+1 {
					t.Errorf("%d runs when one was due", runs.Load()-before)
				}
			})
		})
	}
}

// A backoff window lasts as long as it should when the clock is set back, also while nobody is there.
func TestBackoffWindowWhenTheClockIsSetBack(t *testing.T) {
	for _, down := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var shift atomic.Int64
			config := core.Config{Now: func() time.Time { return time.Now().Add(time.Duration(shift.Load())) }}
			f := &core.Flow{ID: "f", Schedule: cron(t, "* * * * *"), Workflow: task(failing), Backoff: flow.Policy{Initial: 5 * time.Minute, Multiplier: 1, MaxDelay: 5 * time.Minute}}
			disk := storetest.NewDisk(1)
			config.Store = opened(t, disk)
			r := start(t, config, f)
			sleep(61 * time.Second)
			expect(t, status(t, r, "f"), flow.Backoff, 1)
			if down {
				crash(t, disk, r)
			}
			shift.Store(-int64(365 * 24 * time.Hour))
			if down {
				config.Store = opened(t, disk)
				r = start(t, config, f)
			}
			sleep(7 * time.Minute)
			if info := status(t, r, "f"); info.RunCount != 2 {
				t.Errorf("down %v: %d runs, the second is due after five minutes", down, info.RunCount)
			}
		})
	}
}

// A once comes once, however the clock is set.
func TestOnceWhenTheClockIsSetBack(t *testing.T) {
	for _, down := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var shift atomic.Int64
			config := core.Config{Now: func() time.Time { return time.Now().Add(time.Duration(shift.Load())) }}
			var runs atomic.Int64
			f := &core.Flow{ID: "f", Workflow: task(counting(&runs)), Schedule: compile(t, schedule.Spec{Once: time.Now().Add(time.Minute).UTC().Format(time.RFC3339Nano)})}
			disk := storetest.NewDisk(1)
			config.Store = opened(t, disk)
			r := start(t, config, f)
			sleep(2 * time.Minute)
			if down {
				crash(t, disk, r)
			}
			shift.Store(-int64(5 * time.Hour))
			if down {
				config.Store = opened(t, disk)
				start(t, config, f)
			}
			sleep(10 * time.Hour)
			if runs.Load() != 1 {
				t.Errorf("down %v: it ran %d times", down, runs.Load())
			}
		})
	}
}

// A run goes on in the state it was in, with the params it was triggered with; a cancel that was answered is not forgotten.
func TestInterruptedRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		flows := func() []*core.Flow {
			w := saga(&d, time.Hour)
			return []*core.Flow{{ID: "f", Workflow: w}, {ID: "g", Workflow: w}, {ID: "h", Workflow: w, OnCrash: core.CrashFail}}
		}
		disk := storetest.NewDisk(1)
		var before []string
		config := core.Config{Store: opened(t, disk), BeforeResume: func(run string) { before = append(before, run) }}
		r := start(t, config, flows()...)
		for _, id := range []string{"f", "g", "h"} {
			if _, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: id, Params: map[string]any{"n": 1.0}}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		d.expect(t, "reserve charge reserve charge reserve charge")
		sleep(time.Minute)
		// The cancel of g is durable, and the crash comes before its run has ended.
		disk.Inject(func() storetest.Fault { return storetest.Fault{Delay: time.Second} })
		if _, told, err := r.Cancel(t.Context(), "g", "", ""); err != nil || told != "g@1" {
			t.Fatalf("cancel told %q, %v", told, err)
		}
		crash(t, disk, r)
		disk.Inject(nil)
		d.expect(t, "") // the dead engine undoes nothing
		config.Store = opened(t, disk)
		r = start(t, config, flows()...)
		if len(before) != 3 {
			t.Errorf("BeforeResume was called for %v", before)
		}
		info := status(t, r, "f")
		expect(t, info, flow.Running, 1)
		if info.Run.State != "ship" || info.Run.Resumed != 1 {
			t.Errorf("f goes on as %+v", info.Run)
		}
		run, err := r.Run(t.Context(), "f@1")
		if err != nil || run.Params["n"] != 1.0 || len(run.Events) == 0 {
			t.Errorf("f's run: %+v, %v", run, err)
		}
		d.expect(t, "undo:charge undo:reserve") // g
		expect(t, status(t, r, "g"), flow.Idle, 1)
		info = status(t, r, "h")
		expect(t, info, flow.Backoff, 1)
		if info.LastOutcome != flow.Lost || info.Streak != 1 {
			t.Errorf("h's run was lost and left %+v", info.State)
		}
		sleep(time.Hour)
		expect(t, status(t, r, "f"), flow.Completed, 1)
	})
}
