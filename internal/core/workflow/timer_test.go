package workflow

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/schedule"
)

// clock notes when its tasks run, since it was made.
type clock struct {
	begin time.Time
	times []time.Duration
}

func newClock() *clock { return &clock{begin: time.Now()} }

func (c *clock) then(task TaskFunc) *Step {
	return once(func(ctx context.Context, in *Invocation) (Result, error) {
		c.times = append(c.times, time.Since(c.begin))
		return task(ctx, in)
	})
}

func (c *clock) want(t *testing.T, times string) {
	t.Helper()
	if got := strings.Trim(fmt.Sprint(c.times), "[]"); got != times {
		t.Errorf("ran at %s, want %s", got, times)
	}
}

func TestTimerState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		timer := &Timer{Schedule: every(t, 10*time.Second), Step: c.then(acts("tick"))}
		w := line(does(once(after(3*time.Second, gives("first")))), does(timer))
		w.States["s2"] = &State{Work: timer, Transitions: []Transition{{When: on("tick"), Next: "done"}}}
		end, journal := run(t, t.Context(), w, &Run{})
		wantOutcome(t, end, Succeeded)
		c.want(t, "13s") // ten seconds after the state was entered
		wantTrace(t, journal.trace(), "enter s1, start s1 1, ok s1 1, enter s2, arm s2, fire s2, start s2 1, ok s2 1, enter done")
		if len(journal.checkpoints) != 1 { // entering and arming are one
			t.Fatalf("%d checkpoints", len(journal.checkpoints))
		}
		if at := journal.last(t); at.State != "s2" || !at.Deadline.Equal(c.begin.Add(13*time.Second)) || at.Results["s1"] != "first" {
			t.Errorf("checkpoint %+v", at)
		}
	})
}

func TestTimerStateAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		end, journal := run(t, t.Context(), line(does(&Timer{Schedule: every(t, time.Hour), Step: c.then(noop)})), &Run{})
		wantOutcome(t, end, Succeeded)
		c.want(t, "1h0m0s")
		if at := journal.last(t); at.Deadline.IsZero() { // though the first state of a run needs no checkpoint
			t.Errorf("checkpoint %+v", at)
		}
	})
}

// A timer is a schedule: calendars, zones and all.
func TestTimerOnACalendar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // begins on 2000-01-01 00:00 UTC
		monthly, err := schedule.Compile(schedule.Spec{Monthly: &schedule.Monthly{Day: -1, At: "09:30"}, Zone: "Europe/Berlin"}, schedule.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c := newClock()
		end, _ := run(t, t.Context(), line(does(&Timer{Schedule: monthly, Step: c.then(noop)})), &Run{})
		wantOutcome(t, end, Succeeded)
		if got := time.Now().UTC().Format(time.RFC3339); got != "2000-01-31T08:30:00Z" {
			t.Errorf("fired at %s", got)
		}
	})
}

func TestTimerImmediately(t *testing.T) {
	c := newClock()
	// The schedule is not even asked.
	end, journal := run(t, t.Context(), line(does(&Timer{Schedule: brokenSchedule{}, Immediate: true, Step: once(gives("r"))})), &Run{})
	wantOutcome(t, end, Succeeded)
	if end.Result != "r" || time.Since(c.begin) > time.Minute {
		t.Errorf("end %+v", end)
	}
	wantTrace(t, journal.trace(), "enter s1, start s1 1, ok s1 1, enter done")
}

// What floxide turns into a wait of five seconds, and then runs all the same, is a failure.
func TestTimerFailures(t *testing.T) {
	past := at(t, time.Date(1999, 12, 31, 23, 59, 59, 0, time.UTC)) // tests on virtual time begin a second later
	tests := []struct {
		name  string
		timer Timer
		took  time.Duration
		err   string
	}{
		{"an expired once", Timer{Schedule: past, Step: once(panics("ran"))}, 0, `state "s1": its schedule has no fire time after`},
		{"a schedule that stands still", Timer{Schedule: fixed(0), Step: once(panics("ran"))}, 0, "its schedule is at fault"},
		{"a schedule that goes back", Timer{Schedule: fixed(-time.Hour), Step: once(panics("ran"))}, 0, "its schedule is at fault"},
		{"a task that fails", Timer{Schedule: every(t, time.Second), Step: once(fails("no"))}, time.Second, `state "s1": no`},
		{"timeout while waiting", Timer{Schedule: every(t, time.Hour), Step: once(panics("ran")), Timeout: time.Minute}, time.Minute, `state "s1": the timer, wait and task together, took longer than its timeout of 1m0s`},
		{"timeout of the task", Timer{Schedule: every(t, 50*time.Second), Step: once(after(time.Hour, noop)), Timeout: time.Minute}, time.Minute, "wait and task together"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				end, _ := run(t, t.Context(), line(does(&test.timer)), &Run{})
				wantOutcome(t, end, Failed)
				wantError(t, end.Err, test.err)
				if took := time.Since(begin); took != test.took {
					t.Errorf("took %v, want %v", took, test.took)
				}
			})
		})
	}
}

// fixed is a schedule that always answers the same distance away.
type fixed time.Duration

func (f fixed) Next(after time.Time, _ schedule.Anchors) time.Time {
	return after.Add(time.Duration(f))
}
func (fixed) Manual() bool { return false }

func TestTimerIsCancelled(t *testing.T) {
	waiting := &Timer{Schedule: every(t, time.Hour), Step: once(panics("ran"))}
	for name, work := range map[string]Work{
		"state":    waiting,
		"workflow": &TimerWorkflow{Initial: "a", Timers: map[string]*TimerNode{"a": {Timer: waiting}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(25*time.Second, cancel)
				begin := time.Now()
				end, _ := run(t, ctx, line(does(work)), &Run{})
				wantOutcome(t, end, Cancelled)
				if took := time.Since(begin); took != 25*time.Second {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

func timersOf(initial string, nodes map[string]*TimerNode) *TimerWorkflow {
	return &TimerWorkflow{Initial: initial, Timers: nodes}
}

// Two timers, one after the other, the second of which ends it: the test of floxide's TimerWorkflow.
func TestTimerWorkflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		count := 0.0
		adds := func(n float64, action string) *Step {
			return once(func(context.Context, *Invocation) (Result, error) {
				count += n
				return Result{Value: count, Action: action}, nil
			})
		}
		w := line(does(timersOf("timer1", map[string]*TimerNode{
			"timer1": {Timer: &Timer{Schedule: at(t, begin.Add(100*time.Millisecond)), Step: adds(1, "next")}, Routes: map[string]string{"next": "timer2"}},
			"timer2": {Timer: &Timer{Schedule: at(t, begin.Add(200*time.Millisecond)), Step: adds(2, "complete")}},
		})))
		w.States["s1"] = &State{Work: w.States["s1"].Work, Transitions: []Transition{{When: on("complete"), Next: "done"}}}
		end, journal := run(t, t.Context(), w, &Run{})
		wantOutcome(t, end, Succeeded)
		if end.Result != 3.0 || time.Since(begin) != 200*time.Millisecond {
			t.Errorf("result %v after %v", end.Result, time.Since(begin))
		}
		wantTrace(t, journal.trace(), `enter s1, arm s1/timer1, fire s1/timer1, start s1/timer1 1, ok s1/timer1 1,
			arm s1/timer2, fire s1/timer2, start s1/timer2 1, ok s1/timer2 1, enter done`)
		if len(journal.checkpoints) != 2 {
			t.Fatalf("%d checkpoints", len(journal.checkpoints))
		}
		if c := journal.checkpoints[1]; c.State != "s1" || c.Inner.State != "timer2" || c.Inner.Transitions != 2 || c.Inner.Result != 1.0 || !c.Inner.Deadline.Equal(begin.Add(200*time.Millisecond)) {
			t.Errorf("checkpoint %+v %+v", c, c.Inner)
		}
	})
}

func TestTimerRoutes(t *testing.T) {
	second := every(t, time.Second)
	ends := func(action string) *TimerNode {
		return &TimerNode{Timer: &Timer{Schedule: second, Step: once(func(context.Context, *Invocation) (Result, error) {
			return Result{Action: ActionComplete, Value: action}, nil
		})}}
	}
	for _, test := range []struct {
		name   string
		action string
		routes map[string]string
		other  string
		want   string // the timer it led to
		err    string
	}{
		{"exact", "a", map[string]string{"a": "x"}, "y", "x", ""},
		{"default", "b", map[string]string{"a": "x"}, "y", "y", ""},
		{"default of no action", "", map[string]string{"a": "x"}, "y", "y", ""},
		{"no route", "b", map[string]string{"a": "x"}, "", "", `state "s1/start": the action "b" has no route, and there is no default_route`},
		{"no action", "", map[string]string{"a": "x"}, "", "", `state "s1/start": its task gave no action`},
		{"complete", "complete", map[string]string{"a": "x"}, "y", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tw := timersOf("start", map[string]*TimerNode{
					"start": {Timer: &Timer{Schedule: second, Step: once(acts(test.action))}, Routes: test.routes, Default: test.other},
					"x":     ends("x"),
				})
				if test.other != "" {
					tw.Timers["y"] = ends("y")
				}
				end, _ := run(t, t.Context(), line(does(tw)), &Run{})
				if test.err != "" {
					wantOutcome(t, end, Failed)
					wantError(t, end.Err, test.err)
					return
				}
				wantOutcome(t, end, Succeeded)
				if got := end.Result; test.want != "" && got != test.want || test.want == "" && got != nil {
					t.Errorf("it led to %v, want %s", got, test.want)
				}
			})
		})
	}
}

func TestTimerRetry(t *testing.T) {
	node := func(c *clock, actions ...string) *TimerNode {
		return &TimerNode{Timer: &Timer{Schedule: every(t, 10*time.Second), Step: c.then(acts(actions...))}}
	}
	t.Run("waits for the schedule", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClock()
			end, _ := run(t, t.Context(), line(does(timersOf("a", map[string]*TimerNode{"a": node(c, "retry", "retry", "complete")}))), &Run{})
			wantOutcome(t, end, Succeeded)
			c.want(t, "10s 20s 30s")
		})
	})
	t.Run("waits for the backoff", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClock()
			n := node(c, "retry", "retry", "retry", "retry", "complete")
			n.Backoff = &flow.Policy{Initial: time.Second, Multiplier: 2, MaxDelay: 3 * time.Second}
			end, _ := run(t, t.Context(), line(does(timersOf("a", map[string]*TimerNode{"a": n}))), &Run{})
			wantOutcome(t, end, Succeeded)
			c.want(t, "10s 11s 13s 16s 19s")
		})
	})
	t.Run("is bounded", func(t *testing.T) {
		for _, max := range []*int{nil, new(0), new(3)} {
			synctest.Test(t, func(t *testing.T) {
				c := newClock()
				n := node(c, "retry")
				n.MaxRetries = max
				end, _ := run(t, t.Context(), line(does(timersOf("a", map[string]*TimerNode{"a": n}))), &Run{})
				wantOutcome(t, end, Failed)
				want := DefaultTimerRetries
				if max != nil {
					want = *max
				}
				wantError(t, end.Err, fmt.Sprintf(`state "s1/a": it asked for another retry after %d in a row`, want))
				if len(c.times) != want+1 {
					t.Errorf("ran %d times, want %d", len(c.times), want+1)
				}
			})
		}
	})
	t.Run("counts in a row", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClock()
			n := node(c, "retry", "again", "retry", "again", "retry", "complete")
			n.MaxRetries = new(1)
			n.Routes = map[string]string{"again": "a"}
			end, _ := run(t, t.Context(), line(does(timersOf("a", map[string]*TimerNode{"a": n}))), &Run{})
			wantOutcome(t, end, Succeeded)
		})
	})
}

func TestTimerRepeats(t *testing.T) {
	loop := func(c *clock, s Schedule, body time.Duration, n int) *TimerWorkflow {
		actions := make([]string, n)
		for i := range actions {
			actions[i] = "again"
		}
		actions[n-1] = "complete"
		return timersOf("a", map[string]*TimerNode{"a": {Timer: &Timer{Schedule: s, Step: c.then(after(body, acts(actions...)))}, Routes: map[string]string{"again": "a"}}})
	}
	t.Run("on a grid", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClock()
			end, _ := run(t, t.Context(), line(does(loop(c, every(t, time.Minute), 30*time.Second, 4))), &Run{})
			wantOutcome(t, end, Succeeded)
			c.want(t, "1m0s 2m0s 3m0s 4m0s")
		})
	})
	t.Run("on a grid it is too slow for", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClock()
			end, _ := run(t, t.Context(), line(does(loop(c, every(t, time.Minute), 90*time.Second, 3))), &Run{})
			wantOutcome(t, end, Succeeded)
			c.want(t, "1m0s 3m0s 5m0s")
		})
	})
	t.Run("with a fixed delay", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			delay, err := schedule.Compile(schedule.Spec{Every: &schedule.Every{Interval: time.Minute, InitialDelay: 5 * time.Second, FixedDelay: true}}, schedule.Options{})
			if err != nil {
				t.Fatal(err)
			}
			c := newClock()
			end, _ := run(t, t.Context(), line(does(loop(c, delay, 30*time.Second, 3))), &Run{})
			wantOutcome(t, end, Succeeded)
			c.want(t, "5s 1m35s 3m5s")
		})
	})
	t.Run("daily, with a body longer than a day", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			noon, err := schedule.Compile(schedule.Spec{Daily: &schedule.Daily{At: "12:00"}}, schedule.Options{})
			if err != nil {
				t.Fatal(err)
			}
			c := newClock()
			end, _ := run(t, t.Context(), line(does(loop(c, noon, 25*time.Hour, 3))), &Run{})
			wantOutcome(t, end, Succeeded)
			c.want(t, "12h0m0s 60h0m0s 108h0m0s")
		})
	})
	t.Run("is bounded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClock()
			tw := loop(c, every(t, time.Minute), 0, 100)
			tw.MaxFirings = 7
			end, _ := run(t, t.Context(), line(does(tw)), &Run{})
			wantOutcome(t, end, Failed)
			wantError(t, end.Err, `state "s1/a": 7 timers have fired, as many as max_firings allows`)
			if len(c.times) != 7 {
				t.Errorf("fired %d times", len(c.times))
			}
		})
	})
	t.Run("immediately, then on the schedule", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClock()
			tw := loop(c, every(t, time.Minute), 0, 3)
			tw.Timers["a"].Timer.Immediate = true
			end, _ := run(t, t.Context(), line(does(tw)), &Run{})
			wantOutcome(t, end, Succeeded)
			c.want(t, "0s 1m0s 2m0s")
		})
	})
	t.Run("immediately, whenever another timer leads to it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClock()
			minute := every(t, time.Minute)
			end, _ := run(t, t.Context(), line(does(timersOf("a", map[string]*TimerNode{
				"a": {Timer: &Timer{Schedule: minute, Step: c.then(acts("next"))}, Routes: map[string]string{"next": "b"}},
				"b": {Timer: &Timer{Schedule: minute, Step: c.then(acts("retry", "back", "complete")), Immediate: true}, Routes: map[string]string{"back": "a"}},
			}))), &Run{})
			wantOutcome(t, end, Succeeded)
			c.want(t, "1m0s 1m0s 2m0s 3m0s 3m0s")
		})
	})
}

func TestTimerWorkflowFailures(t *testing.T) {
	second := every(t, time.Second)
	for name, test := range map[string]struct {
		node *TimerNode
		err  string
	}{
		"a task": {&TimerNode{Timer: &Timer{Schedule: second, Step: once(fails("no"))}, Default: "a"}, `state "s1/a": no`}, // not swallowed
		"a once that has expired": {
			&TimerNode{Timer: &Timer{Schedule: at(t, time.Date(2000, 1, 1, 0, 0, 1, 0, time.UTC)), Step: once(acts("again"))}, Default: "a"},
			`state "s1/a": its schedule has no fire time after 2000-01-01T00:00:01Z`,
		},
		"a timeout": {&TimerNode{Timer: &Timer{Schedule: every(t, time.Hour), Step: once(noop), Timeout: time.Minute}}, "took longer than its timeout of 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end, _ := run(t, t.Context(), line(does(timersOf("a", map[string]*TimerNode{"a": test.node}))), &Run{})
				wantOutcome(t, end, Failed)
				wantError(t, end.Err, test.err)
			})
		})
	}
}

// Each timer's task sees the result of the timer before, the first one that of the state before.
func TestTimerResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []any
		node := func(r Result, next string) *TimerNode {
			return &TimerNode{Default: next, Timer: &Timer{Schedule: every(t, time.Second), Step: once(func(_ context.Context, in *Invocation) (Result, error) {
				seen = append(seen, in.Scope.Result)
				return r, nil
			})}}
		}
		w := line(does(once(gives("before"))), does(timersOf("a", map[string]*TimerNode{
			"a": node(Result{Value: "ra"}, "b"), "b": node(Result{}, "c"), "c": node(Result{Action: ActionComplete}, ""),
		})))
		end, _ := run(t, t.Context(), w, &Run{})
		wantOutcome(t, end, Succeeded)
		if fmt.Sprint(seen) != "[before ra ra]" || end.Result != "ra" {
			t.Errorf("seen %v, result %v", seen, end.Result)
		}
	})
}

// A state with a timer workflow goes on by its last action, and an error in it is an error of the state.
func TestNestedTimerWorkflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := line(does(timersOf("a", map[string]*TimerNode{"a": {Timer: &Timer{Schedule: every(t, time.Second), Step: once(acts("complete"))}}})))
		end, journal := run(t, t.Context(), line(does(&Nested{Workflow: inner})), &Run{})
		wantOutcome(t, end, Succeeded)
		if c := journal.last(t); c.State != "s1" || c.Inner.State != "s1" || c.Inner.Inner.State != "a" {
			t.Errorf("checkpoint %+v", c)
		}

		inner.States["s1"].Work.(*TimerWorkflow).Timers["a"].Timer.Step = once(fails("no"))
		end, _ = run(t, t.Context(), line(does(&Nested{Workflow: inner})), &Run{})
		wantOutcome(t, end, Failed)
		wantError(t, end.Err, `state "s1/s1/a": no`)
	})
}

// A wait follows the wall clock: it looks at it again and again.
func TestWaitUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if err := waitUntil(t.Context(), begin.Add(36*time.Hour+time.Nanosecond)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != 36*time.Hour+time.Nanosecond {
			t.Errorf("took %v", took)
		}
		if err := waitUntil(t.Context(), begin); err != nil { // passed
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("cause")
		cancel(cause)
		if err := waitUntil(ctx, begin); !errors.Is(err, cause) {
			t.Error(err)
		}
	})
}
