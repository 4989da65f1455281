package schedule

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestCronSpellings: all ways to write a thing have one canonical text.
func TestCronSpellings(t *testing.T) {
	for _, tt := range []struct {
		want  string // canonical, without the zone
		texts []string
	}{
		{"0 * * * * * *", []string{"* * * * *", "0 * * * * *", "0 * * * * * *", "  00\t*  * ? * ?\t* ", "0 */1 */1 */1 */1 */1 */1", "* * * * *\n", "0 *,5 *,* 3,* * * *"}},
		{"* * * * * * *", []string{"* * * * * *", "*/1 * * * * * *", "*,30 * * * * *"}},
		{"0 0 9 * * * *", []string{"0 9 * * *", "0 0 9 * * *", "0 00 009 * * *"}},
		{"0 0 9 * * 1 *", []string{"0 9 * * MON", "0 9 * * mon", "0 9 * * Monday", "0 9 * * 01", "0 9 * * 1", "0 9 ? * 1-1", "0 9 * * 1,MON"}},
		{"0 0 9 * * 2,4 *", []string{"0 9 * * TUES,THURS", "0 9 * * Thursday,tue", "0 9 * * 2-4/2"}},
		{"0 0 9 * * 0 *", []string{"0 9 * * 0", "0 9 * * 7", "0 9 * * SUN", "0 9 * * 07", "0 9 * * 7-7", "0 9 * * SUN-SUN", "0 9 * * 0,7", "0 9 * * */7"}},
		{"0 0 9 * * 0,5-6 *", []string{"0 9 * * 5-7", "0 9 * * FRI-SUN", "0 9 * * 5-0", "0 9 * * fri-7", "0 9 * * 7,6,5", "0 9 * * 0,5/1"}},
		{"0 0 9 * * 0-6 *", []string{"0 9 * * 1-7", "0 9 * * MON-SUN", "0 9 * * 0-7", "0 9 * * SUN-SAT", "0 9 * * 0-6", "0 9 * * 0/1", "0 9 * * 7/1"}},
		{"0 0 9 * * 0,3,5 *", []string{"0 9 * * 3-7/2,0", "0 9 * * WED-SUN/2"}},
		{"0 0 9 * * 0,2,4,6 *", []string{"0 9 * * */2", "0 9 * * 0/2", "0 9 * * 7/2", "0 9 * * SUN/2"}},
		{"0 0 9 * * 0L,1#2,3#5,5L *", []string{"0 9 * * 5L,wed#5,sunL,MON#2", "0 9 * * 7L,1#02,FRIDAYL,3#5,5L"}},
		{"0 0 9 1-5,20,15W,30W,L,LW * * *", []string{"0 9 l,lw,15w,1-3,4,5,3-4,20,030W * *"}},
		{"0 0 9 */2 * * *", []string{"0 9 */2 * *", "0 9 1/2 * *", "0 9 1-31/2 * *"}},
		{"0 0 9 1-29/2 * * *", []string{"0 9 1-29/2 * *", "0 9 1-30/2 * *"}},
		{"0 0 9 1-31 * 1 *", []string{"0 9 1-31 * 1", "0 9 1/1 * 1", "0 9 1-10,11-31 * 1"}},
		{"0 0 9 * 1-3,12 * *", []string{"0 9 * JAN-MAR,DEC *", "0 9 * january-03,12 *", "0 9 * dec,feb,mar,jan,1 *"}},
		{"0 */15 * * * * *", []string{"*/15 * * * *", "0 */15 * * * *", "*/15,*/15 * * * *", "0 */15,0/15,0-59/15 * * * *"}},
		{"0 */15,7 * * * * *", []string{"*/15,7 * * * *", "*/15,7,7-7 * * * *"}},
		{"0 0/15 * * * * *", []string{"0/15 * * * *", "0-59/15 * * * *", "0-45/15 * * * *"}},
		{"0 7,0/15 * * * * *", []string{"7,*/15 * * * *", "0/15,7 * * * *"}},
		{"0 0-59 9 * * * *", []string{"0-59 9 * * *", "0-29,30-59 9 * * *", "5,* 9 * * *", "0/1 9 * * *"}},
		{"0 0 9-17/4 * * * *", []string{"0 9-17/4 * * *", "0 9-20/4 * * *"}},
		{"0 30 9 * * * *", []string{"30 9-9/5 * * *", "30 9-11/5 * * *"}},
		{"0 0 12 1 1 * 2027-2029", []string{"0 0 12 1 1 * 2027-2029", "0 0 12 1 1 * 2029,2027,2028", "0 0 12 1 JAN ? 2027-2029/1"}},
		{"0 0 0 1 1 * 1970,2070", []string{"0 0 0 1 1 * */100", "0 0 0 1 1 * 1970/100", "0 0 0 1 1 * 1970-2099/100"}},
		{"0 0 0 1 1 * */2", []string{"0 0 0 1 1 * */2", "0 0 0 1 1 * 1970/2"}},
		{"0 0 0 13 * +5 *", []string{"0 0 13 * +FRI", "0 0 0 13 * +5", "0 0 0 13 * +5,5 *"}},
		{"0 0 0 * * 5 *", []string{"0 0 * * +FRI", "0 0 0 ? * +5"}},
		{"0 0 0 13 * * *", []string{"0 0 13 * +*", "0 0 0 13 * +?"}},
		{"0 0 0 1 1 * *", []string{"@yearly", "@annually", " @Yearly "}},
		{"0 0 0 1 * * *", []string{"@monthly"}},
		{"0 0 0 * * 0 *", []string{"@weekly"}},
		{"0 0 0 * * * *", []string{"@daily", "@midnight"}},
		{"0 0 * * * * *", []string{"@hourly", "0 * * * *"}},
	} {
		for _, text := range tt.texts {
			s, err := Compile(Spec{Cron: text}, Options{})
			if err != nil {
				t.Errorf("%q: %v", text, err)
				continue
			}
			if got := s.Canonical(); got != "TZ=UTC "+tt.want {
				t.Errorf("%q: %q, want %q", text, got, tt.want)
			}
			again, err := Compile(Spec{Cron: s.Canonical()}, Options{})
			if err != nil {
				t.Errorf("%q: %v", s.Canonical(), err)
			} else if again.Canonical() != s.Canonical() || again.calendar.wild != s.calendar.wild {
				t.Errorf("%q becomes %q", s.Canonical(), again.Canonical())
			}
		}
	}
}

// TestCronErrors: what is refused, where, and what is said.
func TestCronErrors(t *testing.T) {
	long := strings.Repeat(" ", 200)
	for _, tt := range []struct {
		text   string
		offset int
		msg    string
	}{
		{" ", 0, "empty; expected 5 fields"},
		{"*", 0, "found 1"},
		{"* * * *", 0, "expected 5 fields (minute first), 6 (second first) or 7"},
		{"* * * * * * * *", 0, "found 8"},
		{"60 * * * *", 0, "minute field: 60 is out of range; allowed are 0-59"},
		{"60 * * * * *", 0, "second field: 60 is out of range"},
		{"* 60 * * * *", 2, "minute field"},
		{"* 24 * * *", 2, "hour field: 24 is out of range; allowed are 0-23"},
		{"* * 0 * *", 4, "day-of-month field: 0 is out of range; allowed are 1-31, L, LW and 1W-31W"},
		{"* * 32 * *", 4, "day-of-month field: 32"},
		{"* * * 0 *", 6, "month field: 0 is out of range; allowed are 1-12 and JAN-DEC"},
		{"* * * 13 *", 6, "month field: 13"},
		{"* * * * 8", 8, "weekday field: 8 is out of range; allowed are 0-7 (0 and 7 are Sunday)"},
		{"0 0 0 1 1 * 1969", 12, "year field: 1969 is out of range; allowed are 1970-2099"},
		{"0 0 0 1 1 * 2100", 12, "year field: 2100"},
		{"0 0 0 1 1 * 99999999999999999999", 12, "year field: 99999999999999999999"},
		{"1,2,60 * * * *", 4, "minute field: 60"},
		{"* 5,9-24 * * *", 6, "hour field: 24"},
		{"1,,2 * * * *", 2, "empty entry"},
		{",1 * * * *", 0, "empty entry"},
		{"1, * * * *", 2, "empty entry"},
		{"1- * * * *", 2, "value missing"},
		{"-1 * * * *", 0, "value missing"},
		{"1--2 * * * *", 2, `"-2" is not understood`},
		{"1-2-3 * * * *", 2, `"2-3" is not understood`},
		{"* 14-8 * * *", 2, "range 14-8 runs backwards; write it as two: 14-23,0-8"},
		{"* 0/10 21-9 * * *", 7, "runs backwards"},
		{"* * * NOV-FEB *", 6, "write it as two: NOV-12,1-FEB"},
		{"* * * * FRI-MON", 8, "runs backwards"},
		{"* * * * 7-2", 8, "runs backwards"},
		{"*/0 * * * *", 2, "step 0 is out of range; allowed are 1 to 59"},
		{"*/60 * * * *", 2, "step 60 is out of range"},
		{"* */24 * * *", 4, "allowed are 1 to 23"},
		{"5/ * * * *", 2, `"" is no step`},
		{"5/-1 * * * *", 2, `"-1" is no step`},
		{"5/1/2 * * * *", 2, `"1/2" is no step`},
		{"/5 * * * *", 0, "value missing before /"},
		{"*5 * * * *", 0, "is not understood"},
		{"** * * * *", 0, "is not understood"},
		{"*-5 * * * *", 0, `"*" is not understood`},
		{"1.5 * * * *", 0, "is not understood"},
		{"+5 * * * *", 0, "is not understood"},
		{"0x1 * * * *", 0, "is not understood"},
		{"? * * * *", 0, "is not understood"},
		{"* * ?/2 * *", 5, "a step cannot follow ?; write */2"},
		{"* * * ? *", 6, "is not understood"},
		{"0 0 0 1 1 * ?", 12, "is not understood"},
		{"JAN * * * *", 0, "is not understood"},
		{"* * * MON *", 6, "is not understood"},
		{"* * * * JAN", 8, "is not understood"},
		{"* * * SEPT *", 6, "is not understood"},
		{"* * * MAYA *", 6, "is not understood"},
		{"* * W * *", 4, "value missing"},
		{"* * 32W * *", 4, "32 is out of range"},
		{"* * 1-5W * *", 4, "is not understood"},
		{"* * 15W/2 * *", 7, "a step cannot follow 15W"},
		{"* * L-3 * *", 4, "days before the last"},
		{"* * L/2 * *", 5, "a step cannot follow L"},
		{"* * 5L * *", 4, "is not understood"},
		{"* * 5#2 * *", 4, "is not understood"},
		{"L * * * *", 0, "is not understood"},
		{"* * * * L", 8, "L alone is not allowed"},
		{"* * * * 8L", 8, "8 is out of range"},
		{"* * * * FRI-SUNL", 8, "is not understood"},
		{"* * * * #2", 8, "value missing"},
		{"* * * * 5#", 10, "is no week of the month; allowed are 1 to 5"},
		{"* * * * 5#0", 10, "is no week of the month"},
		{"* * * * 5#6", 10, "is no week of the month"},
		{"* * * * 5#L", 10, "is no week of the month"},
		{"* * * * 5L#2", 8, "is not understood"},
		{"* * * * 15W", 8, "is not understood"},
		{"* * * * +", 9, "weekday field: empty"},
		{"* * * * ++5", 9, "is not understood"},
		{"* * 13+ * 5", 4, "is not understood"},
		{"H() * * * *", 0, "write H(a-b)"},
		{"H(5 * * * *", 0, "write H(a-b)"},
		{"H(5) * * * *", 0, "write H(a-b)"},
		{"H(9-5) * * * *", 2, "runs backwards"},
		{"H(0-60) * * * *", 4, "60 is out of range"},
		{"H/0 * * * *", 2, "step 0"},
		{"HH * * * *", 0, "write H, H/n or H(a-b)"},
		{"H-5 * * * *", 0, "write H, H/n or H(a-b)"},
		{"0 0 0 1 1 * H", 12, "H is not allowed in this field"},
		{"@", 0, `unknown macro "@"`},
		{"@fortnightly", 0, "allowed are @yearly"},
		{"@reboot", 0, "@reboot is not supported"},
		{"@hourly junk", 0, `nothing may follow @hourly, found "junk"`},
		{"@hourly@daily", 0, "unknown macro"},
		{"30 @hourly", 0, "found 2"},
		{"* * * * @hourly", 8, "is not understood"},
		{"@every", 0, "takes one duration"},
		{"@every 5", 7, "is no duration"},
		{"@every -5m", 7, "-5m0s is too short"},
		{"@every 0s", 7, "too short"},
		{"@every 999us", 7, "too short"},
		{"@every 5m 30s", 0, "takes one duration"},
		{"@every 1e9s", 7, "is no duration"},
		{"@every 9999999999999h", 7, "is no duration"},
		{"TZ=0", 0, "must be followed by a blank and the schedule"},
		{"CRON_TZ=UTC", 0, "must be followed by a blank"},
		{"TZ=UTC ", 0, "must be followed by a blank"},
		{"TZ= * * * * *", 3, "empty time zone"},
		{"TZ=Local * * * * *", 3, "depends on the machine"},
		{"CRON_TZ=Nowhere/Land * * * * *", 8, "unknown time zone"},
		{"TZ=\"UTC\" * * * * *", 3, "is no time zone name"},
		{"TZ=UTC TZ=UTC * * * * *", 7, "is not understood"},
		{"TZ=UTC @hourly x", 7, "nothing may follow"},
		{"tz=UTC * * * * *", 0, "is not understood"},
		{"* * * * *\x00", 9, "unexpected character"},
		{"* * *\n* *", 5, "unexpected character"},
		{"* * *\u00a0* *", 5, "unexpected character"},
		{"٥ * * * *", 0, "unexpected character"},
		{"* * * * *\xff", 9, "unexpected character"},
		{"*" + long + long + "* * * *", -1, "at most 256"},
		{"*" + strings.Repeat(" ", 252) + "* * * *", -1, "at most 256"},
		{strings.Repeat("1,", 60) + "1 * * * *", 0, "61 entries; at most 60"},
	} {
		_, err := Compile(Spec{Cron: tt.text}, Options{})
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%q: error %v", tt.text, err)
			continue
		}
		if e.Field != "cron" || e.Offset != tt.offset || !strings.Contains(e.Msg, tt.msg) || errors.Is(err, ErrNever) {
			t.Errorf("%q: %v (offset %d), want %q at %d", tt.text, e, e.Offset, tt.msg, tt.offset)
		}
	}
}

// TestCronLimits: as much as is allowed is taken.
func TestCronLimits(t *testing.T) {
	for _, text := range []string{
		"*" + strings.Repeat(" ", 248) + "* * * *",
		strings.Repeat("1,", 59) + "1 * * * *",
		"CRON_TZ=America/Argentina/ComodRivadavia *" + strings.Repeat(" ", 247) + "* * * *",
	} {
		if _, err := Compile(Spec{Cron: text}, Options{}); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestCronZone(t *testing.T) {
	for _, tt := range []struct{ text, zone, want string }{
		{"TZ=Asia/Tokyo 0 9 * * *", "", "2026-05-14T00:00:00Z"},
		{"CRON_TZ=Asia/Tokyo 0 9 * * *", "Asia/Tokyo", "2026-05-14T00:00:00Z"},
		{" TZ=Asia/Tokyo   @daily", "", "2026-05-13T15:00:00Z"},
		{"0 9 * * *", "Asia/Tokyo", "2026-05-14T00:00:00Z"},
		{"TZ=Asia/Tokyo 0 9 * * *", "Europe/Berlin", ""},
		{"TZ=Asia/Tokyo 0 9 * * *", "UTC", ""},
	} {
		s, err := Compile(Spec{Cron: tt.text, Zone: tt.zone}, Options{})
		if tt.want == "" {
			if err == nil || !strings.Contains(err.Error(), "contradicts") {
				t.Errorf("%q in %q: %v", tt.text, tt.zone, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q in %q: %v", tt.text, tt.zone, err)
			continue
		}
		if got := s.Next(at(t, "2026-05-13T10:17:23Z"), Anchors{}).Format(time.RFC3339); got != tt.want {
			t.Errorf("%q in %q: %s, want %s", tt.text, tt.zone, got, tt.want)
		}
	}
}

// TestHash: H gives every flow a place of its own, for ever.
func TestHash(t *testing.T) {
	canonical := func(text, id string) string {
		s, err := Compile(Spec{Cron: text}, Options{FlowID: id})
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		return strings.TrimPrefix(s.Canonical(), "TZ=UTC ")
	}
	for _, tt := range []struct{ text, want string }{
		{"H H * * *", "0 12 17 * * * *"},
		{"H H H H H H *", "9 12 17 24 11 6 *"},
		{"H/15 * * * *", "0 H/15 * * * * *"},
		{"H(0-29)/10 * * * *", "0 2-22/10 * * * * *"},
		{"H(10-19) * * * *", "0 12 * * * * *"},
		{"5,H/20 * * * *", "0 5,4/20 * * * * *"},
		{"0 0 H/10 * *", "0 0 0 9-19/10 * * *"},
		{"0 0 * * H(5-7)", "0 0 0 * * 0 *"},
		{"0 0 * * h(fri-sun)", "0 0 0 * * 0 *"},
		{"H/1 * * * *", "0 * * * * * *"},
	} {
		got := canonical(tt.text, "reports/daily")
		if got != tt.want {
			t.Errorf("%q: %q, want %q", tt.text, got, tt.want)
		}
		if again := canonical(got, "reports/daily"); again != got {
			t.Errorf("%q becomes %q", got, again)
		}
	}
	minutes := map[string]bool{}
	for _, id := range strings.Fields("a b c d e f g h i j k l m n o p q r s t u v w x y z") {
		minutes[canonical("H 0 * * *", id)] = true
	}
	if len(minutes) < 18 {
		t.Errorf("26 flows share %d minutes", len(minutes))
	}
	// H/n follows the wall clock as */n does, and has its own offset.
	s, err := Compile(Spec{Cron: "H/30 2 * * *", Zone: "Europe/Berlin"}, Options{FlowID: "x"})
	if err != nil {
		t.Fatal(err)
	}
	first := s.Next(at(t, "2027-10-31T00:00:00Z").Add(-1), Anchors{})
	fires(t, s, Anchors{}, "2027-10-30T23:59:59Z", []string{
		first.Format(time.RFC3339), first.Add(30 * time.Minute).Format(time.RFC3339),
		first.Add(60 * time.Minute).Format(time.RFC3339), first.Add(90 * time.Minute).Format(time.RFC3339),
	})
}

// TestDays compares what cronexpr says about each day rule, and what AND, OR and
// LAST_DAY make of it, with the plain meaning, in every month of all years.
func TestDays(t *testing.T) {
	working := func(d time.Time) bool { return d.Weekday() != time.Saturday && d.Weekday() != time.Sunday }
	nearest := func(n int, d time.Time) bool {
		if n > daysIn(d) {
			return false
		}
		target := time.Date(d.Year(), d.Month(), n, 0, 0, 0, 0, time.UTC)
		for _, shift := range []int{0, -1, 1, -2, 2} {
			if c := target.AddDate(0, 0, shift); c.Month() == d.Month() && working(c) {
				return c.Day() == d.Day()
			}
		}
		return false
	}
	type rule struct {
		fields string
		match  func(time.Time) bool
	}
	var rules []rule
	for n := 1; n <= 31; n++ {
		rules = append(rules,
			rule{strconv.Itoa(n) + " * *", func(d time.Time) bool { return d.Day() == n }},
			rule{strconv.Itoa(n) + "W * *", func(d time.Time) bool { return nearest(n, d) }},
			rule{strconv.Itoa(n) + "-31/3 * MON", func(d time.Time) bool { return d.Day() >= n && (d.Day()-n)%3 == 0 || d.Weekday() == 1 }},
			rule{strconv.Itoa(n) + " * +SAT,SUN", func(d time.Time) bool { return d.Day() == n && !working(d) }})
	}
	for wd := range time.Weekday(7) {
		name := wd.String()
		last := func(d time.Time) bool { return d.Weekday() == wd && d.Day()+7 > daysIn(d) }
		rules = append(rules,
			rule{"* * " + name, func(d time.Time) bool { return d.Weekday() == wd }},
			rule{"* * " + name + "L", last},
			rule{"L * " + name + "L", func(d time.Time) bool { return last(d) || d.Day() == daysIn(d) }},
			rule{"L * +" + name + "L", func(d time.Time) bool { return last(d) && d.Day() == daysIn(d) }},
			rule{"1-7 * +" + name, func(d time.Time) bool { return d.Weekday() == wd && d.Day() <= 7 }})
		for k := 1; k <= 5; k++ {
			rules = append(rules, rule{"* * " + name + "#" + strconv.Itoa(k), func(d time.Time) bool { return d.Weekday() == wd && (d.Day()-1)/7 == k-1 }})
		}
	}
	rules = append(rules,
		rule{"L * *", func(d time.Time) bool { return d.Day() == daysIn(d) }},
		rule{"LW * *", func(d time.Time) bool {
			if !working(d) {
				return false
			}
			for n := d.Day() + 1; n <= daysIn(d); n++ {
				if working(time.Date(d.Year(), d.Month(), n, 0, 0, 0, 0, time.UTC)) {
					return false
				}
			}
			return true
		}},
	)
	for _, r := range rules {
		s := compile(t, Spec{Cron: "0 0 " + r.fields})
		next := s.Next(minInstant, Anchors{})
		for d := time.Date(FirstYear, 1, 1, 0, 0, 0, 0, time.UTC); d.Year() <= LastYear; d = d.AddDate(0, 0, 1) {
			if fires := next.Equal(d); fires != r.match(d) {
				t.Fatalf("%q on %s: %v, want %v", r.fields, d.Format("Mon 2006-01-02"), fires, r.match(d))
			} else if fires {
				next = s.Next(next, Anchors{})
			}
		}
		if !next.IsZero() {
			t.Errorf("%q fires at %s", r.fields, next)
		}
	}
	for day := 29; day <= 31; day++ {
		s := compile(t, Spec{Monthly: &Monthly{Day: day, At: "00:00", ShortMonth: LastDay}})
		next := s.Next(minInstant, Anchors{})
		for m := time.Date(FirstYear, 1, 1, 0, 0, 0, 0, time.UTC); m.Year() <= LastYear; m = m.AddDate(0, 1, 0) {
			if want := m.AddDate(0, 0, min(day, daysIn(m))-1); !next.Equal(want) {
				t.Fatalf("day %d: %s, want %s", day, next, want)
			}
			next = s.Next(next, Anchors{})
		}
	}
}
