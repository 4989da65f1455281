package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/task/channel"
	"github.com/schedulerd/schedulerd/internal/task/kindtest"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tasks is a TaskService of functions.
type tasks struct {
	schedulerdv1.UnimplementedTaskServiceServer
	run    func(context.Context, *schedulerdv1.TaskInvocation) (*schedulerdv1.TaskResult, error)
	stream func(*schedulerdv1.TaskInvocation, grpc.ServerStreamingServer[schedulerdv1.RunStreamResponse]) error
}

func (s *tasks) Run(ctx context.Context, r *schedulerdv1.RunRequest) (*schedulerdv1.RunResponse, error) {
	result, err := s.run(ctx, r.GetInvocation())
	return &schedulerdv1.RunResponse{Result: result}, err
}

func (s *tasks) RunStream(r *schedulerdv1.RunStreamRequest, stream grpc.ServerStreamingServer[schedulerdv1.RunStreamResponse]) error {
	return s.stream(r.GetInvocation(), stream)
}

// serve serves until the test ends.
func serve(t *testing.T, s schedulerdv1.TaskServiceServer) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	schedulerdv1.RegisterTaskServiceServer(server, s)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return l.Addr().String()
}

func build(t *testing.T, definition string) workflow.Task {
	t.Helper()
	pool := &channel.Pool{}
	t.Cleanup(func() { pool.Close() })
	config := kindtest.Config()
	config.Resources = map[string]string{"there": "channel"}
	trace := func(context.Context) string { return "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" }
	return kindtest.Task(t, KindOf(pool, trace), config, definition)
}

func TestRun(t *testing.T) {
	t.Setenv("SERVICE_TOKEN", "s3cret-token")
	address := serve(t, &tasks{run: func(ctx context.Context, in *schedulerdv1.TaskInvocation) (*schedulerdv1.TaskResult, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		deadline, _ := ctx.Deadline()
		value, err := structpb.NewValue(map[string]any{
			"task": in.GetTask(), "input": in.GetInput().AsInterface(), "key": in.GetIdempotencyKey(), "attempt": float64(in.GetAttempt()),
			"fencing": float64(in.GetFencingToken()), "traceparent": in.GetTraceparent(),
			"header":   strings.Join(md.Get("traceparent"), "") == in.GetTraceparent() && strings.Join(md.Get("idempotency-key"), "") == in.GetIdempotencyKey(),
			"tenant":   strings.Join(md.Get("x-tenant"), " "),
			"token":    strings.Join(md.Get("authorization"), " "),
			"deadline": in.GetDeadline().AsTime().Sub(deadline).Abs() < 100*time.Millisecond,
		})
		return &schedulerdv1.TaskResult{Value: value, Action: "again"}, err
	}})
	for name, definition := range map[string]string{
		"address": fmt.Sprintf(`"address": %q`, address),
		"channel": `"channel": "there"`,
	} {
		task := build(t, fmt.Sprintf(`{"service": {%s, "task": "pack", "input": {"who": "${ params.name }"},
			"metadata": {"x-tenant": "of ${ params.name }", "Authorization": "Bearer ${ env('SERVICE_TOKEN') }"}}}`, definition))
		call := kindtest.NewCall()
		call.Resources = kindtest.SetUp(t, channel.ResourceKind, map[string]string{"there": fmt.Sprintf(`{"name": "there", "channel": {"target": "dns:///%s", "metadata": {"x-tenant": "overridden"}}}`, address)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got, err := task.Run(ctx, call.Invocation)
		if err != nil {
			t.Fatal(err)
		}
		want := workflow.Result{Action: "again", Value: map[string]any{
			"task": "pack", "input": map[string]any{"who": "Ada"}, "key": "i1/flow@7/work/1", "attempt": 2.0, "fencing": 3.0,
			"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "header": true, "tenant": "of Ada",
			"token": "[secret]", "deadline": true,
		}}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got  %v\nwant %v", name, got, want)
		}
	}
}

func TestFailures(t *testing.T) {
	t.Setenv("SERVICE_TOKEN", "s3cret-token")
	var fail error
	address := serve(t, &tasks{run: func(context.Context, *schedulerdv1.TaskInvocation) (*schedulerdv1.TaskResult, error) {
		return &schedulerdv1.TaskResult{}, fail
	}})
	task := build(t, fmt.Sprintf(`{"service": {"address": %q, "task": "pack", "metadata": {"authorization": "${ env('SERVICE_TOKEN') }"}}}`, address))
	later, err := status.New(codes.FailedPrecondition, "not open yet").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(7 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	invalid, err := status.New(codes.InvalidArgument, "bad input").WithDetails(&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "input.id", Description: "is missing"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		err       error
		class     string
		permanent bool
		after     time.Duration
		text      string
	}{
		{errors.New("boom"), "grpc:UNKNOWN", false, 0, "boom"},
		{status.Error(codes.Unavailable, "down"), "grpc:UNAVAILABLE", false, 0, "UNAVAILABLE: down"},
		{status.Error(codes.Canceled, "going away"), "grpc:CANCELLED", false, 0, ""},
		{status.Error(codes.NotFound, "no such thing"), "grpc:NOT_FOUND", true, 0, `task "pack" at ` + address + ": NOT_FOUND: no such thing"},
		{status.Error(codes.PermissionDenied, "not with s3cret-token"), "grpc:PERMISSION_DENIED", true, 0, "not with [secret]"},
		{later.Err(), "grpc:FAILED_PRECONDITION", false, 7 * time.Second, ""},
		{invalid.Err(), "grpc:INVALID_ARGUMENT", true, 0, "input.id: is missing"},
	} {
		fail = test.err
		_, err := task.Run(t.Context(), kindtest.NewCall().Invocation)
		e := kindtest.Failure(t, err)
		if e.Class != test.class || e.Permanent != test.permanent || e.RetryAfter != test.after || !strings.Contains(e.Error(), test.text) {
			t.Errorf("%v became %q, class %s, permanent %v, after %v", test.err, e, e.Class, e.Permanent, e.RetryAfter)
		}
	}
}

func TestNobodyThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	_, err = build(t, fmt.Sprintf(`{"service": {"address": %q, "task": "pack"}}`, l.Addr())).Run(t.Context(), kindtest.NewCall().Invocation)
	if e := kindtest.Failure(t, err); e.Class != "grpc:UNAVAILABLE" || e.Permanent {
		t.Errorf("%v", e)
	}
	// With wait_for_ready the call waits for as long as the attempt may.
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("the attempt took too long"))
	defer cancel()
	_, err = build(t, fmt.Sprintf(`{"service": {"address": %q, "task": "pack", "wait_for_ready": true}}`, l.Addr())).Run(ctx, kindtest.NewCall().Invocation)
	if err == nil || errors.Unwrap(err) != context.Cause(ctx) {
		t.Errorf("%v", err)
	}
}

func TestCancel(t *testing.T) {
	began, ended := make(chan bool), make(chan error, 1)
	address := serve(t, &tasks{run: func(ctx context.Context, _ *schedulerdv1.TaskInvocation) (*schedulerdv1.TaskResult, error) {
		close(began)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}})
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("no longer wanted")
	go func() { <-began; cancel(why) }()
	_, err := build(t, fmt.Sprintf(`{"service": {"address": %q, "task": "pack"}}`, address)).Run(ctx, kindtest.NewCall().Invocation)
	if !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	if err := <-ended; err == nil {
		t.Error("the service was not told")
	}
}

func progress(text string, fraction *float64, within time.Duration) *schedulerdv1.RunStreamResponse {
	r := &schedulerdv1.RunStreamResponse{Event: &schedulerdv1.RunStreamResponse_Progress{Progress: &schedulerdv1.TaskProgress{Message: text, Fraction: fraction}}}
	if within > 0 {
		r.NextWithin = durationpb.New(within)
	}
	return r
}

func result(n float64) *schedulerdv1.RunStreamResponse {
	return &schedulerdv1.RunStreamResponse{Event: &schedulerdv1.RunStreamResponse_Result{Result: &schedulerdv1.TaskResult{Value: structpb.NewNumberValue(n)}}}
}

func TestStream(t *testing.T) {
	half := 0.5
	for name, test := range map[string]struct {
		send  []*schedulerdv1.RunStreamResponse
		wait  bool // for the end of the call after that
		end   error
		class string // empty: it succeeds with 7
	}{
		"result only":       {send: []*schedulerdv1.RunStreamResponse{result(7)}},
		"progress":          {send: []*schedulerdv1.RunStreamResponse{progress("one", nil, time.Minute), progress("two", &half, 0), result(7)}},
		"error":             {send: []*schedulerdv1.RunStreamResponse{progress("one", nil, 0)}, end: status.Error(codes.Aborted, "no"), class: "grpc:ABORTED"},
		"error at the end":  {send: []*schedulerdv1.RunStreamResponse{result(7)}, end: status.Error(codes.Aborted, "no"), class: "grpc:ABORTED"},
		"no result":         {send: []*schedulerdv1.RunStreamResponse{progress("one", nil, 0)}, class: "result"},
		"more after result": {send: []*schedulerdv1.RunStreamResponse{result(7), result(8)}, class: "result"},
		"broken promise":    {send: []*schedulerdv1.RunStreamResponse{progress("one", nil, 20*time.Millisecond)}, wait: true, class: "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			address := serve(t, &tasks{stream: func(_ *schedulerdv1.TaskInvocation, s grpc.ServerStreamingServer[schedulerdv1.RunStreamResponse]) error {
				for _, r := range test.send {
					if err := s.Send(r); err != nil {
						return err
					}
				}
				if test.wait {
					<-s.Context().Done()
				}
				return test.end
			}})
			task := build(t, fmt.Sprintf(`{"service": {"address": %q, "task": "pack", "progress": true}}`, address))
			call := kindtest.NewCall()
			var told []string
			call.Progress = func(message string, fraction float64) { told = append(told, fmt.Sprint(message, " ", fraction)) }
			got, err := task.Run(t.Context(), call.Invocation)
			if test.class != "" {
				if e := kindtest.Failure(t, err); e.Class != test.class {
					t.Errorf("%v of class %s, want %s", e, e.Class, test.class)
				}
				return
			}
			if err != nil || got.Value != 7.0 {
				t.Errorf("%v, %v", got, err)
			}
			if want := []string{"one -1", "two 0.5"}; name == "progress" && !reflect.DeepEqual(told, want) {
				t.Errorf("told %q", told)
			}
		})
	}
}

func TestTooLarge(t *testing.T) {
	address := serve(t, &tasks{run: func(context.Context, *schedulerdv1.TaskInvocation) (*schedulerdv1.TaskResult, error) {
		return &schedulerdv1.TaskResult{Value: structpb.NewStringValue(strings.Repeat("x", 5<<20))}, nil
	}})
	task := build(t, fmt.Sprintf(`{"service": {"address": %q, "task": "pack", "input": "${ params.big }"}}`, address))
	call := kindtest.NewCall()
	call.Scope.Params["big"] = "small"
	_, err := task.Run(t.Context(), call.Invocation)
	if e := kindtest.Failure(t, err); !e.Permanent || e.Class != "grpc:RESOURCE_EXHAUSTED" {
		t.Errorf("a large response: %v", e)
	}
	call.Scope.Params["one"], call.Scope.Params["two"] = strings.Repeat("x", 3<<20), strings.Repeat("x", 3<<20)
	_, err = task.Run(t.Context(), call.Invocation)
	if e := kindtest.Failure(t, err); !e.Permanent || e.Class != "request" {
		t.Errorf("large params: %v", e)
	}
}

func TestWrongDefinitions(t *testing.T) {
	config := kindtest.Config()
	config.Resources = map[string]string{"there": "channel", "memory": "store"}
	for definition, want := range map[string]string{
		`{"service": {"task": "x"}}`: "needs a channel resource or an address",
		`{"service": {"task": "x", "channel": "there", "address": "localhost:1"}}`:                     "both set",
		`{"service": {"task": "x", "channel": "ther"}}`:                                                `did you mean there`,
		`{"service": {"task": "x", "channel": "memory"}}`:                                              "needs channel",
		`{"service": {"task": "x", "address": "https://orders"}}`:                                      "scheme of an HTTP address",
		`{"service": {"task": "x", "address": "a:1", "input": "${ nonsense }"}}`:                       "service.input",
		`{"service": {"task": "x", "address": "a:1", "metadata": {"grpc-timeout": "1S"}}}`:             "set by the call itself",
		`{"service": {"task": "x", "address": "a:1", "metadata": {"x y": "1"}}}`:                       "cannot be a key",
		`{"service": {"task": "x", "address": "a:1", "metadata": {"x": "1", "X": "2"}}}`:               "twice",
		`{"service": {"task": "x", "address": "a:1", "metadata": {"x": "grün"}}}`:                      "printable ASCII",
		`{"service": {"task": "x", "address": "a:1", "metadata": {"x-bin": "!"}}}`:                     "base64",
		`{"service": {"task": "x", "address": "a:1", "metadata": {"idempotency-key": "${ run.id }"}}}`: "set by the call itself",
	} {
		_, err := kindtest.Compile(t, KindOf(&channel.Pool{}, nil), config, definition)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", definition, err, want)
		}
	}
}
