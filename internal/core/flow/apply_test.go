package flow

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The instants of the table: a flow has a history, the backoff windows lie around now.
const (
	before = Instant(1_000_000_000_000)
	now    = before + Instant(time.Hour)
	past   = now - 1
	later  = now + Instant(time.Minute)
	fire   = now - Instant(time.Second)
)

// table is what every event does in every state of a flow, for a policy that trips at the third failure. The rows say where the flow
// stands, with its failures in a row; "-" is a change of nothing else than what the legend below says.
const table = `
                    tick      catch-up  trigger   success   failure   timed-out lost      cancelled reset     pause     resume    skip
IDLE-0              run       run       run       idle!     idle!     idle!     idle!     idle!     clear     pause     resume    skip
IDLE-2              run       run       run       idle!     idle!     idle!     idle!     idle!     clear     pause     resume    skip
COMPLETED-0         run       run       run       idle!     idle!     idle!     idle!     idle!     clear     pause     resume    skip
BACKOFF-2-open      BACKOFF   BACKOFF   run       idle!     idle!     idle!     idle!     idle!     clear     pause     resume    skip
BACKOFF-2-ends-now  run       run       run       idle!     idle!     idle!     idle!     idle!     clear     pause     resume    skip
BACKOFF-2-over      run       run       run       idle!     idle!     idle!     idle!     idle!     clear     pause     resume    skip
TRIPPED-3           TRIPPED   TRIPPED   tripped!  idle!     idle!     idle!     idle!     idle!     clear     pause     resume    skip
TRIPPED-3-waits     TRIPPED   TRIPPED   tripped!  idle!     idle!     idle!     idle!     idle!     clear     pause     resume    skip
TRIPPED-3-probe     run       run       tripped!  idle!     idle!     idle!     idle!     idle!     clear     pause     resume    skip
RUNNING-0           OVERLAP   OVERLAP   running!  done      backoff   backoff   backoff   IDLE      clear     pause     resume    skip
RUNNING-1           OVERLAP   OVERLAP   running!  done      backoff   backoff   backoff   IDLE      clear     pause     resume    skip
RUNNING-2-BACKOFF   OVERLAP   OVERLAP   running!  done      trip      trip      trip      BACKOFF   clear     pause     resume    skip
RUNNING-3-TRIPPED   OVERLAP   OVERLAP   running!  done      trip      trip      trip      TRIPPED   clear     pause     resume    skip
RUNNING-max         OVERLAP   OVERLAP   running!  done      trip      trip      trip      IDLE      clear     pause     resume    skip
IDLE-0-paused       PAUSED    PAUSED    run       idle!     idle!     idle!     idle!     idle!     clear     pause     resume    skip
IDLE-2-paused       PAUSED    PAUSED    run       idle!     idle!     idle!     idle!     idle!     clear     pause     resume    skip
COMPLETED-0-paused  PAUSED    PAUSED    run       idle!     idle!     idle!     idle!     idle!     clear     pause     resume    skip
BACKOFF-2-open-paused      PAUSED    PAUSED    run       idle!     idle!     idle!     idle!     idle!     clear     pause     resume    skip
BACKOFF-2-ends-now-paused  PAUSED    PAUSED    run       idle!     idle!     idle!     idle!     idle!     clear     pause     resume    skip
BACKOFF-2-over-paused      PAUSED    PAUSED    run       idle!     idle!     idle!     idle!     idle!     clear     pause     resume    skip
TRIPPED-3-paused           PAUSED    PAUSED    tripped!  idle!     idle!     idle!     idle!     idle!     clear     pause     resume    skip
TRIPPED-3-waits-paused     PAUSED    PAUSED    tripped!  idle!     idle!     idle!     idle!     idle!     clear     pause     resume    skip
TRIPPED-3-probe-paused     PAUSED    PAUSED    tripped!  idle!     idle!     idle!     idle!     idle!     clear     pause     resume    skip
RUNNING-0-paused           PAUSED    PAUSED    running!  done      backoff   backoff   backoff   IDLE      clear     pause     resume    skip
RUNNING-1-paused           PAUSED    PAUSED    running!  done      backoff   backoff   backoff   IDLE      clear     pause     resume    skip
RUNNING-2-BACKOFF-paused   PAUSED    PAUSED    running!  done      trip      trip      trip      BACKOFF   clear     pause     resume    skip
RUNNING-3-TRIPPED-paused   PAUSED    PAUSED    running!  done      trip      trip      trip      TRIPPED   clear     pause     resume    skip
RUNNING-max-paused         PAUSED    PAUSED    running!  done      trip      trip      trip      IDLE      clear     pause     resume    skip
`

var rows = map[string]State{
	"IDLE-0":             {Status: Idle},
	"IDLE-2":             {Status: Idle, Streak: 2, LastError: "old"}, // a run cancelled after failures that a reset had not cleared
	"COMPLETED-0":        {Status: Completed, LastOutcome: Succeeded},
	"BACKOFF-2-open":     {Status: Backoff, Streak: 2, NextEligible: later, LastError: "old", LastOutcome: Failed},
	"BACKOFF-2-ends-now": {Status: Backoff, Streak: 2, NextEligible: now, LastError: "old", LastOutcome: Failed},
	"BACKOFF-2-over":     {Status: Backoff, Streak: 2, NextEligible: past, LastError: "old", LastOutcome: Failed},
	"TRIPPED-3":          {Status: Tripped, Streak: 3, LastError: "old", LastOutcome: Failed},
	"TRIPPED-3-waits":    {Status: Tripped, Streak: 3, NextEligible: later, LastError: "old", LastOutcome: Failed},
	"TRIPPED-3-probe":    {Status: Tripped, Streak: 3, NextEligible: past, LastError: "old", LastOutcome: Failed},
	"RUNNING-0":          {Status: Running, Before: Idle, Cause: BySchedule, FireTime: fire},
	"RUNNING-1":          {Status: Running, Before: Idle, Streak: 1, LastError: "old", Cause: ByTrigger},
	"RUNNING-2-BACKOFF":  {Status: Running, Before: Backoff, Streak: 2, NextEligible: later, LastError: "old", Cause: ByTrigger},
	"RUNNING-3-TRIPPED":  {Status: Running, Before: Tripped, Streak: 3, NextEligible: past, LastError: "old", Cause: BySchedule, FireTime: fire},
	"RUNNING-max":        {Status: Running, Before: Idle, Streak: ^uint32(0), LastError: "old", Cause: ByTrigger},
}

var columns = map[string]Event{
	"tick":      {Kind: Tick, FireTime: fire},
	"catch-up":  {Kind: Tick, FireTime: fire, CatchUp: true},
	"trigger":   {Kind: Trigger},
	"success":   {Kind: Ended, Outcome: Succeeded},
	"failure":   {Kind: Ended, Outcome: Failed, Error: "new"},
	"timed-out": {Kind: Ended, Outcome: TimedOut, Error: "new"},
	"lost":      {Kind: Ended, Outcome: Lost, Error: "new"},
	"cancelled": {Kind: Ended, Outcome: Cancelled, Error: "new"},
	"reset":     {Kind: Reset},
	"pause":     {Kind: Pause},
	"resume":    {Kind: Resume},
	"skip":      {Kind: Skip, Reason: SkipOutage, Count: 5},
}

// legend says what the words of the table mean: the state wanted after event e in state s, the effect and the error.
var legend = map[string]func(s State, e Event) (State, Effect, error){
	"run": func(s State, e Event) (State, Effect, error) {
		s.Before = s.Status
		if s.Status == Completed {
			s.Before = Idle
		}
		s.Status, s.RunCount, s.LastRun = Running, 8, now
		s.Cause, s.FireTime = BySchedule, fire
		if e.CatchUp {
			s.Cause = ByCatchUp
		}
		if e.Kind == Trigger {
			s.Cause, s.FireTime = ByTrigger, 0
		}
		return s, Start, nil
	},
	"running!": func(s State, _ Event) (State, Effect, error) { return s, Nothing, ErrRunning },
	"tripped!": func(s State, _ Event) (State, Effect, error) { return s, Nothing, ErrTripped },
	"idle!":    func(s State, _ Event) (State, Effect, error) { return s, Nothing, ErrNotRunning },
	"OVERLAP":  skipped(SkipOverlap, 1),
	"BACKOFF":  skippedOrCancelled(SkipBackoff, Backoff),
	"TRIPPED":  skippedOrCancelled(SkipTripped, Tripped),
	"PAUSED":   skipped(SkipPaused, 1),
	"skip":     skipped(SkipOutage, 5),
	"IDLE":     cancelled(Idle),
	"done": func(s State, e Event) (State, Effect, error) {
		s = ended(s, e)
		s.Status, s.Streak, s.NextEligible, s.LastError = Completed, 0, 0, ""
		return s, Wake, nil
	},
	"backoff": func(s State, e Event) (State, Effect, error) {
		s = ended(s, e)
		s.Status, s.LastError = Backoff, "new"
		s.Streak++
		s.NextEligible = now + Instant(time.Second) // the first failure
		if s.Streak == 2 {
			s.NextEligible = now + Instant(3*time.Second)
		}
		return s, Wake, nil
	},
	"trip": func(s State, e Event) (State, Effect, error) {
		s = ended(s, e)
		s.Status, s.LastError, s.NextEligible = Tripped, "new", 0
		if s.Streak < ^uint32(0) {
			s.Streak++
		}
		return s, Wake, nil
	},
	"clear": func(s State, _ Event) (State, Effect, error) {
		s.Streak, s.NextEligible, s.LastError = 0, 0, ""
		if s.Status == Running {
			s.Before = Idle
		} else {
			s.Status = Idle
		}
		return s, Wake, nil
	},
	"pause": func(s State, _ Event) (State, Effect, error) {
		s.Paused = true
		return s, Nothing, nil
	},
	"resume": func(s State, _ Event) (State, Effect, error) {
		s.Paused = false
		return s, Wake, nil
	},
}

func skipped(reason SkipReason, count uint64) func(State, Event) (State, Effect, error) {
	return func(s State, _ Event) (State, Effect, error) {
		s.Skipped[reason] += count
		return s, Skipped, nil
	}
}

// cancelled is the end of a run that returns to where the flow was before; streak, window and error stay.
func cancelled(to Status) func(State, Event) (State, Effect, error) {
	return func(s State, e Event) (State, Effect, error) {
		s = ended(s, e)
		s.Status = to
		return s, Wake, nil
	}
}

// skippedOrCancelled reads a word that names a reason in the columns of ticks, and a status in that of cancelled runs.
func skippedOrCancelled(reason SkipReason, to Status) func(State, Event) (State, Effect, error) {
	return func(s State, e Event) (State, Effect, error) {
		if e.Kind == Tick {
			return skipped(reason, 1)(s, e)
		}
		return cancelled(to)(s, e)
	}
}

func ended(s State, e Event) State {
	s.LastFinish, s.LastDuration, s.LastOutcome = now, time.Hour, e.Outcome
	s.Cause, s.FireTime, s.Before = 0, 0, 0
	return s
}

// Every event in every state, paused or not, does what the table says and nothing else.
func TestTable(t *testing.T) {
	policy := Policy{Initial: time.Second, Multiplier: 3, MaxDelay: time.Hour, TripAfter: 3}
	lines := strings.Split(strings.Trim(table, "\n"), "\n")
	names := strings.Fields(lines[0])
	seen := 0
	for _, line := range lines[1:] {
		words := strings.Fields(line)
		row, paused := strings.CutSuffix(words[0], "-paused")
		state, ok := rows[row]
		if !ok || len(words) != 1+len(names) || len(names) != len(columns) {
			t.Fatalf("the table is at fault in: %s", line)
		}
		state.Paused = paused
		state.RunCount, state.LastRun, state.LastFinish, state.LastDuration = 7, before, before+60, 60
		state.Skipped = [SkipReasons]uint64{0, 1, 2, 3, 4, 5, 6, 7}
		for i, word := range words[1:] {
			event := columns[names[i]]
			event.Now = now
			p := policy
			if strings.Contains(row, "probe") || strings.Contains(row, "waits") {
				p.RetryAfterTrip = time.Minute
			}
			want, effect, wantErr := legend[word](state, event)
			got, gotEffect, err := Apply(state, p, event)
			if got != want || gotEffect != effect || !errors.Is(err, wantErr) {
				t.Errorf("%s, %s: got  %+v, effect %d, %v\nwant %+v, effect %d, %v", words[0], names[i], got, gotEffect, err, want, effect, wantErr)
			}
			seen++
		}
	}
	if want := 2 * len(rows) * len(columns); seen != want {
		t.Errorf("the table has %d cells, want %d", seen, want)
	}
}

// The limit counts failures in a row: n trips on the n-th, 1 on the first, none never.
func TestTripLimit(t *testing.T) {
	for _, test := range []struct{ limit, streak, trips uint32 }{
		{0, 0, 0},
		{0, 99, 0},
		{0, ^uint32(0), 0},
		{1, 0, 1},
		{1, 5, 1},
		{3, 0, 0},
		{3, 1, 0},
		{3, 2, 1},
		{3, 98, 1},
		{^uint32(0), ^uint32(0) - 2, 0},
		{^uint32(0), ^uint32(0) - 1, 1},
		{^uint32(0), ^uint32(0), 1},
	} {
		policy := DefaultPolicy
		policy.TripAfter = test.limit
		s, _, err := Apply(State{Status: Running, Before: Idle, Streak: test.streak}, policy, Event{Kind: Ended, Outcome: Failed, Now: now})
		if got := s.Status == Tripped; err != nil || got != (test.trips == 1) {
			t.Errorf("limit %d, %d failures before this one: %v, %v", test.limit, test.streak, s.Status, err)
		}
		if s.Streak < test.streak {
			t.Errorf("the streak fell from %d to %d: it overflowed", test.streak, s.Streak)
		}
	}
}

// A tripped flow with a probe allowed is tried again after a while: success clears it, failure trips it again, a cancel leaves it.
func TestProbe(t *testing.T) {
	p := Policy{Initial: time.Second, Multiplier: 2, MaxDelay: time.Minute, TripAfter: 1, RetryAfterTrip: time.Minute}
	end := func(s State, o Outcome, at Instant) State {
		s, _, err := Apply(s, p, Event{Kind: Ended, Outcome: o, Now: at})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	tick := func(s State, at Instant) (State, Effect) {
		s, effect, err := Apply(s, p, Event{Kind: Tick, Now: at, FireTime: at})
		if err != nil {
			t.Fatal(err)
		}
		return s, effect
	}
	s, _ := tick(State{Status: Idle}, now)
	s = end(s, Failed, now)
	if at, never := s.Eligible(); s.Status != Tripped || at != now.Add(time.Minute) || never {
		t.Fatalf("tripped: %+v", s)
	}
	if _, effect := tick(s, now.Add(time.Minute-1)); effect != Skipped {
		t.Error("the probe came too early")
	}
	probing, effect := tick(s, now.Add(time.Minute))
	if effect != Start || probing.Status != Running {
		t.Fatal("no probe when it was due")
	}
	if again := end(probing, Failed, now.Add(2*time.Minute)); again.Status != Tripped || again.Streak != 2 || again.NextEligible != now.Add(3*time.Minute) {
		t.Errorf("after a failed probe: %+v", again)
	}
	if again := end(probing, Cancelled, later); again.Status != Tripped || again.Streak != 1 || again.NextEligible != now.Add(time.Minute) {
		t.Errorf("after a cancelled probe: %+v", again)
	}
	if done := end(probing, Succeeded, later); done.Status != Completed || done.Streak != 0 || done.NextEligible != 0 {
		t.Errorf("after a successful probe: %+v", done)
	}
}

// A reset while a run is on its way makes a failure of that run the first one.
func TestResetWhileRunning(t *testing.T) {
	p := Policy{Initial: time.Second, Multiplier: 2, MaxDelay: time.Minute, TripAfter: 4}
	s := State{Status: Running, Before: Backoff, Streak: 3, NextEligible: later, LastError: "old"}
	s, _, _ = Apply(s, p, Event{Kind: Reset, Now: now})
	failed, _, _ := Apply(s, p, Event{Kind: Ended, Outcome: Failed, Now: now})
	if failed.Status != Backoff || failed.Streak != 1 || failed.NextEligible != now.Add(time.Second) {
		t.Errorf("failed after the reset: %+v", failed)
	}
	back, _, _ := Apply(s, p, Event{Kind: Ended, Outcome: Cancelled, Now: now})
	if back.Status != Idle || back.Streak != 0 || back.NextEligible != 0 {
		t.Errorf("cancelled after the reset: %+v", back)
	}
}

// A clock that was set back while the run was on its way makes no negative duration.
func TestDurationIsNotNegative(t *testing.T) {
	s, _, _ := Apply(State{Status: Running, LastRun: later}, DefaultPolicy, Event{Kind: Ended, Outcome: Succeeded, Now: now})
	if s.LastDuration != 0 {
		t.Errorf("duration %v", s.LastDuration)
	}
}

func TestUnknownEventPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("an unknown event passed")
		}
	}()
	_, _, _ = Apply(State{Status: Idle}, DefaultPolicy, Event{})
}

func TestWindowAndEligible(t *testing.T) {
	for name, test := range map[string]struct {
		state  State
		window bool
		at     Instant
		never  bool
	}{
		"idle":      {State{Status: Idle}, false, 0, false},
		"completed": {State{Status: Completed}, false, 0, false},
		"running":   {State{Status: Running, NextEligible: later}, false, 0, false},
		"open":      {State{Status: Backoff, NextEligible: later}, true, later, false},
		"over":      {State{Status: Backoff, NextEligible: now}, false, now, false},
		"tripped":   {State{Status: Tripped}, false, 0, true},
		"probe":     {State{Status: Tripped, NextEligible: later}, false, later, false},
	} {
		at, never := test.state.Eligible()
		if test.state.Window(now) != test.window || at != test.at || never != test.never {
			t.Errorf("%s: window %v, eligible %d, never %v", name, test.state.Window(now), at, never)
		}
	}
}

func TestNames(t *testing.T) {
	for want, got := range map[string]string{
		"IDLE": Idle.String(), "TRIPPED": Tripped.String(), "UNKNOWN": Status(99).String(),
		"SUCCEEDED": Succeeded.String(), "LOST": Lost.String(), "NONE": Outcome(0).String(),
		"schedule": BySchedule.String(), "catch_up": ByCatchUp.String(), "unknown": Cause(77).String(),
		"OVERLAP": SkipOverlap.String(), "LIMIT": SkipLimit.String(),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if len(skipNames) != int(SkipReasons) {
		t.Error("a skip reason has no name")
	}
}

func TestInstant(t *testing.T) {
	if At(time.Time{}) != 0 || !Instant(0).Time().IsZero() {
		t.Error("none is not the zero time")
	}
	at := time.Date(2026, 3, 29, 2, 30, 0, 123456789, time.FixedZone("x", 3600))
	if got := At(at).Time(); !got.Equal(at) || got.Location() != time.UTC {
		t.Errorf("%v became %v", at, got)
	}
	if now.Add(time.Second).Sub(now) != time.Second || now.Add(-time.Second).Sub(now) != -time.Second {
		t.Error("Add and Sub disagree")
	}
	if got := now.Add(math.MaxInt64); got != math.MaxInt64 {
		t.Errorf("far beyond the last instant is %v", got)
	}
}

// Whatever happens in whatever order: a refusal changes nothing, a start is the only thing that counts a run, the streak is the number
// of failures since the last success or reset, and a flow has tripped exactly when that reached the limit.
func TestAnySequence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{
			Initial: time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "initial")), Multiplier: rapid.Float64Range(1, 10).Draw(t, "multiplier"),
			Jitter: rapid.Float64Range(0, 1).Draw(t, "jitter"), TripAfter: rapid.Uint32Range(0, 4).Draw(t, "trip after"),
		}
		p.MaxDelay = p.Initial + time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "above initial"))
		if rapid.Bool().Draw(t, "probe") {
			p.RetryAfterTrip = time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "retry after trip"))
		}
		s := State{Status: Idle}
		at := now
		var failures uint32 // in a row
		var runs uint64
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			at += Instant(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "pause"))
			e := Event{
				Kind: EventKind(rapid.IntRange(int(Tick), int(Skip)).Draw(t, "kind")), Now: at, FireTime: at - 1,
				Outcome: Outcome(rapid.IntRange(int(Succeeded), int(Lost)).Draw(t, "outcome")), Error: "e",
				Random: rapid.Float64Range(-1, 1).Draw(t, "random"), Reason: SkipOutage, Count: 1,
			}
			old := s
			next, effect, err := Apply(s, p, e)
			if err != nil && (next != old || effect != Nothing) {
				t.Fatalf("refused with %v, and yet %+v became %+v", err, old, next)
			}
			s = next
			if effect == Start {
				runs++
			}
			if s.RunCount != runs || (effect == Start) != (old.Status != Running && s.Status == Running) {
				t.Fatalf("%d runs counted, %d started", s.RunCount, runs)
			}
			if old.Status == Running && s.Status != Running && e.Kind != Ended || old.Status == Running && e.Kind == Ended && s.Status == Running {
				t.Fatalf("event %d led from RUNNING to %v", e.Kind, s.Status)
			}
			var counted uint64
			for reason := range SkipReasons {
				counted += s.Skipped[reason] - old.Skipped[reason]
			}
			if (counted == 1) != (effect == Skipped) || counted > 1 {
				t.Fatalf("effect %d counted %d", effect, counted)
			}
			switch {
			case err != nil:
			case e.Kind == Reset || e.Kind == Ended && e.Outcome == Succeeded:
				failures = 0
			case e.Kind == Ended && e.Outcome != Cancelled:
				failures++
			}
			if s.Streak != failures || (s.LastError != "") != (failures > 0) {
				t.Fatalf("streak %d with error %q after %d failures in a row", s.Streak, s.LastError, failures)
			}
			atLimit := p.TripAfter > 0 && failures >= p.TripAfter
			switch s.Status {
			case Tripped:
				if !atLimit || (s.NextEligible != 0) != (p.RetryAfterTrip > 0) {
					t.Fatalf("tripped after %d of %d failures, probe at %d", failures, p.TripAfter, s.NextEligible)
				}
			case Backoff:
				if atLimit || failures == 0 || err == nil && e.Kind == Ended && e.Outcome != Cancelled && s.NextEligible < at || s.NextEligible > at.Add(p.MaxDelay) {
					t.Fatalf("backoff after %d of %d failures until %d", failures, p.TripAfter, s.NextEligible)
				}
			case Completed:
				if failures != 0 || s.NextEligible != 0 {
					t.Fatalf("completed with %d failures in a row", failures)
				}
			}
			if (s.Before != 0) != (s.Status == Running) || (s.Cause != 0) != (s.Status == Running) {
				t.Fatalf("before %v, cause %v while %v", s.Before, s.Cause, s.Status)
			}
		}
	})
}
