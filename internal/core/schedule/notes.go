package schedule

import (
	"fmt"
	"time"
)

// noteYears is how far ahead Describe looks for clock changes.
const noteYears = 2

// changeNotes says what coming clock changes do to a calendar schedule.
func (s *Schedule) changeNotes(from time.Time) (notes []string) {
	if !s.notBefore.IsZero() && from.Before(s.notBefore) {
		from = s.notBefore
	}
	until := from.AddDate(noteYears, 0, 0)
	if !s.notAfter.IsZero() && until.After(s.notAfter) {
		until = s.notAfter
	}
	z := s.zone
	for i := z.at(from.Unix()) + 1; i < len(z.segments) && z.segments[i].start <= until.Unix(); i++ {
		before, after := z.segments[i-1], z.segments[i]
		old, now := before.wall(after.start), after.wall(after.start)
		if n := s.changeNote(after.start, old, now); n != "" {
			notes = append(notes, n)
		}
	}
	return notes
}

// changeNote describes one change, at an instant, of the wall clock from old to
// now; empty if nobody would notice.
func (s *Schedule) changeNote(at, old, now int64) string {
	c := &s.calendar
	if c.wild && c.hours == everyHour {
		return "" // goes on evenly through every change
	}
	lo, hi := min(old, now), max(old, now)
	first := c.next(lo - 1)
	if first >= hi {
		return ""
	}
	last := first
	for t := first; t < hi; t = c.next(t) {
		last = t
	}
	day, clock := wallText(now, "2006-01-02"), wallText(now, "15:04")
	which, one := wallText(first, "15:04"), true
	if end := wallText(last, "15:04"); end != which {
		which, one = which+" to "+end, false
	}
	verb := func(does, do string) string {
		if one {
			return which + does
		}
		return which + do
	}
	large := hi-lo > maxShift
	switch {
	case now > old && (c.wild || large):
		return fmt.Sprintf("on %s not at %s not exist", wallText(first, "2006-01-02"), verb(", which does", ", which do"))
	case now > old:
		return fmt.Sprintf("on %s at %s, since %s not exist", day, clock, verb(" does", " do"))
	case c.wild || large:
		return fmt.Sprintf("on %s both times, since %s twice", day, verb(" comes", " come"))
	}
	return fmt.Sprintf("on %s only the first time, since %s twice", day, verb(" comes", " come"))
}

func wallText(w int64, layout string) string { return time.Unix(w, 0).UTC().Format(layout) }

// local writes an instant as the wall clock shows it.
func (z *zone) local(t int64, layout string) string {
	return wallText(z.segments[z.at(t)].wall(t), layout)
}
