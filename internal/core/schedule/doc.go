// Package schedule says when a flow is due.
//
// A [Spec] is what a user writes; [Compile] checks it and makes a [Schedule]; and
// [Schedule.Next] gives the first fire time strictly after an instant. Nothing
// here reads a clock: instants are passed in and come back, in UTC. A Schedule is
// immutable, may be shared by goroutines, and never allocates when asked. What it
// means is written for users in docs/schedules.md.
//
// # How it works
//
// Every is arithmetic on a grid. All else that recurs is a calendar: a set of
// wall times, held as bit sets of years, months, hours, minutes and seconds, and
// one of days for each of the 28 shapes that a month can have (its length and the
// weekday it begins with). Finding the next wall time is a few bit operations.
//
// A zone is a list of stretches of constant offset, made once from
// [time.Time.ZoneBounds] and shared. Next walks them: in each, the wall clock runs
// evenly, so the calendar can be asked as if there were no zones. What happens
// between two stretches is the rule of Debian's cron, and comes down to one number
// for each stretch: the first wall time that has not been shown before. A fixed
// schedule fires at each wall time once, when the clock passes it for the first
// time or jumps over it; a wildcard schedule whenever the wall shows it.
//
//	Spec ──Compile──▶ cron text ──▶ fields ──▶ normal form ──cronexpr──▶ calendar ─┐
//	                  daily, weekly, monthly ────────────────────────────▶ calendar ├─▶ Schedule
//	                  zone name ──time.LoadLocation──▶ segments ───────────────────┘
//
// # Cron
//
// The text is read by a strict parser (cron.go, field.go) that knows nothing of
// dates. It writes a normal form, which github.com/gorhill/cronexpr then explains:
// Compile asks it which values and days each field means (cronexpr.go, the only
// file that imports it) and keeps the answers. Used in any other way cronexpr has
// faults, and the tests keep them out:
//
//   - six fields are read as minute to year;
//   - months 01 to 09 and weekdays 01 to 07 are misread, and steps above 59 refused;
//   - 1-7, 5-7 and FRI-SUN never fire, and other reversed ranges panic in Next;
//   - junk after a macro is accepted, as are fields after the seventh;
//   - both day fields can only be combined with OR;
//   - in a zone, Next answers with the past at a spring gap;
//   - Next writes to the expression, so goroutines must not share one;
//   - restricted day fields cost up to 3 µs and 6 allocations a call.
//
// # Proof
//
// TestOracle compares Next with brute force, second by second or minute by
// minute, at every change of the clocks in every zone. SCHEDULE_ORACLE_ROUNDS
// makes it try more texts at each.
package schedule
