// Package daemon runs the real schedulerd and schedctl for tests: built once, on loopback, ended by their process id.
package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

// binaries are the built programs.
var binaries struct {
	once sync.Once
	dir  string
	err  error
}

// Binary is the path of a program under cmd/, built when it is first asked for.
func Binary(t testing.TB, name string) string {
	t.Helper()
	binaries.once.Do(func() {
		if binaries.dir, binaries.err = os.MkdirTemp("", "schedulerd-test-"); binaries.err != nil {
			return
		}
		build := exec.Command("go", "build", "-o", binaries.dir+"/", "./cmd/...")
		build.Dir = Root()
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			binaries.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if binaries.err != nil {
		t.Fatal(binaries.err)
	}
	return filepath.Join(binaries.dir, name)
}

// Cleanup removes the built programs; call it at the end of TestMain.
func Cleanup() { os.RemoveAll(binaries.dir) }

// Root is the top folder of the repository.
func Root() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			panic("no go.mod above the working directory")
		}
	}
}

// Daemon is a schedulerd that can be started again and again with the same arguments.
type Daemon struct {
	T       testing.TB
	Dir     string // working directory: data, log, whatever its flows write
	Address string
	Admin   string
	Prefix  []string // a command to run the daemon under, such as a shell that sets limits
	args    []string
	command *exec.Cmd
	ended   chan error
	log     *os.File
}

// New prepares a daemon. Args are added to its addresses; the data directory is theirs to set.
func New(t testing.TB, args ...string) *Daemon {
	t.Helper()
	d := &Daemon{T: t, Dir: t.TempDir(), Address: freeAddress(t), Admin: freeAddress(t), args: args}
	t.Cleanup(func() {
		d.Kill()
		if t.Failed() {
			if log, err := os.ReadFile(d.LogFile()); err == nil {
				t.Logf("the end of the daemon's log:\n%s", tail(log, 8<<10))
			}
		}
	})
	return d
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// LogFile is where the daemon's log goes, over all its lives.
func (d *Daemon) LogFile() string { return filepath.Join(d.Dir, "schedulerd.log") }

// Launch starts the process without waiting for it to be ready.
func (d *Daemon) Launch() {
	d.T.Helper()
	log, err := os.OpenFile(d.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		d.T.Fatal(err)
	}
	d.log = log
	line := slices.Concat(d.Prefix, []string{Binary(d.T, "schedulerd"), "--listen", d.Address, "--admin-listen", d.Admin}, d.args)
	d.command = exec.Command(line[0], line[1:]...)
	d.command.Dir, d.command.Stdout, d.command.Stderr = d.Dir, log, log
	if err := d.command.Start(); err != nil {
		d.T.Fatal(err)
	}
	d.ended = make(chan error, 1)
	go func(c *exec.Cmd, ended chan<- error) { ended <- c.Wait() }(d.command, d.ended)
}

// Start launches the daemon and waits until it answers.
func (d *Daemon) Start() {
	d.T.Helper()
	d.Launch()
	if err := d.Ready(30 * time.Second); err != nil {
		d.T.Fatal(err)
	}
}

// Ready waits until the daemon takes triggers; it gives up when the process ends or the time is over.
func (d *Daemon) Ready(limit time.Duration) error {
	ctx, cancel := context.WithTimeout(d.T.Context(), limit)
	defer cancel()
	conn, client := d.Connect()
	defer conn.Close()
	for {
		if info, err := client.GetServerInfo(ctx, &schedulerdv1.GetServerInfoRequest{}); err == nil && info.Ready {
			return nil
		}
		select {
		case err := <-d.ended:
			d.ended <- err
			return fmt.Errorf("the daemon ended at its start: %v", err)
		case <-ctx.Done():
			return errors.New("the daemon did not answer in time")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Connect dials the daemon.
func (d *Daemon) Connect() (*grpc.ClientConn, schedulerdv1.SchedulerServiceClient) {
	d.T.Helper()
	conn, err := grpc.NewClient(d.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		d.T.Fatal(err)
	}
	return conn, schedulerdv1.NewSchedulerServiceClient(conn)
}

// Pid is the process id of the daemon's present life.
func (d *Daemon) Pid() int { return d.command.Process.Pid }

// Kill ends the daemon at once, as kill -9 does, and waits for its end.
func (d *Daemon) Kill() {
	if d.command == nil {
		return
	}
	d.command.Process.Kill()
	d.wait()
}

// Terminate asks the daemon to stop and gives its exit code.
func (d *Daemon) Terminate() int {
	d.T.Helper()
	if err := d.command.Process.Signal(syscall.SIGTERM); err != nil {
		d.T.Fatal(err)
	}
	return d.wait()
}

// Wait waits until the daemon has ended by itself, and gives its exit code. After half a minute it is killed, and the test fails.
func (d *Daemon) Wait() int {
	d.T.Helper()
	process := d.command.Process
	late := time.AfterFunc(30*time.Second, func() {
		d.T.Errorf("the daemon does not end")
		process.Kill()
	})
	defer late.Stop()
	return d.wait()
}

func (d *Daemon) wait() int {
	<-d.ended
	code := d.command.ProcessState.ExitCode()
	d.command = nil
	d.log.Close()
	return code
}

// Signal sends the daemon a signal.
func (d *Daemon) Signal(s os.Signal) {
	d.T.Helper()
	if err := d.command.Process.Signal(s); err != nil {
		d.T.Fatal(err)
	}
}

// Result is what a command wrote and how it ended.
type Result struct {
	Out, Err string
	Code     int
}

// Log is what the daemon has logged, over all its lives.
func (d *Daemon) Log() string {
	d.T.Helper()
	log, err := os.ReadFile(d.LogFile())
	if err != nil {
		d.T.Fatal(err)
	}
	return string(log)
}

// Write writes a file into the daemon's directory.
func (d *Daemon) Write(name, text string) {
	d.T.Helper()
	if err := os.WriteFile(filepath.Join(d.Dir, name), []byte(text), 0o600); err != nil {
		d.T.Fatal(err)
	}
}

// Schedulerd runs schedulerd with other arguments, such as those of inspect, to its end.
func (d *Daemon) Schedulerd(args ...string) Result {
	d.T.Helper()
	return Run(d.T, d.Dir, nil, Binary(d.T, "schedulerd"), args...)
}

// Ctl runs schedctl against the daemon.
func (d *Daemon) Ctl(args ...string) Result {
	d.T.Helper()
	return Run(d.T, d.Dir, []string{"SCHEDCTL_SERVER=" + d.Address}, Binary(d.T, "schedctl"), args...)
}

// Run runs a command to its end, at most a minute.
func Run(t testing.TB, dir string, env []string, name string, args ...string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	var out, errs bytes.Buffer
	c.Dir, c.Stdout, c.Stderr, c.Env = dir, &out, &errs, append(os.Environ(), env...)
	err := c.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatalf("%s %q: %v\n%s", name, args, err, errs.String())
	}
	return Result{out.String(), errs.String(), c.ProcessState.ExitCode()}
}

// Await waits until a flow has a status, at most half a minute.
func (d *Daemon) Await(flow, status string) {
	d.T.Helper()
	ctx, cancel := context.WithTimeout(d.T.Context(), 30*time.Second)
	defer cancel()
	conn, client := d.Connect()
	defer conn.Close()
	want := schedulerdv1.FlowStatus(schedulerdv1.FlowStatus_value["FLOW_STATUS_"+status])
	for {
		r, err := client.Status(ctx, &schedulerdv1.StatusRequest{FlowId: flow})
		if err != nil {
			d.T.Fatalf("waiting for flow %s to be %s: %v", flow, status, err)
		}
		if r.Flow.Status == want {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
