package schedule

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The oracle knows nothing of the code it judges: it makes up the meaning of a
// cron text first and spells it afterwards, and finds fire times by looking at
// every second or minute of a stretch of time through the zone database.

// wallMatch says whether a wall time, labelled UTC, matches.
type wallMatch func(time.Time) bool

// bruteFires gives the instants in [from, to] at which a schedule fires, looking
// at every step seconds. The rule is that of Debian's cron in one sentence: a
// fixed schedule fires when the clock on the wall passes a matching time that it
// has not shown before, jumped over ones included; a wildcard schedule when the
// wall shows a matching time.
func bruteFires(loc *time.Location, match wallMatch, wild bool, from, to, step int64) []int64 {
	const hours3 = 3 * 60 * 60
	offset := func(t int64) int64 {
		_, o := time.Unix(t, 0).In(loc).Zone()
		return int64(o)
	}
	at := func(w int64) bool { return match(time.Unix(w, 0).UTC()) }
	var fires []int64
	prev := offset(from - step)
	shown := from - step + prev
	for t := from; t <= to; t += step {
		o := offset(t)
		w := t + o
		if o-prev > hours3 || prev-o > hours3 {
			shown = w - step // a correction of the calendar
		}
		prev = o
		due := false
		if wild {
			due = at(w)
		} else {
			for x := shown + step; x <= w && !due; x += step {
				due = at(x)
			}
			shown = max(shown, w)
		}
		if due {
			fires = append(fires, t)
		}
	}
	return fires
}

// madeUp is a cron text whose meaning is known.
type madeUp struct {
	text  string
	match wallMatch
	wild  bool
}

func (m madeUp) String() string { return m.text }

type maker struct{ *rand.Rand }

func (r maker) chance(percent int) bool { return r.IntN(100) < percent }

// spelled writes a number in one of the ways that are allowed.
func (r maker) spelled(v int, names []string) string {
	switch {
	case len(names) > 0 && r.chance(40):
		name := names[v]
		if r.chance(30) {
			name = strings.ToLower(name)
		}
		return name
	case r.chance(10):
		return "0" + strconv.Itoa(v)
	}
	return strconv.Itoa(v)
}

var (
	monthSpellings   = strings.Fields("- JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC")
	weekdaySpellings = strings.Fields("SUN MON TUE WED THU FRI SAT SUN")
)

// field makes up a field whose values are min to max; near is a value to prefer.
// star reports that its text begins with *, all that it does not restrict.
func (r maker) field(min, max, near int, names []string) (text string, set map[int]bool, star, all bool) {
	set = map[int]bool{}
	add := func(lo, hi, step int) {
		for v := lo; v <= hi; v += step {
			set[v] = true
		}
	}
	value := func() int {
		if r.chance(60) {
			return near
		}
		return min + r.IntN(max-min+1)
	}
	var parts []string
	for n := 1 + r.IntN(3)/2*(1+r.IntN(3)); len(parts) < n; {
		var part string
		switch k := r.IntN(10); {
		case k < 2 && len(parts) == 0:
			part, star, all = "*", true, true
			add(min, max, 1)
		case k < 4:
			step := 1 + r.IntN(max-min)
			if step == 1 {
				all = true
			}
			part = "*/" + strconv.Itoa(step)
			star = star || len(parts) == 0
			add(min, max, step)
		case k < 6:
			a, b := value(), value()
			if a > b {
				a, b = b, a
			}
			part = r.spelled(a, names) + "-" + r.spelled(b, names)
			step := 1
			if r.chance(40) {
				step = 1 + r.IntN(max-min)
				part += "/" + strconv.Itoa(step)
			}
			add(a, b, step)
		case k < 7:
			a, step := value(), 1+r.IntN(max-min)
			part = r.spelled(a, names) + "/" + strconv.Itoa(step)
			add(a, max, step)
		default:
			v := value()
			part = r.spelled(v, names)
			set[v] = true
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ","), set, star, all
}

// daysIn gives the length of a month.
func daysIn(t time.Time) int {
	return time.Date(t.Year(), t.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// monthday makes up a day-of-month field.
func (r maker) monthday(near int) (text string, match wallMatch, all bool) {
	text, set, _, all := r.field(1, 31, near, nil)
	match = func(t time.Time) bool { return set[t.Day()] }
	if !r.chance(35) {
		return text, match, all
	}
	plain, keep := match, r.chance(30) && !all
	var special string
	var specialMatch wallMatch
	switch n := 1 + r.IntN(31); r.IntN(4) {
	case 0:
		special, specialMatch = "L", func(t time.Time) bool { return t.Day() == daysIn(t) }
	case 1:
		special, specialMatch = "lw", func(t time.Time) bool {
			d := time.Date(t.Year(), t.Month(), daysIn(t), 0, 0, 0, 0, time.UTC)
			for d.Weekday() == time.Saturday || d.Weekday() == time.Sunday {
				d = d.AddDate(0, 0, -1)
			}
			return d.Day() == t.Day()
		}
	default:
		special, specialMatch = strconv.Itoa(n)+"W", func(t time.Time) bool {
			if n > daysIn(t) {
				return false
			}
			// The working day of this month that is nearest to day n.
			best := 0
			for d := 1; d <= daysIn(t); d++ {
				wd := time.Date(t.Year(), t.Month(), d, 0, 0, 0, 0, time.UTC).Weekday()
				distance := func(d int) int { return max(d-n, n-d) }
				if wd != time.Saturday && wd != time.Sunday && (best == 0 || distance(d) < distance(best)) {
					best = d
				}
			}
			return best == t.Day()
		}
	}
	if !keep {
		return special, specialMatch, false
	}
	return text + "," + special, func(t time.Time) bool { return plain(t) || specialMatch(t) }, false
}

// weekday makes up a weekday field.
func (r maker) weekday(near int) (text string, match wallMatch, all bool) {
	switch r.IntN(6) {
	case 0:
		d := r.IntN(8)
		return r.spelled(d, weekdaySpellings) + "L", func(t time.Time) bool {
			return int(t.Weekday()) == d%7 && t.Day()+7 > daysIn(t)
		}, false
	case 1:
		d, k := r.IntN(8), 1+r.IntN(5)
		return r.spelled(d, weekdaySpellings) + "#" + strconv.Itoa(k), func(t time.Time) bool {
			return int(t.Weekday()) == d%7 && (t.Day()-1)/7 == k-1
		}, false
	case 2: // a range that ends on Sunday
		from, step := 1+r.IntN(6), 1+r.IntN(3)
		text := r.spelled(from, weekdaySpellings) + "-" + r.spelled(7, weekdaySpellings)
		if step > 1 {
			text += "/" + strconv.Itoa(step)
		}
		return text, func(t time.Time) bool {
			d := int(t.Weekday())
			if d == 0 {
				d = 7
			}
			return d >= from && (d-from)%step == 0
		}, false
	}
	text, set, _, all := r.field(0, 6, near, weekdaySpellings)
	return text, func(t time.Time) bool { return set[int(t.Weekday())] }, all
}

// cron makes up a text that is likely to fire near a wall time. The seconds field
// is 0 unless asked for.
func (r maker) cron(near time.Time, seconds bool) madeUp {
	second, seconds0, star0, _ := "0", map[int]bool{0: true}, false, false
	if seconds {
		second, seconds0, star0, _ = r.field(0, 59, near.Second(), nil)
	}
	minute, minutes, star1, _ := r.field(0, 59, near.Minute(), nil)
	hour, hours, star2, _ := r.field(0, 23, near.Hour(), nil)
	month, months := "*", map[int]bool{int(near.Month()): true}
	for m := range 13 {
		months[m] = true
	}
	if r.chance(30) {
		month, months, _, _ = r.field(1, 12, int(near.Month()), monthSpellings)
	}
	dom, domMatch, domAll := "*", wallMatch(func(time.Time) bool { return true }), true
	if r.chance(40) {
		dom, domMatch, domAll = r.monthday(near.Day())
	}
	dow, dowMatch, dowAll := "*", wallMatch(func(time.Time) bool { return true }), true
	if r.chance(40) {
		dow, dowMatch, dowAll = r.weekday(int(near.Weekday()))
	}
	if r.chance(10) && dow == "*" {
		dow = "?"
	}
	both := r.chance(50)
	if both && !dowAll {
		dow = "+" + dow
	}
	year, years := "", map[int]bool(nil)
	if r.chance(15) {
		year, years, _, _ = r.field(FirstYear, LastYear, near.Year(), nil)
	}
	text := strings.Join([]string{second, minute, hour, dom, month, dow, year}, " ")
	if !seconds && year == "" && r.chance(50) {
		text = strings.Join([]string{minute, hour, dom, month, dow}, "\t ")
	}
	return madeUp{
		text: strings.TrimSpace(text),
		wild: star0 || star1 || star2,
		match: func(t time.Time) bool {
			if !seconds0[t.Second()] || !minutes[t.Minute()] || !hours[t.Hour()] || !months[int(t.Month())] {
				return false
			}
			if years != nil && !years[t.Year()] {
				return false
			}
			switch {
			case domAll:
				return dowMatch(t)
			case dowAll:
				return domMatch(t)
			case both:
				return domMatch(t) && dowMatch(t)
			}
			return domMatch(t) || dowMatch(t)
		},
	}
}

// change is one change of the clocks.
type change struct {
	zone          string
	loc           *time.Location
	at            int64
	before, after int64 // offsets
}

func zoneNames(t testing.TB) (names []string) {
	file, err := os.Open("testdata/zones.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		names = append(names, lines.Text())
	}
	return names
}

func location(t testing.TB, name string) *time.Location {
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// changes gives all clock changes of all zones from 1970 on, alike ones once. It
// finds them by looking at every quarter of an hour and halving, not with
// ZoneBounds.
func changes(t testing.TB, last int) (out []change) {
	seen := map[string]bool{}
	for _, name := range zoneNames(t) {
		loc := location(t, name)
		offset := func(t int64) int64 {
			_, o := time.Unix(t, 0).In(loc).Zone()
			return int64(o)
		}
		// Days are enough to notice a change: no two lie within one that undo
		// each other, which TestSegments checks.
		end := time.Date(last, 12, 31, 0, 0, 0, 0, time.UTC).Unix()
		for d := int64(0); d < end; d += daySeconds {
			lo, hi := d, d+daySeconds
			if offset(lo) == offset(hi) {
				continue
			}
			for hi-lo > 1 {
				if mid := (lo + hi) / 2; offset(mid) == offset(lo) {
					lo = mid
				} else {
					hi = mid
				}
			}
			c := change{name, loc, hi, offset(lo), offset(hi)}
			key := fmt.Sprint(c.at, c.before, c.after)
			if !seen[key] {
				seen[key] = true
				out = append(out, c)
			}
		}
	}
	return out
}

// oracleRounds is how many texts are tried at each clock change.
func oracleRounds(t testing.TB) int {
	text := os.Getenv("SCHEDULE_ORACLE_ROUNDS")
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestOracle compares Next with brute force at every clock change of every zone,
// 1970 to 2045, asking from every minute or second around it. More rounds:
// SCHEDULE_ORACLE_ROUNDS=50 go test -run TestOracle.
func TestOracle(t *testing.T) {
	all := changes(t, 2045)
	if len(all) < 5000 {
		t.Fatalf("only %d clock changes found", len(all))
	}
	fired := 0
	for i, c := range all {
		for round := range oracleRounds(t) {
			r := maker{rand.New(rand.NewPCG(uint64(i), uint64(round)))}
			shift := max(c.after-c.before, c.before-c.after)
			step := int64(60)
			seconds := c.before%60 != 0 || c.after%60 != 0 || c.at%60 != 0
			if seconds || r.chance(2) {
				seconds, step = true, 1
			}
			near := time.Unix(c.at+min(c.before, c.after)+r.Int64N(shift+120)-60, 0).UTC()
			m := r.cron(near, seconds)
			fired += checkOracle(t, m, c.zone, c.loc, c.at-shift-3600, c.at+shift+3600, step)
			if t.Failed() {
				t.Fatalf("change of %s at %s by %d s, index %d round %d", c.zone, time.Unix(c.at, 0).UTC(), c.after-c.before, i, round)
			}
		}
	}
	t.Logf("%d clock changes, %d firings near them", len(all), fired)
	if fired < len(all) {
		t.Errorf("only %d firings near %d clock changes: the texts miss them", fired, len(all))
	}
}

// checkOracle compares all answers in a stretch of time.
func checkOracle(t *testing.T, m madeUp, zone string, loc *time.Location, from, to, step int64) int {
	t.Helper()
	from, to = from/step*step, to/step*step
	want := bruteFires(loc, m.match, m.wild, from, to, step)
	s, err := Compile(Spec{Cron: m.text, Zone: zone}, Options{})
	if err != nil {
		if len(want) > 0 {
			t.Errorf("%q in %s: %v, but it fires at %s", m.text, zone, err, time.Unix(want[0], 0).UTC())
		}
		return 0
	}
	i := 0
	for at := from - step; at < to; at += step {
		for i < len(want) && want[i] <= at {
			i++
		}
		got := s.Next(time.Unix(at, 0), Anchors{})
		switch {
		case i < len(want) && got.Unix() != want[i]:
			t.Errorf("%q in %s after %s: %s, want %s", m.text, zone, time.Unix(at, 0).UTC(), got, time.Unix(want[i], 0).UTC())
			return 0
		case i == len(want) && !got.IsZero() && got.Unix() <= to:
			t.Errorf("%q in %s after %s: %s, want none until %s", m.text, zone, time.Unix(at, 0).UTC(), got, time.Unix(to, 0).UTC())
			return 0
		}
	}
	return len(want)
}
