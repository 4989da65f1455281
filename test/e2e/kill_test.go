package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/test/daemon"
)

// kills is how often the daemon is killed. KILLS changes it.
func kills(t *testing.T) int {
	n, err := strconv.Atoi(os.Getenv("KILLS"))
	if err != nil {
		return 50
	}
	return n
}

const (
	killFlows   = 150 // on schedules
	killManuals = 20  // triggered over the API
)

// killFlowsFile defines flows whose tasks write a line at each attempt. A task holds a lock of its flow while it runs: a second one at the same
// time finds it taken and says so.
func killFlowsFile(marker string) string {
	var b strings.Builder
	b.WriteString("flows:\n")
	flow := func(id, schedule, sleep, onCrash string) {
		fmt.Fprintf(&b, `
- id: %s
  schedule: {%s}
  keep_runs: 1000
  on_crash: %s
  catch_up: {mode: LAST}
  backoff: {initial: 100ms, max_delay: 200ms}
  workflow:
    initial: one
    states:
      one: {task: {exec: {shell: &task 'exec 9>>locks/$SCHEDULERD_FLOW_ID; flock -n 9 || echo "OVERLAP $SCHEDULERD_RUN_ID" >>tokens; echo "$SCHEDULERD_FLOW_ID $SCHEDULERD_RUN_ID $${SCHEDULERD_FIRE_TIME:--} $SCHEDULERD_STATE $SCHEDULERD_ATTEMPT $SCHEDULERD_IDEMPOTENCY_KEY" >>tokens; sleep %s # %s'}}, next: two}
      two: {task: {exec: {shell: *task}}, next: done}
    exits: {done: {}}
`, id, schedule, onCrash, sleep, marker)
	}
	for i := range killFlows {
		schedule := fmt.Sprintf("every: {interval: %dms, initial_delay: %dms}", 2000+10*i, 13*i)
		if i%5 == 0 {
			schedule = "cron: '* * * * * *'"
		}
		sleep, onCrash := "0", "RESUME"
		if i%7 == 0 {
			sleep = "0.3"
		}
		if i%4 == 0 {
			onCrash = "FAIL"
		}
		flow(fmt.Sprintf("f%03d", i), schedule, sleep, onCrash)
	}
	for i := range killManuals {
		flow(fmt.Sprintf("m%03d", i), "manual: {}", "0.05", "RESUME")
	}
	return b.String()
}

// TestKill kills the real daemon again and again, at any moment, and checks from outside what it promised: each fire time runs at most
// once, each attempt is made again only if its run was resumed, what was answered is there, nothing is stuck, no process is left.
func TestKill(t *testing.T) {
	marker := fmt.Sprintf("kill-test-%d-%d", os.Getpid(), time.Now().UnixNano())
	d := daemon.New(t, "--flows", "flows.yaml", "--data-dir", "data", "--log-level", "WARN")
	if err := os.WriteFile(filepath.Join(d.Dir, "flows.yaml"), []byte(killFlowsFile(marker)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(d.Dir, "locks"), 0o700); err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))

	var answered triggers
	starts := 0
	for range kills(t) {
		d.Launch()
		if random.IntN(4) == 0 { // also while it starts and recovers
			time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond)
		} else {
			if err := d.Ready(time.Minute); err != nil {
				t.Fatal(err)
			}
			starts++
			answered.load(t, d, time.Duration(100+random.IntN(700))*time.Millisecond)
		}
		d.Kill()
		if left := processes(t, marker); len(left) > 0 {
			t.Fatalf("%d processes outlived the daemon, such as %s", len(left), left[0])
		}
	}
	d.Start()
	time.Sleep(2 * time.Second)
	runs := allRuns(t, d)
	if code := d.Terminate(); code != 0 {
		t.Errorf("the daemon stopped with exit code %d", code)
	}
	tokens, err := os.ReadFile(filepath.Join(d.Dir, "tokens")) // all of runs that have ended, since the daemon has
	if err != nil {
		t.Fatal(err)
	}
	d.Start() // what a stopped daemon recorded is there, too
	checkStatuses(t, d)
	later := allRuns(t, d)
	for id, run := range runs {
		if got := later[id]; got == nil || run.EndTime != nil && got.Outcome != run.Outcome {
			t.Errorf("run %s changed over a stop: %v, then %v", id, run, got)
		}
	}
	answered.check(t, later)
	attempts := checkTokens(t, string(tokens), later)
	t.Logf("%d kills, %d of them when ready; %d runs, %d attempts, %d answered triggers", kills(t), starts, len(later), attempts, len(answered.runs))
	if len(later) < 200 || len(answered.runs) < 20 {
		t.Errorf("too little happened for this test to mean anything")
	}
}

// triggers are calls of Trigger that were answered.
type triggers struct {
	mu    sync.Mutex
	count uint64
	runs  map[string]string // by request id
}

// load triggers flows for a while, as several clients would.
func (a *triggers) load(t *testing.T, d *daemon.Daemon, limit time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	conn, client := d.Connect()
	defer conn.Close()
	var wg sync.WaitGroup
	for c := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				a.mu.Lock()
				a.count++
				id := fmt.Sprintf("00000000-0000-4000-8000-%012d", a.count)
				a.mu.Unlock()
				flow := fmt.Sprintf("m%03d", (i*4+c)%killManuals)
				r, err := client.Trigger(ctx, &schedulerdv1.TriggerRequest{FlowId: flow, RequestId: id})
				switch status.Code(err) {
				case codes.OK:
					a.mu.Lock()
					if a.runs == nil {
						a.runs = map[string]string{}
					}
					a.runs[id] = r.Run.Id
					a.mu.Unlock()
				case codes.FailedPrecondition, codes.DeadlineExceeded, codes.Canceled, codes.Unavailable:
				default:
					t.Errorf("trigger: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

// check finds each answered trigger's run, and that no two requests were given the same one.
func (a *triggers) check(t *testing.T, runs map[string]*schedulerdv1.Run) {
	t.Helper()
	given := map[string]string{}
	for request, run := range a.runs {
		if runs[run] == nil {
			t.Errorf("request %s was answered with run %s, which does not exist", request, run)
		}
		if other := given[run]; other != "" {
			t.Errorf("requests %s and %s were both answered with run %s", request, other, run)
		}
		given[run] = request
	}
}

// allRuns is every kept run by id.
func allRuns(t *testing.T, d *daemon.Daemon) map[string]*schedulerdv1.Run {
	t.Helper()
	conn, client := d.Connect()
	defer conn.Close()
	flows, err := client.List(t.Context(), &schedulerdv1.ListRequest{PageSize: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if len(flows.Flows) != killFlows+killManuals {
		t.Errorf("%d flows are listed", len(flows.Flows))
	}
	runs := map[string]*schedulerdv1.Run{}
	for _, f := range flows.Flows {
		for token := ""; ; {
			page, err := client.ListRuns(t.Context(), &schedulerdv1.ListRunsRequest{FlowId: f.Id, PageSize: 1000, PageToken: token})
			if err != nil {
				t.Fatal(err)
			}
			for _, run := range page.Runs {
				if runs[run.Id] != nil {
					t.Errorf("run %s is listed twice", run.Id)
				}
				runs[run.Id] = run
			}
			if token = page.NextPageToken; token == "" {
				break
			}
		}
	}
	return runs
}

// checkStatuses finds no flow that is running without a run, and a run for each number.
func checkStatuses(t *testing.T, d *daemon.Daemon) {
	t.Helper()
	conn, client := d.Connect()
	defer conn.Close()
	list, err := client.List(t.Context(), &schedulerdv1.ListRequest{PageSize: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list.Flows {
		if (f.Status == schedulerdv1.FlowStatus_FLOW_STATUS_RUNNING) != (f.CurrentRun != nil) {
			t.Errorf("flow %s is %v with run %v", f.Id, f.Status, f.CurrentRun)
		}
	}
}

// checkTokens reads what the tasks wrote, and gives the number of attempts.
func checkTokens(t *testing.T, tokens string, runs map[string]*schedulerdv1.Run) int {
	t.Helper()
	attempts := map[string]int{}     // by idempotency key and attempt
	fireTimes := map[string]string{} // run by flow and fire time
	n := 0
	for line := range strings.Lines(tokens) {
		fields := strings.Fields(line)
		if len(fields) != 6 {
			t.Errorf("line %q", line)
			continue
		}
		n++
		flow, run, fire, attempt, key := fields[0], fields[1], fields[2], fields[4], fields[5]
		r := runs[run]
		if r == nil {
			t.Errorf("a task ran for run %s, which does not exist", run)
			continue
		}
		attempts[key+" "+attempt]++
		if made := attempts[key+" "+attempt]; made > 1+int(r.Resumed) {
			t.Errorf("attempt %s of %s was made %d times, though its run was resumed %d times", attempt, key, made, r.Resumed)
		}
		if fire != "-" {
			at := flow + " " + fire
			if other := fireTimes[at]; other != "" && other != run {
				t.Errorf("fire time %s became two runs, %s and %s", at, other, run)
			}
			fireTimes[at] = run
		}
	}
	return n
}

// processes lists those whose command line holds the marker, after a moment for the kernel to end them.
func processes(t *testing.T, marker string) (left []string) {
	t.Helper()
	for range 100 {
		left = nil
		entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if line, err := os.ReadFile(entry); err == nil && strings.Contains(string(line), marker) {
				left = append(left, entry+": "+strings.ReplaceAll(string(line), "\x00", " "))
			}
		}
		if len(left) == 0 {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return left
}
