// Package fail is the task kind that fails.
package fail

import (
	"context"
	"errors"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/expr"
	"github.com/schedulerd/schedulerd/internal/task"
	"github.com/schedulerd/schedulerd/internal/task/failure"
)

// Kind fails, with class "fail".
var Kind = task.Kind{Field: "fail", New: newTask}

type fail struct {
	message   *expr.Template
	retryable bool
}

func newTask(t *schedulerdv1.Task, env *task.Env) (workflow.Task, error) {
	return &fail{env.Template("fail.message", t.GetFail().GetMessage()), t.GetFail().GetRetryable()}, nil
}

// Run fails.
func (f *fail) Run(_ context.Context, in *workflow.Invocation) (workflow.Result, error) {
	message, err := f.message.String(in.Scope)
	if err != nil {
		return workflow.Result{}, failure.Expression("message", err)
	}
	return workflow.Result{}, &workflow.Error{Err: errors.New(message), Class: "fail", Permanent: !f.retryable}
}
