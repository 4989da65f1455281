package workflow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// rollback undoes the completed states, newest first, none skipped, and ends the workflow as r says, or as failed if something
// was left undone. The run's cancellation does not reach it; CompensationTimeout bounds it.
func (m *machine) rollback(ctx context.Context, r Rollback, cause error) End {
	end := End{Outcome: r.Outcome, Exit: r.Exit, State: m.path + m.state, Result: m.result, Err: cause}
	if len(m.stack) > 0 {
		r.Err = cause.Error()
		budget := m.run.CompensationTimeout
		if budget <= 0 {
			budget = DefaultCompensationTimeout
		}
		u := &undoing{m: m, r: r, until: time.Now().Add(budget), left: count(m.stack)}
		ctx, release := untilLost(ctx)
		defer release()
		if m.undoing == nil { // resumed ones are on record
			u.save(ctx, m.stack)
		}
		u.drain(ctx, m, m.stack, u.save)
		if u.lost != nil {
			return End{Outcome: Lost, Exit: r.Exit, State: end.State, Result: m.result, Err: u.lost}
		}
		r = u.r
	}
	if len(r.Undone) > 0 {
		end.Outcome = Failed
		end.Err = &RollbackError{Cause: cause, Undone: r.Undone}
	}
	return end
}

// untilLost is a context that is cancelled when the run is lost, and by nothing else.
func untilLost(run context.Context) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(run))
	stop := context.AfterFunc(run, func() {
		if cause := context.Cause(run); errors.Is(cause, ErrLost) {
			cancel(cause)
		}
	})
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// resumeRollback goes on with a rollback that was interrupted.
func (m *machine) resumeRollback(ctx context.Context, r *Rollback) End {
	cause := errors.New(r.Err)
	if errors.Is(context.Cause(ctx), ErrLost) {
		return m.fail(ctx, cause)
	}
	return m.rollback(ctx, *r, cause)
}

// undoing is a rollback under way.
type undoing struct {
	m     *machine // whose rollback it is
	r     Rollback
	until time.Time
	left  int   // compensations to go
	lost  error // another process goes on with it
}

// drain undoes the stack of a workflow, which is u.m's or one that has completed inside of it. save records what is left of it.
func (u *undoing) drain(ctx context.Context, m *machine, stack []Compensation, save func(context.Context, []Compensation)) {
	for len(stack) > 0 && u.lost == nil {
		newest, older := stack[len(stack)-1], slices.Clip(stack[:len(stack)-1])
		if len(newest.Inner) == 0 {
			u.undo(ctx, m, newest)
			u.progress(func() { save(ctx, older) })
		} else {
			u.drainFrames(ctx, m, newest, func(ctx context.Context, frames []Frame) {
				if len(frames) == 0 {
					save(ctx, older)
					return
				}
				rest := newest
				rest.Inner = frames
				save(ctx, append(older, rest))
			})
		}
		stack = older
	}
}

// drainFrames undoes the nested workflows that completed in a state.
func (u *undoing) drainFrames(ctx context.Context, m *machine, c Compensation, save func(context.Context, []Frame)) {
	for frames := c.Inner; len(frames) > 0 && u.lost == nil; {
		newest, older := frames[len(frames)-1], slices.Clip(frames[:len(frames)-1])
		child, err := m.reopen(c, newest)
		if err != nil {
			u.undone(fmt.Sprintf("%s and the workflow in it (%v)", m.path+c.State, err))
			u.left -= count(newest.Compensations)
			u.progress(func() { save(ctx, older) })
		} else {
			u.drain(ctx, child, newest.Compensations, func(ctx context.Context, stack []Compensation) {
				if len(stack) == 0 {
					save(ctx, older)
					return
				}
				rest := newest
				rest.Compensations = stack
				save(ctx, append(older, rest))
			})
		}
		frames = older
	}
}

// progress records what is left, if there is anything: the end of the last one is recorded by the end of the run.
func (u *undoing) progress(save func()) {
	if u.left > 0 && u.lost == nil {
		save()
	}
}

// reopen makes the machine of a nested workflow that completed in a state of m.
func (m *machine) reopen(c Compensation, f Frame) (*machine, error) {
	gone := errors.New("the workflow no longer says how to undo it")
	state := m.w.States[c.State]
	if state == nil {
		return nil, gone
	}
	v := new(visit)
	v.begin(m, m.path+c.State, m.visitKey(c.State, c.Visit), time.Now())
	work := state.Work
	if s, ok := work.(*Split); ok {
		r := &splitRun{Split: s, m: m, v: v}
		if s.ForEach == nil && f.Branch >= len(s.Branches) {
			return nil, gone
		}
		b, forEach := r.of(f.Branch)
		name := branchName(*b, f.Branch, forEach)
		v.State, v.IdempotencyKey = v.State+"/"+name, v.IdempotencyKey+"/"+name
		work = b.Work
	}
	child, err := m.child(work, v)
	if err != nil {
		return nil, err
	}
	child.params, child.results, child.item, child.index = f.Params, f.Results, f.Item, f.Index
	return child, nil
}

// save records how far the rollback has come: whoever resumes the run goes on with it, and never with the states.
func (u *undoing) save(ctx context.Context, stack []Compensation) {
	r := u.r
	r.Undone = slices.Clip(r.Undone)
	u.m.stack, u.m.undoing = stack, &r
	ctx, cancel := context.WithDeadline(ctx, u.until)
	defer cancel()
	if s, ok := errors.AsType[*stopped](u.m.checkpoint(ctx, time.Time{}, nil)); ok {
		u.lost = s
	}
	// Any other error means that it took too long: to go on is better than to leave things undone.
}

func (u *undoing) undone(what string) { u.r.Undone = append(u.r.Undone, what) }

// undo runs the compensate task of one state.
func (u *undoing) undo(ctx context.Context, m *machine, c Compensation) {
	started := time.Now()
	// One that hangs must not take the time of those after it: each may use its share of what is left.
	share := max(time.Until(u.until), 0) / time.Duration(u.left)
	u.left--
	err := m.compensate(ctx, c, share)
	if err != nil && ctx.Err() != nil {
		u.lost = context.Cause(ctx)
		return
	}
	e := Event{Time: time.Now(), Type: Compensated, State: m.path + c.State}
	e.Duration = e.Time.Sub(started)
	if err != nil {
		e.Type, e.Err = CompensationFailed, err.Error()
		u.undone(fmt.Sprintf("%s (%v)", m.path+c.State, err))
	}
	m.emit(e)
}

func (m *machine) compensate(ctx context.Context, c Compensation, limit time.Duration) error {
	state := m.w.States[c.State]
	if state == nil || state.Compensate == nil {
		return errors.New("the workflow no longer says how to undo it")
	}
	if limit <= 0 {
		return errors.New("no time was left for it")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &timeoutError{what: "its compensation", limit: limit.Round(time.Millisecond)})
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

// count is the number of compensate tasks in a stack.
func count(stack []Compensation) int {
	n := 0
	for i := range stack {
		if len(stack[i].Inner) == 0 {
			n++
		}
		for j := range stack[i].Inner {
			n += count(stack[i].Inner[j].Compensations)
		}
	}
	return n
}
