package workflow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/resource"
)

// Run executes the workflow, which must be valid, and tells how that ended. It uses the caller's goroutine and returns when every
// goroutine it started has ended. It never panics.
//
// A cancelled ctx cancels the run; its cause becomes the error. If it ended by a deadline the run has timed out, and with ErrLost
// as its cause the run is left as it is. Before it returns, a run that did not succeed is compensated.
//
// Tasks are not abandoned: one that ignores its context keeps its run from ending. Whoever waits for runs must name those that
// do not end.
func (w *Workflow) Run(ctx context.Context, run *Run) End {
	m := &machine{w: w, run: run, log: run.Log, durable: run.Journal != nil, params: run.Params, resources: run.Resources, start: run.Identity.Start}
	if m.log == nil {
		m.log = noLog
	}
	if m.start.IsZero() {
		m.start = time.Now()
	}
	if run.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, m.start.Add(run.Timeout), &timeoutError{"the run", run.Timeout})
		defer cancel()
	}
	from := run.Resume
	if from != nil {
		m.emit(Event{Time: time.Now(), Type: Resumed, State: from.place()})
		if from.State == "" {
			from = nil
		}
	}
	return m.walk(ctx, from)
}

// place is the path of the state a checkpoint stands in.
func (c *Checkpoint) place() string {
	if c.Inner == nil || c.Inner.State == "" {
		return c.State
	}
	return c.State + "/" + c.Inner.place()
}

// machine runs one workflow: a run's own, or one nested in it.
type machine struct {
	w         *Workflow
	run       *Run
	log       *slog.Logger
	parent    *machine // nil: the run's own workflow
	depth     int
	durable   bool      // checkpoints reach the journal; inside branches they do not
	path      string    // of the state this workflow is in, with '/' at its end; empty: the run's own
	key       string    // idempotency key of that state
	start     time.Time // of this workflow; survives a restart
	params    map[string]any
	item      any
	index     int
	resources *resource.Set

	// Where it stands.
	state       string
	entered     time.Time
	transitions int
	results     map[string]any // copied on write: scopes and checkpoints keep older ones
	result      any
	size        int // of results and stack
	stack       []Compensation
	undoing     *Rollback

	first visit // saves an allocation for the first state
}

// walk goes from state to state until an exit or a failure.
func (m *machine) walk(ctx context.Context, resume *Checkpoint) (end End) {
	defer func() {
		if p := recover(); p != nil {
			end = m.afterPanic(ctx, recovered(m.log, "the run", p))
		}
	}()
	next, fresh := m.w.Initial, true
	var now time.Time // as far as it is known
	if resume != nil {
		m.restore(resume)
		if resume.Rollback != nil {
			return m.resumeRollback(ctx, resume.Rollback)
		}
		next, fresh = resume.State, false
	}
	for {
		// A nested workflow that is resumed is always gone into: it may have to compensate.
		if ctx.Err() != nil && (resume == nil || resume.Inner == nil) {
			return m.fail(ctx, context.Cause(ctx))
		}
		state := m.w.States[next]
		var exit *Exit
		if state == nil {
			if exit = m.w.Exits[next]; exit == nil {
				return m.fail(ctx, fmt.Errorf("there is no state or exit %q in the workflow", next))
			}
		}
		if resume == nil {
			if err := m.enter(ctx, next, state, fresh, now); err != nil {
				return m.fail(ctx, err)
			}
			fresh = false
		}
		if exit != nil {
			return m.leave(ctx, next, exit)
		}
		v := &m.first
		if v.State != "" {
			v = new(visit)
		}
		v.begin(m, m.path+next, m.visitKey(next, m.transitions), m.entered)
		result, inner, err := m.do(ctx, state, v, resume)
		done := Compensation{State: next, Visit: m.transitions, Result: result.Value}
		if err != nil {
			if len(inner) > 0 {
				done.Inner = inner
				m.stack = append(m.stack, done)
			}
			return m.fail(ctx, err)
		}
		resume = nil
		if state.Compensate != nil || len(inner) > 0 {
			if state.Compensate == nil {
				done.Inner = inner
			}
			if err := m.push(done); err != nil {
				return m.fail(ctx, err)
			}
		}
		if err := m.keep(next, result); err != nil {
			return m.fail(ctx, err)
		}
		if next, err = m.follow(next, state, result); err != nil {
			return m.fail(ctx, err)
		}
		now = v.ended
	}
}

func (m *machine) restore(c *Checkpoint) {
	m.state, m.entered, m.transitions = c.State, c.Entered, c.Transitions
	m.results, m.result = c.Results, c.Result
	m.stack, m.undoing = slices.Clip(c.Compensations), c.Rollback
	m.size = held(c.Results, c.Compensations)
}

// enter records that a state or exit is entered. now is the time if it is known.
func (m *machine) enter(ctx context.Context, name string, state *State, fresh bool, now time.Time) error {
	if state != nil {
		limit := m.w.MaxTransitions
		if limit == 0 {
			limit = DefaultMaxTransitions
		}
		if m.transitions >= limit {
			return fmt.Errorf("it has entered %d states without reaching an exit, as many as its max_transitions allows", limit)
		}
		m.transitions++
	}
	if now.IsZero() {
		now = time.Now()
	}
	m.state, m.entered = name, now
	if fresh {
		m.entered = m.start
	}
	m.emit(Event{Time: now, Type: StateEntered, State: m.path + name})
	// The start of a run is on record already, its end will be in a moment, and arming a timer makes a checkpoint that says all of
	// this and more.
	if fresh || state == nil || armsTimer(state.Work) {
		return nil
	}
	return m.checkpoint(ctx, time.Time{}, nil)
}

// do does the work of the current state. resume is not nil if it was interrupted in it. Beside the result, or the error, it gives
// the nested workflows that completed and can be undone.
func (m *machine) do(ctx context.Context, state *State, v *visit, resume *Checkpoint) (Result, []Frame, error) {
	switch work := state.Work.(type) {
	case *Step:
		result, err := m.perform(ctx, work, v)
		return result, nil, err
	case *Split:
		return m.split(ctx, work, v)
	case *Timer:
		result, err := m.timer(ctx, work, v, resume)
		return result, nil, err
	case *TimerWorkflow:
		result, err := m.timers(ctx, work, v, resume)
		return result, nil, err
	}
	var inner *Checkpoint
	if resume != nil {
		inner = resume.Inner
	}
	result, frame, err := m.nested(ctx, state.Work, v, inner, m.durable)
	if frame == nil {
		return result, nil, err
	}
	return result, []Frame{*frame}, err
}

// keep makes a result the state's, if there is room for what the workflow holds then.
func (m *machine) keep(name string, r Result) error {
	old, replaces := m.results[name]
	if r.Value == nil && !replaces { // results of states without one are left out
		return nil
	}
	m.size += r.size
	if replaces {
		m.size -= sizeOf(old)
	}
	if err := m.bound(name); err != nil {
		return err
	}
	results := make(map[string]any, len(m.results)+1)
	maps.Copy(results, m.results)
	if r.Value == nil {
		delete(results, name)
	} else {
		results[name] = r.Value
		m.result = r.Value
	}
	m.results = results
	return nil
}

// push keeps what can undo a completed state.
func (m *machine) push(c Compensation) error {
	m.stack = append(m.stack, c)
	m.size += held(nil, m.stack[len(m.stack)-1:])
	return m.bound(c.State)
}

// bound checks the size of what the workflow holds.
func (m *machine) bound(name string) error {
	if m.size > MaxRunBytes {
		err := fmt.Errorf("with its result the workflow holds about %d KiB of results, more than the %d KiB allowed: keep large data in a store or a file", m.size>>10, MaxRunBytes>>10)
		return &StateError{m.path + name, 1, err}
	}
	return nil
}

// follow picks what comes after a state.
func (m *machine) follow(name string, state *State, r Result) (string, error) {
	if len(state.Transitions) == 0 {
		return state.Next, nil
	}
	scope := m.scope(r.Value)
	scope.Action = r.Action
	for i := range state.Transitions {
		t := &state.Transitions[i]
		if t.When == nil {
			return t.Next, nil
		}
		holds, err := evaluate(m, t.When, scope)
		if err != nil {
			return "", &StateError{m.path + name, 1, fmt.Errorf("transitions[%d].when: %w", i, err)}
		}
		if holds {
			return t.Next, nil
		}
	}
	return "", &StateError{m.path + name, 1, fmt.Errorf("none of its transitions holds for the action %q, and there is no default", r.Action)}
}

// leave ends the workflow at an exit.
func (m *machine) leave(ctx context.Context, name string, exit *Exit) End {
	if exit.Failure == nil {
		return End{Outcome: Succeeded, Exit: name, State: m.path + name, Result: m.result}
	}
	message, err := evaluate(m, exit.Failure, m.scope(m.result))
	if err != nil {
		message = fmt.Sprintf("its message could not be computed: %v", err)
	}
	return m.rollback(ctx, Rollback{Outcome: Failed, Exit: name}, fmt.Errorf("exit %q: %s", name, message))
}

// fail ends the workflow because of err, or because of what ended ctx.
func (m *machine) fail(ctx context.Context, err error) End {
	outcome := Failed
	incomplete, rolledBack := errors.AsType[*RollbackError](err)
	if s, ok := errors.AsType[*stopped](err); ok {
		outcome, err = s.outcome, s.err
	}
	if ctx.Err() != nil && outcome != Lost {
		outcome, err = m.interruption(ctx)
	}
	if outcome == Lost {
		return End{Outcome: Lost, State: m.path + m.state, Result: m.result, Err: err}
	}
	if !rolledBack {
		return m.rollback(ctx, Rollback{Outcome: outcome}, err)
	}
	if ctx.Err() == nil {
		err = incomplete.Cause
	}
	return m.rollback(ctx, Rollback{Outcome: Failed, Undone: incomplete.Undone}, err)
}

// afterPanic ends the workflow after a panic that nothing below caught, such as that of an error when its text is asked for.
func (m *machine) afterPanic(ctx context.Context, err error) (end End) {
	defer func() {
		if p := recover(); p != nil { // in the rollback
			left := make([]string, len(m.stack))
			for i, c := range m.stack {
				left[i] = m.path + c.State
			}
			end = End{Outcome: Failed, State: m.path + m.state, Err: &RollbackError{Cause: recovered(m.log, "the rollback", p), Undone: left}}
		}
	}()
	return m.fail(ctx, err)
}

// interruption is the outcome of a workflow whose context has ended.
func (m *machine) interruption(ctx context.Context) (Outcome, error) {
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrLost) {
		return Lost, cause
	}
	in := ""
	if m.state != "" {
		in = fmt.Sprintf(" in state %q", m.path+m.state)
	}
	if _, ok := errors.AsType[*timeoutError](cause); ok {
		err := fmt.Errorf("%w%s", cause, in)
		if m.parent != nil {
			// Whether it was this workflow's timeout or that of one around it: the one around knows by its own context.
			return Failed, &Error{Err: err, Class: classTimeout}
		}
		return TimedOut, err
	}
	if errors.Is(cause, context.DeadlineExceeded) {
		return TimedOut, fmt.Errorf("timed out%s: %w", in, cause)
	}
	return Cancelled, fmt.Errorf("cancelled%s: %w", in, cause)
}

// checkpoint records where the run stands: this workflow, with inner inside its current state, inside the workflows around it.
func (m *machine) checkpoint(ctx context.Context, deadline time.Time, inner *Checkpoint) error {
	if !m.durable {
		return nil
	}
	c := &Checkpoint{
		State:         m.state,
		Transitions:   m.transitions,
		Entered:       m.entered,
		Deadline:      deadline,
		Results:       m.results,
		Result:        m.result,
		Compensations: slices.Clip(m.stack),
		Rollback:      m.undoing,
		Inner:         inner,
	}
	if m.parent != nil {
		return m.parent.checkpoint(ctx, time.Time{}, c)
	}
	err := m.record(ctx, c)
	if err != nil && ctx.Err() == nil {
		// Whether the checkpoint was made or not, whoever resumes the run goes on from there. To compensate here
		// could undo what another process relies on.
		return &stopped{Lost, fmt.Errorf("the run cannot go on without a checkpoint of state %q: %w", c.place(), err)}
	}
	return err
}

func (m *machine) record(ctx context.Context, c *Checkpoint) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = recovered(m.log, "the journal", p)
		}
	}()
	return m.run.Journal.Checkpoint(ctx, c)
}

// clock is the time for an event. Without a journal nobody asks for it.
func (m *machine) clock() time.Time {
	if m.run.Journal == nil {
		return time.Time{}
	}
	return time.Now()
}

// emit tells the journal. Observers do not fail runs.
func (m *machine) emit(e Event) {
	if m.run.Journal == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			_ = recovered(m.log, "the journal", p)
		}
	}()
	m.run.Journal.Event(e)
}

// scope is what expressions of this workflow see, with result as the result.
func (m *machine) scope(result any) *Scope {
	return &Scope{Identity: &m.run.Identity, Params: m.params, Results: m.results, Result: result, Item: m.item, Index: m.index, Resources: m.resources}
}

// visitKey is the idempotency key of a visit to a state.
func (m *machine) visitKey(state string, visit int) string {
	if m.parent == nil {
		return m.run.Identity.Instance + "/" + m.run.Identity.RunID + "/" + state + "/" + itoa(visit)
	}
	return m.key + "/" + state + "/" + itoa(visit)
}
