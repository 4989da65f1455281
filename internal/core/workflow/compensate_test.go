package workflow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// saga is a book of what was done and undone.
type saga struct{ notes }

// state is a state that does something and can be undone.
func (s *saga) state(name string, task TaskFunc) *State {
	return &State{Work: once(task), Compensate: s.undo(name)}
}

// undo is a compensate task; it notes the result it is given.
func (s *saga) undo(name string) *Step {
	return once(func(_ context.Context, in *Invocation) (Result, error) {
		s.add("undo %s(%v)", name, in.Scope.Result)
		return Result{}, nil
	})
}

func TestCompensation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s saga
		w := line(s.state("a", gives("ra")), does(once(gives("not undone"))), s.state("b", gives("rb")), s.state("c", fails("no stock")))
		end, journal := run(t, t.Context(), w, &Run{})
		wantOutcome(t, end, Failed)
		if end.Err.Error() != `state "s4": no stock` || end.State != "s4" { // a clean rollback leaves the error as it is
			t.Errorf("end %+v", end)
		}
		// Newest first; not the state that failed, and only those that say how.
		if s.String() != "undo b(rb) undo a(ra)" {
			t.Errorf("undone: %s", &s)
		}
		if journal.count(Compensated) != 2 || journal.count(CompensationFailed) != 0 {
			t.Error(journal.trace())
		}
	})
}

func TestFailureExitCompensates(t *testing.T) {
	var s saga
	w := line(s.state("a", gives("ra")))
	w.Exits["done"] = &Exit{Failure: func(*Scope) (string, error) { return "rejected", nil }}
	end, _ := run(t, t.Context(), w, &Run{})
	wantOutcome(t, end, Failed)
	if end.Exit != "done" || s.String() != "undo a(ra)" {
		t.Errorf("end %+v, undone: %s", end, &s)
	}
}

func TestSuccessCompensatesNothing(t *testing.T) {
	var s saga
	end, journal := run(t, t.Context(), line(s.state("a", noop), s.state("b", noop)), &Run{})
	wantOutcome(t, end, Succeeded)
	if s.String() != "" || len(journal.last(t).Compensations) != 1 {
		t.Errorf("undone: %s", &s)
	}
}

// Whichever state fails, exactly those before it are undone, each once, in reverse.
func TestCompensationAtEveryStep(t *testing.T) {
	const n = 8
	for failing := range n {
		var s saga
		var states []*State
		var want []string
		for i := range n {
			task := gives(fmt.Sprint(i))
			if i == failing {
				task = fails("no")
			}
			if i < failing {
				want = append(want, fmt.Sprintf("undo %d(%d)", i, i))
			}
			states = append(states, s.state(fmt.Sprint(i), task))
		}
		slices.Reverse(want)
		end, _ := run(t, t.Context(), line(states...), &Run{})
		wantOutcome(t, end, Failed)
		if s.String() != strings.Join(want, " ") {
			t.Errorf("failing at %d undid %s", failing, &s)
		}
	}
}

func TestCompensationOfACycle(t *testing.T) {
	var s saga
	visits := 0
	w := &Workflow{Initial: "a", Exits: map[string]*Exit{"x": {}}, States: map[string]*State{"a": {
		Work: once(func(context.Context, *Invocation) (Result, error) {
			if visits++; visits > 3 {
				return Result{}, errors.New("no")
			}
			return Result{Value: float64(visits)}, nil
		}),
		Compensate:  s.undo("a"),
		Transitions: []Transition{{When: is(0.0), Next: "x"}, {Next: "a"}},
	}}}
	end, _ := run(t, t.Context(), w, &Run{})
	wantOutcome(t, end, Failed)
	if s.String() != "undo a(3) undo a(2) undo a(1)" {
		t.Errorf("undone: %s", &s)
	}
}

func TestFailingCompensation(t *testing.T) {
	for name, test := range map[string]struct {
		undo *Step
		why  string
	}{
		"an error": {once(fails("bank is closed")), "bank is closed"},
		"a panic":  {once(panics("boom")), "panic in the task: boom"},
		"a hang":   {once(after(time.Hour, noop)), "its compensation took longer than its timeout of 10s"}, // a third of 30 s
		"its own timeout": {
			&Step{Task: after(time.Hour, noop), Timeout: time.Second, Retry: &Retry{}}, "the attempt took longer than its timeout of 1s",
		},
	} {
		for _, cancelled := range []bool{false, true} {
			t.Run(fmt.Sprint(name, "/cancelled ", cancelled), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var s saga
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					last := does(once(fails("no stock")))
					if cancelled {
						last = does(once(after(time.Hour, noop)))
						time.AfterFunc(time.Minute, cancel)
					}
					w := line(s.state("a", noop), s.state("b", noop), &State{Work: once(noop), Compensate: test.undo}, last)
					end, journal := run(t, ctx, w, &Run{})
					wantOutcome(t, end, Failed) // also when it was cancelled
					if s.String() != "undo b(<nil>) undo a(<nil>)" {
						t.Errorf("the others were skipped: %s", &s)
					}
					var incomplete *RollbackError
					if !errors.As(end.Err, &incomplete) || len(incomplete.Undone) != 1 {
						t.Fatalf("error %v", end.Err)
					}
					cause := "no stock"
					if cancelled {
						cause = "context canceled"
					}
					wantError(t, end.Err, "left undone: s3 ("+test.why, cause)
					if journal.count(Compensated) != 2 || journal.count(CompensationFailed) != 1 {
						t.Error(journal.trace())
					}
				})
			})
		}
	}
}

func TestCompensationIsRetried(t *testing.T) {
	tries := 0
	undo := &Step{Retry: again(3), Task: TaskFunc(func(context.Context, *Invocation) (Result, error) {
		if tries++; tries < 3 {
			return Result{}, errors.New("again")
		}
		return Result{}, nil
	})}
	end, _ := run(t, t.Context(), line(&State{Work: once(noop), Compensate: undo}, does(once(fails("no")))), &Run{})
	wantOutcome(t, end, Failed)
	if end.Err.Error() != `state "s2": no` {
		t.Error(end.Err)
	}
}

// The bound holds for all of the rollback, and what hangs does not take the time of the others.
func TestCompensationTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func() *State { return &State{Work: once(noop), Compensate: once(after(time.Hour, noop))} }
		takes := func(d time.Duration) *State { return &State{Work: once(noop), Compensate: once(after(d, noop))} }
		begin := time.Now()
		// Undone from the right. The last one may use a quarter of 40 s, the next a third of the 38 s that are left ...
		w := line(takes(11*time.Second), hang(), hang(), takes(2*time.Second), does(once(fails("no"))))
		end, _ := run(t, t.Context(), w, &Run{CompensationTimeout: 40 * time.Second})
		wantOutcome(t, end, Failed)
		wantError(t, end.Err, "left undone: s3 (", "s2 (")
		var incomplete *RollbackError
		if errors.As(end.Err, &incomplete); len(incomplete.Undone) != 2 {
			t.Error(end.Err)
		}
		if took := time.Since(begin); took > 40*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// A compensation that ignores its context takes the time of the rest; then the rest is named.
func TestCompensationThatIsDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s saga
		deaf := once(func(context.Context, *Invocation) (Result, error) { time.Sleep(time.Hour); return Result{}, nil })
		end, _ := run(t, t.Context(), line(s.state("a", noop), &State{Work: once(noop), Compensate: deaf}, does(once(fails("no")))), &Run{})
		wantOutcome(t, end, Failed)
		wantError(t, end.Err, "left undone: s1 (no time was left for it)")
	})
}

func TestCompensationScope(t *testing.T) {
	var got Scope
	var key, state string
	undo := once(func(_ context.Context, in *Invocation) (Result, error) {
		got, key, state = *in.Scope, in.IdempotencyKey, in.State
		return Result{Value: "ignored"}, nil
	})
	w := line(does(once(gives("one"))), &State{Work: once(gives("two")), Compensate: undo}, does(once(gives("three"))), does(once(fails("no"))))
	end, _ := run(t, t.Context(), w, &Run{Params: map[string]any{"p": 1.0}})
	wantOutcome(t, end, Failed)
	if got.Result != "two" || got.Results["s3"] != "three" || got.Params["p"] != 1.0 || key != "i/f@1/s2/2:compensate" || state != "s2:compensate" {
		t.Errorf("scope %+v, key %s, state %s", got, key, state)
	}
}

// A nested workflow undoes itself when it fails; when it has succeeded, it is undone with the workflow around it.
func TestNestedCompensation(t *testing.T) {
	inner := func(s *saga, name string, last TaskFunc) *Workflow {
		return line(s.state(name+"1", gives(name+"r1")), s.state(name+"2", gives(name+"r2")), does(once(last)))
	}
	split := func(j Join, branches ...Work) *State {
		sp := &Split{Join: j}
		for _, b := range branches {
			sp.Branches = append(sp.Branches, Branch{Work: b})
		}
		return does(sp)
	}
	tests := []struct {
		name  string
		build func(s *saga) *Workflow
		want  string
	}{
		{"the nested one fails", func(s *saga) *Workflow {
			return line(s.state("a", gives("ra")), does(&Nested{Workflow: inner(s, "i", fails("no"))}))
		}, "undo i2(ir2) undo i1(ir1) undo a(ra)"},
		{"a later state fails", func(s *saga) *Workflow {
			return line(s.state("a", gives("ra")), does(&Nested{Workflow: inner(s, "i", noop)}), s.state("b", gives("rb")), does(once(fails("no"))))
		}, "undo b(rb) undo i2(ir2) undo i1(ir1) undo a(ra)"},
		{"the state around it says how to undo it", func(s *saga) *Workflow {
			return line(&State{Work: &Nested{Workflow: inner(s, "i", gives("last"))}, Compensate: s.undo("n")}, does(once(fails("no"))))
		}, "undo n(last)"},
		{"two levels", func(s *saga) *Workflow {
			return line(does(&Nested{Workflow: line(s.state("m", gives("rm")), does(&Nested{Workflow: inner(s, "i", noop)}))}), does(once(fails("no"))))
		}, "undo i2(ir2) undo i1(ir1) undo m(rm)"},
		{"branches", func(s *saga) *Workflow {
			return line(split(Join{Strategy: JoinAll}, &Nested{Workflow: inner(s, "x", noop)}, once(noop), &Nested{Workflow: inner(s, "y", noop)}), does(once(fails("no"))))
		}, "undo y2(yr2) undo y1(yr1) undo x2(xr2) undo x1(xr1)"},
		{"a branch fails", func(s *saga) *Workflow {
			// y fails after x has succeeded, and undoes itself; then x is undone, as part of the run.
			return line(split(Join{Strategy: JoinAll}, &Nested{Workflow: inner(s, "x", noop)}, &Nested{Workflow: inner(s, "y", after(time.Second, fails("no")))}))
		}, "undo y2(yr2) undo y1(yr1) undo x2(xr2) undo x1(xr1)"},
		{"a loser", func(s *saga) *Workflow {
			return line(split(Join{Strategy: JoinAny}, &Nested{Workflow: inner(s, "x", after(time.Hour, noop))}, once(after(time.Second, noop))), s.state("b", gives("rb")))
		}, "undo x2(xr2) undo x1(xr1)"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s saga
				end, journal := run(t, t.Context(), test.build(&s), &Run{})
				if test.name == "a loser" {
					wantOutcome(t, end, Succeeded)
				} else {
					wantOutcome(t, end, Failed)
					wantError(t, end.Err, "no")
				}
				if s.String() != test.want {
					t.Errorf("undone\n got %s\nwant %s", &s, test.want)
				}
				if journal.count(CompensationFailed) != 0 {
					t.Error(journal.trace())
				}
			})
		})
	}
}

// A nested workflow that completed is undone in its own scope, also by another process.
func TestNestedCompensationScope(t *testing.T) {
	var done, undone notes
	look := func(n *notes) *Step {
		return once(func(_ context.Context, in *Invocation) (Result, error) {
			key := strings.TrimSuffix(in.IdempotencyKey, ":compensate")
			n.add("%s %s %v %v %v %d|", strings.TrimSuffix(in.State, ":compensate"), key, in.Scope.Params, in.Scope.Results["before"], in.Scope.Item, in.Scope.Index)
			return Result{}, nil
		})
	}
	inner := &Workflow{Initial: "before", Exits: map[string]*Exit{"x": {}}, States: map[string]*State{
		"before":   {Work: once(gives("b")), Next: "undoable"},
		"undoable": {Work: look(&done), Compensate: look(&undone), Next: "x"},
	}}
	params := func(s *Scope) (map[string]any, error) {
		return map[string]any{"item": s.Item, "run": s.Params["run"]}, nil
	}
	flows := func(string) (*Callee, error) {
		return &Callee{Workflow: inner, Params: map[string]any{"theirs": 1.0}}, nil
	}
	items := func(*Scope) ([]any, error) { return []any{"x", "y"}, nil }
	w := line(
		does(&Nested{Workflow: inner, Params: params}),
		does(&Split{Bulkhead: 1, Join: Join{Strategy: JoinAll}, ForEach: &ForEach{Items: items, Branch: Branch{Name: "n", Work: &Nested{Workflow: inner, Params: params}}}}),
		does(&Split{Bulkhead: 1, Join: Join{Strategy: JoinAll}, Branches: []Branch{{Work: once(noop)}, {Name: "call", Work: &FlowCall{FlowID: "other"}}}}),
		does(once(noop)),
		does(once(fails("no"))),
	)
	id := identity()
	end, journal := run(t, t.Context(), w, &Run{Identity: id, Flows: flows, Params: map[string]any{"run": "r"}})
	wantOutcome(t, end, Failed)
	slices.Reverse(undone.list)
	if undone.String() != done.String() || len(done.list) != 4 {
		t.Errorf("\n  done %s\nundone %s", &done, &undone)
	}

	undone.list = nil
	from := stored(t, journal.checkpoints[slices.IndexFunc(journal.checkpoints, func(c *Checkpoint) bool { return c.State == "s5" })])
	end, _ = run(t, t.Context(), w, &Run{Identity: id, Flows: flows, Params: map[string]any{"run": "r"}, Resume: from})
	wantOutcome(t, end, Failed)
	slices.Reverse(undone.list)
	if undone.String() != done.String() {
		t.Errorf("after a crash\n  done %s\nundone %s", &done, &undone)
	}
}

// What a nested workflow left undone is the run's business, whatever becomes of the split around it.
func TestNestedCompensationFails(t *testing.T) {
	broken := func(last TaskFunc) *Nested {
		return &Nested{Workflow: line(&State{Work: once(noop), Compensate: once(fails("bank is closed"))}, does(once(last)))}
	}
	for name, w := range map[string]*Workflow{
		"nested": line(does(broken(fails("no")))),
		"loser":  line(does(&Split{Join: Join{Strategy: JoinAny}, Branches: []Branch{{Name: "l", Work: broken(after(time.Hour, noop))}, {Work: once(after(time.Second, noop))}}})),
		"later":  line(does(broken(noop)), does(once(fails("no")))),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s saga
				outer := &Workflow{Initial: "first", Exits: map[string]*Exit{"x": {}}, States: map[string]*State{
					"first": {Work: once(noop), Compensate: s.undo("first"), Next: "n"},
					"n":     {Work: &Nested{Workflow: w}, Next: "x"},
				}}
				end, _ := run(t, t.Context(), outer, &Run{})
				wantOutcome(t, end, Failed)
				where := "n/s1/s1"
				if name == "loser" {
					where = "n/s1/l/s1"
				}
				wantError(t, end.Err, "left undone: "+where+" (bank is closed)")
				if s.String() != "undo first(<nil>)" {
					t.Errorf("undone: %s", &s)
				}
			})
		})
	}
}

func TestSeveralBranchesLeaveSomethingUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := &Nested{Workflow: line(&State{Work: once(noop), Compensate: once(fails("bank is closed"))}, does(once(after(time.Hour, noop))))}
		w := line(does(&Split{Join: Join{Strategy: JoinAny}, Branches: []Branch{{Work: broken}, {Work: once(after(time.Second, noop))}, {Work: broken}}}))
		end, _ := run(t, t.Context(), w, &Run{})
		wantOutcome(t, end, Failed)
		wantError(t, end.Err, "left undone: s1/0/s1 (bank is closed); s1/2/s1 (bank is closed); it began because")
	})
}

// A flow that was called may be gone when its run has to be undone.
func TestCalledFlowIsGone(t *testing.T) {
	var s saga
	gone := false
	flows := func(string) (*Callee, error) {
		if gone {
			return nil, errors.New("no such flow")
		}
		return &Callee{Workflow: line(s.state("c", noop))}, nil
	}
	w := line(s.state("a", noop), does(&FlowCall{FlowID: "other"}), does(once(func(context.Context, *Invocation) (Result, error) {
		gone = true
		return Result{}, errors.New("no")
	})))
	end, journal := run(t, t.Context(), w, &Run{Flows: flows})
	wantOutcome(t, end, Failed)
	if c := journal.last(t); len(c.Compensations) != 1 || len(c.Rollback.Undone) != 1 {
		t.Errorf("checkpoint %+v", c)
	}
	wantError(t, end.Err, `left undone: s2 and the workflow in it (flow "other" cannot be called: no such flow)`)
	if s.String() != "undo a(<nil>)" {
		t.Errorf("undone: %s", &s)
	}
}

// A run that is lost while it is rolled back stops there: its next owner goes on.
func TestLostDuringCompensation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(ErrLost) })
		var s saga
		w := line(s.state("a", noop), &State{Work: once(noop), Compensate: once(after(5*time.Second, noop))}, does(once(fails("no"))))
		end, journal := run(t, ctx, w, &Run{})
		wantOutcome(t, end, Lost)
		if s.String() != "" || journal.count(Compensated)+journal.count(CompensationFailed) != 0 {
			t.Errorf("undone: %s; %v", &s, journal.trace())
		}
		if c := journal.last(t); len(c.Compensations) != 2 || c.Rollback == nil {
			t.Errorf("checkpoint %+v", c)
		}
	})
}
