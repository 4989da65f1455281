package workflow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/resource"
)

// perform attempts a step until it succeeds, fails for good or ctx ends; then the error is the cause of ctx. A failure is a
// *StateError.
func (m *machine) perform(ctx context.Context, step *Step, v *visit) (Result, error) {
	retry := step.Retry
	if retry == nil {
		retry = &DefaultRetry
	}
	for attempt := 1; ; attempt++ {
		in := v.attempt(attempt)
		started := m.clock()
		m.emit(Event{Time: started, Type: AttemptStarted, State: v.State, Attempt: attempt})
		result, err := m.attempt(ctx, step, in)
		now := m.clock()
		v.ended = now
		ended := Event{Time: now, Type: AttemptSucceeded, State: v.State, Attempt: attempt, Detail: result.Action, Duration: now.Sub(started)}
		if err == nil {
			m.emit(ended)
			return result, nil
		}
		ended.Err = err.Error()
		if ctx.Err() != nil {
			ended.Type = AttemptCancelled
			m.emit(ended)
			return Result{}, context.Cause(ctx)
		}
		failure := classify(err)
		ended.Type, ended.Detail = AttemptFailed, failure.Class
		m.emit(ended)
		if attempt > retry.Retries || !retry.repeats(failure) {
			return Result{}, &StateError{v.State, attempt, err}
		}
		delay := max(retry.delay(attempt), failure.RetryAfter)
		m.emit(Event{Time: now, Type: RetryScheduled, State: v.State, Attempt: attempt + 1, Detail: "in " + delay.Round(time.Millisecond).String(), Duration: delay})
		if err := sleep(ctx, delay); err != nil {
			return Result{}, err
		}
	}
}

// attempt makes one attempt at a step, when its target's guard admits it.
func (m *machine) attempt(ctx context.Context, step *Step, in *Invocation) (Result, error) {
	if step.Target == "" {
		return m.call(ctx, step, in)
	}
	guard := in.Resources.Guard(step.Target)
	switch {
	case in.Resources.Get(step.Target) == nil:
		return Result{}, &Error{Err: fmt.Errorf("there is no resource %q", step.Target), Class: "target", Permanent: true}
	case guard == nil: // the target is of use to the task itself, as a base address is
		return m.call(ctx, step, in)
	}
	done, err := guard.Acquire(ctx)
	if err != nil {
		failure := &Error{Err: fmt.Errorf("target %q: %w", step.Target, err), Class: "target"}
		if refused, ok := errors.AsType[*resource.Refused](err); ok {
			failure.Class, failure.RetryAfter = refused.Class, refused.RetryAfter
		}
		return Result{}, failure
	}
	result, err := m.call(ctx, step, in)
	done(callOutcome(ctx, err))
	return result, err
}

// callOutcome is what an attempt says about its target. A cancelled one says nothing, and neither does one that could
// never succeed: the fault is the caller's.
func callOutcome(ctx context.Context, err error) resource.CallOutcome {
	switch {
	case err == nil:
		return resource.CallSucceeded
	case ctx.Err() != nil || classify(err).Permanent:
		return resource.CallCancelled
	}
	return resource.CallFailed
}

// call runs the task once, within its timeout, and checks what it gives.
func (m *machine) call(ctx context.Context, step *Step, in *Invocation) (Result, error) {
	within := ctx
	if step.Timeout > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeoutCause(ctx, step.Timeout, &timeoutError{what: "the attempt", limit: step.Timeout})
		defer cancel()
	}
	result, err := m.guarded(within, step.Task, in)
	if err != nil {
		if within.Err() != nil && ctx.Err() == nil {
			err = &Error{Err: fmt.Errorf("%w (%v)", context.Cause(within), err), Class: classTimeout}
		}
		return Result{}, err
	}
	if result.Value != nil {
		if result.size, err = measure(result.Value); err != nil {
			return Result{}, &Error{Err: fmt.Errorf("its result: %w", err), Class: "result", Permanent: true}
		}
		if result.size > MaxResultBytes {
			return Result{}, &Error{Err: fmt.Errorf("its result has about %d KiB, more than the %d KiB allowed: keep large data in a store or a file", result.size>>10, MaxResultBytes>>10), Class: "result", Permanent: true}
		}
	}
	switch {
	case step.Action != nil:
		scope := *in.Scope
		scope.Result = result.Value
		if result.Action, err = evaluate(m, step.Action, &scope); err != nil {
			return Result{}, &Error{Err: fmt.Errorf("its action: %w", err), Class: "expression", Permanent: true}
		}
	case result.Action == "":
		if object, ok := result.Value.(map[string]any); ok {
			result.Action, _ = object["action"].(string)
		}
	}
	return result, nil
}

// guarded runs the task; its panic is an error.
func (m *machine) guarded(ctx context.Context, task Task, in *Invocation) (result Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = recovered(in.Log, "the task", p)
		}
	}()
	return task.Run(ctx, in)
}

// sleep waits, but not longer than ctx; then it gives the cause of that.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
