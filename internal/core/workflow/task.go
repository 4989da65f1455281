package workflow

import (
	"context"
	"log/slog"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/resource"
)

// Task is what a state does. Run honours ctx: it returns soon after ctx is done.
//
// A Value, here and everywhere, is JSON-like: nil, bool, float64, string, []any or map[string]any.
type Task interface {
	Run(ctx context.Context, in *Invocation) (Result, error)
}

// TaskFunc is a function as a Task.
type TaskFunc func(ctx context.Context, in *Invocation) (Result, error)

// Run calls f.
func (f TaskFunc) Run(ctx context.Context, in *Invocation) (Result, error) { return f(ctx, in) }

// Result is what a task gives back.
type Result struct {
	Value  any    // the state's result
	Action string // for transitions and timer routes; empty: the field "action" of Value, if it is a string

	size int // of Value, once it was measured
}

// Identity says which run a task works for. It is the same for all tasks of a run.
type Identity struct {
	FlowID   string
	RunID    string
	Number   uint64    // the run's number in its flow
	Cause    string    // "schedule", "trigger" or "catch_up"
	FireTime time.Time // zero for a trigger
	Start    time.Time
	Instance string // id of the store the run is recorded in: makes idempotency keys unique
	Fencing  uint64 // grows whenever the right to run the flow moves
}

// Invocation is one attempt at one task.
type Invocation struct {
	*Identity
	State          string    // inside nested workflows and branches a path with '/'
	Attempt        int       // from 1
	IdempotencyKey string    // the same for every attempt at the same work, also after a crash
	Entered        time.Time // when the state was entered; survives a restart
	Scope          *Scope    // what expressions see
	Resources      *resource.Set
	Log            *slog.Logger // carries flow, run and state
	Output         Output       // where the task's output goes
	Progress       func(message string, fraction float64)
}

// Scope is what expressions see. Its values are not changed after it was handed out.
type Scope struct {
	Identity *Identity
	Params   map[string]any
	Results  map[string]any // results of the states before, by name; those without a result are left out
	Result   any            // the last result of a state that had one; in actions, transitions and compensations: this state's
	Action   string         // in transitions: the task's action
	Item     any            // in a for_each branch: the item
	Index    int            // in a for_each branch: its index

	Resources *resource.Set // expressions see what its members tell of themselves
}

// Output takes what a task writes, line by line. Its methods are safe for concurrent use.
type Output interface {
	// Line takes one line without its end.
	Line(state string, attempt int, stderr bool, text string)
}

// Error is a task's failure with what the retry policy needs to know.
type Error struct {
	Err        error
	Class      string        // such as "exit:75", "http:503", "grpc:UNAVAILABLE", "timeout", "panic"; empty: "error"
	Permanent  bool          // never retried
	RetryAfter time.Duration // wait at least this long before a retry
}

// Error gives the message of the wrapped error.
func (e *Error) Error() string {
	if e.Err == nil {
		return "failed with " + e.Class
	}
	return e.Err.Error()
}

// Unwrap gives the wrapped error.
func (e *Error) Unwrap() error { return e.Err }
