// Package worker is the task kind that hands the work to a worker: a process that dialled in. What workers are promised is
// told in docs/workers.md; who gets what is decided in internal/worker.
package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/expr"
	"github.com/schedulerd/schedulerd/internal/fault"
	"github.com/schedulerd/schedulerd/internal/task"
	"github.com/schedulerd/schedulerd/internal/task/failure"
	"github.com/schedulerd/schedulerd/internal/task/invocation"
	"github.com/schedulerd/schedulerd/internal/worker"
)

// maxQueueTimeout bounds queue_timeout, as attempts are bounded.
const maxQueueTimeout = 365 * 24 * time.Hour

// KindOf hands work to the workers of a hub; trace may be nil.
func KindOf(hub *worker.Hub, trace invocation.Traceparent) task.Kind {
	return task.Kind{Field: "worker", New: func(t *schedulerdv1.Task, env *task.Env) (workflow.Task, error) {
		w := t.GetWorker()
		a := &assignment{
			task:         w.GetTask(),
			input:        env.Value("worker.input", w.GetInput()),
			labels:       make(map[string]*expr.Template, len(w.GetLabels())),
			queueTimeout: w.GetQueueTimeout().AsDuration(),
			hub:          hub,
			trace:        trace,
		}
		for name, text := range w.GetLabels() {
			a.labels[name] = env.Template(fault.Key("worker.labels", name), text)
		}
		if w.GetQueueTimeout() != nil && (a.queueTimeout <= 0 || a.queueTimeout > maxQueueTimeout) {
			env.Faultf("worker.queue_timeout", "it must be more than 0 and at most a year, not %v", a.queueTimeout)
		}
		return a, nil
	}}
}

type assignment struct {
	task         string
	input        *expr.TemplateValue
	labels       map[string]*expr.Template
	queueTimeout time.Duration
	hub          *worker.Hub
	trace        invocation.Traceparent
}

// Run waits for a worker, and for what it makes of the work.
func (a *assignment) Run(ctx context.Context, in *workflow.Invocation) (workflow.Result, error) {
	input, err := a.input.Eval(in.Scope)
	if err != nil {
		return workflow.Result{}, failure.Expression("input", err)
	}
	labels := make(map[string]string, len(a.labels))
	for name, t := range a.labels {
		if labels[name], err = t.String(in.Scope); err != nil {
			return workflow.Result{}, failure.Expression(fault.Key("labels", name), err)
		}
	}
	message, err := invocation.New(ctx, a.task, input, in, a.trace)
	if err != nil {
		return workflow.Result{}, err
	}
	result, err := a.hub.Do(ctx, &worker.Work{
		Invocation:   message,
		Labels:       labels,
		QueueTimeout: a.queueTimeout,
		Output:       func(stderr bool, line string) { in.Output.Line(in.State, in.Attempt, stderr, line) },
		Progress:     in.Progress,
	})
	switch e, failed := errors.AsType[*workflow.Error](err); {
	case failed:
		return workflow.Result{}, &workflow.Error{Err: fmt.Errorf("task %q: %w", a.task, e), Class: e.Class, Permanent: e.Permanent, RetryAfter: e.RetryAfter}
	case err != nil:
		return workflow.Result{}, fmt.Errorf("task %q was not finished: %w", a.task, err)
	}
	return result, nil
}
