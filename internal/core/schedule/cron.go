package schedule

import (
	"fmt"
	"strings"
	"time"
)

// macros and what they stand for.
var macros = map[string]string{
	"@yearly":   "0 0 0 1 1 * *",
	"@annually": "0 0 0 1 1 * *",
	"@monthly":  "0 0 0 1 * * *",
	"@weekly":   "0 0 0 * * 0 *",
	"@daily":    "0 0 0 * * * *",
	"@midnight": "0 0 0 * * * *",
	"@hourly":   "0 0 * * * * *",
}

const (
	macroNames = "@yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly and @every"
	blanks     = " \t"
)

// cronText is a cron text that has been read: its fields are known to be well
// formed, and in the normal form that cronexpr understands.
type cronText struct {
	fields [fieldCount]field
	both   bool // both day fields must match, not either
}

// canonical gives the seven fields as text.
func (t *cronText) canonical() string {
	var parts [fieldCount]string
	for i := range t.fields {
		parts[i] = t.fields[i].canonical
	}
	if t.both {
		parts[weekdayField] = "+" + parts[weekdayField]
	}
	return strings.Join(parts[:], " ")
}

// wild reports whether the clock fields follow the wall clock (docs/schedules.md).
func (t *cronText) wild() bool {
	return t.fields[secondField].wild || t.fields[minuteField].wild || t.fields[hourField].wild
}

// calendar asks cronexpr what the fields mean.
func (t *cronText) calendar() (calendar, error) {
	var e engine
	c := calendar{
		seconds: e.clock(secondField, t.fields[secondField].plain),
		minutes: e.clock(minuteField, t.fields[minuteField].plain),
		hours:   uint32(e.clock(hourField, t.fields[hourField].plain)),
		days:    e.days(dayFields{monthday: t.fields[dayField].plain, weekday: t.fields[weekdayField].plain, both: t.both}),
		months:  e.months(t.fields[monthField].plain),
		years:   e.years(t.fields[yearField].plain),
		wild:    t.wild(),
	}
	return c, e.err
}

// cron compiles a cron text.
func (c *compiler) cron(path string, s Spec, out *Schedule) {
	fail := func(offset int, format string, args ...any) {
		c.faults = append(c.faults, &Error{Field: path, Msg: fmt.Sprintf(format, args...), Offset: offset})
	}
	text := strings.TrimRight(s.Cron, " \t\r\n") // block text in YAML ends in a newline
	if len(text) > MaxCronBytes+maxZoneLength+len("CRON_TZ= ") {
		fail(-1, "%d bytes long; at most %d", len(text), MaxCronBytes)
		return
	}
	for i, r := range text {
		if r != '\t' && (r < ' ' || r > '~') {
			fail(i, "unexpected character %q; cron texts are plain ASCII on one line", r)
			return
		}
	}
	start := skipBlanks(text, 0)

	if name, after, ok := zonePrefix(text, start); ok {
		if after < 0 {
			fail(start, "%q must be followed by a blank and the schedule", text[start:])
			return
		}
		at := strings.IndexByte(text, '=') + 1
		z, err := loadZone(name)
		switch {
		case name == "":
			fail(at, "empty time zone; use an IANA name such as Europe/Berlin")
		case err != nil:
			fail(at, "%v", err)
		case s.Zone != "" && s.Zone != name:
			fail(at, "time zone %s contradicts time_zone, %q; set one of them", name, s.Zone)
		default:
			out.zone = z
		}
		start = skipBlanks(text, after)
	}
	switch body := text[start:]; {
	case body == "":
		fail(start, "empty; expected 5 fields (minute first), 6 (second first), 7 (with a year) or one of %s", macroNames)
	case len(body) > MaxCronBytes:
		fail(-1, "%d bytes long; at most %d", len(body), MaxCronBytes)
	case body[0] == '@':
		c.macro(path, body, start, fail, out)
	default:
		if t, ok := parseFields(text, start, c.options.FlowID, fail); ok {
			c.fields(path, &t, out)
		}
	}
}

// fields makes a schedule of fields that have been read.
func (c *compiler) fields(path string, t *cronText, out *Schedule) {
	out.kind, out.text = kindCron, t.canonical()
	if len(out.text) > MaxCronBytes {
		c.fault(path, "%d bytes long with all seven fields; at most %d", len(out.text), MaxCronBytes)
		return
	}
	var err error
	if out.calendar, err = t.calendar(); err != nil {
		c.fault(path, "%v", err)
	}
}

func skipBlanks(text string, i int) int {
	for i < len(text) && strings.IndexByte(blanks, text[i]) >= 0 {
		i++
	}
	return i
}

// zonePrefix splits "TZ=name " or "CRON_TZ=name " off. after is where the rest
// begins, -1 if nothing follows.
func zonePrefix(text string, start int) (name string, after int, ok bool) {
	rest, ok := strings.CutPrefix(text[start:], "TZ=")
	if !ok {
		if rest, ok = strings.CutPrefix(text[start:], "CRON_TZ="); !ok {
			return "", 0, false
		}
	}
	n := strings.IndexAny(rest, blanks)
	if n < 0 {
		return rest, -1, true
	}
	return rest[:n], len(text) - len(rest) + n, true
}

// macro compiles "@name" and "@every duration".
func (c *compiler) macro(path, body string, start int, fail func(int, string, ...any), out *Schedule) {
	words := strings.FieldsFunc(body, func(r rune) bool { return r == ' ' || r == '\t' })
	name := strings.ToLower(words[0])
	switch fields, known := macros[name]; {
	case name == "@every":
		if len(words) != 2 {
			fail(start, "@every takes one duration, such as @every 5m")
			return
		}
		d, err := time.ParseDuration(words[1])
		if err != nil {
			fail(start+strings.LastIndex(body, words[1]), "%q is no duration; write 90s, 5m, 1h30m", words[1])
			return
		}
		if d < MinInterval {
			fail(start+strings.LastIndex(body, words[1]), "%v is too short; at least %v", d, MinInterval)
			return
		}
		c.every("", Every{Interval: d}, out) // cannot fail
	case name == "@reboot":
		fail(start, "@reboot is not supported, since a schedule does not know restarts; use every, whose first run is at the start")
	case !known:
		fail(start, "unknown macro %q; allowed are %s", words[0], macroNames)
	case len(words) > 1:
		fail(start, "nothing may follow %s, found %q", name, words[1])
	default:
		if t, ok := parseFields(fields, 0, "", fail); ok {
			c.fields(path, &t, out)
		}
	}
}

// parseFields reads five, six or seven fields that begin at text[start].
func parseFields(text string, start int, flowID string, fail func(int, string, ...any)) (t cronText, ok bool) {
	var words [fieldCount]string
	var offsets [fieldCount]int
	n := 0
	for i := start; i < len(text); n++ {
		end := i
		for end < len(text) && strings.IndexByte(blanks, text[end]) < 0 {
			end++
		}
		if n < fieldCount {
			words[n], offsets[n] = text[i:end], i
		}
		i = skipBlanks(text, end)
	}
	if n < 5 || n > fieldCount {
		fail(start, "expected 5 fields (minute first), 6 (second first) or 7 (second first, year last), found %d", n)
		return t, false
	}
	first := secondField
	if n == 5 {
		first = minuteField
		t.fields[secondField] = field{canonical: "0", plain: "0"}
	}
	if n < fieldCount {
		t.fields[yearField] = field{canonical: "*", plain: "*", all: true}
	}
	ok = true
	for i := range n {
		f, word, at := first+i, words[i], offsets[i]
		if f == weekdayField && word[0] == '+' {
			t.both = true
			word, at = word[1:], at+1
		}
		var err *Error
		if t.fields[f], err = parseField(f, word, flowID); err != nil {
			ok = false
			fail(at+err.Offset, "%s field: %s", fieldSpecs[f].name, err.Msg)
		}
	}
	if t.fields[dayField].all || t.fields[weekdayField].all {
		t.both = false // both match anyway
	}
	return t, ok
}
