// Package invocation is an attempt at a task as the message that tasks elsewhere get: those behind TaskService and those of
// workers.
package invocation

import (
	"context"
	"fmt"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/task/failure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// MaxBytes bounds a message: what servers and clients of gRPC take if nobody told them otherwise is 4 MiB, and there is more
// around it.
const MaxBytes = 4<<20 - 64<<10

// Traceparent gives the W3C trace context in a context; empty: there is none. Nil gives none.
type Traceparent func(context.Context) string

// New gives the message of an attempt. Input is the task's, evaluated. A failure is a workflow.Error that no retry mends.
func New(ctx context.Context, task string, input any, in *workflow.Invocation, trace Traceparent) (*schedulerdv1.TaskInvocation, error) {
	m := &schedulerdv1.TaskInvocation{
		Task:           task,
		FlowId:         in.FlowID,
		RunId:          in.RunID,
		State:          in.State,
		Attempt:        uint32(in.Attempt),
		IdempotencyKey: in.IdempotencyKey,
		FencingToken:   in.Fencing,
	}
	if !in.FireTime.IsZero() {
		m.FireTime = timestamppb.New(in.FireTime)
	}
	if deadline, ok := ctx.Deadline(); ok {
		m.Deadline = timestamppb.New(deadline.Round(0).UTC().Truncate(time.Microsecond))
	}
	if trace != nil {
		m.Traceparent = trace(ctx)
	}
	var err error
	if m.Input, err = structpb.NewValue(input); err != nil {
		return nil, failure.Permanent("request", "input: %w", err)
	}
	if m.Params, err = structpb.NewStruct(in.Scope.Params); err != nil {
		return nil, failure.Permanent("request", "params: %w", err)
	}
	if m.Results, err = structpb.NewStruct(in.Scope.Results); err != nil {
		return nil, failure.Permanent("request", "results: %w", err)
	}
	if size := proto.Size(m); size > MaxBytes {
		return nil, failure.Permanent("request", "input, params and earlier results take %s together, more than the %s that a call can carry: keep large data in a file or a store, and pass its name",
			mebibytes(size), mebibytes(MaxBytes))
	}
	return m, nil
}

func mebibytes(n int) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// Result is the result in a message.
func Result(r *schedulerdv1.TaskResult) workflow.Result {
	return workflow.Result{Value: r.GetValue().AsInterface(), Action: r.GetAction()}
}
