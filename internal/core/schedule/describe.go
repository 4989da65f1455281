package schedule

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Describe says in words when the schedule is due: "at 02:30 on Sundays,
// Europe/Berlin". The notes say what the clock changes in the two years after
// from do to it, where they do something: "on 2027-03-28 at 03:00, since 02:30
// does not exist".
func (s *Schedule) Describe(from time.Time) (text string, notes []string) {
	text = s.words() + s.qualifierWords()
	switch s.kind {
	case kindAnyOf:
		for _, m := range s.members {
			_, more := m.Describe(from)
			for _, n := range more {
				if n != noMore {
					notes = append(notes, m.words()+": "+n)
				}
			}
		}
	case kindOnce:
		if s.once.moved != "" {
			notes = append(notes, fmt.Sprintf("at %s, since %s does not exist", s.zone.local(s.once.at.Unix(), "15:04"), s.once.moved))
		}
	case kindMonthly:
		if f := s.calendar.days.fields; len(f.monthday) == 2 && f.monthday > "28" && !f.clamp {
			notes = append(notes, fmt.Sprintf("months without a %s are skipped", ordinal(f.monthday)))
		}
		fallthrough
	case kindCron, kindDaily, kindWeekly:
		notes = append(notes, s.changeNotes(from)...)
	}
	if s.kind != kindManual && s.Next(from, Anchors{Start: from}).IsZero() {
		notes = append(notes, noMore)
	}
	return text, notes
}

const noMore = "never fires again"

// words describes the kind alone.
func (s *Schedule) words() string {
	switch s.kind {
	case kindManual:
		return "only when triggered"
	case kindEvery:
		w := "every " + short(s.every.Interval)
		if s.every.FixedDelay {
			w = short(s.every.Interval) + " after the end of each run"
		}
		if s.every.InitialDelay > 0 {
			w += ", first " + short(s.every.InitialDelay) + " after the start"
		}
		return w
	case kindOnce:
		return fmt.Sprintf("once, on %s, %s", s.zone.local(s.once.at.Unix(), "2006-01-02 at 15:04:05"), s.zone.name)
	case kindAnyOf:
		var parts []string
		for _, m := range s.members {
			parts = append(parts, m.words()+m.qualifierWords())
		}
		return "any of: " + strings.Join(parts, "; ")
	}
	when, fixed := s.calendar.clockWords()
	days := s.calendar.dayWords()
	if days == "" && fixed {
		days = "every day"
	}
	if days != "" {
		when += " " + days
	}
	if s.calendar.years != everyYear {
		when += " in " + s.calendar.years.words()
	}
	return when + ", " + s.zone.name
}

func (s *Schedule) qualifierWords() string {
	var w string
	if !s.notBefore.IsZero() {
		w += ", not before " + instant(s.notBefore)
	}
	if !s.notAfter.IsZero() {
		w += ", not after " + instant(s.notAfter)
	}
	if s.offset > 0 {
		w += ", each " + short(s.offset) + " later to spread load"
	}
	if s.jitter > 0 {
		w += ", and up to " + short(s.jitter) + " later at random"
	}
	return w
}

// clockWords describes the times of day; fixed if it names them.
func (c *calendar) clockWords() (w string, fixed bool) {
	hours, minutes, seconds := uint64(c.hours), c.minutes, c.seconds
	n := bits.OnesCount64(hours) * bits.OnesCount64(minutes) * bits.OnesCount64(seconds)
	if n <= 6 && (n == 1 || hours != everyHour) {
		var times []string
		for t := c.timeFrom(0); t >= 0; t = c.timeFrom(t + 1) {
			times = append(times, clockTime(t))
			if t == daySeconds-1 {
				break
			}
		}
		return "at " + list(times), true
	}
	if seconds != 1 {
		parts := []string{unit(seconds, 60, "second", "seconds")}
		if minutes != everyMinute {
			parts = append(parts, unit(minutes, 60, "minute", "minutes"))
		}
		if hours != everyHour {
			parts = append(parts, hourWords(hours))
		}
		return strings.Join(parts, ", "), false
	}
	lone := bits.OnesCount64(minutes) == 1
	at := ""
	if lone {
		if m := bits.TrailingZeros64(minutes); m != 0 {
			at = fmt.Sprintf(" at :%02d", m)
		}
	}
	switch step := regular(hours, 24); {
	case lone && step > 1:
		return fmt.Sprintf("every %d hours%s", step, at), false
	case lone && hours == everyHour:
		return "every hour" + at, false
	case lone && run(hours):
		return "every hour" + c.fromTo(), false
	case lone:
		return "every hour" + at + ", " + hourWords(hours), false
	case hours == everyHour:
		return unit(minutes, 60, "minute", "minutes"), false
	case run(hours) && regular(minutes, 60) > 0:
		return unit(minutes, 60, "minute", "minutes") + c.fromTo(), false
	}
	return unit(minutes, 60, "minute", "minutes") + ", " + hourWords(hours), false
}

// fromTo names the first and last time of the day.
func (c *calendar) fromTo() string {
	last := bits.Len32(c.hours)*3600 - 3600 + bits.Len64(c.minutes)*60 - 60 + bits.Len64(c.seconds) - 1
	return " from " + clockTime(int(c.firstTime())) + " to " + clockTime(last)
}

func hourWords(hours uint64) string {
	if bits.OnesCount64(hours) == 1 {
		return "in hour " + numbers(hours)
	}
	return "in hours " + numbers(hours)
}

// unit describes a set of seconds or minutes.
func unit(set uint64, size int, one, many string) string {
	switch step := regular(set, size); {
	case step == 1:
		return "every " + one
	case step > 1:
		return fmt.Sprintf("every %d %s", step, many)
	case bits.OnesCount64(set) == 1:
		return "at " + one + " " + numbers(set)
	}
	return "at " + many + " " + numbers(set)
}

// regular gives n if set is every n-th of size from 0 on and n divides size.
func regular(set uint64, size int) int {
	for n := 1; n < size; n++ {
		if size%n == 0 {
			var want uint64
			for v := 0; v < size; v += n {
				want |= 1 << v
			}
			if set == want {
				return n
			}
		}
	}
	return 0
}

// run reports whether the set is one unbroken range.
func run(set uint64) bool {
	set >>= bits.TrailingZeros64(set)
	return set&(set+1) == 0
}

// numbers lists a set: "0 to 9, 30 and 45".
func numbers(set uint64) string {
	return ranges(64, func(i int) bool { return set>>i&1 != 0 }, func(i int) string { return strconv.Itoa(i) })
}

// words lists years.
func (s *yearSet) words() string {
	return ranges(LastYear-FirstYear+1, s.has, func(i int) string { return strconv.Itoa(FirstYear + i) })
}

// ranges lists what has holds, three and more in a row as a range.
func ranges(n int, has func(int) bool, name func(int) string) string {
	var parts []string
	for lo, hi := range runs(n, has) {
		switch hi - lo {
		case 0:
			parts = append(parts, name(lo))
		case 1:
			parts = append(parts, name(lo), name(hi))
		default:
			parts = append(parts, name(lo)+" to "+name(hi))
		}
	}
	return list(parts)
}

// dayWords describes the days; empty if that is every day.
func (c *calendar) dayWords() string {
	month, inMonth := "the month", ""
	if c.months != everyMonth {
		month = ranges(13, func(i int) bool { return c.months>>i&1 != 0 }, func(i int) string { return time.Month(i).String() })
		inMonth = " in " + month
	}
	if c.days == nil {
		if inMonth != "" {
			return "every day" + inMonth
		}
		return ""
	}
	d := c.days.fields
	var dates, weekdays string
	if d.monthday != "*" {
		var parts []string
		for e := range strings.SplitSeq(d.monthday, ",") {
			parts = append(parts, dateWords(e))
		}
		dates = list(parts) + " of " + month
		if d.clamp {
			dates += ", or its last day"
		}
	}
	if d.weekday != "*" {
		weekdays = weekdayWords(d.weekday, month)
		if dates == "" && !strings.Contains(weekdays, " of "+month) {
			weekdays += inMonth
		}
	}
	switch {
	case weekdays == "":
		return "on " + dates
	case dates == "":
		return "on " + weekdays
	case d.both:
		return "on " + weekdays + " if it is also " + dates
	}
	return "on " + dates + ", and on " + weekdays
}

// dateWords describes one entry of a day-of-month field in normal form.
func dateWords(e string) string {
	span, step, stepped := strings.Cut(e, "/")
	from, to, ranged := strings.Cut(span, "-")
	switch {
	case e == "L":
		return "the last day"
	case e == "LW":
		return "the last working day"
	case strings.HasSuffix(e, "W"):
		return "the working day nearest to the " + ordinal(strings.TrimSuffix(e, "W"))
	case stepped && span == "*":
		return "every " + ordinal(step) + " day from the 1st"
	case stepped && ranged:
		return "every " + ordinal(step) + " day from the " + ordinal(from) + " to the " + ordinal(to)
	case stepped:
		return "every " + ordinal(step) + " day from the " + ordinal(span)
	case ranged:
		return "the " + ordinal(from) + " to the " + ordinal(to)
	}
	return "the " + ordinal(e)
}

// weekdayWords describes a weekday field in normal form.
func weekdayWords(field, month string) string {
	var set [8]bool // Monday is 1, Sunday 7
	var parts []string
	var special []string
	mark := func(text string) {
		d := int(text[0] - '0')
		if d == 0 {
			d = 7
		}
		set[d] = true
	}
	for e := range strings.SplitSeq(field, ",") {
		day := func() string { return time.Weekday(e[0] - '0').String() }
		switch from, to, _ := strings.Cut(e, "-"); {
		case strings.HasSuffix(e, "L"):
			special = append(special, "the last "+day())
		case strings.Contains(e, "#"):
			special = append(special, "the "+ordinal(e[2:])+" "+day())
		case to != "":
			for d := from[0]; d <= to[0]; d++ {
				mark(string(d))
			}
		default:
			mark(e)
		}
	}
	if days := ranges(8, func(i int) bool { return set[i] }, func(i int) string { return time.Weekday(i%7).String() + "s" }); days != "" {
		parts = append(parts, days)
	}
	if len(special) > 0 {
		parts = append(parts, list(special)+" of "+month)
	}
	return strings.Join(parts, " and on ")
}

// list joins with commas and a final "and".
func list(parts []string) string {
	if n := len(parts); n > 1 {
		return strings.Join(parts[:n-1], ", ") + " and " + parts[n-1]
	}
	return strings.Join(parts, "")
}

// ordinal gives "1st" for "1".
func ordinal(n string) string {
	if len(n) < 2 || n[len(n)-2] != '1' {
		switch n[len(n)-1] {
		case '1':
			return n + "st"
		case '2':
			return n + "nd"
		case '3':
			return n + "rd"
		}
	}
	return n + "th"
}

// clockTime writes a second of the day, without seconds if they are 0.
func clockTime(t int) string {
	if t%60 == 0 {
		return fmt.Sprintf("%02d:%02d", t/3600, t/60%60)
	}
	return fmt.Sprintf("%02d:%02d:%02d", t/3600, t/60%60, t%60)
}

// short writes a duration without zero units at its end: 5m, not 5m0s.
func short(d time.Duration) string {
	text := d.String()
	if d >= time.Minute && strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if d >= time.Hour && strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
