package schedule

import (
	"math/bits"
	"time"
)

// next gives the first tick after an instant. The grid starts at
// Start + InitialDelay; with FixedDelay, once a run has ended, one Interval
// after that end. It goes on in steps of Interval, so that a tick that was
// skipped is followed by another.
func (e *Every) next(after time.Time, a Anchors) time.Time {
	first := a.Start
	step := e.InitialDelay
	if e.FixedDelay && !a.Ended.IsZero() {
		first, step = a.Ended, e.Interval
	}
	if first.Before(minInstant) {
		first = minInstant
	}
	if first.After(maxInstant) {
		return time.Time{}
	}
	first = first.Add(step)
	if first.After(after) {
		return first.UTC().Round(0)
	}
	// The number of whole intervals since first, in 128 bits: centuries in
	// nanoseconds do not fit into a time.Duration.
	hi, lo := nanos(first, after)
	_, past := bits.Div64(hi%uint64(e.Interval), lo, uint64(e.Interval))
	return after.Add(e.Interval - time.Duration(past)).UTC().Round(0)
}

// nanos gives to - from, which must not be negative, in nanoseconds.
func nanos(from, to time.Time) (hi, lo uint64) {
	seconds := to.Unix() - from.Unix()
	rest := to.Nanosecond() - from.Nanosecond()
	if rest < 0 {
		seconds, rest = seconds-1, rest+1_000_000_000
	}
	hi, lo = bits.Mul64(uint64(seconds), 1_000_000_000)
	lo, carry := bits.Add64(lo, uint64(rest), 0)
	return hi + carry, lo
}
