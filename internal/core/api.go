package core

import (
	"errors"
	"fmt"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

// Errors are values with a kind: test them with errors.Is. Where a flow or a run is concerned, a *FlowError carries it.
var (
	ErrFlowNotFound = errors.New("no such flow")
	ErrRunNotFound  = errors.New("no such run, or it is no longer kept")
	ErrFlowRunning  = flow.ErrRunning
	ErrFlowTripped  = flow.ErrTripped
	ErrStopping     = errors.New("the scheduler is stopping")
	ErrNotReady     = errors.New("the scheduler is not ready yet")
	ErrLimit        = errors.New("the limit of concurrent runs is reached")
	ErrConflict     = errors.New("it does not match what was seen before")
	ErrCompacted    = errors.New("the revision to resume from is no longer held")
	ErrInvalid      = errors.New("invalid")
	ErrStore        = errors.New("the store could not record the change")
	ErrStarted      = errors.New("the scheduler was started before")
)

// FlowError is an error about a flow, with what its user needs to act.
type FlowError struct {
	Err  error // one of the errors above, or wrapping one
	Flow string
	Run  string // id of the run concerned; may be empty
	Info *Info  // the flow's state when it was refused; may be nil
}

func (e *FlowError) Error() string {
	switch {
	case errors.Is(e.Err, ErrFlowRunning) && e.Run != "":
		return fmt.Sprintf("flow %q is running (run %s): wait for its end or cancel it", e.Flow, e.Run)
	case errors.Is(e.Err, ErrFlowTripped) && e.Info != nil:
		return fmt.Sprintf("flow %q has tripped after %d failures in a row: reset it first", e.Flow, e.Info.Streak)
	case e.Run != "":
		return fmt.Sprintf("run %q: %v", e.Run, e.Err)
	}
	return fmt.Sprintf("flow %q: %v", e.Flow, e.Err)
}

// Unwrap gives the kind.
func (e *FlowError) Unwrap() error { return e.Err }

// Info is a flow's state at a revision. It is never changed after it was handed out.
type Info struct {
	Flow *Definition
	flow.State
	NextFire      flow.Instant // nominal; none: never due by itself
	Run           *Current     // the run on its way
	Revision      uint64       // the commit that made it
	ScheduleError string       // why no further fire time could be computed
	Anchor        flow.Instant // where the grid of an every schedule starts
	Deleted       bool

	resources *resource.Set
}

// Current is a run on its way.
type Current struct {
	ID         string
	Number     uint64
	Cause      flow.Cause
	FireTime   flow.Instant
	Start      flow.Instant
	State      string
	StateTime  flow.Instant
	Attempt    int
	Cancelling bool
	Resumed    int
}

// Run is one execution, on its way or kept.
type Run struct {
	ID            string
	FlowID        string
	Number        uint64
	Cause         flow.Cause
	FireTime      flow.Instant
	Start         flow.Instant
	End           flow.Instant // none: on its way
	Outcome       flow.Outcome
	Error         string
	Exit          string
	State         string
	Params        map[string]any
	Result        any
	Events        []workflow.Event
	EventsDropped uint64
	Resumed       int
}

// TriggerRequest asks for a run.
type TriggerRequest struct {
	FlowID      string
	Params      map[string]any
	RequestID   string // empty: none
	WaitForSlot bool
}

// Filter selects flows; conditions that are set must all hold.
type Filter struct {
	IDs      []string
	Labels   map[string]string // an empty value matches any
	Statuses []flow.Status
}

// ListOptions select a page of flows, in order of id.
type ListOptions struct {
	After  string // id of the last flow of the page before
	Limit  int
	Filter Filter
}

// RunListOptions select a page of a flow's runs, newest first.
type RunListOptions struct {
	Before   uint64 // number of the last run of the page before; 0: from the newest
	Limit    int
	Outcomes []flow.Outcome
}

// WatchOptions select what a watch shows.
type WatchOptions struct {
	Filter      Filter
	From        uint64        // revision to resume after; 0: begin with the present states
	Instance    string        // the instance From belongs to
	MinInterval time.Duration // least time between two batches
}

// ChangeType is a kind of change.
type ChangeType uint8

// The kinds of change.
const (
	Snapshot ChangeType = iota + 1
	Updated
	Left
	Deleted
)

// Change is a change of one flow's state.
type Change struct {
	Type   ChangeType
	Info   *Info
	Merged uint32 // older changes merged into this one
}

// Batch is changes a watcher has not seen, or none: then it is a bookmark.
type Batch struct {
	Changes         []Change
	Revision        uint64 // to resume after this batch
	InitialComplete bool   // once: all present states have been shown
	Ending          bool   // the scheduler stops; nothing follows
}

// StopResult tells how a stop went.
type StopResult struct {
	CancelledRuns  []string // had to be cancelled
	UnfinishedRuns []string // did not even end after that
	TeardownErrors []error
	Duration       time.Duration
}

// ApplyRequest says which definitions shall be.
type ApplyRequest struct {
	Flows     []*Flow
	Prune     bool   // remove flows of the same origin that are not among Flows
	Origin    Origin // of the flows
	DryRun    bool
	ETag      string // of the definitions the caller has seen; empty: whatever they are
	RequestID string
}

// DefinitionChangeType is what happens to a definition.
type DefinitionChangeType uint8

// What happens.
const (
	Added DefinitionChangeType = iota + 1
	Modified
	Removed
	Unchanged
)

// DefinitionChange is a change of one definition. Old is nil for an added one, New for a removed one.
type DefinitionChange struct {
	FlowID   string
	Type     DefinitionChangeType
	Old, New *Definition
}

// ApplyResult tells what changed, or would.
type ApplyResult struct {
	Changes  []DefinitionChange
	ETag     string
	Revision uint64
}

// ServerInfo tells about the scheduler.
type ServerInfo struct {
	Instance          string
	Store             string
	Start             time.Time
	Flows             int
	Running           int
	MaxConcurrentRuns int
	Revision          uint64
	Ready             bool
	NotReady          string        // why
	OldestDue         time.Duration // age of the oldest due fire time that neither ran nor was counted
}
