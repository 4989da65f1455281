// Package wait is the task kind that waits: for a duration since its state was entered, or until an instant. Both are on the
// wall clock, so a run that is resumed waits for the rest only.
package wait

import (
	"context"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/task"
	"github.com/schedulerd/schedulerd/internal/task/failure"
)

// Kind waits.
var Kind = task.Kind{Field: "wait", New: newTask}

// longestSleep is how soon a wait notices that the wall clock was set or that the machine was suspended.
const longestSleep = time.Minute

// until gives the end of the wait of a state that was entered at a time.
type until func(scope *workflow.Scope, entered time.Time) (time.Time, error)

func newTask(t *schedulerdv1.Task, env *task.Env) (workflow.Task, error) {
	switch w := t.GetWait().GetUntil().(type) {
	case *schedulerdv1.WaitTask_Duration:
		if err := w.Duration.CheckValid(); err != nil {
			env.Faultf("wait.duration", "%v", err)
		}
		d := w.Duration.AsDuration()
		if d < 0 {
			env.Faultf("wait.duration", "a wait cannot be negative: %v", d)
		}
		return until(func(_ *workflow.Scope, entered time.Time) (time.Time, error) { return entered.Add(d), nil }), nil
	case *schedulerdv1.WaitTask_Time:
		if err := w.Time.CheckValid(); err != nil {
			env.Faultf("wait.time", "%v", err)
		}
		instant := w.Time.AsTime()
		return until(func(*workflow.Scope, time.Time) (time.Time, error) { return instant, nil }), nil
	default:
		return until(env.Moment("wait.expression", t.GetWait().GetExpression()).Eval), nil
	}
}

// Run waits. What is past already is no error: the wait is over.
func (u until) Run(ctx context.Context, in *workflow.Invocation) (workflow.Result, error) {
	end, err := u(in.Scope, in.Entered)
	if err != nil {
		return workflow.Result{}, failure.Expression("expression", err)
	}
	end = end.Round(0).UTC() // without the monotonic reading: see longestSleep
	for left := time.Until(end); left > 0; left = time.Until(end) {
		timer := time.NewTimer(min(left, longestSleep))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return workflow.Result{}, context.Cause(ctx)
		}
	}
	return workflow.Result{Value: map[string]any{"until": end.Format(time.RFC3339Nano)}}, nil
}
