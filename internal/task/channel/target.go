package channel

import (
	"context"
	"errors"
	"fmt"

	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/expr"
	"github.com/schedulerd/schedulerd/internal/task"
	"github.com/schedulerd/schedulerd/internal/task/failure"
	"github.com/schedulerd/schedulerd/internal/task/invocation"
	"github.com/schedulerd/schedulerd/internal/task/secret"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Definition is what the messages of tasks that make calls have in common.
type Definition interface {
	GetChannel() string
	GetAddress() string
	GetMetadata() map[string]string
	GetWaitForReady() bool
}

// Target is what a task calls, and what all its calls carry.
type Target struct {
	channel  string         // name of a resource; empty: there is an address
	address  *expr.Template // used if there is no channel
	metadata pairs
	options  []grpc.CallOption
	pool     *Pool
	trace    invocation.Traceparent
	label    string // in messages
}

// NewTarget compiles the target of a task whose message is in a field such as "grpc". Label says in messages what is called.
func NewTarget(env *task.Env, field string, d Definition, label string, pool *Pool, trace invocation.Traceparent) *Target {
	t := &Target{
		channel:  d.GetChannel(),
		address:  env.Template(field+".address", d.GetAddress()),
		metadata: compileMetadata(env, field+".metadata", d.GetMetadata()),
		options:  []grpc.CallOption{grpc.WaitForReady(d.GetWaitForReady())},
		pool:     pool,
		trace:    trace,
		label:    label,
	}
	switch {
	case d.GetChannel() != "" && d.GetAddress() != "":
		env.Faultf(field, "channel and address are both set: keep one")
	case d.GetChannel() != "":
		env.Resource(field+".channel", d.GetChannel(), "channel")
		t.label += " on channel " + d.GetChannel()
	case d.GetAddress() == "":
		env.Faultf(field, "needs a channel resource or an address to call")
	default:
		if text, constant := t.address.Constant(); constant {
			if err := cleanTarget(text); err != nil {
				env.Faultf(field+".address", "%v", err)
			}
		}
		t.label += " at " + d.GetAddress()
	}
	return t
}

// Conn is a connection for one call.
type Conn struct {
	*grpc.ClientConn
	Options []grpc.CallOption
	Hidden  secret.Texts // what must not be told of the call
}

// Call makes calls over the target's connection, with a context that carries the metadata. What do gives back may be the
// status of a call, or a workflow.Error.
func (t *Target) Call(ctx context.Context, in *workflow.Invocation, do func(ctx context.Context, conn *Conn) error) error {
	var hidden secret.Texts
	err := t.call(ctx, in, do, &hidden)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return &stoppedError{t.label, context.Cause(ctx)}
	}
	e, classified := errors.AsType[*workflow.Error](err)
	if !classified {
		e = Failure(err)
	}
	text := hidden.Scrub(e.Error())
	return &workflow.Error{Err: fmt.Errorf("%s: %s", t.label, text), Class: e.Class, Permanent: e.Permanent, RetryAfter: e.RetryAfter}
}

func (t *Target) call(ctx context.Context, in *workflow.Invocation, do func(context.Context, *Conn) error, hidden *secret.Texts) error {
	md := metadata.MD{}
	conn, release, err := t.connection(in, md, hidden)
	if err != nil {
		return err
	}
	defer release()
	if err := t.metadata.eval(in.Scope, md, hidden); err != nil {
		return err
	}
	if in.IdempotencyKey != "" {
		md.Set(idempotencyKey, in.IdempotencyKey)
	}
	if t.trace != nil {
		if text := t.trace(ctx); text != "" {
			md.Set(traceparent, text)
		}
	}
	return do(metadata.NewOutgoingContext(ctx, md), &Conn{conn, t.options, *hidden})
}

// connection gives the connection, with the metadata that belongs to it.
func (t *Target) connection(in *workflow.Invocation, md metadata.MD, hidden *secret.Texts) (*grpc.ClientConn, func(), error) {
	if t.channel != "" {
		c, ok := in.Resources.Get(t.channel).(*Channel)
		if !ok {
			return nil, nil, failure.Permanent("target", "there is no channel resource %q", t.channel)
		}
		return c.conn, func() {}, c.metadata.eval(nil, md, hidden)
	}
	address, err := t.address.String(in.Scope)
	if err != nil {
		return nil, nil, failure.Expression("address", err)
	}
	if err := cleanTarget(address); err != nil {
		return nil, nil, failure.Permanent("request", "address: %w", err)
	}
	conn, release, err := t.pool.acquire(address)
	if err != nil {
		return nil, nil, failure.Permanent("request", "address: %w", err)
	}
	return conn, release, nil
}

// stoppedError is a call that ended because its context did.
type stoppedError struct {
	label string
	cause error
}

func (e *stoppedError) Error() string { return e.label + " was not finished" }

func (e *stoppedError) Unwrap() error { return e.cause }
