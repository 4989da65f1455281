package schedule

import (
	"fmt"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // used where the machine has no zone database of its own
)

// maxShift is the largest clock change, in seconds, that a fixed schedule makes
// up for. Larger ones are corrections of the calendar, not of the clock
// (cron(8) of Debian, "3 hours").
const maxShift = 3 * 3600

// zone is a time zone cut into segments of constant offset, from 1969 to 2100.
// It is immutable and shared by all schedules in that zone.
type zone struct {
	name     string
	segments []segment
}

// segment is a stretch of time with one offset; the next one's start ends it.
type segment struct {
	start  int64 // first instant, Unix seconds
	offset int64 // seconds that the wall clock is ahead of UTC
	// A fixed schedule fires at each wall time once. gap is the first wall time
	// that was skipped just before start and is made up for at start; it is
	// the wall time of start if there is none. mark is the first wall time that
	// has not been shown before, so what lies below it has had its turn.
	gap, mark int64
}

func (s segment) wall(t int64) int64 { return t + s.offset }

var utc = &zone{name: "UTC", segments: []segment{{start: -never, mark: -never, gap: -never}}}

// at gives the index of the segment that t lies in.
func (z *zone) at(t int64) int {
	lo, hi := 0, len(z.segments)
	for hi-lo > 1 {
		if mid := int(uint(lo+hi) >> 1); z.segments[mid].start <= t {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// next gives the first instant at or after t at which c is due in z, or never.
func (z *zone) next(c *calendar, t int64) int64 {
	// No wall time of c lies in [known, match).
	known, match := never, never
	from := func(w int64) int64 {
		if w < known || w > match {
			known, match = w, c.next(w-1)
		}
		return match
	}
	for i := z.at(t); i < len(z.segments); i++ {
		s := &z.segments[i]
		w := s.wall(max(t, s.start))
		if !c.wild {
			if t <= s.start && s.gap < s.wall(s.start) && from(s.gap) <= s.wall(s.start) {
				return s.start
			}
			w = max(w, s.mark)
		}
		end := never
		if i+1 < len(z.segments) {
			end = s.wall(z.segments[i+1].start)
		}
		if w < end && from(w) < end {
			return match - s.offset
		}
	}
	return never
}

// zones remembers the zones that were loaded, by name.
var zones sync.Map

// loadZone gives the zone with an IANA name.
func loadZone(name string) (*zone, error) {
	if name == "" || name == "UTC" {
		return utc, nil
	}
	if z, ok := zones.Load(name); ok {
		return z.(*zone), nil
	}
	if err := checkZoneName(name); err != nil {
		return nil, err
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("unknown time zone %q; use an IANA name such as Europe/Berlin", name)
	}
	z, _ := zones.LoadOrStore(name, newZone(name, loc))
	return z.(*zone), nil
}

// checkZoneName refuses what time.LoadLocation would take but is no IANA name:
// the machine's own zone, and files of the database that are not zones or count
// leap seconds.
func checkZoneName(name string) error {
	bad := func(r rune) bool {
		return !(r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || strings.ContainsRune("_+-/", r))
	}
	switch {
	case len(name) > maxZoneLength:
		return fmt.Errorf("time zone name is %d bytes long; at most %d", len(name), maxZoneLength)
	case strings.IndexFunc(name, bad) >= 0:
		return fmt.Errorf("%q is no time zone name; use an IANA name such as Europe/Berlin", name)
	case name == "Local" || name == "localtime" || name == "posixrules":
		return fmt.Errorf("time zone %q depends on the machine; use an IANA name such as Europe/Berlin", name)
	case strings.HasPrefix(name, "right/") || strings.HasPrefix(name, "posix/") ||
		strings.HasPrefix(name, "/") || strings.HasSuffix(name, "/") || strings.Contains(name, "//"):
		return fmt.Errorf("unknown time zone %q; use an IANA name such as Europe/Berlin", name)
	}
	return nil
}

func newZone(name string, loc *time.Location) *zone {
	z := &zone{name: name}
	first := time.Date(FirstYear-1, 1, 1, 0, 0, 0, 0, time.UTC)
	last := time.Date(LastYear+1, 1, 3, 0, 0, 0, 0, time.UTC)
	for t := first.In(loc); ; {
		_, offset := t.Zone()
		z.add(t.Unix(), int64(offset))
		_, end := t.ZoneBounds()
		if end.IsZero() || end.After(last) {
			return z
		}
		if !end.After(t) {
			// On 31 December of a leap year it gives the day's begin, not its
			// end: https://github.com/golang/go/issues/81583.
			end = end.Add(24 * time.Hour)
		}
		t = end
	}
}

// add appends the segment that begins at instant start.
func (z *zone) add(start, offset int64) {
	if len(z.segments) == 0 {
		z.segments = append(z.segments, segment{start: -never, offset: offset, gap: -never, mark: -never})
		return
	}
	prev := z.segments[len(z.segments)-1]
	if prev.offset == offset {
		return // only its name or its DST flag changes
	}
	wall := start + offset
	s := segment{start: start, offset: offset, gap: wall, mark: wall}
	if shift := offset - prev.offset; shift >= -maxShift && shift <= maxShift {
		shown := max(prev.mark, prev.wall(start)) // wall times below have had their turn
		s.gap = min(shown, wall)
		s.mark = max(shown, wall)
	}
	z.segments = append(z.segments, s)
}

// resolve gives the instant of a single wall time, labelled UTC: the first of
// two, the end of a gap, or the zero time if a gap too large to be made up
// for holds it.
func (z *zone) resolve(wall time.Time) time.Time {
	h, m, s := wall.Clock()
	y, month, d := wall.Date()
	c := calendar{months: 1 << month, hours: 1 << h, minutes: 1 << m, seconds: 1 << s, days: new(dayRule)}
	c.years[(y-FirstYear)>>6] = 1 << ((y - FirstYear) & 63)
	for i := range c.days.days {
		c.days.days[i] = 1 << d
	}
	t := z.next(&c, -2*daySeconds)
	if t == never {
		return time.Time{}
	}
	if z.segments[z.at(t)].wall(t) != wall.Unix() {
		return time.Unix(t, 0).UTC() // the end of a gap
	}
	return time.Unix(t, int64(wall.Nanosecond())).UTC()
}
