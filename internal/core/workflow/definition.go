package workflow

import (
	"time"

	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/schedule"
)

// Workflow is a finite-state machine: states, each with its work and transitions, and exits. Once it is valid
// (see Validate) it is not changed any more; any number of runs may share it.
type Workflow struct {
	Initial        string
	States         map[string]*State
	Exits          map[string]*Exit
	MaxTransitions int // bound on the states one run enters; 0: DefaultMaxTransitions
}

// State does its work; then its transitions choose the next state or exit.
type State struct {
	Work        Work         // a *Step, *Split, *Timer, *TimerWorkflow, *Nested or *FlowCall
	Next        string       // the next state or exit, if Transitions is empty
	Transitions []Transition // tried in order
	Compensate  *Step        // undoes the state's effect if the run fails later; nil: nothing to undo
}

// Work is what a state does.
type Work interface{ work() }

func (*Step) work()          {}
func (*Split) work()         {}
func (*Timer) work()         {}
func (*TimerWorkflow) work() {}
func (*Nested) work()        {}
func (*FlowCall) work()      {}

// Transition is a conditional step to a state or exit.
type Transition struct {
	When func(*Scope) (bool, error) // nil: the default, allowed last only
	Next string
}

// Exit ends a run.
type Exit struct {
	Failure func(*Scope) (string, error) // gives the message of a failure; nil: success
}

// Step is a task and how it is attempted.
type Step struct {
	Task    Task
	Retry   *Retry                       // nil: DefaultRetry
	Timeout time.Duration                // of one attempt; 0: none
	Target  string                       // resource whose guard, if it has one, admits each attempt; empty: none
	Action  func(*Scope) (string, error) // sees the result; nil: the action the task gave
}

// Retry says how often and how soon a failed attempt is repeated. The zero value makes one attempt.
//
// The delay before retry k is min(Initial * Multiplier^(k-1), MaxDelay), times 1 + Jitter * U[-1,1], clamped to [0, MaxDelay] again.
type Retry struct {
	Retries    int // after the first attempt
	Initial    time.Duration
	Multiplier float64
	MaxDelay   time.Duration
	Jitter     float64
	On         []string // error classes that are retried; if set, no other is; see Error.Class
	NotOn      []string // error classes that are never retried
}

// DefaultRetry is how a step that says nothing is retried. It must not be changed.
var DefaultRetry = Retry{Retries: 3, Initial: 100 * time.Millisecond, Multiplier: 2, MaxDelay: 30 * time.Second, Jitter: 0.1}

// FixedRetry waits the same time before each retry.
func FixedRetry(retries int, delay time.Duration) Retry {
	return Retry{Retries: retries, Initial: delay, Multiplier: 1, MaxDelay: delay}
}

// Split runs branches at once and joins them. Its result is the list of the branches' ends in branch order: objects with
// "branch", "succeeded", "cancelled", "result" and "error".
type Split struct {
	Branches []Branch // set Branches or ForEach
	ForEach  *ForEach
	Join     Join
	Bulkhead int // branches that run at once at most; 0: all
}

// Branch is one branch of a split.
type Branch struct {
	Name string // empty: its index. In a ForEach the index is appended: "city-3"
	Work Work   // a *Step, *Nested or *FlowCall
}

// ForEach makes a branch of each item of a list.
type ForEach struct {
	Items    func(*Scope) ([]any, error)
	Branch   Branch // its scope has Item and Index
	MaxItems int    // 0: DefaultMaxItems
}

// Join says when a split is decided.
type Join struct {
	Strategy Strategy
	N        int           // of JoinQuorum and JoinPartialResults
	Share    float64       // of JoinPercentage: in (0, 1], taken as the shortest decimal number that reads as it
	Timeout  time.Duration // of the whole split; 0: none
	WaitAll  bool          // let the rest run on after the decision
}

// Strategy is a kind of join.
type Strategy uint8

// The strategies.
const (
	JoinAll            Strategy = iota + 1 // every branch must succeed
	JoinAny                                // one success is enough
	JoinQuorum                             // N successes are enough
	JoinPercentage                         // a share of successes is enough
	JoinPartialResults                     // N successes are enough
	JoinPartialTimeout                     // whatever has ended at the timeout, at least one
)

// Schedule says when a timer is due: a *schedule.Schedule.
type Schedule interface {
	// Next gives the first fire time after an instant, or the zero time for never.
	Next(after time.Time, a schedule.Anchors) time.Time
	// Manual reports whether it is never due by itself, which a timer's must not be.
	Manual() bool
}

// Timer waits for its schedule's next fire time, then runs its step once. Anchors count from when its state was entered.
type Timer struct {
	Schedule  Schedule
	Step      *Step
	Immediate bool          // do not wait. In a TimerWorkflow: only when another timer, or the start, led to it
	Timeout   time.Duration // of wait and step together; 0: none
}

// TimerWorkflow is a set of named timers with one cursor: wait for the current timer, run its step, follow its action.
// The last action is the state's action, the last result its result.
type TimerWorkflow struct {
	Initial    string
	Timers     map[string]*TimerNode
	MaxFirings int // 0: DefaultMaxFirings
}

// TimerNode is one timer of a timer workflow.
type TimerNode struct {
	Timer      *Timer
	Routes     map[string]string // action -> timer
	Default    string            // where actions without a route lead; empty: they fail
	MaxRetries *int              // times ActionRetry may re-arm the timer in a row; nil: DefaultTimerRetries
	Backoff    *flow.Policy      // ActionRetry waits for this instead of the schedule; nil: the schedule
}

// Actions that every timer of a timer workflow understands without a route.
const (
	ActionComplete = "complete" // ends the timer workflow
	ActionRetry    = "retry"    // arms the same timer again
)

// Nested runs a workflow inside a state or branch. It sees the params around it with its own laid over them, but not the
// results around it. Its action is the name of the exit it reached, its result the last result.
type Nested struct {
	Workflow *Workflow
	Params   func(*Scope) (map[string]any, error) // nil: none of its own
	Timeout  time.Duration                        // of the nested run; 0: none
}

// FlowCall runs the workflow of another flow inside a state or branch, with that flow's params and resources. See Run.Flows.
type FlowCall struct {
	FlowID  string
	Params  func(*Scope) (map[string]any, error) // laid over the other flow's; nil: none
	Timeout time.Duration                        // of the nested run; 0: none
}

// Defaults and bounds.
const (
	DefaultMaxTransitions      = 10_000
	DefaultMaxFirings          = 10_000
	DefaultMaxItems            = 10_000
	DefaultTimerRetries        = 10
	DefaultCompensationTimeout = 30 * time.Second

	MaxDepth       = 16       // workflows inside workflows
	MaxResultBytes = 64 << 10 // of a task's result, as JSON
	MaxRunBytes    = 1 << 20  // of all results a run holds, as JSON
)
