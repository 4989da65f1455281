// Command service is a TaskService: tasks that a schedulerd calls. "orders.total" adds up the amounts of a CSV file; the tasks
// that begin with "conformance." are those that schedctl conformance task calls.
//
//	go run ./examples/services/go --listen 127.0.0.1:7450
//	schedctl conformance task --target 127.0.0.1:7450
package main

import (
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:7450", "address to listen on")
	flag.Parse()
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	schedulerdv1.RegisterTaskServiceServer(server, &service{tasks: map[string]task{
		"orders.total": ordersTotal, "conformance.sleep": sleep, "conformance.fail": fail,
	}})
	healthpb.RegisterHealthServer(server, health.NewServer())
	reflection.Register(server)
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer restore()
	context.AfterFunc(ctx, server.GracefulStop)
	if err := server.Serve(l); err != nil {
		log.Fatal(err)
	}
}

// task does one task. It may call progress, and should end when ctx does.
type task func(ctx context.Context, in *schedulerdv1.TaskInvocation, progress func(message string, fraction float64)) (map[string]any, error)

type service struct {
	schedulerdv1.UnimplementedTaskServiceServer
	tasks map[string]task

	mu        sync.Mutex
	cancelled []any // the last idempotency keys of tasks that ended because their calls did
}

func (s *service) Run(ctx context.Context, r *schedulerdv1.RunRequest) (*schedulerdv1.RunResponse, error) {
	result, err := s.do(ctx, r.GetInvocation(), func(string, float64) {})
	return &schedulerdv1.RunResponse{Result: result}, err
}

func (s *service) RunStream(r *schedulerdv1.RunStreamRequest, stream grpc.ServerStreamingServer[schedulerdv1.RunStreamResponse]) error {
	result, err := s.do(stream.Context(), r.GetInvocation(), func(message string, fraction float64) {
		progress := &schedulerdv1.TaskProgress{Message: message, Fraction: &fraction}
		_ = stream.Send(&schedulerdv1.RunStreamResponse{Event: &schedulerdv1.RunStreamResponse_Progress{Progress: progress}})
	})
	if err != nil {
		return err
	}
	return stream.Send(&schedulerdv1.RunStreamResponse{Event: &schedulerdv1.RunStreamResponse_Result{Result: result}})
}

func (s *service) do(ctx context.Context, in *schedulerdv1.TaskInvocation, progress func(string, float64)) (*schedulerdv1.TaskResult, error) {
	do := s.tasks[in.GetTask()]
	if in.GetTask() == "conformance.echo" {
		do = s.echo
	}
	if do == nil {
		return nil, status.Errorf(codes.NotFound, "there is no task %q here", in.GetTask())
	}
	value, err := do(ctx, in, progress)
	if ctx.Err() != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cancelled = append(s.cancelled, in.GetIdempotencyKey())
		s.cancelled = s.cancelled[max(0, len(s.cancelled)-100):]
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if err != nil {
		return nil, err
	}
	v, err := structpb.NewValue(value)
	return &schedulerdv1.TaskResult{Value: v}, err
}

// ordersTotal adds up the column "amount" of the CSV file that the input names. A file that is not there yet may come: that
// attempt is worth repeating; a file that is wrong is not.
func ordersTotal(ctx context.Context, in *schedulerdv1.TaskInvocation, progress func(string, float64)) (map[string]any, error) {
	name := in.GetInput().GetStructValue().GetFields()["file"].GetStringValue()
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, status.Errorf(codes.Unavailable, "%s is not there yet", name)
	} else if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	defer file.Close()
	rows := csv.NewReader(file)
	header, err := rows.Read()
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "%s: %v", name, err)
	}
	column := slices.Index(header, "amount")
	if column < 0 {
		return nil, status.Errorf(codes.InvalidArgument, "%s has no column amount", name)
	}
	total, orders := 0.0, 0
	for ctx.Err() == nil {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "%s: %v", name, err)
		}
		amount, err := strconv.ParseFloat(row[column], 64)
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "%s: order %d: %v", name, orders+1, err)
		}
		total, orders = total+amount, orders+1
	}
	progress(fmt.Sprintf("%d orders", orders), 1)
	return map[string]any{"orders": orders, "total": total}, ctx.Err()
}

// echo gives back what came.
func (s *service) echo(_ context.Context, in *schedulerdv1.TaskInvocation, _ func(string, float64)) (map[string]any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return map[string]any{
		"input": in.GetInput().AsInterface(), "idempotency_key": in.GetIdempotencyKey(), "attempt": in.GetAttempt(),
		"flow_id": in.GetFlowId(), "run_id": in.GetRunId(), "state": in.GetState(),
		"params": in.GetParams().AsMap(), "results": in.GetResults().AsMap(), "cancelled": append([]any{}, s.cancelled...),
	}, nil
}

// sleep sleeps for as many seconds as the input says.
func sleep(ctx context.Context, in *schedulerdv1.TaskInvocation, progress func(string, float64)) (map[string]any, error) {
	seconds := in.GetInput().GetStructValue().GetFields()["seconds"].GetNumberValue()
	progress("sleeping", 0)
	select {
	case <-time.After(time.Duration(seconds * float64(time.Second))):
		return map[string]any{"slept": seconds}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fail fails as the input says.
func fail(_ context.Context, in *schedulerdv1.TaskInvocation, _ func(string, float64)) (map[string]any, error) {
	input := in.GetInput().GetStructValue().GetFields()
	st := status.New(codes.Code(code.Code_value[input["code"].GetStringValue()]), "as the input said")
	if after := input["retry_after"].GetNumberValue(); after > 0 {
		var err error
		if st, err = st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Duration(after * float64(time.Second)))}); err != nil {
			return nil, err
		}
	}
	return nil, st.Err()
}
