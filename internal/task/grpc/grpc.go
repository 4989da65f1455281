// Package grpc is the task kind that calls a method of any gRPC service.
//
// The methods of a service are learnt by server reflection, or from a file with a FileDescriptorSet. The request is JSON, as
// protojson reads it: field names in either case, numbers of 64 bits as numbers or texts. The result is the response with the
// field names of its .proto file, fields that are not set with their defaults, and numbers of 64 bits as texts. The result of
// a server stream is the list of its messages.
package grpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/expr"
	"github.com/schedulerd/schedulerd/internal/task"
	"github.com/schedulerd/schedulerd/internal/task/channel"
	"github.com/schedulerd/schedulerd/internal/task/failure"
	"github.com/schedulerd/schedulerd/internal/task/invocation"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
)

// DefaultMaxMessages is how many messages are taken from a server stream by a task that sets no bound itself.
const DefaultMaxMessages = 1000

// maxResult bounds what a stream may gather: a little more than a state's result may have, so that the engine's own words
// about its size are what a user reads if it is close.
const maxResult = workflow.MaxResultBytes + 16<<10

// KindOf calls methods. Connections to addresses are the pool's; trace may be nil.
func KindOf(pool *channel.Pool, trace invocation.Traceparent) task.Kind {
	known := &schemas{}
	files := &files{}
	return task.Kind{Field: "grpc", New: func(t *schedulerdv1.Task, env *task.Env) (workflow.Task, error) {
		g := t.GetGrpc()
		c := &call{
			method:      g.GetMethod(),
			request:     env.Value("grpc.request", g.GetRequest()),
			maxMessages: int(g.GetMaxMessages()),
			target:      channel.NewTarget(env, "grpc", g, g.GetMethod(), pool, trace),
		}
		if c.maxMessages == 0 {
			c.maxMessages = DefaultMaxMessages
		}
		c.schema = known.byReflection
		if name := g.GetDescriptorSetFile(); name != "" {
			c.schema = func(context.Context, *channel.Conn, string) (*schema, error) { return files.read(name) }
		}
		return c, nil
	}}
}

type call struct {
	method      string // such as "orders.v1.OrderService/Close"
	request     *expr.TemplateValue
	maxMessages int
	target      *channel.Target
	schema      func(ctx context.Context, conn *channel.Conn, service string) (*schema, error)
}

// Run makes the call.
func (c *call) Run(ctx context.Context, in *workflow.Invocation) (workflow.Result, error) {
	value, err := c.request.Eval(in.Scope)
	if err != nil {
		return workflow.Result{}, failure.Expression("request", err)
	}
	var result any
	err = c.target.Call(ctx, in, func(ctx context.Context, conn *channel.Conn) error {
		result, err = c.call(ctx, conn, value)
		result = conn.Hidden.ScrubValue(result)
		return err
	})
	if err != nil {
		return workflow.Result{}, err
	}
	return workflow.Result{Value: result}, nil
}

func (c *call) call(ctx context.Context, conn *channel.Conn, value any) (any, error) {
	service, name, _ := strings.Cut(c.method, "/")
	s, err := c.schema(ctx, conn, service)
	if err != nil {
		return nil, err
	}
	method, err := s.method(service, name)
	if err != nil {
		return nil, err
	}
	request := dynamicpb.NewMessage(method.Input())
	if err := s.decode(value, request); err != nil {
		return nil, failure.Permanent("request", "request: %w", err)
	}
	if size := proto.Size(request); size > invocation.MaxBytes {
		return nil, failure.Permanent("request", "request: it takes %d bytes, more than the %d that a call can carry", size, invocation.MaxBytes)
	}
	path := "/" + c.method
	if !method.IsStreamingServer() {
		response := dynamicpb.NewMessage(method.Output())
		if err := conn.Invoke(ctx, path, request, response, conn.Options...); err != nil {
			return nil, err
		}
		result, _, err := s.encode(response)
		return result, err
	}
	ctx, cancel := context.WithCancel(ctx) // a stream that is left before its end must be told
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, path, conn.Options...)
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(request); err != nil && !errors.Is(err, io.EOF) { // EOF: RecvMsg says why
		return nil, err
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	list, size := []any{}, 0
	for len(list) < c.maxMessages {
		response := dynamicpb.NewMessage(method.Output())
		if err := stream.RecvMsg(response); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		message, bytes, err := s.encode(response)
		if err != nil {
			return nil, err
		}
		if size += bytes; size > maxResult {
			return nil, failure.Permanent("result", "the first %d messages take %d KiB, more than the %d KiB that a result may have: ask for fewer, or set max_messages",
				len(list)+1, size>>10, workflow.MaxResultBytes>>10)
		}
		list = append(list, message)
	}
	return list, nil
}

// decode reads a JSON-like value into a message. Null is the empty message. The error names the field.
func (s *schema) decode(value any, into proto.Message) error {
	if value == nil {
		return nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if err := (protojson.UnmarshalOptions{Resolver: s.types}).Unmarshal(text, into); err != nil {
		return errors.New(withoutPlace(err.Error()))
	}
	return nil
}

// withoutPlace takes off what protojson begins its messages with: the line and column in a text that nobody has seen.
func withoutPlace(message string) string {
	message = strings.ReplaceAll(strings.TrimPrefix(message, "proto:"), "\u00a0", " ") // which it varies on purpose
	message = strings.TrimSpace(message)
	message = strings.TrimPrefix(message, "syntax error ")
	if rest, ok := strings.CutPrefix(message, "(line "); ok {
		if _, after, found := strings.Cut(rest, "): "); found {
			message = after
		}
	}
	return message
}

// encode gives a message as a JSON-like value, and its size as JSON.
func (s *schema) encode(m proto.Message) (value any, size int, err error) {
	text, err := (protojson.MarshalOptions{Resolver: s.types, UseProtoNames: true, EmitDefaultValues: true}).Marshal(m)
	if err != nil {
		return nil, 0, failure.Permanent("result", "the response cannot be written as JSON: %s", withoutPlace(err.Error()))
	}
	if err := json.Unmarshal(text, &value); err != nil {
		return nil, 0, fmt.Errorf("the response as JSON: %w", err)
	}
	return value, len(text), nil
}
