package schedule

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// The fields of a cron text in canonical order.
const (
	secondField = iota
	minuteField
	hourField
	dayField
	monthField
	weekdayField
	yearField
	fieldCount
)

// fieldSpec is what a field may hold.
type fieldSpec struct {
	name     string
	min, max int
	step     int // largest step
	hashMax  int // largest value that a plain H picks; 0: no H
	names    map[string]int
	allowed  string // for messages
}

var (
	monthNames = map[string]int{
		"JAN": 1, "FEB": 2, "MAR": 3, "APR": 4, "MAY": 5, "JUN": 6, "JUL": 7, "AUG": 8, "SEP": 9, "OCT": 10, "NOV": 11, "DEC": 12,
		"JANUARY": 1, "FEBRUARY": 2, "MARCH": 3, "APRIL": 4, "JUNE": 6, "JULY": 7, "AUGUST": 8, "SEPTEMBER": 9, "OCTOBER": 10, "NOVEMBER": 11, "DECEMBER": 12,
	}
	weekdayNames = map[string]int{
		"SUN": 0, "MON": 1, "TUE": 2, "WED": 3, "THU": 4, "FRI": 5, "SAT": 6, "TUES": 2, "THURS": 4,
		"SUNDAY": 0, "MONDAY": 1, "TUESDAY": 2, "WEDNESDAY": 3, "THURSDAY": 4, "FRIDAY": 5, "SATURDAY": 6,
	}
	fieldSpecs = [fieldCount]fieldSpec{
		secondField:  {name: "second", min: 0, max: 59, step: 59, hashMax: 59, allowed: "0-59"},
		minuteField:  {name: "minute", min: 0, max: 59, step: 59, hashMax: 59, allowed: "0-59"},
		hourField:    {name: "hour", min: 0, max: 23, step: 23, hashMax: 23, allowed: "0-23"},
		dayField:     {name: "day-of-month", min: 1, max: 31, step: 31, hashMax: 28, allowed: "1-31, L, LW and 1W-31W"},
		monthField:   {name: "month", min: 1, max: 12, step: 12, hashMax: 12, names: monthNames, allowed: "1-12 and JAN-DEC"},
		weekdayField: {name: "weekday", min: 0, max: 7, step: 7, hashMax: 6, names: weekdayNames, allowed: "0-7 (0 and 7 are Sunday), SUN-SAT, 5L and 5#2"},
		yearField:    {name: "year", min: FirstYear, max: LastYear, step: LastYear - FirstYear, allowed: "1970-2099"},
	}
)

// maxPlainStep is the largest step that cronexpr reads.
const maxPlainStep = 59

// field is one field that has been read.
type field struct {
	canonical string // normal form
	plain     string // what cronexpr is fed: canonical with H resolved
	all       bool   // does not restrict: *, ? or */1
	wild      bool   // a clock field that begins with *, or with H/n
}

// span is a range with a step; hi is the last value that the steps reach.
type span struct{ lo, hi, step int }

// entry is one entry of a field: special, such as 15W, or a span.
type entry struct {
	span
	special string
	star    bool // * or */n
	hashed  bool // H/n
}

func (e entry) everything() bool { return e.star && e.step == 1 }

// parseField reads a field. Offset in the error counts from the start of word.
func parseField(f int, word, flowID string) (field, *Error) {
	if n := strings.Count(word, ",") + 1; n > MaxEntries {
		return field{}, &Error{Msg: fmt.Sprintf("%d entries; at most %d", n, MaxEntries)}
	}
	if word == "" {
		return field{}, &Error{Msg: "empty; allowed are " + fieldSpecs[f].allowed}
	}
	var entries []entry
	at := 0
	for part := range strings.SplitSeq(word, ",") {
		p := entryParser{fieldSpec: &fieldSpecs[f], field: f, flowID: flowID, text: part}
		e, err := p.parse()
		if err != nil {
			err.Offset += at
			return field{}, err
		}
		e.hi -= (e.hi - e.lo) % e.step
		entries = append(entries, e)
		at += len(part) + 1
	}
	return normalize(f, entries), nil
}

// entryParser reads one entry.
type entryParser struct {
	*fieldSpec
	field  int
	flowID string
	text   string
}

func (p *entryParser) fail(offset int, format string, args ...any) *Error {
	return &Error{Msg: fmt.Sprintf(format, args...), Offset: offset}
}

func (p *entryParser) parse() (e entry, err *Error) {
	if p.text == "" {
		return e, p.fail(0, "empty entry; remove the comma")
	}
	body, step, stepped := strings.Cut(p.text, "/")
	upper := strings.ToUpper(body)
	days := p.field == dayField || p.field == weekdayField
	e.step = 1
	if stepped {
		if e.step, err = p.parseStep(step, len(body)+1); err != nil {
			return e, err
		}
	}
	switch {
	case body == "":
		return e, p.fail(0, "value missing before /; allowed are %s", p.allowed)
	case body == "*":
		e.star, e.lo, e.hi = true, p.min, p.max
		if p.field == weekdayField {
			e.hi = 6
		}
		return e, nil
	case body == "?" && days:
		if stepped {
			return e, p.fail(1, "a step cannot follow ?; write *%s", p.text[1:])
		}
		e.star, e.lo, e.hi = true, p.min, p.max
		return e, nil
	case upper[:1] == "H":
		return p.parseHash(e, upper, stepped)
	}
	if days {
		special, err := p.parseSpecial(upper)
		if err != nil {
			return e, err
		}
		if special != "" {
			if stepped {
				return e, p.fail(len(body), "a step cannot follow %s", body)
			}
			e.special = special
			return e, nil
		}
	}
	from, to, ranged := strings.Cut(upper, "-")
	if e.lo, err = p.parseValue(from, 0); err != nil {
		return e, err
	}
	switch {
	case ranged:
		if e.hi, err = p.parseValue(to, len(from)+1); err != nil {
			return e, err
		}
		if e.hi = p.sunday(e.lo, e.hi); e.hi < e.lo {
			return e, p.fail(0, "range %s runs backwards%s", body, p.asTwo(body, len(from)))
		}
	case stepped:
		if p.field == weekdayField && e.lo == 7 {
			e.lo = 0
		}
		e.hi = p.top()
	default:
		e.hi = e.lo
	}
	return e, nil
}

// sunday gives the end of a range: a weekday range that ends on Sunday ends on 7.
func (p *entryParser) sunday(lo, hi int) int {
	if p.field == weekdayField && hi == 0 && lo != 0 {
		return 7
	}
	return hi
}

// asTwo tells how to write a range that wraps around.
func (p *entryParser) asTwo(text string, dash int) string {
	if p.field == yearField {
		return ""
	}
	return fmt.Sprintf("; write it as two: %s-%d,%d-%s", text[:dash], p.top(), p.min, text[dash+1:])
}

// top is the largest value under which no other name hides.
func (p *entryParser) top() int {
	if p.field == weekdayField {
		return 6
	}
	return p.max
}

func (p *entryParser) parseStep(text string, at int) (int, *Error) {
	n, ok := number(text)
	if !ok {
		return 0, p.fail(at, "%q is no step; write / and a number from 1 to %d", text, p.step)
	}
	if n < 1 || n > p.step {
		return 0, p.fail(at, "step %s is out of range; allowed are 1 to %d", text, p.step)
	}
	return n, nil
}

// parseHash reads H, H/n, H(a-b) and H(a-b)/n.
func (p *entryParser) parseHash(e entry, body string, stepped bool) (entry, *Error) {
	if p.hashMax == 0 {
		return e, p.fail(0, "H is not allowed in this field; allowed are %s", p.allowed)
	}
	lo, hi := p.min, p.hashMax
	inner, ranged := strings.CutPrefix(body, "H(")
	if ranged {
		inner, closed := strings.CutSuffix(inner, ")")
		from, to, dash := strings.Cut(inner, "-")
		if !closed || !dash {
			return e, p.fail(0, "%s is not understood; write H(a-b)", body)
		}
		var err *Error
		if lo, err = p.parseValue(from, 2); err != nil {
			return e, err
		}
		if hi, err = p.parseValue(to, 3+len(from)); err != nil {
			return e, err
		}
		if hi = p.sunday(lo, hi); hi < lo {
			return e, p.fail(2, "range %s runs backwards", inner)
		}
	} else if body != "H" {
		return e, p.fail(0, "%s is not understood; write H, H/n or H(a-b)", body)
	}
	width := hi - lo + 1
	if !stepped {
		e.lo = lo + int(pick(p.flowID, p.name, uint64(width)))
		e.hi = e.lo
		return e, nil
	}
	if !ranged {
		if e.step == 1 {
			e.star, e.lo, e.hi = true, p.min, p.top()
			return e, nil
		}
		e.hashed = true
	}
	e.lo = lo + int(pick(p.flowID, p.name, uint64(min(e.step, width))))
	e.hi = hi
	return e, nil
}

// parseSpecial reads L, LW and nW of the day-of-month, nL and n#k of the weekday.
func (p *entryParser) parseSpecial(s string) (string, *Error) {
	if p.field == dayField {
		if s == "L" || s == "LW" {
			return s, nil
		}
		if n, ok := strings.CutSuffix(s, "W"); ok {
			v, err := p.parseValue(n, 0)
			if err != nil {
				return "", err
			}
			return strconv.Itoa(v) + "W", nil
		}
		if strings.HasPrefix(s, "L-") {
			return "", p.fail(0, "days before the last, as in %s, are not supported; allowed are %s", s, p.allowed)
		}
		return "", nil
	}
	if s == "L" {
		return "", p.fail(0, "L alone is not allowed; write 6L or SATL for the last Saturday, SAT for every one")
	}
	if day, k, ok := strings.Cut(s, "#"); ok {
		v, err := p.parseValue(day, 0)
		if err != nil {
			return "", err
		}
		n, ok := number(k)
		if !ok || n < 1 || n > 5 {
			return "", p.fail(len(day)+1, "%q is no week of the month; allowed are 1 to 5", k)
		}
		return fmt.Sprintf("%d#%d", v%7, n), nil
	}
	if day, ok := strings.CutSuffix(s, "L"); ok {
		v, err := p.parseValue(day, 0)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%dL", v%7), nil
	}
	return "", nil
}

// parseValue reads a number or a name, in upper case.
func (p *entryParser) parseValue(s string, at int) (int, *Error) {
	if v, ok := p.names[s]; ok {
		return v, nil
	}
	v, ok := number(s)
	if !ok {
		if s == "" {
			return 0, p.fail(at, "value missing; allowed are %s", p.allowed)
		}
		return 0, p.fail(at, "%q is not understood; allowed are %s", s, p.allowed)
	}
	if v < p.min || v > p.max {
		return 0, p.fail(at, "%s is out of range; allowed are %s", s, p.allowed)
	}
	return v, nil
}

// number reads digits; what is too large for any field comes back as 1<<20.
func number(s string) (int, bool) {
	n := 0
	for _, r := range []byte(s) {
		if r < '0' || r > '9' {
			return 0, false
		}
		n = min(n*10+int(r-'0'), 1<<20)
	}
	return n, s != ""
}

// normalize writes entries in normal form: single values and ranges as
// ascending ranges that do not touch, then what has a step, then specials. The
// result is normal already, means what the entries mean, and begins with * or H
// in a clock field exactly if the first entry does.
func normalize(f int, entries []entry) field {
	spec := &fieldSpecs[f]
	clock := f <= hourField
	first := entries[0]
	out := field{wild: clock && (first.star || first.hashed)}
	if (out.wild || !clock) && slices.ContainsFunc(entries, entry.everything) {
		out.canonical, out.plain, out.all = "*", "*", true
		return out
	}
	var single [LastYear - FirstYear + 1]bool
	var steps []span
	var specials []string
	for i, e := range entries {
		switch {
		case e.special != "":
			specials = append(specials, e.special)
		case out.wild && (i == 0 || first.star && e.span == first.span):
			// written before all others, below
		case e.step == 1 || e.lo == e.hi || f == weekdayField || e.step > maxPlainStep:
			for v := e.lo; v <= e.hi; v += e.step {
				if f == weekdayField {
					single[v%7] = true
				} else {
					single[v-spec.min] = true
				}
			}
		default:
			steps = append(steps, e.span)
		}
	}
	var parts []string
	for lo, hi := range runs(len(single), func(i int) bool { return single[i] }) {
		part := strconv.Itoa(lo + spec.min)
		if hi > lo {
			part += "-" + strconv.Itoa(hi+spec.min)
		}
		parts = append(parts, part)
	}
	slices.SortFunc(steps, func(a, b span) int {
		return cmp.Or(a.lo-b.lo, a.step-b.step, a.hi-b.hi)
	})
	for _, s := range slices.Compact(steps) {
		parts = append(parts, s.text(spec, !clock))
	}
	slices.Sort(specials)
	parts = append(parts, slices.Compact(specials)...)

	canonical, plain := parts, parts
	if out.wild {
		// Only here does the text have to keep its star, or its H.
		lead := first.text(spec, first.star)
		plain = append([]string{lead}, parts...)
		if first.hashed {
			lead = "H/" + strconv.Itoa(first.step)
		}
		canonical = append([]string{lead}, parts...)
	}
	out.canonical, out.plain = strings.Join(canonical, ","), strings.Join(plain, ",")
	return out
}

// runs gives the unbroken ranges of what has holds among 0 to n-1.
func runs(n int, has func(int) bool) iter.Seq2[int, int] {
	return func(yield func(lo, hi int) bool) {
		for lo := 0; lo < n; lo++ {
			if !has(lo) {
				continue
			}
			hi := lo
			for hi+1 < n && has(hi+1) {
				hi++
			}
			if !yield(lo, hi) {
				return
			}
			lo = hi
		}
	}
}

// text writes a span with a step; star allows * for the whole field.
func (s span) text(spec *fieldSpec, star bool) string {
	switch {
	case s.lo == s.hi:
		return strconv.Itoa(s.lo)
	case s.hi+s.step <= spec.max:
		return fmt.Sprintf("%d-%d/%d", s.lo, s.hi, s.step)
	case star && s.lo == spec.min:
		return fmt.Sprintf("*/%d", s.step)
	}
	return fmt.Sprintf("%d/%d", s.lo, s.step)
}
