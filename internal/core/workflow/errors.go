package workflow

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"
)

// ErrLost is the cause to cancel a run's context with when another process has taken the run over, or is about to: the run stops
// where it is and compensates nothing, since its next owner goes on with it. Its outcome is Lost.
var ErrLost = errors.New("the run has been taken over")

// StateError is the failure of a state.
type StateError struct {
	State    string // a path inside nested workflows and branches
	Attempts int    // made
	Err      error
}

func (e *StateError) Error() string {
	if e.Attempts > 1 {
		return fmt.Sprintf("state %q: after %d attempts: %v", e.State, e.Attempts, e.Err)
	}
	return fmt.Sprintf("state %q: %v", e.State, e.Err)
}

// Unwrap gives the cause.
func (e *StateError) Unwrap() error { return e.Err }

// RollbackError says that compensations failed and what they left undone. A run with this error has failed, whatever began
// the rollback.
type RollbackError struct {
	Cause  error    // what began the rollback
	Undone []string // states and why
}

func (e *RollbackError) Error() string {
	return fmt.Sprintf("rollback failed and left undone: %s; it began because: %v", strings.Join(e.Undone, "; "), e.Cause)
}

// Unwrap gives what began the rollback.
func (e *RollbackError) Unwrap() error { return e.Cause }

// stopped is an end other than a failure, on its way out of a nested workflow.
type stopped struct {
	outcome Outcome
	err     error
}

func (s *stopped) Error() string { return s.err.Error() }
func (s *stopped) Unwrap() error { return s.err }

// timeoutError is the cause of contexts that end when something took too long.
type timeoutError struct {
	what  string
	limit time.Duration
}

func (e *timeoutError) Error() string {
	return fmt.Sprintf("%s took longer than its timeout of %v", e.what, e.limit)
}

// Failures of a task by class that this package itself makes.
const (
	classTimeout = "timeout"
	classPanic   = "panic"
)

// recovered is a panic as an error. Its stack goes to the log, since it says nothing to the user of a flow.
func recovered(log *slog.Logger, what string, p any) *Error {
	log.Error("panic in "+what, "panic", p, "stack", string(debug.Stack()))
	return &Error{Err: fmt.Errorf("panic in %s: %v", what, p), Class: classPanic}
}

// evaluate calls an expression, whose panic is an error.
func evaluate[T any](m *machine, f func(*Scope) (T, error), s *Scope) (value T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = recovered(m.log, "an expression", p)
		}
	}()
	return f(s)
}
