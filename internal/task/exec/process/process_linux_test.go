package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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

// announced tells the daemon's parent when a group was recorded.
type announced struct{ *Records }

func (a announced) Started(g Group) {
	a.Records.Started(g)
	fmt.Fprintln(os.Stderr, "recorded")
}

// daemon is a process that runs a command which has a child, records it, and never ends.
func daemon(dir string) {
	records, _, err := OpenRecords(dir, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		panic(err)
	}
	command := &Command{
		Args: []string{"/bin/sh", "-c", "sleep 1000 & echo $$; echo $!; wait"},
		Env:  []string{"PATH=" + os.Getenv("PATH"), RunIDVariable + "=r1"}, RunID: "r1",
		Stdout: os.Stdout, Tracker: announced{records},
	}
	_, err = command.Run(context.Background())
	panic(err)
}

func TestDaemonIsKilled(t *testing.T) {
	dir := t.TempDir()
	self := exec.Command(os.Args[0])
	self.Env = append(os.Environ(), "PROCESS_TEST_DAEMON="+dir)
	stdout, err := self.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := self.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Start(); err != nil {
		t.Fatal(err)
	}
	var leader, child string
	if _, err := fmt.Fscan(stdout, &leader, &child); err != nil {
		t.Fatal(err)
	}
	command, orphan := watch(t, leader), watch(t, child)
	var recorded string
	if _, err := fmt.Fscan(stderr, &recorded); err != nil || recorded != "recorded" {
		t.Fatal(recorded, err)
	}
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
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	_, killed, err := OpenRecords(dir, log)
	if err != nil || len(killed) != 1 || strconv.Itoa(killed[0].ID) != leader || killed[0].RunID != "r1" {
		t.Errorf("killed %+v, %v", killed, err)
	}
	if !orphan.gone(10 * time.Second) {
		t.Error("the command's child outlives the daemon's next start")
	}
	if _, killed, err := OpenRecords(dir, log); err != nil || len(killed) != 0 {
		t.Errorf("killed %+v, %v at the start after that", killed, err)
	}
}

type groups struct{ started, ended chan Group }

func (g groups) Started(group Group) { g.started <- group }
func (g groups) Ended(group Group)   { g.ended <- group }

func TestKillGroupSparesStrangers(t *testing.T) {
	tracker := groups{make(chan Group, 1), make(chan Group, 1)}
	command, out, goOn := held(t, `echo $$; HOLD`)
	command.Env = append(command.Env, RunIDVariable+"=mine")
	command.RunID, command.Tracker = "mine", tracker
	done := make(chan Exit, 1)
	go func() {
		exit, _ := command.Run(t.Context())
		done <- exit
	}()
	process := watch(t, <-out.lines)
	real := <-tracker.started
	if real.ID != process.pid || real.StartTime == 0 || real.Boot == "" || real.RunID != "mine" {
		t.Errorf("tracked %+v", real)
	}
	for name, change := range map[string]func(*Group){
		"another machine's life": func(g *Group) { g.Boot = "00000000-0000-0000-0000-000000000000" },
		"another start time":     func(g *Group) { g.StartTime++ },
		"no group":               func(g *Group) { g.ID = 0 },
		"init":                   func(g *Group) { g.ID = 1 },
	} {
		g := real
		change(&g)
		if killed, err := KillGroup(g); killed || err != nil {
			t.Errorf("%s: killed %v, %v", name, killed, err)
		}
	}
	if process.gone(0) {
		t.Fatal("a stranger was killed")
	}
	goOn()
	if exit := <-done; exit != (Exit{}) {
		t.Errorf("exit %+v", exit)
	}
	if ended := <-tracker.ended; ended != real {
		t.Errorf("ended %+v, started %+v", ended, real)
	}
	if killed, err := KillGroup(real); killed || err != nil {
		t.Errorf("after the end: killed %v, %v", killed, err)
	}
}

func TestOrphansAreKnownByTheirRun(t *testing.T) {
	// A leader that has ended and left a child in its group, as after a daemon's crash.
	orphans := func(runID string) (Group, witness) {
		cmd := exec.Command("/bin/sh", "-c", "sleep 1000 </dev/null >/dev/null 2>&1 & echo $!")
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), RunIDVariable + "=" + runID}
		cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
		line, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		boot, err := bootID()
		if err != nil {
			t.Fatal(err)
		}
		return Group{ID: cmd.Process.Pid, StartTime: 1, Boot: boot, RunID: "mine"}, watch(t, string(line))
	}

	theirs, process := orphans("theirs")
	if killed, err := KillGroup(theirs); killed || err != nil || process.gone(0) {
		t.Errorf("killed another run's process: %v, %v", killed, err)
	}
	mine, process := orphans("mine")
	if killed, err := KillGroup(mine); !killed || err != nil || !process.gone(10*time.Second) {
		t.Errorf("did not kill what was left: %v, %v", killed, err)
	}
}

func TestRecordsOfAFolderThatCannotBeUsed(t *testing.T) {
	if _, _, err := OpenRecords("/dev/null/records", slog.Default()); err == nil {
		t.Error("no error")
	}
}

func TestRecordCutShort(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "123"), []byte(`{"ID":12`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, killed, err := OpenRecords(dir, slog.Default()); len(killed) > 0 || err != nil {
		t.Error(killed, err)
	}
	if files, _ := os.ReadDir(dir); len(files) > 0 {
		t.Error("it is still there")
	}
}
