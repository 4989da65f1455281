package schedule

import "time"

// Spec is what a user writes. Exactly one kind is set: Every, Cron, Once,
// Daily, Weekly, Monthly, Manual or AnyOf; the rest qualifies it.
type Spec struct {
	Every   *Every
	Cron    string   // five, six or seven fields, or a macro; see docs/schedules.md
	Once    string   // an RFC 3339 instant, or a local time without offset ("2027-03-28T02:30:00") that is resolved in Zone when compiled
	Daily   *Daily   // every day at a wall time
	Weekly  *Weekly  // on some weekdays at a wall time
	Monthly *Monthly // on one day of the month at a wall time
	Manual  bool     // never due by itself
	AnyOf   []Spec   // due when the earliest member is; members inherit Zone and may set their own

	// Zone is an IANA name. Empty means the zone of the enclosing AnyOf, or UTC.
	Zone string
	// NotBefore and NotAfter bound the fire times, both inclusive. Zero: no bound.
	NotBefore, NotAfter time.Time
	// Jitter is the most that is added at random to each firing. The engine
	// adds it: fire times are nominal and do not contain it.
	Jitter time.Duration
	// Splay spreads flows: a fixed offset in [0, Splay), taken from a hash of
	// the flow's id, is part of every fire time.
	Splay time.Duration
}

// Every is a fixed rate: a grid in elapsed time that no clock change moves.
type Every struct {
	Interval     time.Duration // at least MinInterval
	InitialDelay time.Duration // from the start of the flow to its first tick
	FixedDelay   bool          // count Interval from the end of each run instead
}

// Daily is every day at a wall time.
type Daily struct {
	At string // "hh:mm" or "hh:mm:ss"
}

// Weekly is one or several weekdays at a wall time.
type Weekly struct {
	Days []time.Weekday
	At   string // "hh:mm" or "hh:mm:ss"
}

// Monthly is one day of every month at a wall time.
type Monthly struct {
	Day        int    // 1 to 31, or -1 for the last day
	At         string // "hh:mm" or "hh:mm:ss"
	ShortMonth ShortMonth
}

// ShortMonth says what a Monthly does in a month that lacks its day.
type ShortMonth int

const (
	SkipMonth ShortMonth = iota // nothing fires in that month
	LastDay                     // the last day of that month is used
)

// Limits of a Spec. They keep the work of Compile and Next bounded.
const (
	MinInterval   = time.Millisecond // shortest Every
	MaxSpread     = 24 * time.Hour   // longest Jitter and Splay
	MaxCronBytes  = 256              // length of a cron text without its TZ= prefix
	MaxEntries    = 60               // entries in one cron field
	MaxMembers    = 64               // schedules inside an AnyOf, nested ones included
	MaxDepth      = 4                // AnyOf inside AnyOf
	FirstYear     = 1970             // first year a calendar schedule can fire in, by its wall clock
	LastYear      = 2099             // last one
	maxZoneLength = 64
)

// Options of Compile: what a schedule needs to know beside its text.
type Options struct {
	// FlowID seeds H in cron texts and Splay.
	FlowID string
	// Now is the instant of creation. A Once that lies before it and a schedule
	// that has no fire time after it are rejected. Zero: no such check.
	Now time.Time
	// AllowPast drops that check: flows that are stored already, and those whose
	// catch-up policy wants the past. A schedule that never fires in any year
	// is rejected all the same.
	AllowPast bool
}

// Anchors are the two instants an Every counts from.
type Anchors struct {
	Start time.Time // first start of the flow; stored, so it survives restarts
	Ended time.Time // end of the last run, for FixedDelay; zero if there was none
}
