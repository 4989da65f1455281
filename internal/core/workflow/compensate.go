package workflow

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// rollback compensates the completed states, newest first, none skipped, and ends the workflow as r says, or as failed if
// something was left undone. The run's cancellation does not reach it; CompensationTimeout bounds it.
func (m *machine) rollback(ctx context.Context, r Rollback, cause error) End {
	end := End{Outcome: r.Outcome, Exit: r.Exit, State: m.path + m.state, Result: m.result, Err: cause}
	if len(m.stack) > 0 {
		r.Err = cause.Error()
		budget := m.run.CompensationTimeout
		if budget <= 0 {
			budget = DefaultCompensationTimeout
		}
		ctx = context.WithoutCancel(ctx)
		until := time.Now().Add(budget)
		for first := true; len(m.stack) > 0; first = false {
			// The next owner of the run goes on with the rollback, and never with the states.
			if err := m.checkpointRollback(ctx, r, until, first); err != nil {
				end.Outcome, end.Err = Lost, err
				return end
			}
			newest := m.stack[len(m.stack)-1]
			// One that hangs must not take the time of those after it: each may use its share of what is left.
			share := time.Until(until) / time.Duration(len(m.stack))
			if err := m.compensate(ctx, newest, share); err != nil {
				r.Undone = append(r.Undone[:len(r.Undone):len(r.Undone)], fmt.Sprintf("%s (%v)", m.path+newest.State, err))
			}
			m.stack = m.stack[:len(m.stack)-1]
		}
	}
	if len(r.Undone) > 0 {
		end.Outcome = Failed
		end.Err = &RollbackError{Cause: cause, Undone: r.Undone}
	}
	return end
}

// resumeRollback goes on with a rollback that a crash interrupted.
func (m *machine) resumeRollback(ctx context.Context, r *Rollback) End {
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), ErrLost) {
		return m.fail(ctx, nil)
	}
	return m.rollback(ctx, *r, errors.New(r.Err))
}

func (m *machine) checkpointRollback(ctx context.Context, r Rollback, until time.Time, first bool) error {
	if m.undoing != nil && first {
		return nil // resumed: it is on record
	}
	m.undoing = &r
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	err := m.checkpoint(ctx, time.Time{}, nil)
	if s, ok := errors.AsType[*stopped](err); ok {
		return s
	}
	// It took too long: going on is better than leaving things undone.
	return nil
}

// compensate undoes one state.
func (m *machine) compensate(ctx context.Context, c Compensation, share time.Duration) error {
	started := time.Now()
	err := m.undo(ctx, c, share)
	e := Event{Time: time.Now(), Type: Compensated, State: m.path + c.State}
	e.Duration = e.Time.Sub(started)
	if err != nil {
		e.Type, e.Err = CompensationFailed, err.Error()
	}
	m.emit(e)
	return err
}

func (m *machine) undo(ctx context.Context, c Compensation, share time.Duration) error {
	state := m.w.States[c.State]
	if state == nil || state.Compensate == nil {
		return errors.New("the workflow no longer says how to undo it")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, share, &timeoutError{what: "its compensation", limit: share.Round(time.Millisecond)})
	defer cancel()
	v := new(visit)
	v.begin(m, m.path+c.State+":compensate", m.visitKey(c.State, c.Visit)+":compensate", time.Now())
	v.scope.Result = c.Result
	_, err := m.perform(ctx, state.Compensate, v)
	if failed, ok := errors.AsType[*StateError](err); ok {
		return failed.Err
	}
	return err
}
