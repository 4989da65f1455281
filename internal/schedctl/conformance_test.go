package schedctl

import (
	"encoding/json"
	"strings"
	"testing"
)

// What is not a TaskService keeps no promise of one; the report says so, line by line, and in the exit code.
func TestConformanceCommand(t *testing.T) {
	r := newRig(t)
	got := r.run("conformance", "task", "--target", "passthrough:///here", "--insecure")
	if got.code != ExitRunFailed || !strings.Contains(got.out, "FAIL  a task gets its whole invocation: ") || !strings.Contains(got.err, "13 checks of 14 failed") {
		t.Errorf("%+v", got)
	}
	got = r.run("conformance", "task", "--target", "passthrough:///here", "--insecure", "-o", "json")
	var report struct {
		Checks []struct{ Name, Error string }
	}
	if err := json.Unmarshal([]byte(got.out), &report); err != nil || got.code != ExitRunFailed || len(report.Checks) != 14 || !strings.Contains(report.Checks[0].Error, "Unimplemented") {
		t.Errorf("%v, %+v", err, got)
	}
	for _, args := range [][]string{{"conformance"}, {"conformance", "worker"}, {"conformance", "task"}} {
		if got := r.run(args...); got.code != ExitUsage {
			t.Errorf("%v: %+v", args, got)
		}
	}
}
