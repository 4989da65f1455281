package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/core/store"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/task"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(killVariable); dir != "" {
		fmt.Fprintln(os.Stderr, runUntilKilled(dir))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// testKinds are kinds of tasks that need nothing: log succeeds, fail fails, wait runs until it is cancelled; and testResource in
// place of a temp_dir.
func testKinds() *task.Registry {
	kind := func(field string, run workflow.TaskFunc) task.Kind {
		return task.Kind{Field: field, New: func(*pb.Task, *task.Env) (workflow.Task, error) { return run, nil }}
	}
	return task.NewRegistry([]task.Kind{
		kind("log", func(context.Context, *workflow.Invocation) (workflow.Result, error) { return workflow.Result{}, nil }),
		kind("fail", func(context.Context, *workflow.Invocation) (workflow.Result, error) {
			return workflow.Result{}, &workflow.Error{Err: errors.New("it fails"), Permanent: true}
		}),
		kind("wait", func(ctx context.Context, in *workflow.Invocation) (workflow.Result, error) {
			in.Output.Line(in.State, in.Attempt, false, "waiting")
			<-ctx.Done()
			return workflow.Result{}, ctx.Err()
		}),
	}, []task.ResourceKind{{Field: "temp_dir", New: func(r *pb.Resource, _ *task.Env) (resource.Resource, error) {
		return testResource{r.GetTempDir().GetPrefix()}, nil
	}}})
}

type testResource struct{ prefix string }

// setups blocks the setup of resources whose prefix is "slow" until somebody takes from it.
var setups = make(chan struct{})

func (r testResource) Setup(ctx context.Context) error {
	switch r.prefix {
	case "broken":
		return errors.New("no room")
	case "slow":
		select {
		case setups <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
func (testResource) Teardown(context.Context) error { return nil }

const testFlows = `
flows:
  - id: quick
    task: {log: {message: hello}}
  - id: slow
    task: {wait: {duration: 1h}}
  - id: flaky
    backoff: {trip_after: 1}
    task: {fail: {message: "no"}}
`

// writeFlows writes a flows file.
func writeFlows(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func testOptions(t *testing.T) Options {
	t.Helper()
	o := Defaults()
	o.Version = "v0.0.0-test"
	o.Listen, o.AdminListen = "127.0.0.1:0", "127.0.0.1:0"
	o.Flows = []string{writeFlows(t, filepath.Join(t.TempDir(), "flows.yaml"), testFlows)}
	o.registry = testKinds()
	return o
}

// start starts a server that is stopped at the end of the test.
func start(t *testing.T, change func(*Options)) *Server {
	t.Helper()
	o := testOptions(t)
	if change != nil {
		change(&o)
	}
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Hurry()
		if err := s.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return s
}

func dial(t *testing.T, address string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	if len(options) == 0 {
		options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	c, err := grpc.NewClient("passthrough:///"+address, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func reason(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

// get asks the admin listener for a page.
func get(t *testing.T, s *Server, path string) (int, string) {
	t.Helper()
	response, err := http.Get("http://" + s.AdminAddr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// watchUntil reads a watch until a change satisfies.
func watchUntil(t *testing.T, stream pb.SchedulerService_WatchStatusClient, satisfies func(*pb.FlowInfo) bool) {
	t.Helper()
	for {
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range r.GetChanges() {
			if satisfies(c.GetFlow()) {
				return
			}
		}
	}
}

func has(id string, status pb.FlowStatus) func(*pb.FlowInfo) bool {
	return func(f *pb.FlowInfo) bool { return f.GetId() == id && f.GetStatus() == status }
}

// The same service, on the API and on the admin listener: list, trigger, watch.
func TestService(t *testing.T) {
	s := start(t, nil)
	for name, address := range map[string]string{"API": s.Addr().String(), "admin": s.AdminAddr().String()} {
		t.Run(name, func(t *testing.T) {
			c := pb.NewSchedulerServiceClient(dial(t, address))
			list, err := c.List(t.Context(), &pb.ListRequest{})
			if err != nil || len(list.GetFlows()) != 3 {
				t.Fatalf("%v, %v", list, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream, err := c.WatchStatus(ctx, &pb.WatchStatusRequest{Filter: &pb.FlowFilter{FlowIds: []string{"quick", "flaky"}}})
			if err != nil {
				t.Fatal(err)
			}
			before, err := c.Status(t.Context(), &pb.StatusRequest{FlowId: "quick"})
			if err != nil {
				t.Fatal(err)
			}
			triggered, err := c.Trigger(t.Context(), &pb.TriggerRequest{FlowId: "quick"})
			if err != nil {
				t.Fatal(err)
			}
			watchUntil(t, stream, func(f *pb.FlowInfo) bool {
				return has("quick", pb.FlowStatus_FLOW_STATUS_COMPLETED)(f) && f.GetRunCount() == before.GetFlow().GetRunCount()+1
			})
			run, err := c.GetRun(t.Context(), &pb.GetRunRequest{RunId: triggered.GetRun().GetId()})
			if err != nil || run.GetRun().GetOutcome() != pb.Outcome_OUTCOME_SUCCEEDED {
				t.Errorf("%v, %v", run, err)
			}
			if _, err := c.ResetFlow(t.Context(), &pb.ResetFlowRequest{FlowId: "flaky"}); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Trigger(t.Context(), &pb.TriggerRequest{FlowId: "flaky"}); err != nil {
				t.Fatal(err)
			}
			watchUntil(t, stream, has("flaky", pb.FlowStatus_FLOW_STATUS_TRIPPED))
			if _, err := c.Trigger(t.Context(), &pb.TriggerRequest{FlowId: "flaky"}); reason(err) != "FLOW_TRIPPED" {
				t.Errorf("%v", err)
			}
			info, err := c.GetServerInfo(t.Context(), &pb.GetServerInfoRequest{})
			if err != nil || !info.GetReady() || info.GetVersion() != "v0.0.0-test" || info.GetStore() != "memory" {
				t.Errorf("%v, %v", info, err)
			}
		})
	}
}

func TestAdminPages(t *testing.T) {
	s := start(t, nil)
	for path, want := range map[string]string{
		"/healthz":                       "ok",
		"/readyz":                        "ready",
		"/metrics":                       `schedulerd_flows{status="idle"} 3`,
		"/debug/pprof/":                  "goroutine",
		"/debug/pprof/goroutine?debug=1": "goroutine profile",
	} {
		if code, body := get(t, s, path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, _ := get(t, s, "/nothing"); code != http.StatusNotFound {
		t.Errorf("an unknown page is %d", code)
	}
	connection := dial(t, s.AdminAddr().String())
	stream, err := reflectionpb.NewServerReflectionClient(connection).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	r, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	names := fmt.Sprint(r.GetListServicesResponse().GetService())
	for _, want := range []string{"schedulerd.v1.SchedulerService", "grpc.health.v1.Health", "grpc.channelz.v1.Channelz"} {
		if !strings.Contains(names, want) {
			t.Errorf("reflection lacks %s: %s", want, names)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
	if _, err := stream.Recv(); err != io.EOF {
		t.Error(err)
	}
	health, err := healthpb.NewHealthClient(dial(t, s.Addr().String())).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "schedulerd.v1.SchedulerService"})
	if err != nil || health.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", health, err)
	}
	// The API offers no more than it must.
	api, err := reflectionpb.NewServerReflectionClient(dial(t, s.Addr().String())).ServerReflectionInfo(t.Context())
	if err == nil {
		_, err = api.Recv()
	}
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("reflection on the API: %v", err)
	}
}

// A request larger than allowed is refused with both sizes; the server goes on.
func TestLargeRequest(t *testing.T) {
	s := start(t, nil)
	c := pb.NewSchedulerServiceClient(dial(t, s.Addr().String()))
	var sources []*pb.FlowsSource
	for range 5 {
		sources = append(sources, &pb.FlowsSource{Name: "large", Content: strings.Repeat(" ", 2<<20)})
	}
	_, err := c.ValidateFlows(t.Context(), &pb.ValidateFlowsRequest{Sources: sources})
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "8388608") {
		t.Errorf("%v", err)
	}
	if _, err := c.Status(t.Context(), &pb.StatusRequest{FlowId: "quick"}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestTwoServersInOneProcess(t *testing.T) {
	a, b := start(t, nil), start(t, nil)
	ca, cb := pb.NewSchedulerServiceClient(dial(t, a.Addr().String())), pb.NewSchedulerServiceClient(dial(t, b.Addr().String()))
	if _, err := ca.PauseFlow(t.Context(), &pb.PauseFlowRequest{FlowId: "quick"}); err != nil {
		t.Fatal(err)
	}
	one, err := ca.Status(t.Context(), &pb.StatusRequest{FlowId: "quick"})
	if err != nil || !one.GetFlow().GetPaused() {
		t.Errorf("%v, %v", one, err)
	}
	other, err := cb.Status(t.Context(), &pb.StatusRequest{FlowId: "quick"})
	if err != nil || other.GetFlow().GetPaused() {
		t.Errorf("%v, %v", other, err)
	}
	if err := a.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := cb.List(t.Context(), &pb.ListRequest{}); err != nil {
		t.Errorf("after the other one stopped: %v", err)
	}
}

func TestStartAndStopAgainAndAgain(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for i := range 4 {
		o := testOptions(t)
		if i%2 == 0 {
			o.DataDir = filepath.Join(dir, fmt.Sprint(i))
		}
		wg.Go(func() {
			for range 5 {
				s, err := Start(context.Background(), o)
				if err != nil {
					t.Errorf("start: %v", err)
					return
				}
				var stops sync.WaitGroup
				for range 3 {
					stops.Go(func() {
						if err := s.Stop(context.Background()); err != nil {
							t.Errorf("stop: %v", err)
						}
					})
				}
				stops.Wait()
				if err := s.Wait(); err != nil {
					t.Errorf("wait: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

func TestStartFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	locked := start(t, func(o *Options) { o.DataDir = filepath.Join(t.TempDir(), "data") })
	dir := t.TempDir()
	for _, c := range []struct {
		name   string
		change func(*Options)
		kind   error
		code   int
		text   string
	}{
		{"options", func(o *Options) { o.MaxConcurrentRuns = 0 }, ErrOptions, ExitUsage, "--max-concurrent-runs"},
		{"API address in use", func(o *Options) { o.Listen = taken.Addr().String() }, ErrListen, ExitListen, "--listen"},
		{"admin address in use", func(o *Options) { o.AdminListen = taken.Addr().String() }, ErrListen, ExitListen, "--admin-listen"},
		{"store locked", func(o *Options) { o.DataDir = locked.options.DataDir }, ErrStore, ExitStore, "in use"},
		{"no store", func(o *Options) { o.DataDir = o.Flows[0] }, ErrStore, ExitStore, "flows.yaml"},
		{"no flows file", func(o *Options) { o.Flows = []string{filepath.Join(dir, "none.yaml")} }, ErrFlows, ExitFlows, "none.yaml"},
		{"wrong flows", func(o *Options) {
			o.Flows = []string{writeFlows(t, filepath.Join(dir, "wrong.yaml"), "flows:\n  - id: a\n    tusk: {}\n")}
		}, ErrFlows, ExitFlows, "wrong.yaml:3:"},
		{"setup", func(o *Options) {
			o.Flows = []string{writeFlows(t, filepath.Join(dir, "setup.yaml"), testFlows+"    resources: [{name: r, temp_dir: {prefix: broken}}]\n")}
		}, nil, ExitFailure, "no room"},
		{"TLS", func(o *Options) { o.TLSCert, o.TLSKey = "none.pem", "none.key" }, ErrOptions, ExitUsage, "none.pem"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := testOptions(t)
			c.change(&o)
			s, err := Start(t.Context(), o)
			if err == nil {
				s.Stop(t.Context())
				t.Fatal("started")
			}
			if c.kind != nil && !errors.Is(err, c.kind) || ExitCode(err) != c.code || !strings.Contains(err.Error(), c.text) {
				t.Errorf("exit code %d: %v", ExitCode(err), err)
			}
		})
	}
}

// While resources are set up the server can be asked, says that it is not ready, and can be told to stop.
func TestWhileItStarts(t *testing.T) {
	slow := testFlows + "    resources: [{name: r, temp_dir: {prefix: slow}}]\n"
	begin := func(t *testing.T) (o Options, log *testLog) {
		o, log = testOptions(t), &testLog{}
		o.Log = log.logger(slog.LevelInfo)
		writeFlows(t, o.Flows[0], slow)
		return o, log
	}
	addresses := func(t *testing.T, log *testLog) (api, admin string) {
		log.waitFor(t, "msg=listening")
		m := regexp.MustCompile(`api=(\S+) admin=(\S+)`).FindStringSubmatch(log.String())
		return m[1], m[2]
	}
	t.Run("and goes on", func(t *testing.T) {
		o, log := begin(t)
		signals, ended := runs(o)
		api, admin := addresses(t, log)
		c := pb.NewSchedulerServiceClient(dial(t, api))
		if _, err := c.List(t.Context(), &pb.ListRequest{}); reason(err) != "NOT_READY" {
			t.Errorf("%v", err)
		}
		if info, err := c.GetServerInfo(t.Context(), &pb.GetServerInfoRequest{}); err != nil || info.GetReady() {
			t.Errorf("%v, %v", info, err)
		}
		health := healthpb.NewHealthClient(dial(t, admin))
		if r, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
			t.Errorf("%v, %v", r, err)
		}
		<-setups
		log.waitFor(t, "schedulerd runs")
		if r, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%v, %v", r, err)
		}
		signals <- syscall.SIGTERM
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Run("and is stopped", func(t *testing.T) {
		o, log := begin(t)
		signals, ended := runs(o)
		addresses(t, log)
		signals <- syscall.SIGHUP // too early
		signals <- syscall.SIGTERM
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if strings.Contains(log.String(), "schedulerd runs") {
			t.Errorf("it started: %s", log)
		}
	})
}

// A server that can do nothing any more ends, with an error, rather than look alive.
func TestStoreFails(t *testing.T) {
	o := testOptions(t)
	memory := store.NewMemory()
	o.store = memory
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := memory.Close(); err != nil {
		t.Fatal(err)
	}
	// A change may be what finds out.
	_, _ = pb.NewSchedulerServiceClient(dial(t, s.Addr().String())).PauseFlow(t.Context(), &pb.PauseFlowRequest{FlowId: "quick"})
	if err := s.Wait(); !errors.Is(err, ErrStore) || ExitCode(err) != ExitStore {
		t.Errorf("%v", err)
	}
}

func TestListenerFails(t *testing.T) {
	o := testOptions(t)
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.apiListen.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(); err == nil || !strings.Contains(err.Error(), "API listener") {
		t.Errorf("%v", err)
	}
}

// What was there before a stop is there after the next start.
func TestDataDirectory(t *testing.T) {
	o := testOptions(t)
	o.DataDir = filepath.Join(t.TempDir(), "data")
	first, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	c := pb.NewSchedulerServiceClient(dial(t, first.Addr().String()))
	stream, err := c.WatchStatus(t.Context(), &pb.WatchStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"flaky", "slow"} {
		if _, err := c.Trigger(t.Context(), &pb.TriggerRequest{FlowId: id}); err != nil {
			t.Fatal(err)
		}
	}
	watchUntil(t, stream, has("flaky", pb.FlowStatus_FLOW_STATUS_TRIPPED))
	logs, err := c.TailLogs(t.Context(), &pb.TailLogsRequest{RunId: "slow@1", Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := logs.Recv(); err != nil || r.GetLines()[0].GetText() != "waiting" {
		t.Fatalf("%v, %v", r, err)
	}
	var copied int
	backup, err := c.Backup(t.Context(), &pb.BackupRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		r, err := backup.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		copied += len(r.GetData())
	}
	if copied == 0 {
		t.Error("an empty backup")
	}
	first.Hurry()
	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}

	second := start(t, func(again *Options) { *again = o })
	c = pb.NewSchedulerServiceClient(dial(t, second.Addr().String()))
	got, err := c.Status(t.Context(), &pb.StatusRequest{FlowId: "flaky"})
	if err != nil || got.GetFlow().GetStatus() != pb.FlowStatus_FLOW_STATUS_TRIPPED || got.GetFlow().GetRunCount() != 1 {
		t.Errorf("%v, %v", got, err)
	}
	run, err := c.GetRun(t.Context(), &pb.GetRunRequest{RunId: "slow@1"})
	if err != nil || run.GetRun().GetOutcome() != pb.Outcome_OUTCOME_CANCELLED {
		t.Errorf("%v, %v", run, err)
	}
}

// A once that has passed is no reason to refuse the flows file of a flow that is known.
func TestPassedOnceAfterARestart(t *testing.T) {
	once := func(at time.Time) string {
		return "flows:\n  - id: single\n    schedule: {once: {at: '" + at.UTC().Format(time.RFC3339) + "'}}\n    task: {log: {message: x}}\n"
	}
	o := testOptions(t)
	o.DataDir = filepath.Join(t.TempDir(), "data")
	writeFlows(t, o.Flows[0], once(time.Now().Add(time.Hour)))
	first, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	writeFlows(t, o.Flows[0], once(time.Now().Add(-time.Hour)))
	second := start(t, func(again *Options) { *again = o })
	got, err := pb.NewSchedulerServiceClient(dial(t, second.Addr().String())).Status(t.Context(), &pb.StatusRequest{FlowId: "single"})
	if err != nil || got.GetFlow().GetNextFire() != nil {
		t.Errorf("%v, %v", got, err)
	}
	if err := second.Reload(t.Context()); err != nil {
		t.Errorf("and when it is read again: %v", err)
	}
	// One that is new is refused.
	o.DataDir = ""
	if s, err := Start(t.Context(), o); !errors.Is(err, ErrFlows) {
		if err == nil {
			s.Stop(t.Context())
		}
		t.Errorf("a new flow with a passed once: %v", err)
	}
}

// testLog is a log that a test reads.
type testLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *testLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *testLog) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: level}))
}
