package core

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/schedule"
)

// fireDue acts on the fire times that have come, up to a slice of them, and reports whether there are more.
func (e *engine) fireDue(now flow.Instant) (more bool) {
	for range slice {
		en := e.due.first()
		if en == nil || en.dueAt > now || e.halted != nil {
			return false
		}
		if e.full() {
			return false // the end of the commit wakes the loop
		}
		e.fired = now
		s := e.plan(en).Schedule
		switch {
		case s == nil:
			e.setDue(en, 0) // it is not understood any more
		case now.Sub(en.dueAt) > missedAfter:
			e.catchUp(en, now)
			e.nextBacklog(en, now)
		default:
			fire := en.nextFire
			e.tick(en, fire, now)
			e.schedule(en, fire)
			e.nextBacklog(en, now) // this one may have taken the place in the queue of a missed one
		}
	}
	return true
}

// maxGroup bounds the flows of one commit, and so the memory and the time that it takes.
const maxGroup = 4096

// full reports whether the group being gathered is large, and another on its way.
func (e *engine) full() bool { return e.committing && len(e.group.entries) >= maxGroup }

// tick acts on one fire time of a flow.
func (e *engine) tick(en *entry, fire, now flow.Instant) {
	if e.stopping {
		e.skip(en, fire, flow.SkipStopping, 1, now)
		return
	}
	if w := e.unwait(en); w != nil { // the one before still waits for a slot: it has had its time
		e.settleBacklog(en, w)
		e.skip(en, w.since, flow.SkipLimit, 1, now)
	}
	e.dispatch(en, flow.Event{Kind: flow.Tick, Now: now, FireTime: fire})
}

// dispatch starts a run for a fire time, counts it, or lets it wait for a slot. It reports whether the fire time is settled.
func (e *engine) dispatch(en *entry, event flow.Event) (settled bool) {
	f := e.plan(en)
	if f == broken {
		return false
	}
	state, effect, _ := flow.Apply(en.state, f.Backoff, event)
	if effect == flow.Start && e.running >= e.MaxConcurrentRuns {
		en.waiting = &waiter{entry: en, since: event.FireTime, catchUp: event.CatchUp}
		e.waiting.add(en.waiting)
		return false
	}
	if effect == flow.Skipped {
		e.countSkips(en.state, state)
	}
	en.state = state
	if !event.CatchUp { // then the cursor is past it already
		en.cursor = max(en.cursor, event.FireTime)
	}
	if effect == flow.Start {
		e.Observer.RunStarted(state.Cause, event.Now.Sub(event.FireTime))
		e.begin(en, nil, event.Now)
	}
	e.touch(en)
	return true
}

// skip counts fire times up to fire that do not become runs.
func (e *engine) skip(en *entry, fire flow.Instant, reason flow.SkipReason, count uint64, now flow.Instant) {
	if count == 0 {
		return
	}
	state, _, _ := flow.Apply(en.state, flow.Policy{}, flow.Event{Kind: flow.Skip, Now: now, Reason: reason, Count: count})
	e.countSkips(en.state, state)
	en.state = state
	en.cursor = max(en.cursor, fire)
	e.touch(en)
}

func (e *engine) countSkips(before, after flow.State) {
	for reason := range flow.SkipReasons {
		if n := after.Skipped[reason] - before.Skipped[reason]; n != 0 {
			e.Observer.FireTimesSkipped(reason, n)
		}
	}
}

// startWaiting gives free slots to those who wait, the oldest fire time first.
func (e *engine) startWaiting(now flow.Instant) {
	for e.running < e.MaxConcurrentRuns && e.waiting.Len() > 0 {
		w := e.waiting.next()
		if w.trigger != nil {
			w.trigger.run(e, now)
			continue
		}
		w.entry.waiting = nil
		e.settleBacklog(w.entry, w)
		e.dispatch(w.entry, flow.Event{Kind: flow.Tick, Now: now, FireTime: w.since, CatchUp: w.catchUp})
		e.nextBacklog(w.entry, now)
	}
}

// unwait takes a flow's waiting fire time out of the queue.
func (e *engine) unwait(en *entry) *waiter {
	w := en.waiting
	if w != nil {
		e.waiting.remove(w)
		en.waiting = nil
	}
	return w
}

// settleBacklog drops the missed fire time that waited: while it waits it stays in the backlog, so that a crash does not lose it.
func (e *engine) settleBacklog(en *entry, w *waiter) {
	if w.catchUp {
		en.backlog = slices.Clip(en.backlog[1:])
		e.touch(en)
	}
}

// schedule puts a flow's next fire time after the given one into the queue.
func (e *engine) schedule(en *entry, after flow.Instant) {
	next, err := e.next(en, after)
	if err != nil {
		e.log.Error("no further fire time", "flow", en.id, "error", err)
		en.scheduleError = err.Error()
		e.touch(en)
	}
	e.setDue(en, next)
}

// next is a flow's first fire time after the given one; 0 if there is none.
func (e *engine) next(en *entry, after flow.Instant) (flow.Instant, error) {
	if en.deleted {
		return 0, nil
	}
	s := e.plan(en).Schedule
	if s == nil || s.Manual() {
		return 0, nil
	}
	t := s.Next(after.Time(), en.anchors())
	if t.IsZero() {
		return 0, nil
	}
	if t.After(lastInstant) {
		return 0, fmt.Errorf("the schedule's next fire time, %v, lies after %v", t, lastInstant)
	}
	next := flow.At(t)
	if next <= after {
		// A schedule that stands still would be a hot loop.
		return 0, fmt.Errorf("the schedule answered %v, which is not after %v", t, after.Time())
	}
	if s.Interval() && en.state.Status == flow.Backoff {
		next = max(next, en.state.NextEligible) // the tick moves to the end of the window
	}
	return next, nil
}

// setDue puts fire into the queue as the flow's next fire time; 0 takes the flow out of it.
func (e *engine) setDue(en *entry, fire flow.Instant) {
	en.nextFire, en.dueAt = fire, fire
	if fire == 0 {
		e.due.remove(en)
		return
	}
	if j := e.plan(en).Schedule.Jitter(); j > 0 {
		en.dueAt = fire.Add(time.Duration(e.Random() * float64(j)))
	}
	e.due.fix(en)
}

// interval reports whether a flow's schedule, which may be none, is a fixed interval.
func interval(s *schedule.Schedule) bool { return s != nil && s.Interval() }

// lastInstant is the last that fits into a flow.Instant.
var lastInstant = flow.Instant(math.MaxInt64).Time()

// reschedule computes the next fire time anew, since what it depends on changed. One that has come already is left alone: it is about
// to be acted on or held up by its jitter, unless it moves to the end of a backoff window.
func (e *engine) reschedule(en *entry, now flow.Instant) {
	after := en.reached(now)
	if en.nextFire != 0 && en.nextFire <= now {
		if en.state.Status != flow.Backoff || !interval(e.plan(en).Schedule) {
			return
		}
		after = en.nextFire - 1
	}
	en.scheduleError = ""
	e.schedule(en, after)
}

// catchUp settles the fire times of a flow that were missed, from its next one up to now, by its policy: they are counted or in the
// backlog then.
func (e *engine) catchUp(en *entry, now flow.Instant) {
	policy := e.plan(en).CatchUp.withDefaults()
	reason := flow.SkipOutage
	switch {
	case en.state.Paused:
		policy.Mode, reason = CatchUpSkip, flow.SkipPaused
	case en.state.Status == flow.Tripped:
		policy.Mode, reason = CatchUpSkip, flow.SkipTripped
	}
	first := en.nextFire
	if w := e.unwait(en); w != nil && !w.catchUp {
		first = min(first, w.since)
	}
	missed := e.missed(en, first, now, now.Add(-policy.Window), policy.most())
	e.skip(en, missed.newest, flow.SkipBackoff, missed.heldOff, now)
	e.skip(en, missed.newest, reason, missed.count-missed.heldOff-uint64(len(missed.run)), now)
	en.cursor = max(en.cursor, missed.newest)
	en.backlog = append(en.backlog, missed.run...)
	if extra := len(en.backlog) - policy.Max; extra > 0 && policy.Mode == CatchUpAll {
		e.skip(en, 0, flow.SkipOutage, uint64(extra), now)
		en.backlog = append(en.backlog[:0], en.backlog[extra:]...)
	}
	e.touch(en)
	if missed.count > 0 {
		e.log.Warn("fire times were missed", "flow", en.id, "count", missed.count, "caught_up", len(missed.run), "oldest", first.Time())
	}
	e.schedule(en, max(missed.newest, now-1))
}

// missedTimes is what an outage left.
type missedTimes struct {
	count   uint64
	heldOff uint64 // of them came in a backoff window, and would not have run anyway
	newest  flow.Instant
	run     []flow.Instant // those that shall still run, oldest first
}

// maxMissed bounds the fire times that are looked at one by one after an outage, some seconds of work for the worst of schedules.
const maxMissed = 1 << 20

// missed lists the fire times from first to until, and picks those that run: up to most, the newest ones, none before oldest. Of more
// than maxMissed the oldest are not counted.
func (e *engine) missed(en *entry, first, until, oldest flow.Instant, most int) missedTimes {
	var m missedTimes
	for next := first; next != 0 && next <= until; {
		if m.count++; m.count == maxMissed && next < oldest {
			next = oldest - 1
		}
		m.newest = next
		switch {
		case en.state.Window(next):
			m.heldOff++
		case most > 0 && next >= oldest:
			if len(m.run) == most {
				m.run = slices.Delete(m.run, 0, 1)
			}
			m.run = append(m.run, next)
		}
		next, _ = e.next(en, next)
	}
	return m
}

// nextBacklog starts the oldest missed fire time that still shall run, if the flow is free.
func (e *engine) nextBacklog(en *entry, now flow.Instant) {
	for len(en.backlog) > 0 && en.waiting == nil && en.state.Status != flow.Running && !e.stopping {
		event := flow.Event{Kind: flow.Tick, Now: now, FireTime: en.backlog[0], CatchUp: true}
		if !e.dispatch(en, event) {
			return // it waits for a slot
		}
		en.backlog = slices.Clip(en.backlog[1:])
	}
}

// wrongTime is how far the wall clock must be set back for the old time to be taken as wrong: Debian cron's bound.
const wrongTime = 3 * time.Hour

// clockJumped recomputes due times after the wall clock was set. Forward, what was jumped over is due now, and late: catchUp settles
// it. Backward, fixed intervals go on in elapsed time, and calendar times wait for the instant they wait for, unless the old time was
// wrong: then they are computed from the new one.
func (e *engine) clockJumped(now flow.Instant, by time.Duration) {
	e.log.Warn("the wall clock was set", "by", by)
	e.Observer.ClockJumped(by)
	if by > 0 {
		return
	}
	e.index.each(func(en *entry) bool {
		if !en.deleted {
			e.setBack(en, by, now)
		}
		return true
	})
}

// setBack tells a flow that the wall clock was set back, by a negative duration.
func (e *engine) setBack(en *entry, by time.Duration, now flow.Instant) {
	shift := func(at *flow.Instant) {
		if *at != 0 {
			*at = at.Add(by)
		}
	}
	shift(&en.state.NextEligible)
	shift(&en.state.LastRun)
	shift(&en.state.LastFinish)
	e.touch(en)
	s := e.plan(en).Schedule
	if s == nil {
		return
	}
	_, once := s.Once() // it never comes a second time
	waiting := e.unwait(en)
	switch {
	case s.Interval():
		shift(&en.anchor)
		shift(&en.cursor)
		shift(&en.pausedAt)
		for i := range en.backlog {
			shift(&en.backlog[i])
		}
		if waiting != nil {
			shift(&waiting.since)
		}
		if en.nextFire != 0 {
			e.setDue(en, en.nextFire.Add(by))
		}
	case by < -wrongTime && !once:
		en.cursor = min(en.cursor, now)
		if waiting != nil && !waiting.catchUp && waiting.since > now {
			e.skip(en, 0, flow.SkipLimit, 1, now) // its time comes again
			waiting = nil
		}
		e.reschedule(en, now)
	case s.FixedDelay():
		e.reschedule(en, now)
	}
	if waiting != nil {
		en.waiting = waiting
		e.waiting.add(waiting)
	}
}

// setBackMeanwhile finds out whether the wall clock was set back while the engine was down, as far as the flow can tell: it remembers
// what is still to come.
func (e *engine) setBackMeanwhile(en *entry, now flow.Instant) {
	before := [...]flow.Instant{en.cursor, en.state.LastRun, en.state.LastFinish, en.state.NextEligible}
	f := e.plan(en)
	s := f.Schedule
	once := false
	if s != nil {
		_, once = s.Once()
	}
	switch {
	case s == nil, once:
	case s.Interval() || s.FixedDelay():
		ahead := en.state.LastFinish.Sub(now)
		if s.Interval() {
			ahead = max(ahead, en.cursor.Sub(now))
		}
		if ahead > 0 {
			e.setBack(en, -ahead, now)
		}
	case en.cursor.Sub(now) > wrongTime:
		en.cursor = now
	}
	en.state.LastRun, en.state.LastFinish = min(en.state.LastRun, now), min(en.state.LastFinish, now)
	policy := f.Backoff
	en.state.NextEligible = min(en.state.NextEligible, now.Add(max(policy.MaxDelay, policy.RetryAfterTrip)))
	if before != [...]flow.Instant{en.cursor, en.state.LastRun, en.state.LastFinish, en.state.NextEligible} {
		e.touch(en)
	}
}
