package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/test/daemon"
)

// A once comes once, whatever happens to the daemon.
func TestOnceOverRestarts(t *testing.T) {
	d := daemon.New(t, "--flows", "flows.yaml", "--data-dir", "data")
	d.Write("flows.yaml", fmt.Sprintf(`
flows:
- id: once
  schedule: {once: {at: %q}}
  task: {exec: {shell: 'echo $SCHEDULERD_FIRE_TIME >> ran'}}
`, time.Now().Add(3*time.Second).UTC().Format(time.RFC3339Nano)))
	d.Start()
	ran := func() string {
		text, _ := os.ReadFile(filepath.Join(d.Dir, "ran")) // not there: it has not run
		return string(text)
	}
	eventually(t, "it runs", func() bool {
		return ran() != "" && strings.Contains(ok(t, d.Ctl("status", "once")), "COMPLETED")
	})
	first := ran()
	for range 2 {
		d.Kill()
		d.Start()
	}
	if code := d.Terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	d.Start()
	time.Sleep(500 * time.Millisecond)
	if again := ran(); again != first || strings.Count(again, "\n") != 1 {
		t.Errorf("it ran for %q, then %q", first, again)
	}
	_, client := d.Connect()
	shown, err := client.Status(t.Context(), &schedulerdv1.StatusRequest{FlowId: "once"})
	if err != nil || shown.Flow.RunCount != 1 || shown.Flow.NextFire != nil {
		t.Errorf("%v, %v", shown, err)
	}
}

// A fixed interval stays on its grid: it does not begin anew when the daemon does.
func TestGridOverRestarts(t *testing.T) {
	d := daemon.New(t, "--flows", "flows.yaml", "--data-dir", "data")
	d.Write("flows.yaml", "flows:\n- {id: grid, schedule: {every: {interval: 700ms}}, task: {set: {values: {a: 1}}}}\n")
	_, client := d.Connect()
	next := func() time.Time {
		t.Helper()
		shown, err := client.Status(t.Context(), &schedulerdv1.StatusRequest{FlowId: "grid"})
		if err != nil || shown.Flow.NextFire == nil {
			t.Fatalf("%v, %v", shown, err)
		}
		return shown.Flow.NextFire.AsTime()
	}
	d.Start()
	first := next()
	for i := range 4 {
		if i%2 == 0 {
			d.Kill()
		} else if code := d.Terminate(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		time.Sleep(time.Duration(100+130*i) * time.Millisecond)
		d.Start()
		if off := next().Sub(first) % (700 * time.Millisecond); off != 0 {
			t.Errorf("after start %d the grid is %v off", i+2, off)
		}
	}
	runs, err := client.ListRuns(t.Context(), &schedulerdv1.ListRunsRequest{FlowId: "grid"})
	if err != nil || len(runs.Runs) == 0 {
		t.Fatalf("%v, %v", runs, err)
	}
	for _, run := range runs.Runs {
		if off := run.FireTime.AsTime().Sub(first) % (700 * time.Millisecond); off != 0 {
			t.Errorf("run %s is for a time that is %v off the grid", run.Id, off)
		}
	}
}

// A trigger that was answered is answered the same again, also by the next daemon.
func TestRequestIDOverAKill(t *testing.T) {
	d := daemon.New(t, "--flows", "flows.yaml", "--data-dir", "data")
	d.Write("flows.yaml", "flows:\n- {id: a, task: {set: {values: {x: 1}}}}\n- {id: b, task: {wait: {duration: 1h}}}\n")
	d.Start()
	_, client := d.Connect()
	request := func(flow, id string) (*schedulerdv1.TriggerResponse, error) {
		return client.Trigger(t.Context(), &schedulerdv1.TriggerRequest{FlowId: flow, RequestId: id})
	}
	const one, two = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
	first := map[string]*schedulerdv1.TriggerResponse{}
	for flow, id := range map[string]string{"a": one, "b": two} {
		r, err := request(flow, id)
		if err != nil {
			t.Fatal(err)
		}
		first[flow] = r
	}
	for range 2 {
		d.Kill()
		d.Start()
		for flow, id := range map[string]string{"a": one, "b": two} {
			again, err := request(flow, id)
			if err != nil || again.Run.Id != first[flow].Run.Id || again.Revision != first[flow].Revision {
				t.Errorf("%s: answered %v, then %v, %v", flow, first[flow], again, err)
			}
		}
		if _, err := request("b", one); status.Code(err) != codes.Aborted {
			t.Errorf("another call with that id: %v", err)
		}
	}
	shown, err := client.Status(t.Context(), &schedulerdv1.StatusRequest{FlowId: "a"})
	if err != nil || shown.Flow.RunCount != 1 {
		t.Errorf("%v, %v", shown, err)
	}
}
