package flow

import "errors"

// Refusals of Apply.
var (
	ErrRunning    = errors.New("the flow is running")
	ErrTripped    = errors.New("the flow has tripped")
	ErrNotRunning = errors.New("the flow is not running")
)

// EventKind is what happens to a flow.
type EventKind uint8

// The events.
const (
	Tick    EventKind = iota + 1 // a fire time came
	Trigger                      // somebody asks for a run
	Ended                        // the run on its way ended
	Reset                        // somebody clears failures
	Pause                        // somebody pauses the flow
	Resume                       // somebody ends the pause
	Skip                         // a fire time passed without a chance to run
)

// Event is something that happens to a flow at an instant.
type Event struct {
	Kind     EventKind
	Now      Instant
	FireTime Instant    // Tick: the fire time
	CatchUp  bool       // Tick: the fire time had been missed
	Outcome  Outcome    // Ended
	Error    string     // Ended: what went wrong
	Random   float64    // Ended: in [-1, 1], for the backoff's jitter
	Reason   SkipReason // Skip
	Count    uint64     // Skip: how many fire times
}

// Effect is what the caller has to do.
type Effect uint8

// The effects.
const (
	Nothing Effect = iota
	Start          // start run number State.RunCount
	Skipped        // a fire time was counted as skipped
	Wake           // compute the next fire time anew
)

// Apply is the status table: the state after an event, and what has to be done. On an error the state is unchanged.
func Apply(s State, p Policy, e Event) (State, Effect, error) {
	switch e.Kind {
	case Tick:
		if reason := s.skips(p, e.Now); reason != 0 {
			s.Skipped[reason]++
			return s, Skipped, nil
		}
		cause := BySchedule
		if e.CatchUp {
			cause = ByCatchUp
		}
		return s.start(cause, e.FireTime, e.Now), Start, nil
	case Trigger:
		switch s.Status {
		case Running:
			return s, Nothing, ErrRunning
		case Tripped:
			return s, Nothing, ErrTripped
		}
		return s.start(ByTrigger, 0, e.Now), Start, nil
	case Ended:
		if s.Status != Running {
			return s, Nothing, ErrNotRunning
		}
		return s.end(p, e), Wake, nil
	case Reset:
		s.Streak, s.NextEligible, s.LastError = 0, 0, ""
		if s.Status == Running {
			s.Before = Idle
		} else {
			s.Status = Idle
		}
		return s, Wake, nil
	case Pause:
		s.Paused = true
		return s, Nothing, nil
	case Resume:
		s.Paused = false
		return s, Wake, nil
	case Skip:
		s.Skipped[e.Reason] += e.Count
		return s, Skipped, nil
	}
	panic("flow: unknown event kind")
}

// skips is the reason why a tick now does not become a run; 0 if it does.
func (s *State) skips(p Policy, now Instant) SkipReason {
	switch {
	case s.Paused:
		return SkipPaused
	case s.Status == Running:
		return SkipOverlap
	case s.Status == Tripped && !(p.RetryAfterTrip > 0 && s.NextEligible != 0 && now >= s.NextEligible):
		return SkipTripped
	case s.Status == Backoff && now < s.NextEligible:
		return SkipBackoff
	}
	return 0
}

func (s State) start(cause Cause, fireTime, now Instant) State {
	s.Before = s.Status
	if s.Before == Completed {
		s.Before = Idle
	}
	s.Status = Running
	s.RunCount++
	s.LastRun = now
	s.Cause, s.FireTime = cause, fireTime
	return s
}

func (s State) end(p Policy, e Event) State {
	s.LastFinish = e.Now
	s.LastDuration = max(e.Now.Sub(s.LastRun), 0)
	s.LastOutcome = e.Outcome
	s.Cause, s.FireTime = 0, 0
	before := s.Before
	s.Before = 0
	switch e.Outcome {
	case Succeeded:
		s.Status, s.Streak, s.NextEligible, s.LastError = Completed, 0, 0, ""
	case Cancelled:
		s.Status = before
	default:
		if s.Streak < ^uint32(0) {
			s.Streak++
		}
		s.LastError = e.Error
		if p.TripAfter > 0 && s.Streak >= p.TripAfter {
			s.Status, s.NextEligible = Tripped, 0
			if p.RetryAfterTrip > 0 {
				s.NextEligible = e.Now.Add(p.RetryAfterTrip)
			}
		} else {
			s.Status, s.NextEligible = Backoff, e.Now.Add(p.Delay(s.Streak, e.Random))
		}
	}
	return s
}

// Window reports whether the backoff window is open at now.
func (s *State) Window(now Instant) bool { return s.Status == Backoff && now < s.NextEligible }

// Eligible is the instant from which a tick can become a run: the end of the backoff window or of a tripped flow's wait before its
// probe, or 0 for at once. Never is reported for a tripped flow that waits for a reset.
func (s *State) Eligible() (at Instant, never bool) {
	switch s.Status {
	case Backoff:
		return s.NextEligible, false
	case Tripped:
		return s.NextEligible, s.NextEligible == 0
	}
	return 0, false
}
