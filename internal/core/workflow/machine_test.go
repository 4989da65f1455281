package workflow

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/core/schedule"
)

func TestRunGoesFromStateToState(t *testing.T) {
	w := line(does(once(gives("one"))), does(once(noop)), does(once(gives(3.0))))
	end, journal := run(t, t.Context(), w, &Run{})
	wantOutcome(t, end, Succeeded)
	if end.Exit != "done" || end.State != "done" || end.Result != 3.0 {
		t.Errorf("end %+v", end)
	}
	wantTrace(t, journal.trace(), "enter s1, start s1 1, ok s1 1, enter s2, start s2 1, ok s2 1, enter s3, start s3 1, ok s3 1, enter done")

	// The start of the run is on record, and so will be its end: the first state and the exit need no checkpoint.
	var states []string
	for _, c := range journal.checkpoints {
		states = append(states, c.State)
	}
	wantTrace(t, states, "s2, s3")
	if c := journal.checkpoints[1]; c.Transitions != 3 || c.Result != "one" || !maps.Equal(c.Results, map[string]any{"s1": "one"}) {
		t.Errorf("checkpoint %+v", c)
	}
}

func TestRunWithoutAnything(t *testing.T) {
	end := line(does(once(func(_ context.Context, in *Invocation) (Result, error) {
		in.Progress("half way", 0.5)
		in.Output.Line("s1", 1, false, "text")
		in.Log.Info("hello")
		if in.Resources.Get("none") != nil {
			t.Error("a resource from nowhere")
		}
		return Result{}, nil
	}))).Run(t.Context(), &Run{})
	wantOutcome(t, end, Succeeded)
}

func TestTransitions(t *testing.T) {
	broken := func(*Scope) (bool, error) { return false, errors.New("no such key") }
	workflow := func(task TaskFunc, transitions ...Transition) *Workflow {
		return &Workflow{
			Initial: "a",
			States:  map[string]*State{"a": {Work: once(task), Transitions: transitions}},
			Exits:   map[string]*Exit{"x": {}, "y": {}, "z": {}},
		}
	}
	tests := []struct {
		name        string
		task        TaskFunc
		transitions []Transition
		exit        string
		err         string
	}{
		{"the first that holds", gives("v"), []Transition{{When: is("u"), Next: "x"}, {When: is("v"), Next: "y"}, {Next: "z"}}, "y", ""},
		{"the default", gives("w"), []Transition{{When: is("u"), Next: "x"}, {Next: "z"}}, "z", ""},
		{"no match", acts("odd"), []Transition{{When: is("u"), Next: "x"}, {When: is("v"), Next: "y"}}, "", `state "a": none of its transitions holds for the action "odd"`},
		{"an action", acts("later"), []Transition{{When: on("later"), Next: "x"}, {Next: "z"}}, "x", ""},
		{"an action in the result", gives(map[string]any{"action": "later"}), []Transition{{When: on("later"), Next: "x"}, {Next: "z"}}, "x", ""},
		{"an action that is no string", gives(map[string]any{"action": 1.0}), []Transition{{When: on(""), Next: "x"}, {Next: "z"}}, "x", ""},
		{"an error", noop, []Transition{{When: broken, Next: "x"}, {Next: "z"}}, "", `state "a": transitions[0].when: no such key`},
		{"a panic", noop, []Transition{{When: func(*Scope) (bool, error) { panic("boom") }, Next: "x"}, {Next: "z"}}, "", "panic in an expression: boom"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			end, _ := run(t, t.Context(), workflow(test.task, test.transitions...), &Run{})
			if test.err != "" {
				wantOutcome(t, end, Failed)
				wantError(t, end.Err, test.err)
				return
			}
			wantOutcome(t, end, Succeeded)
			if end.Exit != test.exit {
				t.Errorf("exit %q, want %q", end.Exit, test.exit)
			}
		})
	}
}

func TestScope(t *testing.T) {
	var seen []Scope
	look := func(v any) TaskFunc {
		return func(_ context.Context, in *Invocation) (Result, error) {
			seen = append(seen, *in.Scope)
			return Result{Value: v}, nil
		}
	}
	w := line(does(once(look("one"))), does(once(look(nil))), does(once(look("three"))), does(once(look(nil))))
	w.States["s4"] = &State{Work: w.States["s4"].Work, Transitions: []Transition{{Next: "done", When: func(s *Scope) (bool, error) {
		seen = append(seen, *s)
		return true, nil
	}}}}
	params := map[string]any{"p": 1.0}
	end, _ := run(t, t.Context(), w, &Run{Params: params})
	wantOutcome(t, end, Succeeded)
	if end.Result != "three" {
		t.Errorf("result %v, want the last that there was", end.Result)
	}
	want := []struct {
		result  any
		results map[string]any
	}{
		{nil, nil},
		{"one", map[string]any{"s1": "one"}},
		{"one", map[string]any{"s1": "one"}}, // s2 had none
		{"three", map[string]any{"s1": "one", "s3": "three"}},
		{nil, map[string]any{"s1": "one", "s3": "three"}}, // in a transition: this state's own
	}
	for i, s := range seen {
		if s.Result != want[i].result || !maps.Equal(s.Results, want[i].results) || s.Params["p"] != 1.0 || s.Identity.RunID != "f@1" {
			t.Errorf("scope %d: %+v", i, s)
		}
	}
}

func TestCycles(t *testing.T) {
	visits := 0
	w := &Workflow{
		Initial: "a",
		States: map[string]*State{"a": {
			Work: once(func(context.Context, *Invocation) (Result, error) {
				visits++
				return Result{Value: float64(visits)}, nil
			}),
			Transitions: []Transition{{When: is(5.0), Next: "done"}, {Next: "a"}},
		}},
		Exits: map[string]*Exit{"done": {}},
	}
	end, _ := run(t, t.Context(), w, &Run{})
	wantOutcome(t, end, Succeeded)
	if visits != 5 {
		t.Errorf("%d visits, want 5", visits)
	}

	t.Run("max_transitions", func(t *testing.T) {
		visits = 5
		w.MaxTransitions = 7
		end, journal := run(t, t.Context(), w, &Run{})
		wantOutcome(t, end, Failed)
		wantError(t, end.Err, "entered 7 states", "max_transitions")
		if visits != 12 || journal.count(StateEntered) != 7 {
			t.Errorf("%d visits, %d entered", visits-5, journal.count(StateEntered))
		}
	})
	t.Run("the exit does not count", func(t *testing.T) {
		visits = 0
		w.MaxTransitions = 5
		end, _ := run(t, t.Context(), w, &Run{})
		wantOutcome(t, end, Succeeded)
	})
	t.Run("a revisit without a result removes the old one", func(t *testing.T) {
		w := &Workflow{
			Initial: "a",
			States: map[string]*State{"a": {
				Work: once(func(_ context.Context, in *Invocation) (Result, error) {
					return Result{Value: in.Scope.Params["p"]}, nil
				}),
				Transitions: []Transition{{When: is("v"), Next: "b"}, {Next: "c"}},
			}, "b": {Work: once(noop), Next: "a"}, "c": {Work: once(noop), Next: "done"}},
			Exits: map[string]*Exit{"done": {}},
		}
		params := map[string]any{"p": "v"}
		w.States["b"].Work = once(func(context.Context, *Invocation) (Result, error) {
			params["p"] = nil
			return Result{}, nil
		})
		end, journal := run(t, t.Context(), w, &Run{Params: params})
		wantOutcome(t, end, Succeeded)
		if c := journal.last(t); len(c.Results) != 0 {
			t.Errorf("results %v", c.Results)
		}
	})
}

func TestExits(t *testing.T) {
	w := line(does(once(gives("rows"))))
	w.Exits["done"] = &Exit{Failure: func(s *Scope) (string, error) { return "too many " + s.Result.(string), nil }}
	end, _ := run(t, t.Context(), w, &Run{})
	wantOutcome(t, end, Failed)
	wantError(t, end.Err, `exit "done": too many rows`)
	if end.Exit != "done" || end.Result != "rows" {
		t.Errorf("end %+v", end)
	}

	w.Exits["done"].Failure = func(s *Scope) (string, error) { return "", errors.New("no such key") }
	end, _ = run(t, t.Context(), w, &Run{})
	wantOutcome(t, end, Failed)
	wantError(t, end.Err, "no such key")

	w.Exits["done"].Failure = func(s *Scope) (string, error) { panic("boom") }
	end, _ = run(t, t.Context(), w, &Run{})
	wantOutcome(t, end, Failed)
	wantError(t, end.Err, "boom")
}

// A run that is not validated must end all the same.
func TestUnknownState(t *testing.T) {
	w := line(does(once(noop)))
	w.States["s1"].Next = "nowhere"
	end := w.Run(t.Context(), &Run{Identity: identity()})
	wantOutcome(t, end, Failed)
	wantError(t, end.Err, `no state or exit "nowhere"`)
}

func TestActionExpression(t *testing.T) {
	step := once(gives("big"))
	step.Action = func(s *Scope) (string, error) { return s.Result.(string) + "!", nil }
	w := line(does(step))
	w.States["s1"] = &State{Work: step, Transitions: []Transition{{When: on("big!"), Next: "done"}}}
	end, journal := run(t, t.Context(), w, &Run{})
	wantOutcome(t, end, Succeeded)
	if got := journal.events[2].Detail; got != "big!" {
		t.Errorf("detail %q", got)
	}

	calls := 0
	w.States["s1"].Work = &Step{Task: TaskFunc(func(context.Context, *Invocation) (Result, error) { calls++; return Result{}, nil }), Action: step.Action}
	end, _ = run(t, t.Context(), w, &Run{})
	wantOutcome(t, end, Failed)
	wantError(t, end.Err, "its action", "panic in an expression")
	if calls != 1 {
		t.Errorf("%d attempts: an expression that failed would fail again", calls)
	}
}

func TestResultBounds(t *testing.T) {
	text := func(n int) string { return strings.Repeat("x", n) }
	t.Run("of one", func(t *testing.T) {
		calls := 0
		w := line(does(&Step{Task: TaskFunc(func(context.Context, *Invocation) (Result, error) {
			calls++
			return Result{Value: text(MaxResultBytes)}, nil
		})}))
		end, _ := run(t, t.Context(), w, &Run{})
		wantOutcome(t, end, Failed)
		wantError(t, end.Err, `state "s1"`, "more than the 64 KiB allowed")
		if calls != 1 {
			t.Errorf("%d attempts", calls)
		}
	})
	t.Run("of all", func(t *testing.T) {
		var states []*State
		for range 17 {
			states = append(states, does(once(gives(text(MaxResultBytes-2)))))
		}
		w := line(states...)
		end, _ := run(t, t.Context(), w, &Run{})
		wantOutcome(t, end, Failed)
		wantError(t, end.Err, `state "s17"`, "more than the 1024 KiB allowed")

		delete(w.States, "s17")
		w.States["s16"].Next = "done"
		end, _ = run(t, t.Context(), w, &Run{})
		wantOutcome(t, end, Succeeded)
	})
	t.Run("a result that is replaced counts once", func(t *testing.T) {
		visits := 0
		w := &Workflow{Initial: "a", Exits: map[string]*Exit{"done": {}}, States: map[string]*State{"a": {
			Work:        once(gives(text(MaxResultBytes - 2))),
			Transitions: []Transition{{When: func(*Scope) (bool, error) { visits++; return visits == 50, nil }, Next: "done"}, {Next: "a"}},
		}}}
		end, _ := run(t, t.Context(), w, &Run{})
		wantOutcome(t, end, Succeeded)
	})
	t.Run("what undoes states counts", func(t *testing.T) {
		undone := 0
		w := &Workflow{Initial: "a", Exits: map[string]*Exit{"done": {}}, States: map[string]*State{"a": {
			Work:        once(gives(text(MaxResultBytes - 2))),
			Compensate:  once(func(context.Context, *Invocation) (Result, error) { undone++; return Result{}, nil }),
			Transitions: []Transition{{When: is(""), Next: "done"}, {Next: "a"}},
		}}}
		end, _ := run(t, t.Context(), w, &Run{})
		wantOutcome(t, end, Failed)
		wantError(t, end.Err, "more than the 1024 KiB allowed")
		if undone != 15 { // beside the result itself
			t.Errorf("%d undone, want 15", undone)
		}
	})
	for name, v := range map[string]any{"a time": time.Now(), "an int": 1, "deep": deep(maxValueDepth + 1), "itself": itself()} {
		t.Run(name, func(t *testing.T) {
			end, _ := run(t, t.Context(), line(does(once(gives(v)))), &Run{})
			wantOutcome(t, end, Failed)
			wantError(t, end.Err, "its result")
		})
	}
}

func TestCancel(t *testing.T) {
	operator := errors.New("cancelled by ada")
	long := after(time.Hour, noop)
	tests := []struct {
		name   string
		cancel func() (context.Context, context.CancelFunc)
		run    Run
		want   Outcome
		err    string
	}{
		{"cancelled", func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(context.Background())
			time.AfterFunc(time.Minute, func() { cancel(operator); cancel(nil) })
			return ctx, func() { cancel(nil) }
		}, Run{}, Cancelled, `cancelled in state "s2": cancelled by ada`},
		{"timed out", func() (context.Context, context.CancelFunc) {
			return context.WithCancel(context.Background())
		}, Run{Timeout: 2 * time.Minute}, TimedOut, `the run took longer than its timeout of 2m0s in state "s2"`},
		{"deadline of the caller", func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), time.Minute)
		}, Run{}, TimedOut, "timed out in state"},
		{"cancelled before it timed out", func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(time.Minute, cancel)
			return ctx, cancel
		}, Run{Timeout: 2 * time.Minute}, Cancelled, "context canceled"},
		{"lost", func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(context.Background())
			time.AfterFunc(time.Minute, func() { cancel(ErrLost) })
			return ctx, func() { cancel(nil) }
		}, Run{}, Lost, "taken over"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := test.cancel()
				defer cancel()
				undone := &notes{}
				w := line(&State{Work: once(noop), Compensate: once(undone.then(noop))}, does(once(long)), does(once(panics("not reached"))))
				end, journal := run(t, ctx, w, &test.run)
				wantOutcome(t, end, test.want)
				wantError(t, end.Err, test.err)
				if end.State != "s2" {
					t.Errorf("state %q", end.State)
				}
				want := "enter s1, start s1 1, ok s1 1, enter s2, start s2 1, cancel s2 1"
				if test.want != Lost {
					want += ", start s1:compensate 1, ok s1:compensate 1, undo s1"
				}
				wantTrace(t, journal.trace(), want)
				synctest.Wait()
			})
		})
	}
}

func TestCancelledBeforeItBegan(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	end, journal := run(t, ctx, line(does(once(panics("not reached")))), &Run{})
	wantOutcome(t, end, Cancelled)
	if len(journal.events) != 0 || len(journal.checkpoints) != 0 {
		t.Errorf("events %v", journal.trace())
	}
}

// A task that has done its work is done, even if it was asked to stop meanwhile; the run stops at the next boundary.
func TestCancelAtTheEndOfATask(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := line(&State{Work: once(func(context.Context, *Invocation) (Result, error) { cancel(); return Result{}, nil }), Compensate: once(noop)})
	end, journal := run(t, ctx, w, &Run{})
	wantOutcome(t, end, Cancelled)
	wantTrace(t, journal.trace(), "enter s1, start s1 1, ok s1 1, start s1:compensate 1, ok s1:compensate 1, undo s1")
}

func TestTimeoutCountsFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := identity()
		id.Start = time.Now().Add(-59 * time.Second)
		end, _ := run(t, t.Context(), line(does(once(after(time.Hour, noop)))), &Run{Identity: id, Timeout: time.Minute})
		wantOutcome(t, end, TimedOut)
		if took := time.Since(id.Start); took != time.Minute {
			t.Errorf("timed out after %v", took)
		}
	})
}

func TestPanics(t *testing.T) {
	for name, w := range map[string]*Workflow{
		"task":     line(does(once(panics("boom")))),
		"an error": line(does(once(panics(errors.New("boom"))))),
		"branch":   line(does(&Split{Branches: []Branch{{Work: once(panics("boom"))}, {Work: once(noop)}}, Join: Join{Strategy: JoinAll}})),
		"items":    line(does(&Split{ForEach: &ForEach{Items: func(*Scope) ([]any, error) { panic("boom") }, Branch: Branch{Work: once(noop)}}, Join: Join{Strategy: JoinAll}})),
		"params":   line(does(&Nested{Workflow: line(does(once(noop))), Params: func(*Scope) (map[string]any, error) { panic("boom") }})),
		"nested":   line(does(&Nested{Workflow: line(does(once(panics("boom"))))})),
		"schedule": line(does(&Timer{Schedule: brokenSchedule{}, Step: once(noop)})),
		"look-up":  line(does(&FlowCall{FlowID: "x"})),
		"nil map": line(does(once(func(_ context.Context, in *Invocation) (Result, error) {
			in.Scope.Results["boom"] = 1
			return Result{}, nil
		}))),
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			end, _ := run(t, t.Context(), w, &Run{
				Log:   slog.New(slog.NewTextHandler(&log, nil)),
				Flows: func(string) (*Callee, error) { panic("boom") },
			})
			wantOutcome(t, end, Failed)
			want := "boom"
			if name == "nil map" {
				want = "assignment to entry in nil map"
			}
			wantError(t, end.Err, "panic in", want)
			if strings.Contains(end.Err.Error(), "goroutine") {
				t.Error("the stack is for the log")
			}
			if !strings.Contains(log.String(), "goroutine") || !strings.Contains(log.String(), "level=ERROR") {
				t.Errorf("no stack in the log: %s", log.String())
			}
		})
	}
}

// badError is an error that panics when it is asked for its text.
type badError struct{}

func (badError) Error() string { panic("no text") }

// badGuard panics.
type badGuard struct{ done bool }

func (g badGuard) Acquire(context.Context) (func(resource.CallOutcome), error) {
	if g.done {
		return func(resource.CallOutcome) { panic("boom") }, nil
	}
	panic("boom")
}

// However odd a panic is, the run is rolled back.
func TestPanicsAreRolledBack(t *testing.T) {
	odd := func(context.Context, *Invocation) (Result, error) { return Result{}, badError{} }
	set, err := resource.Setup(t.Context(), []resource.Declaration{{Name: "bad", Resource: inert{}, Guard: badGuard{}}, {Name: "worse", Resource: inert{}, Guard: badGuard{true}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, work := range map[string]Work{
		"an error without a text": once(odd),
		"in a branch":             &Split{Branches: []Branch{{Work: once(odd)}, {Work: once(noop)}}, Join: Join{Strategy: JoinAll, WaitAll: true}},
		"in a nested workflow":    &Nested{Workflow: line(does(once(odd)))},
		"a guard":                 &Step{Task: noop, Target: "bad"},
		"a guard at the end":      &Step{Task: noop, Target: "worse"},
	} {
		t.Run(name, func(t *testing.T) {
			var s saga
			end, _ := run(t, t.Context(), line(s.state("a", noop), does(work)), &Run{Resources: set})
			wantOutcome(t, end, Failed)
			wantError(t, end.Err, "panic in ")
			if s.String() != "undo a(<nil>)" {
				t.Errorf("undone: %s", &s)
			}
		})
	}
	t.Run("in a compensation", func(t *testing.T) {
		w := line(&State{Work: once(noop), Compensate: once(odd)}, does(once(fails("no"))))
		end, _ := run(t, t.Context(), w, &Run{})
		wantOutcome(t, end, Failed)
		wantError(t, end.Err, "left undone: s1", "panic in the rollback: no text")
	})
}

type brokenSchedule struct{}

func (brokenSchedule) Manual() bool { return false }

func (brokenSchedule) Next(time.Time, schedule.Anchors) time.Time { panic("boom") }

// badJournal panics.
type badJournal struct{ events, checkpoints bool }

func (j badJournal) Event(Event) {
	if j.events {
		panic("boom")
	}
}

func (j badJournal) Checkpoint(context.Context, *Checkpoint) error {
	if j.checkpoints {
		panic("boom")
	}
	return nil
}

func TestBadJournal(t *testing.T) {
	split := &Split{Branches: []Branch{{Work: once(noop)}, {Work: once(noop)}}, Join: Join{Strategy: JoinAll}}
	w := line(does(split), does(once(noop)))
	end := w.Run(t.Context(), &Run{Journal: badJournal{events: true}})
	wantOutcome(t, end, Succeeded) // who only looks on does not fail a run

	end = w.Run(t.Context(), &Run{Journal: badJournal{checkpoints: true}})
	wantOutcome(t, end, Lost)
	wantError(t, end.Err, "boom")
}

func TestLog(t *testing.T) {
	var text strings.Builder
	log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})).With("run", "f@1")
	w := line(does(once(func(_ context.Context, in *Invocation) (Result, error) {
		in.Log.Info("one")
		in.Log.With("k", "v").Info("two")
		in.Log.WithGroup("g").Info("three", "k", "v")
		in.Log.Debug("four")
		return Result{}, nil
	})))
	end, _ := run(t, t.Context(), w, &Run{Log: log})
	wantOutcome(t, end, Succeeded)
	want := "level=INFO msg=one run=f@1 state=s1\n" +
		"level=INFO msg=two run=f@1 state=s1 k=v\n" +
		"level=INFO msg=three run=f@1 state=s1 g.k=v\n"
	if text.String() != want {
		t.Errorf("log\n%swant\n%s", text.String(), want)
	}
}

func TestProgress(t *testing.T) {
	tries := 0
	w := line(does(&Step{Retry: again(1), Task: TaskFunc(func(_ context.Context, in *Invocation) (Result, error) {
		in.Progress("copying", 0.429)
		if tries++; tries == 1 {
			return Result{}, errors.New("again")
		}
		in.Progress("done", 0)
		return Result{}, nil
	})}))
	end, journal := run(t, t.Context(), w, &Run{})
	wantOutcome(t, end, Succeeded)
	var got []string
	for _, e := range journal.events {
		if e.Type == Progress {
			got = append(got, e.Detail)
		}
	}
	wantTrace(t, got, "42% copying, 42% copying, done")
	wantTrace(t, journal.trace(), "enter s1, start s1 1, progress s1 1, fail s1 1, retry s1 2, start s1 2, progress s1 2, progress s1 2, ok s1 2, enter done")
}

func TestIdempotencyKeys(t *testing.T) {
	seen := &notes{}
	task := func(_ context.Context, in *Invocation) (Result, error) {
		seen.add("%s#%d", in.IdempotencyKey, in.Attempt)
		if in.Attempt == 1 {
			return Result{}, errors.New("again")
		}
		return Result{}, nil
	}
	step := &Step{Task: TaskFunc(task), Retry: again(1)}
	inner := line(does(step))
	w := line(
		does(step),
		does(&Nested{Workflow: inner}),
		does(&Split{Branches: []Branch{{Work: step}, {Name: "n", Work: &Nested{Workflow: inner}}}, Join: Join{Strategy: JoinAll}, Bulkhead: 1}),
	)
	end, _ := run(t, t.Context(), w, &Run{})
	wantOutcome(t, end, Succeeded)
	want := "i/f@1/s1/1#1 i/f@1/s1/1#2 i/f@1/s2/2/s1/1#1 i/f@1/s2/2/s1/1#2 i/f@1/s3/3/0#1 i/f@1/s3/3/0#2 i/f@1/s3/3/n/s1/1#1 i/f@1/s3/3/n/s1/1#2"
	if seen.String() != want {
		t.Errorf("keys\n got %s\nwant %s", seen, want)
	}
}
