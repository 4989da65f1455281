package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// witness watches a process, whatever number others get after its end.
type witness struct{ pid, fd int }

func watch(t *testing.T, line string) witness {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("process %d: %v", pid, err)
	}
	t.Cleanup(func() {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		_ = unix.Close(fd)
	})
	return witness{pid, fd}
}

// gone waits for the end of the process, for so long.
func (w witness) gone(most time.Duration) bool {
	deadline := time.Now().Add(most)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}, int(max(0, time.Until(deadline)).Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}

// held is a command that tells the number of a process it has started, and goes on when told to.
func held(t *testing.T, script string) (command *Command, out *output, goOn func()) {
	t.Helper()
	fifo := filepath.Join(t.TempDir(), "go-on")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	command, out = shell(strings.ReplaceAll(script, "HOLD", "read -r _ <"+fifo)), newOutput()
	command.Stdout = out
	return command, out, func() {
		if err := os.WriteFile(fifo, []byte("\n"), 0); err != nil {
			t.Error(err)
		}
	}
}

func TestNothingIsLeftBehind(t *testing.T) {
	for name, script := range map[string]string{
		"after success":      `sleep 1000 >/dev/null 2>&1 & echo $!; HOLD; exit 0`,
		"after failure":      `sleep 1000 >/dev/null 2>&1 & echo $!; HOLD; exit 9`,
		"deaf to SIGTERM":    `(trap '' TERM HUP; exec sleep 1000) >/dev/null 2>&1 & echo $!; HOLD`,
		"with the pipe open": `sleep 1000 & echo $!; HOLD`,
		"grandchild":         `sh -c 'sleep 1000 >/dev/null 2>&1 & echo $!'; HOLD`,
	} {
		t.Run(name, func(t *testing.T) {
			command, out, goOn := held(t, script)
			var left witness
			var wait sync.WaitGroup
			wait.Go(func() {
				left = watch(t, <-out.lines)
				goOn()
			})
			exit, err := command.Run(t.Context())
			wait.Wait()
			if err != nil || exit.HeldOpen {
				t.Errorf("got %+v, %v", exit, err)
			}
			if !left.gone(10 * time.Second) {
				t.Errorf("process %d is still there", left.pid)
			}
		})
	}
}

func TestStopReachesTheGroup(t *testing.T) {
	command, out, _ := held(t, `sleep 1000 & echo $!; wait`)
	ctx, cancel := context.WithCancel(t.Context())
	var left witness
	var wait sync.WaitGroup
	wait.Go(func() {
		left = watch(t, <-out.lines)
		cancel()
	})
	_, err := command.Run(ctx)
	wait.Wait()
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if !left.gone(10 * time.Second) {
		t.Errorf("process %d is still there", left.pid)
	}
}

func TestOutputHeldOpenOutsideTheGroup(t *testing.T) {
	command, out, goOn := held(t, `setsid sh -c 'echo $$; exec sleep 1000' & HOLD; echo last`)
	var left witness
	var wait sync.WaitGroup
	wait.Go(func() {
		left = watch(t, <-out.lines)
		goOn()
	})
	exit, err := command.Run(t.Context())
	wait.Wait()
	if err != nil || exit != (Exit{HeldOpen: true}) {
		t.Errorf("got %+v, %v", exit, err)
	}
	if !strings.HasSuffix(out.String(), "last\n") {
		t.Errorf("output lost: %q", out)
	}
	if left.gone(0) {
		t.Error("a process in a session of its own was killed")
	}
}

func TestDaemonIsKilled(t *testing.T) {
	owner := t.TempDir()
	self := exec.Command(os.Args[0])
	self.Env = append(os.Environ(), "PROCESS_TEST_DAEMON="+owner)
	stdout, err := self.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Start(); err != nil {
		t.Fatal(err)
	}
	var leader, child, apart string
	if _, err := fmt.Fscan(stdout, &leader, &child, &apart); err != nil {
		t.Fatal(err)
	}
	command, orphan, spared := watch(t, leader), watch(t, child), watch(t, apart)
	if err := self.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = self.Wait()

	if !command.gone(10 * time.Second) {
		t.Error("the command outlives its daemon")
	}
	if orphan.gone(0) {
		t.Fatal("the command's child is dead already: this proves nothing")
	}
	if killed, err := KillLeft(owner + "x"); err != nil || len(killed) != 0 || orphan.gone(0) {
		t.Errorf("another owner's process was killed: %+v, %v", killed, err)
	}
	killed, err := KillLeft(owner)
	if err != nil || len(killed) != 1 || strconv.Itoa(killed[0].ID) != leader || killed[0].RunID != "r1" {
		t.Errorf("killed %+v, %v", killed, err)
	}
	if !orphan.gone(0) {
		t.Error("the command's child outlives the daemon's next start")
	}
	if spared.gone(0) {
		t.Error("a process in a session of its own was killed")
	}
	if killed, err := KillLeft(owner); err != nil || len(killed) != 0 {
		t.Errorf("killed %+v, %v at the start after that", killed, err)
	}
}
