package conformance

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service keeps the contract, but for one fault.
type service struct {
	pb.UnimplementedTaskServiceServer
	fault     string
	mu        sync.Mutex
	cancelled []any
	keys      map[string]bool
	busy      sync.Mutex
}

func (s *service) do(ctx context.Context, in *pb.TaskInvocation, progress func(*pb.TaskProgress)) (any, error) {
	input := in.GetInput().GetStructValue().GetFields()
	switch strings.TrimPrefix(in.GetTask(), "conformance.") {
	case "echo":
		s.mu.Lock()
		defer s.mu.Unlock()
		object := map[string]any{
			"input": in.GetInput().AsInterface(), "idempotency_key": in.GetIdempotencyKey(), "attempt": float64(in.GetAttempt()),
			"flow_id": in.GetFlowId(), "run_id": in.GetRunId(), "state": in.GetState(), "params": in.GetParams().AsMap(), "results": in.GetResults().AsMap(),
			"cancelled": slices.Clone(s.cancelled),
		}
		switch {
		case s.fault == "no params":
			delete(object, "params")
		case s.fault == "text only":
			if _, isText := object["input"].(string); !isText {
				object["input"] = "?"
			}
		case s.fault == "once per key" && s.keys[in.GetIdempotencyKey()]:
			return nil, status.Error(codes.AlreadyExists, "seen before")
		}
		s.keys[in.GetIdempotencyKey()] = true
		return object, nil
	case "sleep":
		if s.fault == "one at a time" {
			s.busy.Lock()
			defer s.busy.Unlock()
		}
		if s.fault == "small inputs" && len(input["padding"].GetStringValue()) > 1<<20 {
			return nil, errors.New("cannot read that")
		}
		if s.fault != "no progress" {
			half := 0.5
			if s.fault == "percent" {
				half = 50
			}
			progress(&pb.TaskProgress{Message: "sleeping", Fraction: &half})
		}
		select {
		case <-time.After(time.Duration(input["seconds"].GetNumberValue() * float64(time.Second))):
			return map[string]any{"slept": input["seconds"].AsInterface()}, nil
		case <-ctx.Done():
			if s.fault != "deaf" {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.cancelled = append(s.cancelled, in.GetIdempotencyKey())
			}
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	case "fail":
		st := status.New(codes.Code(code.Code_value[input["code"].GetStringValue()]), "as it was told")
		if s.fault == "exceptions" {
			return nil, errors.New("as it was told")
		}
		if after := input["retry_after"].GetNumberValue(); after > 0 && s.fault != "no retry info" {
			st, _ = st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Duration(after * float64(time.Second)))})
		}
		return nil, st.Err()
	}
	if s.fault == "unknown is internal" {
		return nil, errors.New("no such task")
	}
	return nil, status.Error(codes.NotFound, "no such task")
}

func (s *service) Run(ctx context.Context, r *pb.RunRequest) (*pb.RunResponse, error) {
	value, err := s.do(ctx, r.GetInvocation(), func(*pb.TaskProgress) {})
	if err != nil {
		return nil, err
	}
	v, err := structpb.NewValue(value)
	return &pb.RunResponse{Result: &pb.TaskResult{Value: v}}, err
}

func (s *service) RunStream(r *pb.RunStreamRequest, stream grpc.ServerStreamingServer[pb.RunStreamResponse]) error {
	value, err := s.do(stream.Context(), r.GetInvocation(), func(p *pb.TaskProgress) {
		_ = stream.Send(&pb.RunStreamResponse{Event: &pb.RunStreamResponse_Progress{Progress: p}})
	})
	if err != nil || s.fault == "no result in streams" {
		return err
	}
	v, err := structpb.NewValue(value)
	if err != nil {
		return err
	}
	result := &pb.RunStreamResponse{Event: &pb.RunStreamResponse_Result{Result: &pb.TaskResult{Value: v}}}
	if s.fault == "two results" {
		_ = stream.Send(result)
	}
	return stream.Send(result)
}

// Each fault fails the checks that are about it, and no other.
func TestChecks(t *testing.T) {
	for fault, want := range map[string][]string{
		"":                     nil,
		"no params":            {"a task gets its whole invocation"},
		"text only":            {"values of every type come back as they went", "tasks run at once and are not mixed up"},
		"once per key":         {"an attempt that is made again carries the same key, and succeeds again"},
		"no result in streams": {"a streamed task ends with its result", "a streamed task tells its progress"},
		"two results":          {"a streamed task ends with its result", "a streamed task tells its progress"},
		"no progress":          {"a streamed task tells its progress"},
		"percent":              {"a streamed task tells its progress"},
		"exceptions":           {"a failure has its code", "a failure that is streamed has its code", "a failure can say when to try again"},
		"no retry info":        {"a failure can say when to try again"},
		"unknown is internal":  {"a task that does not exist is refused for good"},
		"deaf":                 {"a task ends at the deadline of its call", "a task ends when its call is cancelled", "a streamed task ends when its call is cancelled"},
		"one at a time":        {"tasks run at once and are not mixed up"},
		"small inputs":         {"a large input is handled or refused"},
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			server := grpc.NewServer()
			pb.RegisterTaskServiceServer(server, &service{fault: fault, keys: map[string]bool{}, cancelled: []any{}})
			var serving sync.WaitGroup
			serving.Go(func() { _ = server.Serve(l) })
			defer serving.Wait()
			defer server.Stop()
			conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			var failed, text []string
			n := Run(t.Context(), conn, DefaultNames, func(c Check) {
				if c.Err != "" {
					failed, text = append(failed, c.Name), append(text, c.Err)
				}
			})
			if !slices.Equal(failed, want) || n != len(want) {
				t.Errorf("%d failed: %q\nwant %q\n%s", n, failed, want, strings.Join(text, "\n"))
			}
		})
	}
}
