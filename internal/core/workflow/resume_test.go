package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/flow"
)

// stored is a checkpoint as it comes back from a store.
func stored(t *testing.T, c *Checkpoint) *Checkpoint {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var back Checkpoint
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	return &back
}

var errCrash = errors.New("the machine stopped")

// crashAt is a journal that accepts n checkpoints and then is gone.
func crashAt(n int) *recorder {
	return &recorder{refuse: func(*Checkpoint) error {
		if n == 0 {
			return errCrash
		}
		n--
		return nil
	}}
}

// everything is a workflow of every kind of work, in which each task notes its idempotency key.
func everything(t *testing.T, book *notes, last TaskFunc) *Workflow {
	task := func(result any, action string) *Step {
		return once(func(_ context.Context, in *Invocation) (Result, error) {
			book.add("%s", strings.TrimPrefix(in.IdempotencyKey, "i/f@1/"))
			return Result{Value: result, Action: action}, nil
		})
	}
	undo := func() *Step { return task(nil, "") }
	nested := func(result any) *Nested {
		return &Nested{Workflow: line(&State{Work: task("in1", ""), Compensate: undo()}, does(task(result, "")))}
	}
	second := every(t, time.Second)
	w := line(
		&State{Work: task("one", ""), Compensate: undo()},
		does(nested("n")),
		does(&Timer{Schedule: second, Step: task("timer", "")}),
		does(timersOf("a", map[string]*TimerNode{
			"a": {Timer: &Timer{Schedule: second, Step: task("ta", "next")}, Routes: map[string]string{"next": "b"}},
			"b": {Timer: &Timer{Schedule: second, Immediate: true, Step: task("tb", "complete")}},
		})),
		&State{Work: &Split{Join: Join{Strategy: JoinAll}, Bulkhead: 1, Branches: []Branch{{Name: "x", Work: nested("x")}, {Name: "y", Work: task("y", "")}}}},
		does(once(func(ctx context.Context, in *Invocation) (Result, error) {
			visits, _ := in.Scope.Results["s6"].(float64)
			return task(visits+1, "").Task.Run(ctx, in)
		})),
		does(once(last)),
	)
	w.States["s6"].Next = "" // it is visited three times
	w.States["s6"].Transitions = []Transition{{When: is(3.0), Next: "s7"}, {Next: "s6"}}
	return w
}

// Wherever a run crashes, its next owner goes on there: every task from the interrupted state on runs, under the same key, and the
// end is the same.
func TestResumeAnywhere(t *testing.T) {
	for name, last := range map[string]TaskFunc{"success": gives("end"), "failure": fails("no")} {
		t.Run(name, func(t *testing.T) {
			var whole notes
			var checkpoints int
			var want End
			synctest.Test(t, func(t *testing.T) {
				var journal *recorder
				want, journal = run(t, t.Context(), everything(t, &whole, last), &Run{})
				checkpoints = len(journal.checkpoints)
			})
			if checkpoints < 10 {
				t.Fatalf("%d checkpoints", checkpoints)
			}
			for n := range checkpoints {
				synctest.Test(t, func(t *testing.T) {
					var before, after notes
					id := identity()
					w := everything(t, &before, last)
					end, journal := run(t, t.Context(), w, &Run{Identity: id, Journal: crashAt(n)})
					wantOutcome(t, end, Lost)
					if !errors.Is(end.Err, errCrash) {
						t.Errorf("error %v", end.Err)
					}
					from := &Checkpoint{}
					if n > 0 {
						from = stored(t, journal.last(t))
					}
					time.Sleep(time.Minute) // the outage

					w = everything(t, &after, last)
					end, _ = run(t, t.Context(), w, &Run{Identity: id, Resume: from})
					if end.Outcome != want.Outcome || end.Exit != want.Exit || fmt.Sprint(end.Err) != fmt.Sprint(want.Err) || fmt.Sprint(end.Result) != fmt.Sprint(want.Result) {
						t.Errorf("crash at %d: end %+v, want %+v", n, end, want)
					}
					// What ran before and after is the whole, with what was interrupted repeated.
					all, again := whole.list, after.list
					overlap := len(before.list) + len(again) - len(all)
					if overlap < 0 || !slices.Equal(all[:len(before.list)], before.list) || !slices.Equal(all[len(all)-len(again):], again) {
						t.Errorf("crash at %d of %s:\n  whole %v\n before %v\n  after %v", n, from.place(), all, before.list, again)
					}
				})
			}
		})
	}
}

func TestResume(t *testing.T) {
	var ran notes
	w := line(does(once(ran.then(noop))), does(once(ran.then(func(_ context.Context, in *Invocation) (Result, error) {
		return Result{Value: fmt.Sprint(in.Scope.Result, in.Scope.Results, in.IdempotencyKey, in.Entered.Unix())}, nil
	}))), does(once(ran.then(noop))))
	from := &Checkpoint{State: "s2", Transitions: 7, Entered: time.Unix(1000, 0), Result: "r", Results: map[string]any{"s1": "r"}}
	end, journal := run(t, t.Context(), w, &Run{Resume: from})
	wantOutcome(t, end, Succeeded)
	if ran.String() != "s2 s3" || end.Result != "rmap[s1:r]i/f@1/s2/71000" {
		t.Errorf("ran %s, result %v", &ran, end.Result)
	}
	// The interrupted state is not entered again: it was entered before.
	wantTrace(t, journal.trace(), "resume s2, start s2 1, ok s2 1, enter s3, start s3 1, ok s3 1, enter done")
	if c := journal.last(t); c.State != "s3" || c.Transitions != 8 {
		t.Errorf("checkpoint %+v", c)
	}
}

func TestResumedResultsCount(t *testing.T) {
	large := strings.Repeat("x", MaxResultBytes-2)
	from := &Checkpoint{State: "s1", Transitions: 1, Results: map[string]any{}, Compensations: []Compensation{{State: "s2", Visit: 1, Inner: []Frame{{Results: map[string]any{}}}}}}
	for i := range 8 {
		from.Results[fmt.Sprint("r", i)] = large
		from.Compensations[0].Inner[0].Results[fmt.Sprint("r", i)] = large
	}
	end, _ := run(t, t.Context(), line(does(once(gives(large))), does(&Nested{Workflow: line(does(once(noop)))})), &Run{Resume: from})
	wantOutcome(t, end, Failed)
	wantError(t, end.Err, "more than the 1024 KiB allowed")
}

func TestResumeInTheFirstState(t *testing.T) {
	end, journal := run(t, t.Context(), line(does(once(noop)), does(once(noop))), &Run{Resume: &Checkpoint{}})
	wantOutcome(t, end, Succeeded)
	wantTrace(t, journal.trace(), "resume, enter s1, start s1 1, ok s1 1, enter s2, start s2 1, ok s2 1, enter done")
	if len(journal.checkpoints) != 1 {
		t.Errorf("%d checkpoints", len(journal.checkpoints))
	}
}

func TestResumeAtAnExit(t *testing.T) {
	w := line(does(once(panics("ran"))))
	end, _ := run(t, t.Context(), w, &Run{Resume: &Checkpoint{State: "done", Transitions: 1, Result: "r"}})
	wantOutcome(t, end, Succeeded)
	if end.Result != "r" || end.Exit != "done" {
		t.Errorf("end %+v", end)
	}
}

func TestResumeCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var s saga
	w := line(s.state("a", noop), does(once(panics("ran"))))
	end, _ := run(t, ctx, w, &Run{Resume: &Checkpoint{State: "s2", Transitions: 2, Compensations: []Compensation{{State: "s1", Visit: 1, Result: "r"}}}})
	wantOutcome(t, end, Cancelled)
	if s.String() != "undo a(r)" {
		t.Errorf("undone: %s", &s)
	}
}

func TestResumeAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := identity()
		id.Start = time.Now().Add(-time.Hour)
		var s saga
		inner := line(s.state("i", noop), does(once(panics("ran"))))
		w := line(s.state("a", noop), does(&Nested{Workflow: inner}))
		// What completed in the nested workflow must be undone, though the run is over before it is gone on with.
		end, _ := run(t, t.Context(), w, &Run{Identity: id, Timeout: time.Minute, Resume: &Checkpoint{
			State: "s2", Transitions: 2, Compensations: []Compensation{{State: "s1", Visit: 1}},
			Inner: &Checkpoint{State: "s2", Transitions: 2, Compensations: []Compensation{{State: "s1", Visit: 1, Result: "ri"}}},
		}})
		wantOutcome(t, end, TimedOut)
		if s.String() != "undo i(ri) undo a(<nil>)" {
			t.Errorf("undone: %s", &s)
		}
	})
}

// A workflow may have changed between a crash and the start after it.
func TestResumeIntoAChangedWorkflow(t *testing.T) {
	var s saga
	w := line(s.state("a", noop), does(once(noop)), does(&Nested{Workflow: line(does(once(noop)))}), does(timersOf("a", map[string]*TimerNode{"a": {Timer: &Timer{Schedule: every(t, time.Hour), Step: once(noop)}}})))
	undoable := []Compensation{{State: "s1", Visit: 1}}
	for name, test := range map[string]struct {
		from *Checkpoint
		err  string
	}{
		"an unknown state":                 {&Checkpoint{State: "gone", Compensations: undoable}, `no state or exit "gone"`},
		"an unknown state inside":          {&Checkpoint{State: "s3", Compensations: undoable, Inner: &Checkpoint{State: "gone"}}, `no state or exit "gone"`},
		"an unknown timer":                 {&Checkpoint{State: "s4", Compensations: undoable, Inner: &Checkpoint{State: "gone"}}, `state "s4/gone": there is no timer "gone"`},
		"a state that cannot be undone":    {&Checkpoint{State: "gone", Compensations: []Compensation{undoable[0], {State: "s2", Visit: 2}}}, "left undone: s2 (the workflow no longer says how to undo it)"},
		"a workflow that cannot be undone": {&Checkpoint{State: "gone", Compensations: []Compensation{undoable[0], {State: "s2", Visit: 2, Inner: []Frame{{Compensations: undoable}}}}}, "left undone: s2 and the workflow in it (there is no nested workflow)"},
		"a state that is gone":             {&Checkpoint{State: "gone", Compensations: []Compensation{undoable[0], {State: "g", Visit: 2, Inner: []Frame{{Compensations: undoable}}}}}, "left undone: g and the workflow in it (the workflow no longer says how to undo it)"},
	} {
		t.Run(name, func(t *testing.T) {
			s.list = nil
			end, _ := run(t, t.Context(), w, &Run{Resume: test.from})
			wantOutcome(t, end, Failed)
			wantError(t, end.Err, test.err)
			if s.String() != "undo a(<nil>)" {
				t.Errorf("undone: %s", &s)
			}
		})
	}
}

func TestResumeTimer(t *testing.T) {
	for _, test := range []struct {
		name   string
		outage time.Duration
		want   time.Duration
	}{
		{"before it is due", 40 * time.Minute, time.Hour}, // the rest, not another hour
		{"after it was due", 3 * time.Hour, 3 * time.Hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				id := identity()
				w := line(does(&Timer{Schedule: every(t, time.Hour), Step: once(noop)}))
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Minute, func() { cancel(ErrLost) })
				end, journal := run(t, ctx, w, &Run{Identity: id})
				wantOutcome(t, end, Lost)
				time.Sleep(test.outage - time.Since(begin))
				end, journal = run(t, t.Context(), w, &Run{Identity: id, Resume: stored(t, journal.last(t))})
				wantOutcome(t, end, Succeeded)
				if took := time.Since(begin); took != test.want {
					t.Errorf("fired after %v, want %v", took, test.want)
				}
				wantTrace(t, journal.trace(), "resume s1, fire s1, start s1 1, ok s1 1, enter done")
			})
		})
	}
}

func TestResumeTimerWorkflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keys notes
		c := newClock()
		actions := acts("retry", "retry", "complete")
		node := &TimerNode{
			Timer: &Timer{Schedule: every(t, time.Hour), Timeout: 2 * time.Hour, Step: c.then(func(ctx context.Context, in *Invocation) (Result, error) {
				keys.add("%s", in.IdempotencyKey)
				return actions(ctx, in)
			})},
			MaxRetries: new(2),
			Backoff:    &flow.Policy{Initial: time.Minute, Multiplier: 2, MaxDelay: time.Hour},
		}
		w := line(does(timersOf("a", map[string]*TimerNode{"a": node})))
		id := identity()
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Hour+90*time.Second, func() { cancel(ErrLost) }) // between the first retry and the second
		end, journal := run(t, ctx, w, &Run{Identity: id})
		wantOutcome(t, end, Lost)
		at := stored(t, journal.last(t))
		if at.Inner.Retries != 2 || at.Inner.Transitions != 3 || at.place() != "s1/a" {
			t.Errorf("checkpoint %+v", at.Inner)
		}
		end, journal = run(t, t.Context(), w, &Run{Identity: id, Resume: at})
		wantOutcome(t, end, Succeeded)
		c.want(t, "1h0m0s 1h1m0s 1h3m0s")
		if keys.String() != "i/f@1/s1/1/a/1 i/f@1/s1/1/a/2 i/f@1/s1/1/a/3" {
			t.Errorf("keys %s", &keys)
		}
		wantTrace(t, journal.trace(), "resume s1/a, fire s1/a, start s1/a 1, ok s1/a 1, enter done")
	})
}

// Timeouts count from when the work began, not from when it was resumed.
func TestTimeoutsSurvive(t *testing.T) {
	for name, work := range map[string]Work{
		"a timer":               &Timer{Schedule: every(t, time.Hour), Timeout: 30 * time.Minute, Step: once(noop)},
		"a timer of a workflow": timersOf("a", map[string]*TimerNode{"a": {Timer: &Timer{Schedule: every(t, time.Hour), Timeout: 30 * time.Minute, Step: once(noop)}}}),
		"a nested workflow":     &Nested{Timeout: 30 * time.Minute, Workflow: line(does(&Timer{Schedule: every(t, time.Hour), Step: once(noop)}))},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				id := identity()
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(10*time.Minute, func() { cancel(ErrLost) })
				end, journal := run(t, ctx, line(does(work)), &Run{Identity: id})
				wantOutcome(t, end, Lost)
				time.Sleep(10 * time.Minute)
				end, _ = run(t, t.Context(), line(does(work)), &Run{Identity: id, Resume: stored(t, journal.last(t))})
				wantOutcome(t, end, Failed)
				wantError(t, end.Err, "longer than its timeout of 30m0s")
				if took := time.Since(begin); took != 30*time.Minute {
					t.Errorf("timed out after %v", took)
				}
			})
		})
	}
}

// The wait of a task in the first state of a run counts from the start of the run, also after a crash.
func TestEnteredSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := identity()
		var entered []time.Duration
		look := once(func(_ context.Context, in *Invocation) (Result, error) {
			entered = append(entered, in.Entered.Sub(id.Start))
			return Result{}, nil
		})
		w := line(does(&Nested{Workflow: line(does(look))}), does(once(after(time.Minute, noop))), does(&Nested{Workflow: line(does(look))}))
		end, journal := run(t, t.Context(), w, &Run{Identity: id})
		wantOutcome(t, end, Succeeded)
		time.Sleep(time.Hour)
		_, _ = run(t, t.Context(), w, &Run{Identity: id, Resume: &Checkpoint{}})
		_, _ = run(t, t.Context(), w, &Run{Identity: id, Resume: stored(t, journal.last(t))})
		if fmt.Sprint(entered) != "[0s 1m0s 0s 1h2m0s 1m0s]" {
			t.Errorf("entered %v", entered)
		}
	})
}

// A rollback that crashes goes on where it was: nothing is undone that was undone, nothing is left, and no state runs again.
func TestResumeRollback(t *testing.T) {
	build := func(s *saga, broken bool) *Workflow {
		inner := func(name string) *Nested {
			return &Nested{Workflow: line(s.state(name+"1", gives(name)), s.state(name+"2", noop))}
		}
		w := line(
			s.state("a", gives("ra")),
			does(inner("n")),
			does(&Split{Join: Join{Strategy: JoinAll}, Bulkhead: 1, ForEach: &ForEach{Items: func(*Scope) ([]any, error) { return []any{"x", "y"}, nil }, Branch: Branch{Work: inner("f")}}}),
			s.state("b", gives("rb")),
			does(once(after(time.Second, fails("no")))),
		)
		if broken {
			w.States["s4"].Compensate = once(func(context.Context, *Invocation) (Result, error) {
				s.add("undo b failed")
				return Result{}, errors.New("bank is closed")
			})
		}
		return w
	}
	for _, broken := range []bool{false, true} {
		t.Run(fmt.Sprint("broken ", broken), func(t *testing.T) {
			var whole saga
			var want End
			var first, checkpoints int // of the rollback
			synctest.Test(t, func(t *testing.T) {
				var journal *recorder
				want, journal = run(t, t.Context(), build(&whole, broken), &Run{})
				checkpoints = len(journal.checkpoints)
				first = slices.IndexFunc(journal.checkpoints, func(c *Checkpoint) bool { return c.Rollback != nil })
			})
			if checkpoints-first != 8 { // one for each of eight: when the rollback began, then after each but the last
				t.Fatalf("%d checkpoints of the rollback", checkpoints-first)
			}
			for n := first + 1; n <= checkpoints; n++ {
				synctest.Test(t, func(t *testing.T) {
					var before, after saga
					id := identity()
					end, journal := run(t, t.Context(), build(&before, broken), &Run{Identity: id, Journal: crashAt(n)})
					if n < checkpoints {
						wantOutcome(t, end, Lost)
					}
					from := stored(t, journal.last(t))
					end, journal = run(t, t.Context(), build(&after, broken), &Run{Identity: id, Resume: from})
					wantOutcome(t, end, Failed)
					if end.Err.Error() != want.Err.Error() {
						t.Errorf("crash at %d: error\n got %v\nwant %v", n, end.Err, want.Err)
					}
					if got := append(before.list[:n-first-1:n-first-1], after.list...); !slices.Equal(got, whole.list) {
						t.Errorf("crash at %d:\n  whole %v\n before %v\n  after %v", n, whole.list, before.list, after.list)
					}
					for _, line := range journal.trace() {
						if strings.HasPrefix(line, "enter") {
							t.Errorf("a state ran again: %v", journal.trace())
						}
					}
				})
			}
		})
	}
	t.Run("of a cancelled run", func(t *testing.T) {
		var s saga
		end, _ := run(t, t.Context(), line(s.state("a", panics("ran")), does(once(panics("ran")))), &Run{Resume: &Checkpoint{
			State: "s2", Compensations: []Compensation{{State: "s1", Visit: 1}}, Rollback: &Rollback{Outcome: Cancelled, Err: "cancelled by ada"},
		}})
		wantOutcome(t, end, Cancelled)
		if end.Err.Error() != "cancelled by ada" || s.String() != "undo a(<nil>)" {
			t.Errorf("end %+v, undone: %s", end, &s)
		}
	})
	t.Run("of a cancelled run, inside", func(t *testing.T) {
		var s saga
		inner := line(s.state("i", panics("ran")))
		end, _ := run(t, t.Context(), line(s.state("a", noop), does(&Nested{Workflow: inner})), &Run{Resume: &Checkpoint{
			State: "s2", Compensations: []Compensation{{State: "s1", Visit: 1}},
			Inner: &Checkpoint{State: "s1", Compensations: []Compensation{{State: "s1", Visit: 1}}, Rollback: &Rollback{Outcome: Cancelled, Err: "cancelled by ada"}},
		}})
		wantOutcome(t, end, Cancelled)
		if s.String() != "undo i(<nil>) undo a(<nil>)" {
			t.Errorf("undone: %s", &s)
		}
	})
	t.Run("of a run that is lost again", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(ErrLost)
		end, _ := run(t, ctx, line(&State{Work: once(noop), Compensate: once(panics("ran"))}), &Run{Resume: &Checkpoint{
			State: "s1", Compensations: []Compensation{{State: "s1", Visit: 1}}, Rollback: &Rollback{Outcome: Failed, Err: "no"},
		}})
		wantOutcome(t, end, Lost)
	})
}
