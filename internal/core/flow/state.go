package flow

import (
	"math"
	"time"
)

// Instant is a wall-clock time in nanoseconds since the Unix epoch; 0 is none. A third of a time.Time, since there is one or more of
// them for each of a million flows.
type Instant int64

// At is t as an Instant; the zero time is none.
func At(t time.Time) Instant {
	if t.IsZero() {
		return 0
	}
	return Instant(t.UnixNano())
}

// Time is the instant as a time in UTC; none is the zero time.
func (i Instant) Time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(i)).UTC()
}

// Add is i + d, or the last instant there is.
func (i Instant) Add(d time.Duration) Instant {
	sum := i + Instant(d)
	if d > 0 && sum < i {
		return math.MaxInt64
	}
	return sum
}

// Sub is i - o.
func (i Instant) Sub(o Instant) time.Duration { return time.Duration(i - o) }

// Status is where a flow stands.
type Status uint8

// The statuses. Paused is a flag beside them.
const (
	Idle Status = iota + 1
	Running
	Completed
	Backoff
	Tripped
)

var statusNames = [...]string{"UNKNOWN", "IDLE", "RUNNING", "COMPLETED", "BACKOFF", "TRIPPED"}

func (s Status) String() string { return name(statusNames[:], int(s)) }

// Outcome is how a run ended.
type Outcome uint8

// The outcomes.
const (
	Succeeded Outcome = iota + 1
	Failed
	Cancelled
	TimedOut
	Lost
)

var outcomeNames = [...]string{"NONE", "SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT", "LOST"}

func (o Outcome) String() string { return name(outcomeNames[:], int(o)) }

// Cause is why a run was started.
type Cause uint8

// The causes.
const (
	BySchedule Cause = iota + 1
	ByTrigger
	ByCatchUp
)

var causeNames = [...]string{"unknown", "schedule", "trigger", "catch_up"}

func (c Cause) String() string { return name(causeNames[:], int(c)) }

// SkipReason is why a fire time did not become a run.
type SkipReason uint8

// The reasons.
const (
	SkipOverlap SkipReason = iota + 1
	SkipBackoff
	SkipTripped
	SkipPaused
	SkipOutage
	SkipStopping
	SkipLimit

	// SkipReasons is one more than the largest reason.
	SkipReasons
)

var skipNames = [...]string{"NONE", "OVERLAP", "BACKOFF", "TRIPPED", "PAUSED", "OUTAGE", "STOPPING", "LIMIT"}

func (r SkipReason) String() string { return name(skipNames[:], int(r)) }

func name(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return names[0]
}

// State is what is remembered of a flow between events. It is a plain value: copy it freely.
type State struct {
	Status Status
	Before Status // while RUNNING: where a cancel returns to
	Paused bool

	RunCount     uint64        // runs started
	LastRun      Instant       // start of the last run
	LastFinish   Instant       // end of the last ended run
	LastDuration time.Duration // of the last ended run
	LastOutcome  Outcome       // of the last ended run
	LastError    string        // the last failure, until the next success or reset
	Streak       uint32        // consecutive failed runs
	NextEligible Instant       // end of the backoff window, or of the wait before a tripped flow's probe

	Cause    Cause   // of the run on its way
	FireTime Instant // it runs for; none for a trigger

	Skipped [SkipReasons]uint64 // fire times that did not become runs, by reason
}
