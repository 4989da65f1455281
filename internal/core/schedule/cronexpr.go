package schedule

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorhill/cronexpr"
)

// This is the only file that knows cronexpr, and cronexpr is what knows the
// calendar: Compile asks it which seconds, minutes, hours, days, months and
// years a field means, and keeps the answers as bit sets in which Next looks
// up. Asked at every fire time instead, it would cost 170 to 310 ns a call where
// the day fields are open, and 500 to 3,300 ns with 1 to 6 allocations where
// they are restricted, since it builds, fills and sorts a map for each month it
// meets. The whole of Next, zone included, takes 30 to 90 ns and never allocates
// (bench/schedule).
//
// It is asked only in ways in which it is right: text that this package wrote
// (numbers without leading zeros, ascending ranges, seven fields), about wall
// time labelled UTC, on an expression that no other goroutine sees, since its
// Next writes to itself. The faults that this keeps out are listed in doc.go.

// engine asks cronexpr, and keeps the first refusal.
type engine struct{ err error }

// fireTimes gives all fire times of a text, at most n.
func (e *engine) fireTimes(text string, n uint) []time.Time {
	expr, err := cronexpr.Parse(text)
	if err != nil {
		if e.err == nil {
			e.err = fmt.Errorf("cronexpr does not take %q: %w", text, err)
		}
		return nil
	}
	return expr.NextN(time.Date(FirstYear-1, 12, 31, 23, 59, 59, 0, time.UTC), n)
}

// answers remembers what cronexpr said about a field. Flows share few texts:
// the bound only keeps hostile ones from filling the memory.
type answers[K comparable, V any] struct {
	mu   sync.RWMutex
	said map[K]V
}

const maxAnswers = 4096

func (a *answers[K, V]) get(e *engine, question K, ask func() V) V {
	a.mu.RLock()
	v, ok := a.said[question]
	a.mu.RUnlock()
	if ok {
		return v
	}
	if v = ask(); e.err != nil {
		return v
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.said == nil || len(a.said) >= maxAnswers {
		a.said = make(map[K]V)
	}
	a.said[question] = v
	return v
}

var (
	clockAnswers [hourField + 1]answers[string, uint64]
	monthAnswers answers[string, uint16]
	yearAnswers  answers[string, yearSet]
	dayAnswers   answers[dayFields, *dayRule]
)

// clock gives the values of a second, minute or hour field.
func (e *engine) clock(f int, text string) uint64 {
	return clockAnswers[f].get(e, text, func() (set uint64) {
		fields := [...]string{"0", "0", "0", "1", "1", "*", strconv.Itoa(FirstYear)}
		fields[f] = text
		for _, t := range e.fireTimes(strings.Join(fields[:], " "), 60) {
			set |= 1 << [...]int{t.Second(), t.Minute(), t.Hour()}[f]
		}
		return set
	})
}

// months gives the values of a month field.
func (e *engine) months(text string) uint16 {
	return monthAnswers.get(e, text, func() (set uint16) {
		for _, t := range e.fireTimes("0 0 0 1 "+text+" * "+strconv.Itoa(FirstYear), 12) {
			set |= 1 << t.Month()
		}
		return set
	})
}

// years gives the values of a year field.
func (e *engine) years(text string) yearSet {
	return yearAnswers.get(e, text, func() (set yearSet) {
		for _, t := range e.fireTimes("0 0 0 1 1 * "+text, LastYear-FirstYear+1) {
			y := t.Year() - FirstYear
			set[y>>6] |= 1 << (y & 63)
		}
		return set
	})
}

// days gives the rule of two day fields, nil if every day matches.
func (e *engine) days(f dayFields) *dayRule {
	if f.monthday == "*" && f.weekday == "*" {
		return nil
	}
	return dayAnswers.get(e, f, func() *dayRule {
		rule := &dayRule{fields: f}
		switch {
		case f.both:
			a, b := e.either(f.monthday, "*"), e.either("*", f.weekday)
			for i := range rule.days {
				rule.days[i] = a[i] & b[i]
			}
		case f.clamp:
			day, last := e.either(f.monthday, "*"), e.either("L", "*")
			for i := range rule.days {
				if rule.days[i] = day[i]; day[i] == 0 {
					rule.days[i] = last[i]
				}
			}
		default:
			rule.days = e.either(f.monthday, f.weekday)
		}
		return rule
	})
}

// either gives the days that one of the day fields picks, for each shape of
// month; * picks none if the other is restricted, which is how cronexpr reads
// them. One question is enough: January, February and April of the years below
// have every shape between them.
func (e *engine) either(monthday, weekday string) (days [shapes]uint32) {
	const most = 14 * (31 + 29 + 30)
	for _, t := range e.fireTimes("0 0 0 "+monthday+" 1,2,4 "+weekday+" "+sampleYears, most) {
		m := months[(t.Year()-FirstYear)*12+int(t.Month())-1]
		days[m.shape] |= 1 << t.Day()
	}
	return days
}

// sampleYears are fourteen years, leap and common, that begin on each weekday.
var sampleYears = func() string {
	var years []string
	seen := map[[2]int]bool{}
	for y := 2000; len(seen) < 14; y++ {
		first := time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC)
		kind := [2]int{int(first.Weekday()), first.AddDate(1, 0, -1).YearDay()}
		if !seen[kind] {
			seen[kind] = true
			years = append(years, strconv.Itoa(y))
		}
	}
	return strings.Join(years, ",")
}()
