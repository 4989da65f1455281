package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/test/daemon"
)

func TestReloadOnSIGHUP(t *testing.T) {
	d := daemon.New(t, "--flows", "flows.yaml")
	d.Write("flows.yaml", "flows:\n- {id: a, task: {log: {message: one}}}\n- {id: gone, task: {log: {message: x}}}\n")
	d.Start()
	ok(t, d.Ctl("trigger", "a", "--wait"))

	d.Write("flows.yaml", "flows:\n- {id: a, task: {log: {mesage: two}}}\n- {id: new, task: {log: {message: x}}}\n")
	d.Signal(syscall.SIGHUP)
	eventually(t, "the fault is logged with its place", func() bool {
		return strings.Contains(d.Log(), "flows.yaml:2:24") && strings.Contains(d.Log(), "did you mean message")
	})
	if list := ok(t, d.Ctl("list")); !strings.Contains(list, "gone") || strings.Contains(list, "new") {
		t.Errorf("a wrong file changed the flows:\n%s", list)
	}
	if definition := ok(t, d.Ctl("get", "a")); !strings.Contains(definition, "one") {
		t.Error(definition)
	}

	d.Write("flows.yaml", "flows:\n- {id: a, task: {log: {message: two}}}\n- {id: new, task: {log: {message: x}}}\n")
	d.Signal(syscall.SIGHUP)
	eventually(t, "the good file is taken over", func() bool {
		list := ok(t, d.Ctl("list"))
		return strings.Contains(list, "new") && !strings.Contains(list, "gone")
	})
	if definition := ok(t, d.Ctl("get", "a")); !strings.Contains(definition, "two") {
		t.Error(definition)
	}
	_, client := d.Connect()
	shown, err := client.Status(t.Context(), &schedulerdv1.StatusRequest{FlowId: "a"})
	if err != nil || shown.Flow.RunCount != 1 || shown.Flow.Status != schedulerdv1.FlowStatus_FLOW_STATUS_COMPLETED {
		t.Errorf("a changed flow lost its state: %v, %v", shown, err)
	}
	if log := d.Log(); !strings.Contains(log, "everything is in memory and lost at the end of the process; set --data-dir") {
		t.Errorf("nothing says that there is no data directory:\n%s", log)
	}
}

func TestApplyOverTheAPI(t *testing.T) {
	d := daemon.New(t, "--flows", "flows.yaml", "--data-dir", "data")
	d.Write("flows.yaml", "flows:\n- {id: file, task: {log: {message: x}}}\n")
	d.Start()
	d.Write("one.yaml", "flows:\n- {id: a, task: {log: {message: x}}}\n- {id: b, task: {log: {message: x}}}\n")
	d.Write("two.yaml", "flows:\n- {id: a, task: {log: {message: y}}}\n- {id: c, task: {log: {message: x}}}\n")

	if plan := ok(t, d.Ctl("plan", "one.yaml")); !strings.Contains(plan, "2 added") {
		t.Error(plan)
	}
	if list := ok(t, d.Ctl("list")); strings.Contains(list, "a ") {
		t.Errorf("a plan changed something:\n%s", list)
	}
	ok(t, d.Ctl("apply", "one.yaml"))
	ok(t, d.Ctl("trigger", "a", "--wait"))
	plan := ok(t, d.Ctl("plan", "two.yaml", "--prune"))
	if !strings.Contains(plan, "1 added, 1 changed, 1 removed") || !strings.Contains(plan, "task.log.message") {
		t.Error(plan)
	}
	_, etag, found := strings.Cut(plan, "--etag ")
	if !found {
		t.Fatal(plan)
	}
	etag, _, _ = strings.Cut(etag, "\n")
	d.Write("other.yaml", "flows:\n- {id: d, task: {log: {message: x}}}\n")
	ok(t, d.Ctl("apply", "other.yaml"))
	refused(t, d.Ctl("apply", "two.yaml", "--prune", "--etag", etag), 4, "changed since")
	ok(t, d.Ctl("delete", "d"))
	ok(t, d.Ctl("apply", "two.yaml", "--prune", "--etag", etag))

	check := func() {
		t.Helper()
		list := ok(t, d.Ctl("list", "-o", "json"))
		for id, there := range map[string]bool{"a": true, "b": false, "c": true, "d": false, "file": true} {
			if strings.Contains(list, fmt.Sprintf("%q", id)) != there {
				t.Errorf("flow %s is there: %v\n%s", id, !there, list)
			}
		}
		if got := ok(t, d.Ctl("get", "a")); !strings.Contains(got, "message: \"y\"") && !strings.Contains(got, "message: y") {
			t.Error(got)
		}
		if run := ok(t, d.Ctl("run", "a@1")); !strings.Contains(run, "succeeded") {
			t.Error(run)
		}
	}
	check()
	d.Kill()
	d.Start()
	check()

	refused(t, d.Ctl("delete", "file"), 4, "flows file")
	refused(t, d.Ctl("delete", "b"), 3, "no flow b")
	d.Write("exec.yaml", "flows:\n- {id: e, task: {exec: {command: ['true']}}}\n")
	refused(t, d.Ctl("apply", "exec.yaml"), 1, "--allow-api-exec", "task.exec")
	d.Write("wrong.yaml", "flows:\n- {id: a, task: {log: {mesage: y}}}\n- {id: z, task: {log: {message: x}}}\n")
	refused(t, d.Ctl("apply", "wrong.yaml"), 7, "wrong.yaml:2:", "did you mean message")
	check()
}

func TestExecOverTheAPIWhereItIsAllowed(t *testing.T) {
	d := daemon.New(t, "--data-dir", "data", "--allow-api-exec")
	d.Start()
	d.Write("exec.yaml", "flows:\n- {id: e, task: {exec: {shell: 'echo $SCHEDULERD_RUN_ID >> ran'}}}\n")
	ok(t, d.Ctl("apply", "exec.yaml"))
	d.Kill()
	d.Start() // its definition is compiled when it is triggered
	ok(t, d.Ctl("trigger", "e", "--wait"))
	if ran, err := os.ReadFile(filepath.Join(d.Dir, "ran")); err != nil || string(ran) != "e@1\n" {
		t.Errorf("%q, %v", ran, err)
	}
}

func TestFollowLogs(t *testing.T) {
	d := daemon.New(t, "--flows", "flows.yaml", "--data-dir", "data")
	d.Write("flows.yaml", "flows:\n- {id: talk, task: {exec: {shell: 'echo first; until [ -e go ]; do sleep 0.05; done; echo second; echo third >&2'}}}\n")
	d.Start()
	ok(t, d.Ctl("trigger", "talk"))
	follow := exec.CommandContext(t.Context(), daemon.Binary(t, "schedctl"), "logs", "talk@1", "-f")
	follow.Env = append(os.Environ(), "SCHEDCTL_SERVER="+d.Address)
	out, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(30*time.Second, func() { follow.Process.Kill() })
	defer stuck.Stop()
	var lines []string
	for scanner := bufio.NewScanner(out); scanner.Scan(); {
		lines = append(lines, scanner.Text())
		if len(lines) == 1 {
			d.Write("go", "") // the first line came while the run was on its way
		}
	}
	if err := follow.Wait(); err != nil {
		t.Errorf("logs -f ended with %v", err)
	}
	all := strings.Join(lines, "\n")
	if !strings.Contains(lines[0], "first") || !strings.Contains(all, "second") || !strings.Contains(all, "third") {
		t.Errorf("followed:\n%s", all)
	}
	d.Kill()
	d.Start()
	if kept := ok(t, d.Ctl("logs", "talk@1")); !strings.Contains(kept, "first") || !strings.Contains(kept, "third") {
		t.Errorf("kept:\n%s", kept)
	}
}
