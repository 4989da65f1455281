package e2e

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/sdk/go/worker"
	"github.com/schedulerd/schedulerd/test/daemon"
	"github.com/schedulerd/schedulerd/test/proxy"
)

// The test binary is also the programs that do tasks, if this variable names one.
const roleVariable = "SCHEDULERD_E2E_ROLE"

// role runs one of those programs until SIGTERM. Each writes a line to the file JOURNAL when it begins a task, and when it ends.
func role(name string) {
	ctx, restore := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer restore()
	journal, err := os.OpenFile(os.Getenv("JOURNAL"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		log.Fatal(err)
	}
	do := func(ctx context.Context, in *schedulerdv1.TaskInvocation) error {
		note := func(what string) {
			fmt.Fprintf(journal, "%s %s %s %s %d %s\n", what, in.GetTask(), in.GetRunId(), in.GetState(), in.GetAttempt(), in.GetIdempotencyKey())
		}
		note("begin")
		select {
		case <-time.After(time.Duration(in.GetInput().GetNumberValue()) * time.Millisecond):
		case <-ctx.Done():
			note("stopped")
			return ctx.Err()
		}
		note("end")
		return nil
	}
	switch name {
	case "service":
		l, err := net.Listen("tcp", os.Getenv("ADDRESS"))
		if err != nil {
			log.Fatal(err)
		}
		server := grpc.NewServer()
		schedulerdv1.RegisterTaskServiceServer(server, &taskService{do: do})
		context.AfterFunc(ctx, server.Stop)
		_ = server.Serve(l)
	case "worker":
		conn, err := grpc.NewClient(os.Getenv("ADDRESS"), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second}))
		if err != nil {
			log.Fatal(err)
		}
		if err := worker.Run(ctx, conn, worker.Options{Name: name, Slots: 8, Grace: time.Second}, map[string]worker.Handler{
			"dig": func(ctx context.Context, t *worker.Task) (any, error) { return "dug", do(ctx, t.TaskInvocation) },
		}); err != nil {
			log.Fatal(err)
		}
	}
}

type taskService struct {
	schedulerdv1.UnimplementedTaskServiceServer
	do func(context.Context, *schedulerdv1.TaskInvocation) error
}

func (s *taskService) Run(ctx context.Context, r *schedulerdv1.RunRequest) (*schedulerdv1.RunResponse, error) {
	if err := s.do(ctx, r.GetInvocation()); err != nil {
		return nil, err
	}
	return &schedulerdv1.RunResponse{Result: &schedulerdv1.TaskResult{Value: structpb.NewStringValue("packed")}}, nil
}

// helper is a process that does tasks.
type helper struct {
	t       *testing.T
	role    string
	journal string
	address string
	command *exec.Cmd
}

func (h *helper) start() {
	h.t.Helper()
	h.command = exec.Command(os.Args[0])
	h.command.Env = append(os.Environ(), roleVariable+"="+h.role, "JOURNAL="+h.journal, "ADDRESS="+h.address)
	h.command.Stderr = os.Stderr
	if err := h.command.Start(); err != nil {
		h.t.Fatal(err)
	}
}

func (h *helper) end(s os.Signal) {
	_ = h.command.Process.Signal(s)
	_ = h.command.Wait()
}

func startHelper(t *testing.T, role, journal, address string) *helper {
	t.Helper()
	h := &helper{t: t, role: role, journal: journal, address: address}
	h.start()
	t.Cleanup(func() { h.end(syscall.SIGKILL) })
	return h
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

const taskFlows = 6

// taskFlowsFile has flows that are done by a service, then by a worker, in so many milliseconds each.
func taskFlowsFile(service, schedule string, milliseconds int) string {
	var b strings.Builder
	b.WriteString("flows:\n")
	for i := range taskFlows {
		fmt.Fprintf(&b, `
- id: t%d
  schedule: {%s}
  keep_runs: 1000
  backoff: {initial: 100ms, max_delay: 200ms}
  workflow:
    initial: pack
    states:
      pack: {task: {service: {address: %q, task: pack, input: %d, wait_for_ready: true}, timeout: 20s}, next: dig}
      dig: {task: {worker: {task: dig, input: %d}, timeout: 60s}, next: done}
    exits: {done: {}}
`, i, schedule, service, milliseconds, milliseconds)
	}
	return b.String()
}

// entry is a line of a journal.
type entry struct{ what, task, run, state, attempt, key string }

func readJournal(t *testing.T, name string) (entries []entry) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) != 6 {
			t.Errorf("line %q", lines.Text())
			continue
		}
		entries = append(entries, entry{f[0], f[1], f[2], f[3], f[4], f[5]})
	}
	return entries
}

// sameKeys checks that all work of one state of one run carried one key, and that no two shared one.
func sameKeys(t *testing.T, entries []entry) (ended map[string]int) {
	t.Helper()
	keys, places, ended := map[string]string{}, map[string]string{}, map[string]int{}
	for _, e := range entries {
		place := e.run + " " + e.state
		if key := keys[place]; key != "" && key != e.key {
			t.Errorf("%s ran with the keys %s and %s", place, key, e.key)
		}
		if other := places[e.key]; other != "" && other != place {
			t.Errorf("%s and %s share the key %s", place, other, e.key)
		}
		keys[place], places[e.key] = e.key, place
		if e.what == "end" {
			ended[place]++
		}
	}
	return ended
}

// runsOf is the kept runs of the flows of taskFlowsFile, and whether one is still on its way.
func runsOf(t *testing.T, client schedulerdv1.SchedulerServiceClient) (runs []*schedulerdv1.Run, open bool) {
	t.Helper()
	for i := range taskFlows {
		page, err := client.ListRuns(t.Context(), &schedulerdv1.ListRunsRequest{FlowId: fmt.Sprintf("t%d", i), PageSize: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.GetRuns() {
			open = open || r.GetEndTime() == nil
		}
		runs = append(runs, page.GetRuns()...)
	}
	return runs, open
}

// settle waits until no run is on its way.
func settle(t *testing.T, client schedulerdv1.SchedulerServiceClient) []*schedulerdv1.Run {
	t.Helper()
	for limit := time.Now().Add(90 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		runs, open := runsOf(t, client)
		if !open {
			return runs
		}
		if time.Now().After(limit) {
			t.Fatalf("runs do not end: %v", runs)
		}
	}
}

func pauseAll(t *testing.T, client schedulerdv1.SchedulerServiceClient) {
	t.Helper()
	for i := range taskFlows {
		if _, err := client.PauseFlow(t.Context(), &schedulerdv1.PauseFlowRequest{FlowId: fmt.Sprintf("t%d", i)}); err != nil {
			t.Fatal(err)
		}
	}
}

// The daemon, the service and the worker are killed at any moment. Whatever is done again is done with the same key, and all ends.
func TestTasksElsewhere(t *testing.T) {
	address := freePort(t)
	d := daemon.New(t, "--flows", "flows.yaml", "--data-dir", "data", "--log-level", "WARN")
	if err := os.WriteFile(filepath.Join(d.Dir, "flows.yaml"), []byte(taskFlowsFile(address, "every: {interval: 250ms}", 60)), 0o600); err != nil {
		t.Fatal(err)
	}
	journal := filepath.Join(d.Dir, "journal")
	service := startHelper(t, "service", journal, address)
	w := startHelper(t, "worker", journal, d.Address)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	d.Start()
	for range 4 {
		time.Sleep(time.Duration(300+random.IntN(700)) * time.Millisecond)
		d.Kill()
		d.Start()
	}
	time.Sleep(500 * time.Millisecond)
	service.end(syscall.SIGKILL)
	service.start()
	time.Sleep(500 * time.Millisecond)
	w.end(syscall.SIGKILL)
	w.start()
	time.Sleep(time.Second)
	conn, client := d.Connect()
	defer conn.Close()
	pauseAll(t, client)
	runs := settle(t, client)
	ended := sameKeys(t, readJournal(t, journal))
	succeeded := 0
	for _, r := range runs {
		if r.GetOutcome() != schedulerdv1.Outcome_OUTCOME_SUCCEEDED {
			t.Errorf("run %s: %v", r.GetId(), r)
			continue
		}
		succeeded++
		for _, state := range []string{"pack", "dig"} {
			if ended[r.GetId()+" "+state] == 0 {
				t.Errorf("run %s succeeded, though nobody has finished %s", r.GetId(), state)
			}
		}
	}
	t.Logf("%d runs, %d entries", len(runs), len(ended))
	if succeeded < 20 {
		t.Errorf("%d runs succeeded: too few for this test to mean anything", succeeded)
	}
	if code := d.Terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// The network between a worker and the daemon is bad: connections are reset, and all is late. Every task runs once.
func TestWorkerOnBadNetwork(t *testing.T) {
	address := freePort(t)
	d := daemon.New(t, "--flows", "flows.yaml", "--data-dir", "data", "--log-level", "WARN")
	if err := os.WriteFile(filepath.Join(d.Dir, "flows.yaml"), []byte(taskFlowsFile(address, "manual: {}", 400)), 0o600); err != nil {
		t.Fatal(err)
	}
	journal := filepath.Join(d.Dir, "journal")
	startHelper(t, "service", journal, address)
	bad := proxy.New(t, d.Address)
	bad.Delay(5 * time.Millisecond)
	d.Start()
	w := startHelper(t, "worker", journal, bad.Address)
	conn, client := d.Connect()
	defer conn.Close()
	var cutting sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	cutting.Go(func() {
		for ctx.Err() == nil {
			select {
			case <-time.After(time.Duration(200+rand.IntN(500)) * time.Millisecond):
				bad.Reset()
			case <-ctx.Done():
			}
		}
	})
	const rounds = 4
	for range rounds {
		for i := range taskFlows {
			if _, err := client.Trigger(t.Context(), &schedulerdv1.TriggerRequest{FlowId: fmt.Sprintf("t%d", i)}); err != nil {
				t.Fatal(err)
			}
		}
		settle(t, client)
	}
	cancel()
	cutting.Wait()
	runs := settle(t, client)
	if len(runs) != rounds*taskFlows {
		t.Errorf("%d runs", len(runs))
	}
	for _, r := range runs {
		if r.GetOutcome() != schedulerdv1.Outcome_OUTCOME_SUCCEEDED {
			t.Errorf("run %s: %v", r.GetId(), r)
		}
	}
	begun := map[string]int{}
	for _, e := range readJournal(t, journal) {
		if e.task == "dig" && e.what == "begin" {
			begun[e.key]++
		}
	}
	for key, n := range begun {
		if n != 1 {
			t.Errorf("the worker began %s %d times", key, n)
		}
	}
	t.Logf("%d connections cut, %d tasks", bad.Cuts(), len(begun))
	if len(begun) != rounds*taskFlows || bad.Cuts() < 3 {
		t.Errorf("%d tasks, %d cuts", len(begun), bad.Cuts())
	}
	w.end(syscall.SIGTERM)
	if code := w.command.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
}

// A daemon that is told to stop lets workers finish within its grace.
func TestStopWaitsForWorkers(t *testing.T) {
	address := freePort(t)
	d := daemon.New(t, "--flows", "flows.yaml", "--data-dir", "data", "--grace", "60s")
	if err := os.WriteFile(filepath.Join(d.Dir, "flows.yaml"), []byte(taskFlowsFile(address, "manual: {}", 1500)), 0o600); err != nil {
		t.Fatal(err)
	}
	journal := filepath.Join(d.Dir, "journal")
	startHelper(t, "service", journal, address)
	d.Start()
	startHelper(t, "worker", journal, d.Address)
	conn, client := d.Connect()
	defer conn.Close()
	trigger := func() *schedulerdv1.Run {
		r, err := client.Trigger(t.Context(), &schedulerdv1.TriggerRequest{FlowId: "t0"})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetRun()
	}
	trigger()
	d.Await("t0", "COMPLETED") // the worker has dialled in: none is let in once the stop has begun
	r := trigger()
	for { // until the service has begun: the worker's part comes after the signal
		if text, _ := os.ReadFile(journal); strings.Count(string(text), "begin pack") == 2 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if code := d.Terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	ended := sameKeys(t, readJournal(t, journal))
	if ended[r.GetId()+" dig"] != 1 {
		t.Errorf("%v", ended)
	}
	d.Start()
	run, err := client.GetRun(t.Context(), &schedulerdv1.GetRunRequest{RunId: r.GetId()}, grpc.WaitForReady(true))
	if err != nil || run.GetRun().GetOutcome() != schedulerdv1.Outcome_OUTCOME_SUCCEEDED {
		t.Errorf("%v, %v", run, err)
	}
}
