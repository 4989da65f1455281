package workflow

import (
	"context"
	"log/slog"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/resource"
)

// Run is one execution of a workflow, as its scheduler sees it.
type Run struct {
	Identity            Identity
	Params              map[string]any
	Resume              *Checkpoint   // where to go on; nil: from the start. An empty one resumes a run that crashed in its first state
	Timeout             time.Duration // since Identity.Start; 0: none
	CompensationTimeout time.Duration // 0: DefaultCompensationTimeout
	Resources           *resource.Set
	Flows               func(id string) (*Callee, error) // finds what a FlowCall calls; nil: there are no other flows
	Log                 *slog.Logger                     // nil: none
	Output              Output                           // nil: none
	Journal             Journal                          // nil: none
}

// Callee is another flow as a FlowCall runs it.
type Callee struct {
	Workflow  *Workflow
	Params    map[string]any
	Resources *resource.Set
}

// Journal is what a run reports to. Its methods are called from the run's goroutines.
type Journal interface {
	// Checkpoint makes c durable and returns then. It is called when a state is entered, except for the first state of a fresh run,
	// whose start was recorded already, and for exits; when a timer is armed; and as a rollback goes on. The run changes nothing
	// that c refers to. If it fails, for any other reason than ctx, the run is lost.
	Checkpoint(ctx context.Context, c *Checkpoint) error
	// Event tells what happened. It does not block. A panic in it is logged, and the run goes on.
	Event(e Event)
}

// Outcome is how a run ended.
type Outcome uint8

// The outcomes of a run.
const (
	Succeeded Outcome = iota + 1
	Failed
	Cancelled
	TimedOut
	Lost
)

// End is how a run ended, with what.
type End struct {
	Outcome Outcome
	Exit    string // the exit reached
	State   string // the last state entered
	Result  any    // the last result
	Err     error  // why it failed
}

// Checkpoint is where a run stands: enough to go on after a crash. It is a plain value that can be stored.
type Checkpoint struct {
	State         string         // the state entered
	Transitions   int            // states entered so far
	Entered       time.Time      // when
	Deadline      time.Time      // of the armed timer; zero: none
	Retries       int            // of the current timer, in a row
	Results       map[string]any // by state
	Result        any            // of the state before
	Compensations []Compensation // oldest first
	Rollback      *Rollback      // set once compensation has begun
	Inner         *Checkpoint    // of a nested workflow or timer workflow in this state
}

// Compensation is a completed state that can be undone: by its compensate task or, if it has none, by undoing the nested
// workflows that completed in it.
type Compensation struct {
	State  string
	Visit  int // Transitions when it was entered
	Result any
	Inner  []Frame // oldest first; empty: the state's own compensate task
}

// Frame is a nested workflow that has completed in a state or branch and can be undone.
type Frame struct {
	Branch        int // index of the branch, if the state is a split
	Params        map[string]any
	Results       map[string]any
	Item          any // of the for_each around it
	Index         int
	Compensations []Compensation // oldest first, never empty
}

// Rollback is how a run whose compensation has begun will end. Such a run is resumed with the compensations that are left,
// never with its states.
type Rollback struct {
	Outcome Outcome
	Exit    string
	Err     string
	Undone  []string // compensations that failed: state and cause
}

// EventType is what happened in a run.
type EventType uint8

// The events of a run.
const (
	StateEntered EventType = iota + 1
	AttemptStarted
	AttemptSucceeded
	AttemptFailed
	AttemptCancelled
	RetryScheduled
	TimerArmed
	TimerFired
	SplitDecided
	Compensated
	CompensationFailed
	Resumed
	Progress
)

// Event is something that happened in a run.
type Event struct {
	Time     time.Time
	Type     EventType
	State    string
	Attempt  int
	Err      string
	Detail   string
	Duration time.Duration
}
