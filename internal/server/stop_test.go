package server

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// The steps of a stop, seen from outside, in their order.
func TestStopStepByStep(t *testing.T) {
	s := start(t, func(o *Options) { o.DrainDelay, o.Grace = time.Hour, time.Hour })
	connection := dial(t, s.Addr().String())
	c := pb.NewSchedulerServiceClient(connection)
	health, err := healthpb.NewHealthClient(connection).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := health.Recv(); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Fatal(r, err)
	}
	watch, err := c.WatchStatus(t.Context(), &pb.WatchStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Trigger(t.Context(), &pb.TriggerRequest{FlowId: "slow"}); err != nil {
		t.Fatal(err)
	}
	watchUntil(t, watch, has("slow", pb.FlowStatus_FLOW_STATUS_RUNNING))

	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(context.Background()) }()

	// 1. NOT_SERVING
	if r, err := health.Recv(); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Fatal(r, err)
	}
	if code, body := get(t, s, "/readyz"); code != 503 || !strings.Contains(body, "stopping") {
		t.Errorf("%d %s", code, body)
	}
	if code, _ := get(t, s, "/healthz"); code != 200 {
		t.Errorf("the process is not dead, but healthz is %d", code)
	}
	// 2. the drain delay: whoever has not noticed yet is served
	if _, err := c.Trigger(t.Context(), &pb.TriggerRequest{FlowId: "quick"}); err != nil {
		t.Errorf("in the drain delay: %v", err)
	}
	watchUntil(t, watch, has("quick", pb.FlowStatus_FLOW_STATUS_COMPLETED))
	s.Hurry()
	// 3. streams end
	for {
		r, err := watch.Recv()
		if err != nil {
			t.Fatalf("the watch ended without saying so: %v", err)
		}
		if r.GetEnding() {
			if r.GetResumeToken() == "" {
				t.Error("no token to resume with")
			}
			break
		}
	}
	if _, err := watch.Recv(); reason(err) != "STOPPING" {
		t.Error(err)
	}
	if _, err := health.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("the watch of health ended with %v", err)
	}
	// 4. to 6.
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if info := s.running.Info(); info.Running != 0 {
		t.Errorf("%d runs left", info.Running)
	}
	if _, err := c.List(t.Context(), &pb.ListRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("after the stop: %v", err)
	}
}

// The Stop call tells its result, and then the process ends without an error.
func TestStopCall(t *testing.T) {
	log := &testLog{}
	s := start(t, func(o *Options) { o.Log = log.logger(slog.LevelInfo) })
	c := pb.NewSchedulerServiceClient(dial(t, s.Addr().String()))
	for _, id := range []string{"slow", "quick"} {
		if _, err := c.Trigger(t.Context(), &pb.TriggerRequest{FlowId: id}); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			got, err := c.Stop(t.Context(), &pb.StopRequest{Grace: durationpb.New(0)})
			if err != nil || len(got.GetCancelledRuns()) != 1 || got.GetCancelledRuns()[0] != "slow@1" || len(got.GetUnfinishedRuns()) != 0 {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
	wg.Wait()
	if err := s.Wait(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "slow@1") {
		t.Errorf("the log does not tell of the cancelled run: %s", log)
	}
}

// A client that asked for the stop and left does not end it; a signal afterwards does not cut off those who wait.
func TestStopCallThenSignal(t *testing.T) {
	o := testOptions(t)
	o.Grace = time.Hour
	log := &testLog{}
	o.Log = log.logger(slog.LevelInfo)
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	c := pb.NewSchedulerServiceClient(dial(t, s.Addr().String()))
	if _, err := c.Trigger(t.Context(), &pb.TriggerRequest{FlowId: "slow"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := c.Stop(ctx, &pb.StopRequest{})
		left <- err
	}()
	<-s.called
	waiting := make(chan *pb.StopResponse, 1)
	go func() {
		got, err := c.Stop(t.Context(), &pb.StopRequest{})
		if err != nil {
			t.Error(err)
		}
		waiting <- got
	}()
	cancel()
	if err := <-left; status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	eventually(t, "the refusal of a trigger", func() bool {
		_, err := c.Trigger(t.Context(), &pb.TriggerRequest{FlowId: "quick"})
		return reason(err) == "STOPPING"
	})
	eventually(t, "the second call of Stop", func() bool {
		_, page := get(t, s, "/metrics")
		return strings.Contains(page, `grpc_server_call_started_total{grpc_method="schedulerd.v1.SchedulerService/Stop"} 2`)
	})
	go s.Stop(context.Background()) // the signal
	s.Hurry()                       // the second one
	if got := <-waiting; len(got.GetCancelledRuns()) != 1 {
		t.Errorf("%v", got)
	}
	if err := s.Wait(); err != nil {
		t.Error(err)
	}
}

// A watcher that never reads cannot keep the server from stopping.
func TestStopWithAWatcherThatNeverReads(t *testing.T) {
	s := start(t, nil)
	c := pb.NewSchedulerServiceClient(dial(t, s.Addr().String()))
	if _, err := c.WatchStatus(t.Context(), &pb.WatchStatusRequest{}); err != nil {
		t.Fatal(err)
	}
	for range 2000 { // more than the windows hold
		if _, err := c.PauseFlow(t.Context(), &pb.PauseFlowRequest{FlowId: "quick"}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.ResumeFlow(t.Context(), &pb.ResumeFlowRequest{FlowId: "quick"}); err != nil {
			t.Fatal(err)
		}
	}
	s.Hurry()
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// runs runs a process's server with its signals.
func runs(o Options) (signals chan os.Signal, ended chan error) {
	signals, ended = make(chan os.Signal, 4), make(chan error, 1)
	go func() { ended <- Run(o, signals) }()
	return signals, ended
}

// waitFor waits until a log has a text.
func (l *testLog) waitFor(t *testing.T, text string) {
	t.Helper()
	eventually(t, text, func() bool { return strings.Contains(l.String(), text) })
}

// eventually waits for what another goroutine does and tells nobody.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !happened(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("it never came: %s", what)
		}
	}
}

func TestSignals(t *testing.T) {
	t.Run("one stops", func(t *testing.T) {
		o, log := testOptions(t), &testLog{}
		o.Log = log.logger(slog.LevelInfo)
		signals, ended := runs(o)
		log.waitFor(t, "schedulerd runs")
		signals <- syscall.SIGTERM
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Run("two hurry", func(t *testing.T) {
		o, log := testOptions(t), &testLog{}
		o.Log, o.Grace, o.DrainDelay = log.logger(slog.LevelInfo), time.Hour, time.Hour
		signals, ended := runs(o)
		log.waitFor(t, "schedulerd runs")
		signals <- os.Interrupt
		log.waitFor(t, "stopping")
		signals <- os.Interrupt
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Run("one before the start", func(t *testing.T) {
		o := testOptions(t)
		signals := make(chan os.Signal, 1)
		signals <- syscall.SIGTERM
		if err := Run(o, signals); err != nil {
			t.Error(err)
		}
	})
	t.Run("a start that fails", func(t *testing.T) {
		o := testOptions(t)
		o.Flows = []string{filepath.Join(t.TempDir(), "none")}
		_, ended := runs(o)
		if err := <-ended; ExitCode(err) != ExitFlows {
			t.Error(err)
		}
	})
	t.Run("HUP reads the flows files", func(t *testing.T) {
		o, log := testOptions(t), &testLog{}
		o.Log = log.logger(slog.LevelInfo)
		signals, ended := runs(o)
		log.waitFor(t, "schedulerd runs")
		writeFlows(t, o.Flows[0], testFlows+"  - id: another\n    task: {log: {message: x}}\n")
		signals <- syscall.SIGHUP
		log.waitFor(t, "added=1 changed=0 removed=0 unchanged=3")
		writeFlows(t, o.Flows[0], "flows:\n  - id: a\n    tusk: {}\n")
		signals <- syscall.SIGHUP
		log.waitFor(t, "place="+o.Flows[0]+":3:")
		signals <- syscall.SIGTERM
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
