package service

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/definition"
	"github.com/schedulerd/schedulerd/internal/task/tasktest"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a Scheduler that answers what it is told to and remembers what it was asked.
type fake struct {
	mu    sync.Mutex
	asked []any // the arguments of the last call

	err     error // of every call
	apply   error // of Apply
	panics  any
	info    *core.Info
	infos   []*core.Info // List
	run     *core.Run
	runs    []*core.Run // Runs, newest first
	batches chan core.Batch
	events  []runBatch
	server  core.ServerInfo
}

type runBatch struct {
	events []workflow.Event
	run    *core.Run
}

func newFake() *fake {
	return &fake{
		info:    testInfo("backup", flow.Completed),
		run:     &core.Run{ID: "backup@7", FlowID: "backup", Number: 7, Cause: flow.ByTrigger, Start: at(10), State: "run"},
		batches: make(chan core.Batch, 100),
		server:  core.ServerInfo{Instance: "instance-1", Store: "memory", Flows: 1, MaxConcurrentRuns: 1000, Revision: 42, Ready: true},
	}
}

func at(second int64) flow.Instant { return flow.At(time.Unix(1_800_000_000+second, 0)) }

func testInfo(id string, status flow.Status) *core.Info {
	return &core.Info{
		Flow:     core.Define(&core.Flow{ID: id, Description: "Makes a copy", Labels: map[string]string{"team": "ops"}, Origin: core.FromFile}),
		State:    flow.State{Status: status, RunCount: 7, LastRun: at(1), LastFinish: at(3), LastDuration: 2 * time.Second, LastOutcome: flow.Succeeded},
		NextFire: at(60),
		Revision: 40,
	}
}

func (f *fake) call(arguments ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = arguments
	if f.panics != nil {
		panic(f.panics)
	}
	return f.err
}

func (f *fake) lastAsked() []any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func (f *fake) Trigger(_ context.Context, r core.TriggerRequest) (*core.Run, uint64, error) {
	if err := f.call("Trigger", r); err != nil {
		return nil, 0, err
	}
	return f.run, 41, nil
}

func (f *fake) Guards(string) []resource.GuardStatus {
	return []resource.GuardStatus{
		{Resource: "api", Breaker: &resource.BreakerStatus{State: resource.Open, Until: time.Unix(100, 0), Opened: 2, Refused: 7}},
		{Resource: "db", Limiter: &resource.LimiterStatus{Tokens: 1.5, Waiting: 3, Refused: 4}},
	}
}

func (f *fake) Status(id string) (*core.Info, error) {
	if err := f.call("Status", id); err != nil {
		return nil, err
	}
	if id != f.info.Flow.ID {
		return nil, &core.FlowError{Err: core.ErrFlowNotFound, Flow: id}
	}
	return f.info, nil
}

func (f *fake) List(o core.ListOptions) ([]*core.Info, bool, uint64) {
	_ = f.call("List", o)
	var page []*core.Info
	for _, info := range f.infos {
		if info.Flow.ID <= o.After {
			continue
		}
		if len(page) == o.Limit {
			return page, true, f.server.Revision
		}
		page = append(page, info)
	}
	return page, false, f.server.Revision
}

func (f *fake) alter(arguments ...any) (*core.Info, error) {
	if err := f.call(arguments...); err != nil {
		return nil, err
	}
	return f.info, nil
}

func (f *fake) Reset(_ context.Context, id, requestID string) (*core.Info, error) {
	return f.alter("Reset", id, requestID)
}

func (f *fake) Cancel(_ context.Context, id, runID, requestID string) (*core.Info, string, error) {
	info, err := f.alter("Cancel", id, runID, requestID)
	return info, "backup@7", err
}

func (f *fake) Pause(_ context.Context, id, requestID string) (*core.Info, error) {
	return f.alter("Pause", id, requestID)
}

func (f *fake) Resume(_ context.Context, id string, mode core.CatchUpMode, requestID string) (*core.Info, error) {
	return f.alter("Resume", id, mode, requestID)
}

func (f *fake) Apply(_ context.Context, r core.ApplyRequest) (*core.ApplyResult, error) {
	if err := f.call("Apply", r); err != nil {
		return nil, err
	}
	if f.apply != nil {
		return nil, f.apply
	}
	result := &core.ApplyResult{ETag: "etag-2", Revision: 43}
	for _, fl := range r.Flows {
		result.Changes = append(result.Changes, core.DefinitionChange{FlowID: fl.ID, Type: core.Added, New: core.Define(fl)})
	}
	return result, nil
}

func (f *fake) Delete(_ context.Context, id, etag, requestID string) (uint64, error) {
	return 44, f.call("Delete", id, etag, requestID)
}

func (f *fake) Runs(_ context.Context, id string, o core.RunListOptions) ([]*core.Run, bool, error) {
	if err := f.call("Runs", id, o); err != nil {
		return nil, false, err
	}
	var page []*core.Run
	for _, run := range f.runs {
		if o.Before != 0 && run.Number >= o.Before {
			continue
		}
		if len(page) == o.Limit {
			return page, true, nil
		}
		page = append(page, run)
	}
	return page, false, nil
}

func (f *fake) Run(_ context.Context, runID string) (*core.Run, error) {
	if err := f.call("Run", runID); err != nil {
		return nil, err
	}
	return f.run, nil
}

func (f *fake) Info() core.ServerInfo { return f.server }

func (f *fake) Watch(o core.WatchOptions) (Watch, error) {
	if err := f.call("Watch", o); err != nil {
		return nil, err
	}
	return (*fakeWatch)(f), nil
}

type fakeWatch fake

func (w *fakeWatch) Next(ctx context.Context) (core.Batch, error) {
	select {
	case b := <-w.batches:
		return b, nil
	default:
	}
	select {
	case b := <-w.batches:
		return b, nil
	case <-ctx.Done():
		return core.Batch{}, ctx.Err()
	}
}

func (f *fake) WatchRun(_ context.Context, runID string) (RunWatch, error) {
	if err := f.call("WatchRun", runID); err != nil {
		return nil, err
	}
	return &fakeRunWatch{batches: f.events, endless: f.run.End == 0}, nil
}

type fakeRunWatch struct {
	batches []runBatch
	endless bool
}

func (w *fakeRunWatch) Next(ctx context.Context) ([]workflow.Event, *core.Run, error) {
	if len(w.batches) == 0 {
		if w.endless {
			<-ctx.Done()
			return nil, nil, ctx.Err()
		}
		return nil, nil, io.EOF
	}
	b := w.batches[0]
	w.batches = w.batches[1:]
	return b.events, b.run, nil
}

// logBuffer is a log that a test reads.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// client serves s through a real gRPC server and gives a client of it.
func client(t *testing.T, s *Service, options ...grpc.DialOption) pb.SchedulerServiceClient {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.UnaryInterceptor(s.Unary), grpc.StreamInterceptor(s.Stream), grpc.WaitForHandlers(true))
	pb.RegisterSchedulerServiceServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	options = append(options,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	connection, err := grpc.NewClient("passthrough:///bufconn", options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		connection.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return pb.NewSchedulerServiceClient(connection)
}

// newService is a Service on a fake, with its log.
func newService(t *testing.T, change func(*Config)) (*Service, *fake, *logBuffer) {
	t.Helper()
	log := &logBuffer{}
	config := Config{
		Log: slog.New(slog.NewTextHandler(log, nil)), Version: "v1.2.3",
		Compiler: definition.New(tasktest.Registry()),
		Stop:     func(context.Context, time.Duration) (*core.StopResult, error) { return &core.StopResult{}, nil },
	}
	if change != nil {
		change(&config)
	}
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	f := newFake()
	s.Attach(f)
	return s, f, log
}
