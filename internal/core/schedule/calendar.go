package schedule

import "math/bits"

// dayFields are the two day fields of a cron text in normal form; weekly and
// monthly schedules are made of them too.
type dayFields struct {
	monthday, weekday string
	both              bool // a day must match both, not either
	clamp             bool // monthday means the last day where a month is too short for it
}

// dayRule is a rule for days, and the days that match it in each shape of
// month: bit d is day d. Schedules with the same rule share one.
type dayRule struct {
	fields dayFields
	days   [shapes]uint32
}

// yearSet holds years: bit y is FirstYear+y.
type yearSet [(LastYear - FirstYear + 64) / 64]uint64

func (s *yearSet) has(y int) bool { return s[y>>6]>>(y&63)&1 != 0 }

// from gives the first year at or after y, or -1.
func (s *yearSet) from(y int) int {
	i := y >> 6
	if i >= len(s) {
		return -1
	}
	for w := s[i] >> (y & 63) << (y & 63); ; w = s[i] {
		if w != 0 {
			return i<<6 + bits.TrailingZeros64(w)
		}
		if i++; i == len(s) {
			return -1
		}
	}
}

var everyYear = func() (s yearSet) {
	for y := range LastYear - FirstYear + 1 {
		s[y>>6] |= 1 << (y & 63)
	}
	return s
}()

const (
	everyMonth  = 1<<13 - 2 // bits 1 to 12
	everyHour   = 1<<24 - 1
	everyMinute = 1<<60 - 1
)

// calendar is a set of wall times: the days that match years, months and
// days, at the times of day that match hours, minutes and seconds.
type calendar struct {
	years   yearSet
	months  uint16   // bit m is month m, 1 to 12
	days    *dayRule // nil: every day
	hours   uint32
	minutes uint64
	seconds uint64
	wild    bool // follows the wall clock through clock changes, docs/schedules.md
}

// next gives the first wall time after w that matches, or never.
// It looks at most at each month of FirstYear to LastYear once.
func (c *calendar) next(w int64) int64 {
	w = max(w+1, 0)
	day := int(w / daySeconds)
	if day >= int(months[monthCount].first) {
		return never
	}
	m := monthOf(day)
	rest := c.daysOf(m) >> (day - int(months[m].first) + 1) // bit 0 is day itself
	if rest&1 != 0 {
		if s := c.timeFrom(int(w % daySeconds)); s >= 0 {
			return int64(day)*daySeconds + int64(s)
		}
	}
	if rest >>= 1; rest != 0 {
		day += 1 + bits.TrailingZeros32(rest)
		return int64(day)*daySeconds + c.firstTime()
	}
	for m = c.monthAfter(m); m >= 0; m = c.monthAfter(m) {
		if d := c.daysOf(m); d != 0 {
			day = int(months[m].first) + bits.TrailingZeros32(d) - 1
			return int64(day)*daySeconds + c.firstTime()
		}
	}
	return never
}

// daysOf gives the matching days of month m: bit d is day d.
func (c *calendar) daysOf(m int) uint32 {
	if !c.years.has(m/12) || c.months>>(m%12+1)&1 == 0 {
		return 0
	}
	if c.days == nil {
		return 1<<(months[m].length()+1) - 2
	}
	return c.days.days[months[m].shape]
}

// monthAfter gives the first month after m whose year and month match, or -1.
func (c *calendar) monthAfter(m int) int {
	y := m / 12
	if c.years.has(y) {
		if rest := c.months >> (m%12 + 2); rest != 0 {
			return m + 1 + bits.TrailingZeros16(rest)
		}
	}
	if y = c.years.from(y + 1); y < 0 || c.months == 0 {
		return -1
	}
	return y*12 + bits.TrailingZeros16(c.months) - 1
}

// firstTime gives the first matching second of a day.
func (c *calendar) firstTime() int64 {
	return int64(bits.TrailingZeros32(c.hours)*3600 +
		bits.TrailingZeros64(c.minutes)*60 + bits.TrailingZeros64(c.seconds))
}

// timeFrom gives the first matching second of a day at or after t, or -1.
func (c *calendar) timeFrom(t int) int {
	h, m, s := t/3600, t/60%60, t%60
	if c.hours>>h&1 != 0 {
		if c.minutes>>m&1 != 0 {
			if rest := c.seconds >> s; rest != 0 {
				return t + bits.TrailingZeros64(rest)
			}
		}
		if rest := c.minutes >> (m + 1); rest != 0 {
			m += 1 + bits.TrailingZeros64(rest)
			return h*3600 + m*60 + bits.TrailingZeros64(c.seconds)
		}
	}
	if rest := c.hours >> (h + 1); rest != 0 {
		h += 1 + bits.TrailingZeros32(rest)
		return h*3600 + bits.TrailingZeros64(c.minutes)*60 + bits.TrailingZeros64(c.seconds)
	}
	return -1
}
