// Package set is the task kind that computes values.
package set

import (
	"context"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/expr"
	"github.com/schedulerd/schedulerd/internal/task"
	"github.com/schedulerd/schedulerd/internal/task/failure"
)

// Kind computes values.
var Kind = task.Kind{Field: "set", New: newTask}

type values struct{ object *expr.TemplateValue }

func newTask(t *schedulerdv1.Task, env *task.Env) (workflow.Task, error) {
	return values{env.Object("set.values", t.GetSet().GetValues())}, nil
}

// Run gives the object of the values.
func (v values) Run(_ context.Context, in *workflow.Invocation) (workflow.Result, error) {
	value, err := v.object.Eval(in.Scope)
	if err != nil {
		return workflow.Result{}, failure.Expression("values", err)
	}
	return workflow.Result{Value: value}, nil
}
