package schedule

import (
	"slices"
	"time"
)

type kind uint8

const (
	kindManual kind = iota
	kindEvery
	kindOnce
	kindCron
	kindDaily
	kindWeekly
	kindMonthly
	kindAnyOf
)

// kindNames are the names in flows files.
var kindNames = [...]string{
	kindManual: "manual", kindEvery: "every", kindOnce: "once.at", kindCron: "cron",
	kindDaily: "daily", kindWeekly: "weekly", kindMonthly: "monthly", kindAnyOf: "any_of",
}

// Schedule is a compiled Spec. It is immutable and safe for concurrent use.
type Schedule struct {
	kind     kind
	zone     *zone
	text     string      // canonical, without zone and qualifiers
	calendar calendar    // of cron, daily, weekly and monthly
	every    *Every      // of every
	once     *once       // of once
	members  []*Schedule // of any_of
	*qualifiers
}

// once is a single instant.
type once struct {
	at    time.Time
	moved string // the time of day it was written with, if a gap moved it
}

// qualifiers are what may stand beside any kind.
type qualifiers struct {
	notBefore, notAfter time.Time
	jitter              time.Duration
	splay               time.Duration // as written
	offset              time.Duration // what splay came to for this flow
}

// unqualified is shared by all schedules without any.
var unqualified = &qualifiers{}

// Instants outside these years are not written as RFC 3339 and never answered.
var (
	minInstant = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	maxInstant = time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)
)

// Next gives the first fire time strictly after an instant, in UTC, or the
// zero time if there is none. It does not allocate.
//
// The first tick of an Every at its very start is Next(start-1ns).
func (s *Schedule) Next(after time.Time, a Anchors) time.Time {
	if !s.notBefore.IsZero() && after.Before(s.notBefore) {
		after = s.notBefore.Add(-1)
	}
	if after.Before(minInstant) {
		after = minInstant
	}
	if after.After(maxInstant) {
		return time.Time{}
	}
	t := s.next(after.Add(-s.offset), a)
	if t.IsZero() {
		return t
	}
	if s.offset != 0 {
		t = t.Add(s.offset)
	}
	if t.After(maxInstant) || !s.notAfter.IsZero() && t.After(s.notAfter) {
		return time.Time{}
	}
	return t
}

// next is Next without the qualifiers.
func (s *Schedule) next(after time.Time, a Anchors) time.Time {
	switch s.kind {
	case kindManual:
		return time.Time{}
	case kindEvery:
		return s.every.next(after, a)
	case kindOnce:
		if s.once.at.After(after) {
			return s.once.at
		}
		return time.Time{}
	case kindAnyOf:
		var first time.Time
		for _, m := range s.members {
			if t := m.Next(after, a); !t.IsZero() && (first.IsZero() || t.Before(first)) {
				first = t
			}
		}
		return first
	}
	// A calendar fires on whole seconds: the first instant to try is the next one.
	t := s.zone.next(&s.calendar, max(after.Unix(), -daySeconds*2)+1)
	if t == never {
		return time.Time{}
	}
	return time.Unix(t, 0).UTC()
}

// Manual reports whether the schedule is never due by itself.
func (s *Schedule) Manual() bool { return s.kind == kindManual }

// Interval reports whether the schedule is made of Every alone. In backoff the
// engine moves the tick of such a schedule to the end of the window; ticks of
// others are skipped.
func (s *Schedule) Interval() bool {
	for _, m := range s.members {
		if !m.Interval() {
			return false
		}
	}
	return s.kind == kindEvery || s.kind == kindAnyOf
}

// anchored reports whether some part is an Every, which needs Anchors.
func (s *Schedule) anchored() bool {
	return s.kind == kindEvery || slices.ContainsFunc(s.members, (*Schedule).anchored)
}

// FixedDelay reports whether some part counts from the end of the last run: the
// engine asks again when a run ends.
func (s *Schedule) FixedDelay() bool {
	return s.every != nil && s.every.FixedDelay || slices.ContainsFunc(s.members, (*Schedule).FixedDelay)
}

// Jitter is the most that the engine may add to each fire time.
func (s *Schedule) Jitter() time.Duration { return s.jitter }

// Once gives the instant of a Once, resolved if it was a local time. The engine
// stores it, so that a later zone database does not move what was promised.
func (s *Schedule) Once() (t time.Time, ok bool) {
	if s.once == nil {
		return time.Time{}, false
	}
	return s.once.at, true
}
