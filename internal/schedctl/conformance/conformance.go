// Package conformance checks that a TaskService, in whatever language, keeps the contract.
//
// The service under test does three tasks, whose names can be chosen:
//
//	echo   gives {"input", "idempotency_key", "attempt", "flow_id", "run_id", "state", "params", "results"} of its invocation as
//	       it came, and "cancelled", the list of the idempotency keys of those sleeps that ended because their call did
//	sleep  sleeps for input.seconds, tells its progress when it is streamed, and gives {"slept": input.seconds}
//	fail   fails with the code of the name input.code, and with a RetryInfo of input.retry_after seconds if that is there
package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Names are the names of the tasks of the service under test.
type Names struct{ Echo, Sleep, Fail string }

// DefaultNames are those of the examples.
var DefaultNames = Names{"conformance.echo", "conformance.sleep", "conformance.fail"}

// Check is one promise, and whether it was kept.
type Check struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took_ns"`
	Err  string        `json:"error,omitempty"` // empty: it was kept
}

// Run makes all checks, one after the other, and tells each as it is made.
func Run(ctx context.Context, conn grpc.ClientConnInterface, names Names, told func(Check)) (failed int) {
	s := &suite{client: pb.NewTaskServiceClient(conn), names: names}
	for _, c := range checks {
		within, cancel := context.WithTimeout(ctx, 30*time.Second)
		began := time.Now()
		err := c.check(s, within)
		cancel()
		check := Check{Name: c.name, Took: time.Since(began)}
		if err != nil {
			check.Err = err.Error()
			failed++
		}
		told(check)
		if ctx.Err() != nil {
			break
		}
	}
	return failed
}

var checks = []struct {
	name  string
	check func(*suite, context.Context) error
}{
	{"a task gets its whole invocation", (*suite).invocation},
	{"values of every type come back as they went", (*suite).values},
	{"an attempt that is made again carries the same key, and succeeds again", (*suite).again},
	{"a streamed task ends with its result", (*suite).stream},
	{"a streamed task tells its progress", (*suite).progress},
	{"a failure has its code", (*suite).failures},
	{"a failure that is streamed has its code", (*suite).streamedFailures},
	{"a failure can say when to try again", (*suite).retryAfter},
	{"a task that does not exist is refused for good", (*suite).unknown},
	{"a task ends at the deadline of its call", (*suite).deadline},
	{"a task ends when its call is cancelled", (*suite).cancel},
	{"a streamed task ends when its call is cancelled", (*suite).cancelStream},
	{"tasks run at once and are not mixed up", (*suite).atOnce},
	{"a large input is handled or refused", (*suite).large},
}

type suite struct {
	client pb.TaskServiceClient
	names  Names
}

// attempt is an invocation with everything in it, with a key of its own.
func (s *suite) attempt(task string, input any) (*pb.TaskInvocation, error) {
	value, err := structpb.NewValue(input)
	if err != nil {
		return nil, err
	}
	return &pb.TaskInvocation{
		Task: task, Input: value, FlowId: "conformance", RunId: "conformance@7", State: "outer/work", Attempt: 1,
		IdempotencyKey: "conformance/" + rand.Text(), FencingToken: 3, FireTime: timestamppb.New(time.Now().Truncate(time.Second)),
		Params:  &structpb.Struct{Fields: map[string]*structpb.Value{"name": structpb.NewStringValue("Ada")}},
		Results: &structpb.Struct{Fields: map[string]*structpb.Value{"before": structpb.NewNumberValue(1)}},
	}, nil
}

func (s *suite) run(ctx context.Context, in *pb.TaskInvocation) (any, error) {
	r, err := s.client.Run(ctx, &pb.RunRequest{Invocation: in})
	return r.GetResult().GetValue().AsInterface(), err
}

// call runs a task with an invocation of its own.
func (s *suite) call(ctx context.Context, task string, input any) (any, error) {
	in, err := s.attempt(task, input)
	if err != nil {
		return nil, err
	}
	return s.run(ctx, in)
}

// echo runs the task of that name.
func (s *suite) echo(ctx context.Context, in *pb.TaskInvocation) (map[string]any, error) {
	got, err := s.run(ctx, in)
	if err != nil {
		return nil, err
	}
	object, ok := got.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the result is %v; want an object", got)
	}
	return object, nil
}

func (s *suite) invocation(ctx context.Context) error {
	in, err := s.attempt(s.names.Echo, "hello")
	if err != nil {
		return err
	}
	in.Attempt = 5
	got, err := s.echo(ctx, in)
	if err != nil {
		return err
	}
	for name, want := range map[string]any{
		"input": "hello", "idempotency_key": in.GetIdempotencyKey(), "attempt": 5.0, "flow_id": "conformance", "run_id": "conformance@7",
		"state": "outer/work", "params": map[string]any{"name": "Ada"}, "results": map[string]any{"before": 1.0},
	} {
		if !reflect.DeepEqual(got[name], want) {
			return fmt.Errorf("%s is %v; want %v", name, got[name], want)
		}
	}
	return nil
}

func (s *suite) values(ctx context.Context) error {
	for _, want := range []any{
		nil, true, false, 0.0, -1.5, 1e300, 9007199254740991.0, "", "käse\n\u2028 🧀",
		[]any{},
		[]any{1.0, []any{nil, "x"}},
		map[string]any{},
		map[string]any{"": 1.0, "a b": map[string]any{"deep": []any{true}}},
	} {
		in, err := s.attempt(s.names.Echo, want)
		if err != nil {
			return err
		}
		got, err := s.echo(ctx, in)
		if err != nil {
			return fmt.Errorf("%v: %w", want, err)
		}
		if !reflect.DeepEqual(got["input"], want) {
			return fmt.Errorf("%#v came back as %#v", want, got["input"])
		}
	}
	return nil
}

func (s *suite) again(ctx context.Context) error {
	in, err := s.attempt(s.names.Echo, "x")
	if err != nil {
		return err
	}
	key := in.GetIdempotencyKey()
	for n := range uint32(3) {
		in.Attempt = n + 1
		got, err := s.echo(ctx, in)
		if err != nil {
			return fmt.Errorf("attempt %d: %w", n+1, err)
		}
		if got["idempotency_key"] != key || got["input"] != "x" {
			return fmt.Errorf("attempt %d gave %v for the key %s", n+1, got, key)
		}
	}
	return nil
}

// streamed runs a task by RunStream.
func (s *suite) streamed(ctx context.Context, task string, input any) (progress []*pb.TaskProgress, result *pb.TaskResult, err error) {
	in, err := s.attempt(task, input)
	if err != nil {
		return nil, nil, err
	}
	stream, err := s.client.RunStream(ctx, &pb.RunStreamRequest{Invocation: in})
	if err != nil {
		return nil, nil, err
	}
	for {
		r, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && result == nil:
			return progress, nil, errors.New("the stream ended without a result")
		case errors.Is(err, io.EOF):
			return progress, result, nil
		case err != nil:
			return progress, result, err
		case result != nil:
			return progress, result, errors.New("something came after the result")
		}
		switch event := r.GetEvent().(type) {
		case *pb.RunStreamResponse_Progress:
			progress = append(progress, event.Progress)
		case *pb.RunStreamResponse_Result:
			result = event.Result
		}
	}
}

func (s *suite) stream(ctx context.Context) error {
	_, result, err := s.streamed(ctx, s.names.Echo, "hello")
	if err != nil {
		return err
	}
	if got := result.GetValue().GetStructValue().GetFields()["input"].GetStringValue(); got != "hello" {
		return fmt.Errorf("the result is %v", result)
	}
	return nil
}

func (s *suite) progress(ctx context.Context) error {
	progress, _, err := s.streamed(ctx, s.names.Sleep, map[string]any{"seconds": 0.5})
	if err != nil {
		return err
	}
	if len(progress) == 0 {
		return errors.New("nothing was told before the result")
	}
	for _, p := range progress {
		if p.Fraction != nil && (p.GetFraction() < 0 || p.GetFraction() > 1) {
			return fmt.Errorf("the fraction %v is not from 0 to 1", p.GetFraction())
		}
	}
	return nil
}

// told are codes that tasks fail with.
var told = []string{"UNAVAILABLE", "INVALID_ARGUMENT", "ABORTED", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED"}

func (s *suite) failures(ctx context.Context) error {
	for _, name := range told {
		if _, err := s.call(ctx, s.names.Fail, map[string]any{"code": name}); name != nameOf(err) {
			return fmt.Errorf("code %s; want %s", nameOf(err), name)
		}
	}
	return nil
}

func (s *suite) streamedFailures(ctx context.Context) error {
	for _, name := range told {
		if _, _, err := s.streamed(ctx, s.names.Fail, map[string]any{"code": name}); name != nameOf(err) {
			return fmt.Errorf("code %s; want %s", nameOf(err), name)
		}
	}
	return nil
}

func (s *suite) retryAfter(ctx context.Context) error {
	_, err := s.call(ctx, s.names.Fail, map[string]any{"code": "RESOURCE_EXHAUSTED", "retry_after": 2})
	if nameOf(err) != "RESOURCE_EXHAUSTED" {
		return fmt.Errorf("code %s; want RESOURCE_EXHAUSTED", nameOf(err))
	}
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			if d := info.GetRetryDelay().AsDuration(); d != 2*time.Second {
				return fmt.Errorf("the RetryInfo says %v; want 2s", d)
			}
			return nil
		}
	}
	return errors.New("there is no google.rpc.RetryInfo in the details of the status")
}

func (s *suite) unknown(ctx context.Context) error {
	_, err := s.call(ctx, "conformance.there-is-no-such-task", nil)
	if refusals := []string{"NOT_FOUND", "UNIMPLEMENTED", "INVALID_ARGUMENT"}; !slices.Contains(refusals, nameOf(err)) {
		return fmt.Errorf("code %s; want one of %s, which are not repeated", nameOf(err), strings.Join(refusals, ", "))
	}
	return nil
}

// ended waits until the service has told that the sleep with a key ended because its call did.
func (s *suite) ended(ctx context.Context, key string) error {
	for range 50 {
		in, err := s.attempt(s.names.Echo, nil)
		if err != nil {
			return err
		}
		got, err := s.echo(ctx, in)
		if err != nil {
			return err
		}
		list, _ := got["cancelled"].([]any)
		if slices.Contains(list, any(key)) {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.New("5 s after the end of its call the task still slept, or did not tell that it ended")
}

func (s *suite) deadline(ctx context.Context) error {
	in, err := s.attempt(s.names.Sleep, map[string]any{"seconds": 20})
	if err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := s.run(short, in); nameOf(err) != "DEADLINE_EXCEEDED" {
		return fmt.Errorf("code %s; want DEADLINE_EXCEEDED", nameOf(err))
	}
	return s.ended(ctx, in.GetIdempotencyKey())
}

func (s *suite) cancel(ctx context.Context) error {
	in, err := s.attempt(s.names.Sleep, map[string]any{"seconds": 20})
	if err != nil {
		return err
	}
	short, cancel := context.WithCancel(ctx)
	defer time.AfterFunc(300*time.Millisecond, cancel).Stop()
	defer cancel()
	if _, err := s.run(short, in); nameOf(err) != "CANCELLED" {
		return fmt.Errorf("code %s; want CANCELLED", nameOf(err))
	}
	return s.ended(ctx, in.GetIdempotencyKey())
}

func (s *suite) cancelStream(ctx context.Context) error {
	in, err := s.attempt(s.names.Sleep, map[string]any{"seconds": 20})
	if err != nil {
		return err
	}
	short, cancel := context.WithCancel(ctx)
	defer time.AfterFunc(300*time.Millisecond, cancel).Stop()
	defer cancel()
	stream, err := s.client.RunStream(short, &pb.RunStreamRequest{Invocation: in})
	for err == nil {
		_, err = stream.Recv()
	}
	if nameOf(err) != "CANCELLED" {
		return fmt.Errorf("code %s; want CANCELLED", nameOf(err))
	}
	return s.ended(ctx, in.GetIdempotencyKey())
}

func (s *suite) atOnce(ctx context.Context) error {
	const n = 20
	errs := make([]error, n)
	began := time.Now()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if _, errs[i] = s.call(ctx, s.names.Sleep, map[string]any{"seconds": 0.3}); errs[i] != nil {
				return
			}
			in, err := s.attempt(s.names.Echo, float64(i))
			if err != nil {
				errs[i] = err
				return
			}
			got, err := s.echo(ctx, in)
			if err == nil && (got["input"] != float64(i) || got["idempotency_key"] != in.GetIdempotencyKey()) {
				err = fmt.Errorf("call %d was answered with %v", i, got)
			}
			errs[i] = err
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	if took := time.Since(began); took > 4*time.Second {
		return fmt.Errorf("%d sleeps of 0.3 s took %v together", n, took.Round(time.Millisecond))
	}
	return nil
}

func (s *suite) large(ctx context.Context) error {
	_, err := s.call(ctx, s.names.Sleep, map[string]any{"seconds": 0, "padding": strings.Repeat("x", 3<<20)})
	if fine := []string{"OK", "RESOURCE_EXHAUSTED", "INVALID_ARGUMENT"}; !slices.Contains(fine, nameOf(err)) {
		return fmt.Errorf("an input of 3 MiB gave code %s; want one of %s", nameOf(err), strings.Join(fine, ", "))
	}
	in, err := s.attempt(s.names.Echo, "still there")
	if err != nil {
		return err
	}
	if _, err := s.echo(ctx, in); err != nil {
		return fmt.Errorf("the next call: %w", err)
	}
	return nil
}

// nameOf is the name of an error's code, as the specification of gRPC writes it.
func nameOf(err error) string {
	c := status.Code(err)
	if name, known := code.Code_name[int32(c)]; known && (c != codes.Unknown || isStatus(err)) {
		return name
	}
	return fmt.Sprintf("of none (%v)", err)
}

func isStatus(err error) bool {
	_, ok := status.FromError(err)
	return ok
}
