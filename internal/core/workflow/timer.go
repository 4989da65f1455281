package workflow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/schedule"
)

// clockCheck is how often a wait looks at the wall clock, which can be set or stand still while the machine sleeps.
const clockCheck = 10 * time.Second

// armsTimer says whether work begins by arming a timer, and so by a checkpoint of its own.
func armsTimer(w Work) bool {
	switch w := w.(type) {
	case *Timer:
		return !w.Immediate
	case *TimerWorkflow:
		return true
	}
	return false
}

// timer does the work of a timer state.
func (m *machine) timer(ctx context.Context, t *Timer, v *visit, resume *Checkpoint) (Result, error) {
	if t.Immediate {
		return m.fire(ctx, t, v, v.Entered, time.Time{})
	}
	var deadline time.Time
	if resume != nil {
		deadline = resume.Deadline
	}
	if deadline.IsZero() {
		now := time.Now()
		var err error
		if deadline, err = m.due(t, now, schedule.Anchors{Start: v.Entered}); err != nil {
			return Result{}, &StateError{v.State, 1, err}
		}
		m.emit(Event{Time: now, Type: TimerArmed, State: v.State, Detail: "for " + stamp(deadline), Duration: deadline.Sub(now)})
		if err := m.checkpoint(ctx, deadline, nil); err != nil {
			return Result{}, err
		}
	}
	return m.fire(ctx, t, v, v.Entered, deadline)
}

// cursor is where a timer workflow stands: what a checkpoint tells of it, and what is needed to arm the next timer.
type cursor struct {
	Checkpoint
	last  string    // the timer before
	fired time.Time // when that was due
	ended time.Time // when its step had ended
}

// timers does the work of a timer workflow.
func (m *machine) timers(ctx context.Context, w *TimerWorkflow, v *visit, resume *Checkpoint) (Result, error) {
	at := cursor{Checkpoint: Checkpoint{State: w.Initial}}
	armed := resume != nil && resume.Inner != nil
	if armed {
		at.Checkpoint = *resume.Inner
	}
	for ; ; armed = false {
		path := v.State + "/" + at.State
		fail := func(err error) (Result, error) { return Result{}, &StateError{path, 1, err} }
		node := w.Timers[at.State]
		if node == nil {
			return fail(fmt.Errorf("there is no timer %q in the timer workflow", at.State))
		}
		if !armed {
			if err := m.arm(w, node, v, &at); err != nil {
				return fail(err)
			}
			if !at.Deadline.IsZero() {
				m.emit(Event{Time: at.Entered, Type: TimerArmed, State: path, Detail: "for " + stamp(at.Deadline), Duration: at.Deadline.Sub(at.Entered)})
			}
			inner := at.Checkpoint
			if err := m.checkpoint(ctx, time.Time{}, &inner); err != nil {
				return Result{}, err
			}
		}
		firing := new(visit)
		firing.begin(m, path, v.IdempotencyKey+"/"+at.State+"/"+itoa(at.Transitions), at.Entered)
		if at.Result != nil {
			firing.scope.Result = at.Result
		}
		result, err := m.fire(ctx, node.Timer, firing, at.Entered, at.Deadline)
		if err != nil {
			return Result{}, err
		}
		at.last, at.fired, at.ended = at.State, at.Deadline, time.Now()
		if result.Value != nil {
			at.Result = result.Value
		}
		next, err := node.route(at.State, result.Action)
		if err != nil {
			return fail(err)
		}
		switch {
		case next == "":
			return measured(at.Result, result.Action), nil
		case result.Action != ActionRetry:
			at.Retries = 0
		case at.Retries >= node.maxRetries():
			return fail(fmt.Errorf("it asked for another retry after %d in a row, as many as max_retries allows", at.Retries))
		default:
			at.Retries++
		}
		at.State = next
	}
}

// arm sets the deadline of the timer the cursor is at; none, if it does not wait.
func (m *machine) arm(w *TimerWorkflow, node *TimerNode, v *visit, at *cursor) (err error) {
	limit := w.MaxFirings
	if limit == 0 {
		limit = DefaultMaxFirings
	}
	if at.Transitions >= limit {
		return fmt.Errorf("%d timers have fired, as many as max_firings allows", limit)
	}
	at.Transitions++
	at.Entered = time.Now()
	switch {
	case at.Retries > 0 && node.Backoff != nil:
		at.Deadline = at.Entered.Add(node.Backoff.Delay(uint32(at.Retries), symmetric())).Round(0)
	case node.Timer.Immediate && at.last != at.State:
		at.Deadline = time.Time{}
	default:
		// The clock may have been set back since the last one fired.
		at.Deadline, err = m.due(node.Timer, later(at.Entered, at.fired), schedule.Anchors{Start: v.Entered, Ended: at.ended})
	}
	return err
}

// route is the timer an action leads to; empty: the timer workflow is complete.
func (n *TimerNode) route(self, action string) (string, error) {
	switch action {
	case ActionComplete:
		return "", nil
	case ActionRetry:
		return self, nil
	}
	if next, ok := n.Routes[action]; ok {
		return next, nil
	}
	if n.Default != "" {
		return n.Default, nil
	}
	if action == "" {
		return "", errors.New("its task gave no action, and there is no default_route")
	}
	return "", fmt.Errorf("the action %q has no route, and there is no default_route", action)
}

func (n *TimerNode) maxRetries() int {
	if n.MaxRetries == nil {
		return DefaultTimerRetries
	}
	return *n.MaxRetries
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// due is when a timer fires next.
func (m *machine) due(t *Timer, after time.Time, a schedule.Anchors) (time.Time, error) {
	next, err := evaluate(m, func(*Scope) (time.Time, error) { return t.Schedule.Next(after, a), nil }, nil)
	switch {
	case err != nil:
		return time.Time{}, err
	case next.IsZero():
		return time.Time{}, fmt.Errorf("its schedule has no fire time after %s", stamp(after))
	case !next.After(after):
		return time.Time{}, fmt.Errorf("its schedule is at fault: it gave %s as the fire time after %s", stamp(next), stamp(after))
	}
	return next.Round(0), nil
}

// fire waits for the deadline of a timer that was armed, which is none if it is zero, and performs its step.
func (m *machine) fire(ctx context.Context, t *Timer, v *visit, armed, deadline time.Time) (Result, error) {
	within := ctx
	if t.Timeout > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithDeadlineCause(ctx, armed.Add(t.Timeout), &timeoutError{what: "the timer, wait and task together,", limit: t.Timeout})
		defer cancel()
	}
	err := waitUntil(within, deadline)
	var result Result
	if err == nil {
		if !deadline.IsZero() {
			now := time.Now()
			m.emit(Event{Time: now, Type: TimerFired, State: v.State, Detail: "due " + stamp(deadline), Duration: now.Sub(deadline)})
		}
		result, err = m.perform(within, t.Step, v)
	}
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = &StateError{v.State, 1, &Error{Err: context.Cause(within), Class: classTimeout}}
	}
	return result, err
}

// waitUntil waits until the wall clock shows an instant.
func waitUntil(ctx context.Context, deadline time.Time) error {
	for ctx.Err() == nil {
		left := deadline.Sub(time.Now().Round(0))
		if left <= 0 {
			return nil
		}
		if err := sleep(ctx, min(left, clockCheck)); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
