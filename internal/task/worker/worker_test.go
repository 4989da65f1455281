package worker

import (
	"context"
	"errors"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/task/kindtest"
	"github.com/schedulerd/schedulerd/internal/worker"
	sdk "github.com/schedulerd/schedulerd/sdk/go/worker"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves a hub, with a worker that has a label and does tasks.
func start(t *testing.T, handlers map[string]sdk.Handler) *worker.Hub {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hub, server := worker.New(worker.Options{}), grpc.NewServer()
	schedulerdv1.RegisterWorkerServiceServer(server, hub)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { _ = server.Serve(l) })
	all.Go(func() {
		if err := sdk.Run(ctx, conn, sdk.Options{Labels: map[string]string{"tenant": "Ada"}}, handlers); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); hub.Close(); server.Stop(); all.Wait(); conn.Close() })
	return hub
}

func TestRun(t *testing.T) {
	hub := start(t, map[string]sdk.Handler{
		"pack": func(_ context.Context, task *sdk.Task) (any, error) {
			task.Logf("one\ntwo")
			task.Progress("half", 0.5)
			return map[string]any{
				"input": task.GetInput().AsInterface(), "run": task.GetRunId(), "key": task.GetIdempotencyKey(),
				"attempt": task.GetAttempt(), "deadline": task.GetDeadline().IsValid(), "trace": task.GetTraceparent(), "action": "again",
			}, nil
		},
		"fail": func(context.Context, *sdk.Task) (any, error) {
			return nil, &sdk.Error{Err: errors.New("no room"), Class: "full", RetryAfter: time.Minute}
		},
	})
	kind := KindOf(hub, func(context.Context) string { return "00-aa-bb-01" })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	call := kindtest.NewCall()
	var progress []string
	call.Progress = func(message string, _ float64) { progress = append(progress, message) }
	got, err := kindtest.Task(t, kind, kindtest.Config(), `{"worker": {"task": "pack", "input": {"who": "${ params.name }"}, "labels": {"tenant": "${ params.name }"}}}`).Run(ctx, call.Invocation)
	want := map[string]any{"input": map[string]any{"who": "Ada"}, "run": "flow@7", "key": "i1/flow@7/work/1", "attempt": 2.0, "deadline": true, "trace": "00-aa-bb-01", "action": "again"}
	if err != nil || !reflect.DeepEqual(got.Value, want) {
		t.Errorf("%v, %v", got, err)
	}
	if lines := call.Written.Lines(); !slices.Equal(lines, []kindtest.Line{{Text: "one"}, {Text: "two"}}) || !slices.Equal(progress, []string{"half"}) {
		t.Errorf("%v, %v", lines, progress)
	}
	_, err = kindtest.Task(t, kind, kindtest.Config(), `{"worker": {"task": "fail"}}`).Run(ctx, kindtest.NewCall().Invocation)
	if e := kindtest.Failure(t, err); e.Class != "full" || e.RetryAfter != time.Minute || e.Error() != `task "fail": no room` {
		t.Errorf("%v of class %s, after %v", e, e.Class, e.RetryAfter)
	}
	_, err = kindtest.Task(t, kind, kindtest.Config(), `{"worker": {"task": "pack", "labels": {"tenant": "Bob"}, "queue_timeout": "0.01s"}}`).Run(ctx, kindtest.NewCall().Invocation)
	if e := kindtest.Failure(t, err); e.Class != "no_worker" || e.Permanent || !strings.Contains(e.Error(), "none has the labels map[tenant:Bob]") {
		t.Errorf("%v", e)
	}
	why := errors.New("over")
	over, end := context.WithCancelCause(t.Context())
	end(why)
	if _, err := kindtest.Task(t, kind, kindtest.Config(), `{"worker": {"task": "unknown"}}`).Run(over, kindtest.NewCall().Invocation); !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
}

func TestFailuresBeforeTheWork(t *testing.T) {
	hub := worker.New(worker.Options{})
	defer hub.Close()
	for definition, want := range map[string]string{
		`{"worker": {"task": "x", "input": "${ params.missing }"}}`:         "input: ",
		`{"worker": {"task": "x", "labels": {"a": "${ params.missing }"}}}`: "labels",
	} {
		_, err := kindtest.Task(t, KindOf(hub, nil), kindtest.Config(), definition).Run(t.Context(), kindtest.NewCall().Invocation)
		if e := kindtest.Failure(t, err); e.Class != "expression" || !e.Permanent || !strings.Contains(e.Error(), want) {
			t.Errorf("%v of class %s", e, e.Class)
		}
	}
	for definition, want := range map[string]string{
		`{"worker": {"task": "x", "input": "${ nonsense }"}}`:         "worker.input",
		`{"worker": {"task": "x", "labels": {"a": "${ nonsense }"}}}`: "worker.labels",
		`{"worker": {"task": "x", "queue_timeout": "0s"}}`:            "worker.queue_timeout",
	} {
		if _, err := kindtest.Compile(t, KindOf(hub, nil), kindtest.Config(), definition); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
