package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("PROCESS_TEST_DAEMON"); dir != "" {
		daemon(dir)
	}
	goleak.VerifyTestMain(m)
}

// daemon is a process that runs a command which has a child, and never ends.
func daemon(owner string) {
	command := &Command{
		Args:   []string{"/bin/sh", "-c", "sleep 1000 & echo $$ $!; setsid sh -c 'echo $$; exec sleep 1000' & wait"},
		Env:    []string{"PATH=" + os.Getenv("PATH"), RunIDVariable + "=r1", OwnerVariable + "=" + owner},
		Stdout: os.Stdout,
	}
	_, err := command.Run(context.Background())
	panic(err)
}

// output is a writer that tells each line it is written.
type output struct {
	mu    sync.Mutex
	text  bytes.Buffer
	lines chan string
	rest  string
}

func newOutput() *output { return &output{lines: make(chan string, 100)} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	o.rest += string(p)
	for {
		line, rest, ok := strings.Cut(o.rest, "\n")
		if !ok {
			return len(p), nil
		}
		o.rest = rest
		o.lines <- line
	}
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func shell(script string) *Command {
	return &Command{Args: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=" + os.Getenv("PATH")}, KillDelay: time.Minute}
}

// script writes an executable file.
func script(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestExit(t *testing.T) {
	for _, test := range []struct {
		script string
		want   Exit
	}{
		{"exit 0", Exit{Code: 0}},
		{"exit 75", Exit{Code: 75}},
		{"no-such-command 2>/dev/null", Exit{Code: 127}},
		{"kill -KILL $$", Exit{Code: -1, Signal: "SIGKILL"}},
		{"kill -SEGV $$", Exit{Code: -1, Signal: "SIGSEGV"}},
		{"kill -TERM $$", Exit{Code: -1, Signal: "SIGTERM"}},
	} {
		t.Run(test.script, func(t *testing.T) {
			got, err := shell(test.script).Run(t.Context())
			if err != nil || got != test.want {
				t.Errorf("got %+v, %v; want %+v", got, err, test.want)
			}
		})
	}
}

func TestStartErrors(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "plain"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		command Command
		want    string
	}{
		"nothing":         {Command{}, "there is no command"},
		"empty":           {Command{Args: []string{""}}, "there is no command"},
		"not in PATH":     {Command{Args: []string{"no-such-command"}, Env: []string{"PATH=/bin"}}, `command "no-such-command" not found in PATH (/bin)`},
		"no PATH":         {Command{Args: []string{"sh"}}, `command "sh" not found in PATH ()`},
		"relative PATH":   {Command{Args: []string{"sh"}, Env: []string{"PATH=bin:.:"}}, `not found in PATH (bin:.:)`},
		"last PATH":       {Command{Args: []string{"sh"}, Env: []string{"PATH=/bin", "PATH=/nowhere"}}, `not found in PATH (/nowhere)`},
		"not executable":  {Command{Args: []string{"plain"}, Env: []string{"PATH=" + bin}}, `command "plain" is not executable: ` + bin + "/plain"},
		"no such file":    {Command{Args: []string{"/no/such/program"}}, "/no/such/program: there is no such program"},
		"a folder":        {Command{Args: []string{bin}}, "is not executable (permission denied)"},
		"permission":      {Command{Args: []string{filepath.Join(bin, "plain")}}, "is not executable (permission denied)"},
		"no interpreter":  {Command{Args: []string{script(t, "lost", "#!/no/such/interpreter\n", 0o755)}}, "the interpreter named in its first line does not exist"},
		"not a program":   {Command{Args: []string{script(t, "junk", "\x00\x01\x02", 0o755)}}, "is not a program for this machine"},
		"no dir":          {Command{Args: []string{"/bin/true"}, Dir: "/no/such/dir"}, "working directory: stat /no/such/dir: no such file or directory"},
		"dir is a file":   {Command{Args: []string{"/bin/true"}, Dir: "/dev/null"}, "working directory: /dev/null is not a directory"},
		"NUL in argument": {Command{Args: []string{"/bin/echo", "a\x00b"}}, "contains a NUL character"},
		"NUL in env":      {Command{Args: []string{"/bin/echo"}, Env: []string{"A=\x00"}}, "contains a NUL character"},
		"argument list":   {Command{Args: []string{"/bin/echo", strings.Repeat("x", 1<<20)}}, "/bin/echo could not be started: argument list too long"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := test.command.Run(t.Context())
			var start *StartError
			if !errors.As(err, &start) || !strings.Contains(err.Error(), test.want) || !start.Permanent {
				t.Errorf("got %#v: %v\nwant a permanent StartError with %q", err, err, test.want)
			}
		})
	}
}

func TestStartFailsForNow(t *testing.T) {
	file := script(t, "busy", "#!/bin/true\n", 0o755)
	open, err := os.OpenFile(file, os.O_WRONLY, 0) // ETXTBSY
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	_, err = (&Command{Args: []string{file}}).Run(t.Context())
	var start *StartError
	if !errors.As(err, &start) || start.Permanent {
		t.Errorf("got %v, want a StartError that is not permanent", err)
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("SECRET", "of the daemon")
	for _, env := range [][]string{nil, {"A=1", "B=two words"}} {
		out := newOutput()
		command := Command{Args: []string{"/usr/bin/env"}, Env: env, Stdout: out}
		if exit, err := command.Run(t.Context()); err != nil || exit.Code != 0 {
			t.Fatal(exit, err)
		}
		if got := strings.Fields(strings.ReplaceAll(out.String(), " ", "_")); len(got) != len(env) {
			t.Errorf("with %q the child sees %q", env, got)
		}
	}
}

func TestLookUpInThePathOfTheChild(t *testing.T) {
	file := script(t, "greet", "#!/bin/sh\necho hello\n", 0o755)
	out := newOutput()
	command := Command{Args: []string{"greet"}, Env: []string{"PATH=" + filepath.Dir(file) + ":/bin"}, Stdout: out}
	if exit, err := command.Run(t.Context()); err != nil || exit.Code != 0 || out.String() != "hello\n" {
		t.Error(exit, err, out)
	}
}

func TestDir(t *testing.T) {
	file := script(t, "where", "#!/bin/sh\npwd\n", 0o755)
	dir, err := filepath.EvalSymlinks(filepath.Dir(file))
	if err != nil {
		t.Fatal(err)
	}
	out := newOutput()
	command := Command{Args: []string{"./where"}, Env: []string{"PATH=/bin"}, Dir: dir, Stdout: out}
	if exit, err := command.Run(t.Context()); err != nil || exit.Code != 0 || out.String() != dir+"\n" {
		t.Error(exit, err, out)
	}
}

func TestStdin(t *testing.T) {
	out := newOutput()
	command := shell("wc -c")
	command.Stdin, command.Stdout = strings.Repeat("x", 1<<20), out
	if exit, err := command.Run(t.Context()); err != nil || exit.Code != 0 || strings.TrimSpace(out.String()) != "1048576" {
		t.Error(exit, err, out)
	}

	command = shell("exit 3") // and does not read it
	command.Stdin = strings.Repeat("x", 1<<20)
	if exit, err := command.Run(t.Context()); err != nil || exit != (Exit{Code: 3}) {
		t.Error(exit, err)
	}
}

func TestNothingIsStartedAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("stopping")
	cancel(reason)
	file := filepath.Join(t.TempDir(), "ran")
	if _, err := shell("touch " + file).Run(ctx); !errors.Is(err, reason) {
		t.Errorf("got %v, want the cause", err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the command ran")
	}
}

// stopWhenReady runs a command and stops it when it has written its first line.
func stopWhenReady(t *testing.T, command *Command) (first string, took time.Duration, err error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("no longer wanted")
	out := newOutput()
	command.Stdout = out
	var stopped time.Time
	var wait sync.WaitGroup
	wait.Go(func() {
		first = <-out.lines
		stopped = time.Now()
		cancel(reason)
	})
	exit, err := command.Run(ctx)
	wait.Wait()
	if !errors.Is(err, reason) {
		t.Errorf("got %+v, %v; want the cause of the stop", exit, err)
	}
	return first, time.Since(stopped), err
}

func TestStopIsGentleFirst(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cleaned-up")
	_, took, err := stopWhenReady(t, shell(`trap 'touch "`+file+`"; exit 0' TERM; echo ready; while :; do sleep 0.01; done`))
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the command's own clean-up did not run: %v", err)
	}
	if err.Error() != "the command was stopped with SIGTERM" {
		t.Errorf("got %q", err)
	}
	if took > 30*time.Second {
		t.Errorf("took %v: waited for the kill delay", took)
	}
}

func TestStopEscalates(t *testing.T) {
	for _, delay := range []time.Duration{0, 100 * time.Millisecond} {
		command := shell(`trap '' TERM; echo ready; while :; do sleep 0.01; done`)
		command.KillDelay = delay
		_, took, err := stopWhenReady(t, command)
		if took < delay || took > 30*time.Second {
			t.Errorf("took %v with a kill delay of %v", took, delay)
		}
		if want := fmt.Sprintf("the command was killed: it did not end within %v of SIGTERM", delay); err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
}

// The thread that starts a child must live on: its end is what the kernel takes for the parent's.
func TestChildrenOutliveOtherThreads(t *testing.T) {
	var children, threads sync.WaitGroup
	for i := range 60 {
		children.Go(func() {
			command := shell(fmt.Sprintf("sleep 0.%02d; exit 7", i))
			if exit, err := command.Run(t.Context()); err != nil || exit != (Exit{Code: 7}) {
				t.Errorf("got %+v, %v", exit, err)
			}
		})
	}
	done := make(chan struct{})
	threads.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				ended := make(chan struct{})
				go func() {
					runtime.LockOSThread() // without an unlock: the thread ends with the goroutine
					close(ended)
				}()
				<-ended
			}
		}
	})
	children.Wait()
	close(done)
	threads.Wait()
}

func TestMany(t *testing.T) {
	var wait sync.WaitGroup
	for range 60 {
		wait.Go(func() {
			out := newOutput()
			command := shell("echo out; echo err >&2; exit 5")
			command.Stdout, command.Stderr = out, out
			exit, err := command.Run(t.Context())
			got := strings.Fields(out.String())
			slices.Sort(got)
			if err != nil || exit != (Exit{Code: 5}) || !slices.Equal(got, []string{"err", "out"}) {
				t.Error(exit, err, got)
			}
		})
	}
	wait.Wait()
}
