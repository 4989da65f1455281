package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/schedulerd/schedulerd/test/daemon"
)

// blocks are the ```sh blocks of a page, from one heading to the next of the same kind; all without a heading.
func blocks(t *testing.T, page, heading string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(daemon.Root(), page))
	if err != nil {
		t.Fatal(err)
	}
	part := string(text)
	if heading != "" {
		_, after, found := strings.Cut(part, "\n"+heading+"\n")
		if !found {
			t.Fatalf("%s has no %q", page, heading)
		}
		part, _, _ = strings.Cut(after, "\n## ")
	}
	var all []string
	for _, m := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(part, -1) {
		all = append(all, m[1])
	}
	if len(all) == 0 {
		t.Fatalf("%s has no commands", page)
	}
	return all
}

// checkout makes a folder like that of the repository after make build.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"schedulerd", "schedctl"} {
		if err := os.Symlink(daemon.Binary(t, name), filepath.Join(dir, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(dir, "examples"), os.DirFS(filepath.Join(daemon.Root(), "examples"))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// addresses are the variables that keep daemon and client of a page to themselves.
func addresses(d *daemon.Daemon) []string {
	return []string{"SCHEDULERD_LISTEN=" + d.Address, "SCHEDULERD_ADMIN_LISTEN=" + d.Admin, "SCHEDCTL_SERVER=" + d.Address}
}

func TestTutorial(t *testing.T) {
	dir := checkout(t)
	t.Cleanup(func() { // the daemon, if a command failed before its stop
		text, err := os.ReadFile(filepath.Join(dir, "schedulerd.pid"))
		if pid, failed := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && failed == nil && t.Failed() {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	script := "set -euo pipefail\nmake() { test \"$*\" = build; } # it is\n" + strings.Join(blocks(t, "docs/tutorial.md", ""), "")
	r := daemon.Run(t, dir, addresses(daemon.New(t)), "bash", "-c", script)
	log, _ := os.ReadFile(filepath.Join(dir, "schedulerd.log")) // not there: the first commands failed
	if r.Code != 0 {
		t.Fatalf("exit code %d\n%s%s\nlog:\n%s", r.Code, r.Out, r.Err, log)
	}
	for _, said := range []string{"nothing is wrong", "shipped 18", "an interrupted run goes on", `"order@2"`} {
		if !strings.Contains(r.Out+string(log), said) {
			t.Errorf("nothing says %q:\n%s%s", said, r.Out, r.Err)
		}
	}
}

// locked is a buffer for a process to write to and a test to read.
type locked struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// endless runs a command that goes on until it is told to stop: it must say something, and end well.
func endless(t *testing.T, dir string, env []string, line string) {
	t.Helper()
	var out locked
	c := exec.Command("bash", "-c", "exec "+line)
	c.Dir, c.Env, c.Stdout, c.Stderr = dir, append(os.Environ(), env...), &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(40*time.Second, func() { c.Process.Kill() })
	defer kill.Stop()
	eventually(t, line+" says something", func() bool { return out.String() != "" })
	time.Sleep(300 * time.Millisecond)
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("%s: %v\n%s", line, err, out.String())
	}
}

func TestTourOfTheReadme(t *testing.T) {
	d := daemon.New(t, "--flows", "examples/flows", "--data-dir", "data")
	d.Dir = checkout(t)
	example := filepath.Join("examples", "flows", "health-check.yaml") // asks the daemon at the address that make run gives it
	text, err := os.ReadFile(filepath.Join(d.Dir, example))
	if err != nil {
		t.Fatal(err)
	}
	d.Write(example, strings.ReplaceAll(string(text), "127.0.0.1:7422", d.Admin))
	d.Start() // as make run does
	eventually(t, "a health check is kept", func() bool { return strings.Contains(ok(t, d.Ctl("status", "health-check")), "COMPLETED") })
	commands := 0
	for _, block := range blocks(t, "README.md", "## A tour") {
		for line := range strings.Lines(block) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
			line = strings.TrimSpace(line)
			switch {
			case line == "":
				continue
			case line == "bin/schedctl watch", strings.HasPrefix(line, "bin/schedulerd --flows"):
				endless(t, d.Dir, addresses(d), line)
			default:
				ok(t, daemon.Run(t, d.Dir, addresses(d), "bash", "-c", line))
			}
			if commands++; strings.HasPrefix(line, "bin/schedctl stop") {
				if code := d.Wait(); code != 0 {
					t.Errorf("the daemon ended with exit code %d", code)
				}
			}
		}
	}
	if commands < 8 {
		t.Errorf("the tour has %d commands", commands)
	}
}
