// Package service is the task kind that calls TaskService.Run on a target: the simplest way to write a task in any language.
//
// Each attempt is one call, with the deadline of the attempt. The result's value and action become the state's. With
// "progress: true" the call is RunStream: what it tells on its way becomes progress of the run, and a task that promises its
// next word within a time, and does not keep it, has failed with "timeout".
package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/expr"
	"github.com/schedulerd/schedulerd/internal/task"
	"github.com/schedulerd/schedulerd/internal/task/channel"
	"github.com/schedulerd/schedulerd/internal/task/failure"
	"github.com/schedulerd/schedulerd/internal/task/invocation"
)

// KindOf calls TaskService.Run. Connections to addresses are the pool's; trace may be nil.
func KindOf(pool *channel.Pool, trace invocation.Traceparent) task.Kind {
	return task.Kind{Field: "service", New: func(t *schedulerdv1.Task, env *task.Env) (workflow.Task, error) {
		s := t.GetService()
		return &call{
			task:     s.GetTask(),
			input:    env.Value("service.input", s.GetInput()),
			progress: s.GetProgress(),
			target:   channel.NewTarget(env, "service", s, fmt.Sprintf("task %q", s.GetTask()), pool, trace),
			trace:    trace,
		}, nil
	}}
}

type call struct {
	task     string
	input    *expr.TemplateValue
	progress bool
	target   *channel.Target
	trace    invocation.Traceparent
}

// Run makes the call.
func (c *call) Run(ctx context.Context, in *workflow.Invocation) (workflow.Result, error) {
	input, err := c.input.Eval(in.Scope)
	if err != nil {
		return workflow.Result{}, failure.Expression("input", err)
	}
	message, err := invocation.New(ctx, c.task, input, in, c.trace)
	if err != nil {
		return workflow.Result{}, err
	}
	var result workflow.Result
	err = c.target.Call(ctx, in, func(ctx context.Context, conn *channel.Conn) error {
		client := schedulerdv1.NewTaskServiceClient(conn)
		var r *schedulerdv1.TaskResult
		if c.progress {
			r, err = stream(ctx, client, conn, message, in.Progress)
		} else {
			var response *schedulerdv1.RunResponse
			response, err = client.Run(ctx, &schedulerdv1.RunRequest{Invocation: message}, conn.Options...)
			r = response.GetResult()
		}
		result = invocation.Result(r)
		result.Value = conn.Hidden.ScrubValue(result.Value)
		return err
	})
	if err != nil {
		return workflow.Result{}, err
	}
	return result, nil
}

// lateError is a task that did not keep its promise of a next word.
type lateError struct{ promised time.Duration }

func (e *lateError) Error() string {
	return fmt.Sprintf("the task promised its next word within %v and did not keep that", e.promised)
}

// stream makes the call that tells of its progress.
func stream(ctx context.Context, client schedulerdv1.TaskServiceClient, conn *channel.Conn, message *schedulerdv1.TaskInvocation, progress func(string, float64)) (*schedulerdv1.TaskResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	events, err := client.RunStream(ctx, &schedulerdv1.RunStreamRequest{Invocation: message}, conn.Options...)
	if err != nil {
		return nil, err
	}
	var result *schedulerdv1.TaskResult
	var promise *time.Timer
	for {
		r, err := events.Recv()
		if promise != nil {
			promise.Stop()
		}
		if late, ok := errors.AsType[*lateError](context.Cause(ctx)); ok {
			return nil, failure.Retryable("timeout", "%w", late)
		}
		switch {
		case errors.Is(err, io.EOF) && result == nil:
			return nil, failure.Permanent("result", "the stream ended without a result")
		case errors.Is(err, io.EOF):
			return result, nil
		case err != nil:
			return nil, err
		case result != nil:
			return nil, failure.Permanent("result", "something came after the result, which must be last")
		}
		switch event := r.GetEvent().(type) {
		case *schedulerdv1.RunStreamResponse_Progress:
			progress(conn.Hidden.Scrub(event.Progress.GetMessage()), fraction(event.Progress))
		case *schedulerdv1.RunStreamResponse_Result:
			if result = event.Result; result == nil {
				result = &schedulerdv1.TaskResult{}
			}
		}
		if d := r.GetNextWithin().AsDuration(); d > 0 && result == nil {
			promise = time.AfterFunc(d, func() { cancel(&lateError{d}) })
		}
	}
}

// fraction is the share done; below 0 if it is not known.
func fraction(p *schedulerdv1.TaskProgress) float64 {
	if p.Fraction == nil {
		return -1
	}
	return p.GetFraction()
}
