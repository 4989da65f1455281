package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/schedulerd/schedulerd/test/daemon"
)

// example builds a program below examples and runs it until the test ends, in a directory.
func example(t *testing.T, dir, name string, args ...string) *exec.Cmd {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "example")
	build := exec.Command("go", "build", "-o", binary, "./examples/"+name)
	build.Dir = daemon.Root()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c := exec.Command(binary, args...)
	c.Dir, c.Stderr = dir, os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		if err := c.Wait(); err != nil {
			t.Errorf("%s ended with %v", name, err)
		}
	})
	return c
}

// exampleFlows is a flows file of the examples, with an address in it replaced.
func exampleFlows(t *testing.T, name, address, by string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(daemon.Root(), "examples", name))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "flows.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(text), address, by)), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The example of a service keeps the contract, and does what its flow asks.
func TestExampleService(t *testing.T) {
	address := freePort(t)
	d := daemon.New(t, "--flows", exampleFlows(t, "services/flows.yaml", "127.0.0.1:7450", address))
	example(t, daemon.Root(), "services/go", "--listen", address)
	var report daemon.Result
	for limit := time.Now().Add(20 * time.Second); ; {
		if report = d.Ctl("conformance", "task", "--target", address); report.Code == 0 {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("exit code %d\n%s%s", report.Code, report.Out, report.Err)
		}
	}
	if strings.Count(report.Out, "ok    ") < 10 || strings.Contains(report.Out, "FAIL") {
		t.Errorf("%s", report.Out)
	}
	d.Start()
	r := d.Ctl("trigger", "total-orders", "--wait", "--param", "file=examples/data/orders.csv", "-o", "json")
	if r.Code != 0 || !strings.Contains(r.Out, `"SERVING"`) {
		t.Errorf("exit code %d\n%s%s", r.Code, r.Out, r.Err)
	}
}

// The example of a worker does what its flow asks, and ends in order.
func TestExampleWorker(t *testing.T) {
	d := daemon.New(t, "--flows", filepath.Join(daemon.Root(), "examples/workers/flows.yaml"))
	d.Start()
	example(t, daemon.Root(), "workers/go", "--server", d.Address)
	r := d.Ctl("trigger", "count-words", "--wait", "-o", "json")
	if r.Code != 0 || !strings.Contains(r.Out, `"words"`) {
		t.Errorf("exit code %d\n%s%s", r.Code, r.Out, r.Err)
	}
}
