package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// DrainTime is how long output is awaited after the command and its group are gone.
const DrainTime = 2 * time.Second

// Command is what to run.
type Command struct {
	Args      []string      // program and arguments; a program without a slash is looked up in the PATH of Env
	Env       []string      // the whole environment, as KEY=value
	Dir       string        // working directory; empty: the daemon's
	Stdin     string        // written to standard input; empty: the null device
	Stdout    io.Writer     // nil: the null device
	Stderr    io.Writer     // nil: the null device
	KillDelay time.Duration // between SIGTERM and SIGKILL when the context is done
}

// Exit is how a command ended by itself.
type Exit struct {
	Code     int    // its exit code; -1 if a signal killed it
	Signal   string // the signal that killed it, such as "SIGSEGV"
	HeldOpen bool   // its output was held open by a process outside its group, and cut off
}

// StartError is why a command could not be started.
type StartError struct {
	Err       error
	Permanent bool // it will not start later either: what has to change is the definition or the machine
}

// Error gives the reason.
func (e *StartError) Error() string { return e.Err.Error() }

// Unwrap gives the reason.
func (e *StartError) Unwrap() error { return e.Err }

// StopError is how a command was stopped because its context was done.
type StopError struct {
	Cause  error         // of the context
	Killed bool          // it did not end by itself on SIGTERM
	After  time.Duration // the delay it was given for that
}

// Error tells how it was stopped; the cause is for the caller to tell.
func (e *StopError) Error() string {
	if e.Killed {
		return fmt.Sprintf("the command was killed: it did not end within %v of SIGTERM", e.After)
	}
	return "the command was stopped with SIGTERM"
}

// Unwrap gives the cause.
func (e *StopError) Unwrap() error { return e.Cause }

// Run runs the command to its end. The error is a *StartError, a *StopError, or the context's cause when nothing was started.
func (c *Command) Run(ctx context.Context) (Exit, error) {
	if ctx.Err() != nil {
		return Exit{}, context.Cause(ctx)
	}
	cmd, err := c.prepare()
	if err != nil {
		return Exit{}, &StartError{err, true}
	}
	child, err := start(cmd)
	if err != nil {
		return Exit{}, c.explain(cmd.Path, err)
	}
	var stopped *StopError
	select {
	case <-child.ended:
	case <-ctx.Done():
		stopped = &StopError{Cause: context.Cause(ctx), After: c.KillDelay}
		terminate(cmd.Process)
		delay := time.NewTimer(c.KillDelay)
		select {
		case <-child.ended:
		case <-delay.C:
			stopped.Killed = true
		}
		delay.Stop()
	}
	kill(cmd.Process) // all of the group; also when the command itself ended well
	<-child.ended
	heldOpen := errors.Is(child.reap(), exec.ErrWaitDelay)
	if stopped != nil {
		return Exit{}, stopped
	}
	return Exit{Code: cmd.ProcessState.ExitCode(), Signal: signalOf(cmd.ProcessState), HeldOpen: heldOpen}, nil
}

func (c *Command) prepare() (*exec.Cmd, error) {
	if len(c.Args) == 0 || c.Args[0] == "" {
		return nil, errors.New("there is no command")
	}
	for _, text := range slices.Concat([]string{c.Dir}, c.Args, c.Env) {
		if strings.ContainsRune(text, 0) {
			return nil, errors.New("the command, its directory or its environment contains a NUL character")
		}
	}
	// Checked here because the failure of the child's chdir looks like that of its exec.
	if c.Dir != "" {
		if info, err := os.Stat(c.Dir); err != nil {
			return nil, fmt.Errorf("working directory: %w", err)
		} else if !info.IsDir() {
			return nil, fmt.Errorf("working directory: %s is not a directory", c.Dir)
		}
	}
	path, err := lookUp(c.Args[0], c.Env)
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{
		Path: path, Args: c.Args, Dir: c.Dir,
		Env:    append([]string{}, c.Env...), // nil would be the daemon's
		Stdout: c.Stdout, Stderr: c.Stderr,
		SysProcAttr: attributes(),
		WaitDelay:   DrainTime,
	}
	if c.Stdin != "" {
		cmd.Stdin = strings.NewReader(c.Stdin)
	}
	return cmd, nil
}

// child is a command that was started.
type child struct {
	*exec.Cmd
	ended chan struct{} // closed when the command has ended
	reap  func() error  // waits for its output too; the error is Wait's. It is set when the command has ended
}

func start(cmd *exec.Cmd) (*child, error) {
	c := &child{Cmd: cmd, ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The child is killed when this thread ends. See the package's comment.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			c.reap = awaitEnd(cmd)
			close(c.ended)
		}
	}()
	return c, <-started
}

// explain says why the program at path did not start.
func (c *Command) explain(path string, err error) *StartError {
	name := c.Args[0]
	var e *os.PathError
	if errors.As(err, &e) {
		err = e.Err // the operation is "fork/exec", which tells a user nothing
	}
	if transient(err) {
		return &StartError{fmt.Errorf("%s could not be started: %w", name, err), false}
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		if !filepath.IsAbs(path) {
			path = filepath.Join(c.Dir, path)
		}
		if _, statErr := os.Stat(path); statErr == nil {
			err = fmt.Errorf("%s: the interpreter named in its first line does not exist", name)
		} else {
			err = fmt.Errorf("%s: there is no such program", name)
		}
	case errors.Is(err, os.ErrPermission):
		err = fmt.Errorf("%s is not executable (permission denied)", name)
	case isNoProgram(err):
		err = fmt.Errorf("%s is not a program for this machine; a script needs a first line such as #!/bin/sh", name)
	default:
		err = fmt.Errorf("%s could not be started: %w", name, err)
	}
	return &StartError{err, true}
}
