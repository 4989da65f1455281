package schedule

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Compile checks a Spec and makes it ready to be asked. It returns all faults
// joined, each an *Error. Its work is bounded for any input.
func Compile(s Spec, o Options) (*Schedule, error) {
	c := compiler{options: o}
	out := c.compile("", s, utc, 0)
	if len(c.faults) > 0 {
		return nil, errors.Join(c.faults...)
	}
	return out, nil
}

type compiler struct {
	options Options
	faults  []error
	members int
}

func (c *compiler) fault(field, format string, args ...any) {
	c.faults = append(c.faults, &Error{Field: field, Msg: fmt.Sprintf(format, args...), Offset: -1})
}

// compile compiles one schedule. path ends in a dot unless it is empty; zone is
// the one to use if the Spec names none.
func (c *compiler) compile(path string, s Spec, inherited *zone, depth int) *Schedule {
	before := len(c.faults)
	out := &Schedule{zone: inherited}
	if s.Zone != "" {
		z, err := loadZone(s.Zone)
		if err != nil {
			c.fault(path+"time_zone", "%v", err)
		} else {
			out.zone = z
		}
	}
	out.qualifiers = c.qualifiers(path, s, depth)

	switch kinds := kindsOf(s); {
	case len(kinds) == 0:
		c.fault(strings.TrimSuffix(path, "."), "no schedule given; set one of every, cron, once, daily, weekly, monthly, manual, any_of")
	case len(kinds) > 1:
		c.fault(strings.TrimSuffix(path, "."), "only one kind of schedule may be set, not %s together; any_of combines several", strings.Join(kinds, " and "))
	case s.Every != nil:
		c.every(path+"every.", *s.Every, out)
	case s.Cron != "":
		c.cron(path+"cron", s, out)
	case s.Once != "":
		c.once(path+"once.at", s.Once, out)
	case s.Daily != nil:
		c.daily(path+"daily.", *s.Daily, out)
	case s.Weekly != nil:
		c.weekly(path+"weekly.", *s.Weekly, out)
	case s.Monthly != nil:
		c.monthly(path+"monthly.", *s.Monthly, out)
	case s.AnyOf != nil:
		c.anyOf(path, s.AnyOf, out, depth)
	default:
		out.kind, out.text = kindManual, "manual"
		if depth > 0 {
			c.fault(path+"manual", "a schedule that is never due has no place in any_of; remove it")
		}
	}
	if len(c.faults) == before { // what is broken anyway is not asked when it fires
		c.never(path, out)
	}
	return out
}

// kindsOf names the kinds that are set, as flows files spell them.
func kindsOf(s Spec) (kinds []string) {
	for _, k := range []struct {
		name string
		set  bool
	}{
		{"every", s.Every != nil},
		{"cron", s.Cron != ""},
		{"once", s.Once != ""},
		{"daily", s.Daily != nil},
		{"weekly", s.Weekly != nil},
		{"monthly", s.Monthly != nil},
		{"manual", s.Manual},
		{"any_of", s.AnyOf != nil},
	} {
		if k.set {
			kinds = append(kinds, k.name)
		}
	}
	return kinds
}

// qualifiers compiles what may stand beside any kind.
func (c *compiler) qualifiers(path string, s Spec, depth int) *qualifiers {
	for _, b := range []struct {
		name string
		t    time.Time
	}{{"not_before", s.NotBefore}, {"not_after", s.NotAfter}} {
		if !b.t.IsZero() && (b.t.Before(minInstant) || b.t.After(maxInstant)) {
			c.fault(path+b.name, "must lie in the years 1 to 9999")
		}
	}
	if !s.NotBefore.IsZero() && !s.NotAfter.IsZero() && s.NotAfter.Before(s.NotBefore) {
		c.fault(path+"not_after", "%s lies before not_before, %s", instant(s.NotAfter), instant(s.NotBefore))
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"jitter", s.Jitter}, {"splay", s.Splay}} {
		if d.d < 0 || d.d > MaxSpread {
			c.fault(path+d.name, "%v is out of range; allowed are 0s to %s", d.d, short(MaxSpread))
		}
	}
	if s.Jitter != 0 && depth > 0 {
		c.fault(path+"jitter", "jitter belongs to the whole schedule; move it out of any_of")
	}
	q := qualifiers{notBefore: s.NotBefore, notAfter: s.NotAfter, jitter: s.Jitter, splay: s.Splay}
	if q == *unqualified {
		return unqualified
	}
	if s.Splay > 0 {
		// Whole milliseconds read better, and are finer than a firing is precise.
		ms := uint64((s.Splay-1)/time.Millisecond) + 1
		q.offset = time.Duration(pick(c.options.FlowID, "splay", ms)) * time.Millisecond
	}
	return &q
}

func (c *compiler) every(path string, e Every, out *Schedule) {
	out.kind, out.every = kindEvery, &e
	if e.Interval < MinInterval {
		c.fault(path+"interval", "%v is too short; at least %v", e.Interval, MinInterval)
	}
	if e.InitialDelay < 0 {
		c.fault(path+"initial_delay", "%v is negative", e.InitialDelay)
	}
	out.text = "every " + short(e.Interval)
	if e.InitialDelay != 0 {
		out.text += " initial_delay=" + short(e.InitialDelay)
	}
	if e.FixedDelay {
		out.text += " fixed_delay"
	}
}

func (c *compiler) once(path, text string, out *Schedule) {
	out.kind = kindOnce
	moved := ""
	t, local, err := parseInstant(text)
	if err != nil {
		c.fault(path, "%v", err)
		return
	}
	if local {
		// The rule of 4.2 for a fixed time, asked about a single wall time.
		wall := t
		if t = out.zone.resolve(wall); t.IsZero() {
			c.faults = append(c.faults, &Error{
				Field: path, Offset: -1, kind: ErrNever,
				Msg: fmt.Sprintf("%s never fires: %s has no such local time", text, out.zone.name),
			})
			return
		}
		if out.zone.local(t.Unix(), time.DateTime) != wall.Format(time.DateTime) {
			moved = wall.Format("15:04:05")
		}
	}
	out.once = &once{at: t, moved: moved}
	out.text = "once " + instant(t)
}

func (c *compiler) daily(path string, d Daily, out *Schedule) {
	out.kind = kindDaily
	out.text = "daily " + c.clock(path+"at", d.At, &out.calendar)
}

func (c *compiler) weekly(path string, w Weekly, out *Schedule) {
	out.kind = kindWeekly
	at := c.clock(path+"at", w.At, &out.calendar)
	var set [7]bool
	for i, d := range w.Days {
		if d < time.Sunday || d > time.Saturday {
			c.fault(fmt.Sprintf("%sdays[%d]", path, i), "%d is no weekday; allowed are 0 (Sunday) to 6 (Saturday)", int(d))
			return
		}
		set[d] = true
	}
	var numbers, names []string
	for i := range 7 { // Monday first
		if d := (i + 1) % 7; set[d] {
			numbers = append(numbers, strconv.Itoa(d))
			names = append(names, strings.ToUpper(time.Weekday(d).String()[:3]))
		}
	}
	if len(names) == 0 {
		c.fault(path+"days", "no weekday given")
		return
	}
	c.days(path+"days", dayFields{monthday: "*", weekday: strings.Join(numbers, ",")}, &out.calendar)
	out.text = "weekly " + strings.Join(names, ",") + " " + at
}

func (c *compiler) monthly(path string, m Monthly, out *Schedule) {
	out.kind = kindMonthly
	at := c.clock(path+"at", m.At, &out.calendar)
	switch {
	case m.Day != -1 && (m.Day < 1 || m.Day > 31):
		c.fault(path+"day", "%d is no day of the month; allowed are 1 to 31, and -1 for the last day", m.Day)
		return
	case m.ShortMonth != SkipMonth && m.ShortMonth != LastDay:
		c.fault(path+"short_month", "%d is unknown; allowed are SKIP and LAST_DAY", int(m.ShortMonth))
		return
	}
	days := dayFields{monthday: strconv.Itoa(m.Day), weekday: "*", clamp: m.ShortMonth == LastDay && m.Day > 28}
	if m.Day == -1 {
		days.monthday = "L"
	}
	c.days(path+"day", days, &out.calendar)
	out.text = fmt.Sprintf("monthly %d %s", m.Day, at)
	if days.clamp {
		out.text += " short_month=LAST_DAY"
	}
}

// days sets which days a calendar is due on.
func (c *compiler) days(path string, f dayFields, out *calendar) {
	var e engine
	if out.days = e.days(f); e.err != nil {
		c.fault(path, "%v", e.err)
	}
}

func (c *compiler) anyOf(path string, members []Spec, out *Schedule, depth int) {
	out.kind = kindAnyOf
	name := path + "any_of"
	switch {
	case len(members) == 0:
		c.fault(name, "no schedule given")
		return
	case depth == MaxDepth:
		c.fault(name, "any_of is nested deeper than %d", MaxDepth)
		return
	case len(members) > MaxMembers-c.members:
		c.fault(name, "too many schedules; at most %d, nested ones included", MaxMembers)
		return
	}
	c.members += len(members)
	var texts []string
	for i, m := range members {
		s := c.compile(fmt.Sprintf("%s[%d].", name, i), m, out.zone, depth+1)
		out.members = append(out.members, s)
		texts = append(texts, s.Canonical())
	}
	out.text = "any_of [" + strings.Join(texts, "; ") + "]"
}

// clock sets a calendar to every day at a wall time, and gives its canonical text.
func (c *compiler) clock(path, at string, out *calendar) string {
	h, m, s, ok := parseClock(at)
	if !ok {
		c.fault(path, "%q is no time of day; write hh:mm or hh:mm:ss, 00:00 to 23:59:59", at)
	}
	*out = calendar{years: everyYear, months: everyMonth, hours: 1 << h, minutes: 1 << m, seconds: 1 << s}
	return fmt.Sprintf("%02d:%02d:%02d", h, m, s)
}

// parseClock reads "hh:mm" or "hh:mm:ss".
func parseClock(text string) (h, m, s int, ok bool) {
	parts := strings.Split(text, ":")
	if len(parts) != 2 && len(parts) != 3 {
		return 0, 0, 0, false
	}
	var n [3]int
	for i, p := range parts {
		if len(p) != 2 && !(i == 0 && len(p) == 1) {
			return 0, 0, 0, false
		}
		for _, r := range []byte(p) {
			if r < '0' || r > '9' {
				return 0, 0, 0, false
			}
			n[i] = n[i]*10 + int(r-'0')
		}
	}
	if n[0] > 23 || n[1] > 59 || n[2] > 59 {
		return 0, 0, 0, false
	}
	return n[0], n[1], n[2], true
}

// parseInstant reads an RFC 3339 instant, or a local time without offset, which
// comes back labelled UTC.
func parseInstant(text string) (t time.Time, local bool, err error) {
	if t, err = time.Parse(time.RFC3339, text); err != nil {
		local = true
		for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04"} {
			if t, err = time.Parse(layout, text); err == nil {
				break
			}
		}
	}
	// time.Parse is lenient: one-digit hours and a comma before the fraction.
	if err != nil || len(text) < 16 || text[13] != ':' || strings.Contains(text, ",") {
		return t, local, fmt.Errorf("%q is no instant; write 2027-03-28T09:00:00Z, with an offset such as +01:00, or without one for a local time in time_zone", text)
	}
	t = t.UTC()
	if local && (t.Year() < FirstYear || t.Year() > LastYear) || t.Year() < FirstYear || t.Year() > 9999 {
		return t, local, fmt.Errorf("%q is out of range; allowed are the years %d to %d, and to 9999 with an offset", text, FirstYear, LastYear)
	}
	return t, local, nil
}

// never rejects a compiled schedule that has no fire time.
func (c *compiler) never(path string, s *Schedule) {
	if s.kind == kindManual {
		return
	}
	fail := func(kind error, format string, args ...any) {
		c.faults = append(c.faults, &Error{Field: path + kindNames[s.kind], Msg: fmt.Sprintf(format, args...), Offset: -1, kind: kind})
	}
	past := !c.options.Now.IsZero() && !c.options.AllowPast
	if s.anchored() {
		// Its first tick depends on the start of the flow.
		if past && !s.notAfter.IsZero() && !s.notAfter.After(c.options.Now) {
			fail(ErrNever, "never fires again: not_after, %s, has passed", instant(s.notAfter))
		}
		return
	}
	switch {
	case s.Next(minInstant, Anchors{}).IsZero():
		fail(ErrNever, "%s never fires", s.Canonical())
	case !past || !s.Next(c.options.Now, Anchors{}).IsZero():
	case s.kind == kindOnce:
		fail(ErrPast, "%s lies in the past", instant(s.once.at))
	default:
		fail(ErrNever, "%s never fires again", s.Canonical())
	}
}

func instant(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
