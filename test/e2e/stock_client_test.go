package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/schedulerd/schedulerd/test/daemon"
)

// TestStockClient uses the daemon with a gRPC client that knows nothing of it: by reflection on the admin listener, and on the API with
// the protos.
func TestStockClient(t *testing.T) {
	d := daemon.New(t, "--flows", "flows.yaml")
	flows := "flows:\n- {id: hello, task: {set: {values: {greeting: hello}}}}\n"
	if err := os.WriteFile(filepath.Join(d.Dir, "flows.yaml"), []byte(flows), 0o600); err != nil {
		t.Fatal(err)
	}
	d.Start()
	const method = "/schedulerd.v1.SchedulerService/"
	curl := func(address string, more ...string) *exec.Cmd {
		args := []string{"tool", "-modfile=tools/go.mod", "buf", "curl", "--protocol", "grpc", "--http2-prior-knowledge"}
		c := exec.CommandContext(t.Context(), "go", append(append(args, more...), "http://"+address)...)
		c.Dir = daemon.Root()
		return c
	}
	for name, client := range map[string]struct{ address, schema string }{
		"reflection on the admin listener": {d.Admin, ""},
		"the protos on the API":            {d.Address, "proto"},
	} {
		t.Run(name, func(t *testing.T) {
			call := func(rpc string, data string) map[string]any {
				t.Helper()
				args := []string{"--data", data}
				if client.schema != "" {
					args = append(args, "--schema", client.schema)
				}
				out, err := curl(client.address+method+rpc, args...).CombinedOutput()
				if err != nil {
					t.Fatalf("%s: %v\n%s", rpc, err, out)
				}
				var answer map[string]any
				if err := json.Unmarshal(out, &answer); err != nil {
					t.Fatalf("%s: %v\n%s", rpc, err, out)
				}
				return answer
			}
			list, _ := call("List", "{}")["flows"].([]any)
			if len(list) != 1 || list[0].(map[string]any)["id"] != "hello" {
				t.Errorf("list: %v", list)
			}

			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			args := []string{"--data", "{}"}
			if client.schema != "" {
				args = append(args, "--schema", client.schema)
			}
			watch := curl(client.address+method+"WatchStatus", args...)
			lines, err := watch.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := watch.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				watch.Process.Kill()
				_ = watch.Wait()
			}()
			stop := context.AfterFunc(ctx, func() { watch.Process.Kill() })
			defer stop()
			seen := bufio.NewScanner(lines)
			until := func(text string) {
				t.Helper()
				for seen.Scan() {
					if strings.Contains(seen.Text(), text) {
						return
					}
				}
				t.Fatalf("the watch ended before it showed %q", text)
			}
			until("initialStateComplete")
			run, _ := call("Trigger", `{"flow_id": "hello"}`)["run"].(map[string]any)
			if id, _ := run["id"].(string); !strings.HasPrefix(id, "hello@") {
				t.Errorf("trigger: %v", run)
			}
			until("FLOW_STATUS_COMPLETED")
		})
	}
}
