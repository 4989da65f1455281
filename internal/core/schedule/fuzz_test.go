package schedule

import (
	"encoding/csv"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// seeds adds the texts of the conformance table, and some hostile ones.
func seeds(f *testing.F) (texts []string) {
	file, err := os.Open("testdata/cron-cases.csv")
	if err != nil {
		f.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		f.Fatal(err)
	}
	for _, row := range rows[1:] {
		texts = append(texts, row[2])
	}
	return append(texts, "/5 * * * *", "H(1-5)/2 H * * *", "TZ=Asia/Tokyo 0 0 13 * +FRI", "@every 5m", "*/100 * * * *", "0 0 0 1 1 * */100", "0 0 0 L,LW,1W 2 5L,1#2 1970/129", ",", "+", "TZ=", "* * * * *\x00")
}

// FuzzCron: no text makes Compile panic; what it takes has a canonical text of
// bounded size that means the same; what it refuses is told where.
func FuzzCron(f *testing.F) {
	for _, text := range seeds(f) {
		f.Add(text, "Europe/Berlin")
	}
	f.Fuzz(func(t *testing.T, text, zone string) {
		s, err := Compile(Spec{Cron: text, Zone: zone}, Options{FlowID: "x"})
		if err != nil {
			if !utf8.ValidString(err.Error()) && utf8.ValidString(text) {
				t.Errorf("%q: error is not UTF-8", text)
			}
			joined, ok := err.(interface{ Unwrap() []error })
			if !ok {
				t.Fatalf("%q: %T", text, err)
			}
			for _, e := range joined.Unwrap() {
				if e := e.(*Error); e.Field == "cron" && (e.Offset < -1 || e.Offset > len(text)) {
					t.Errorf("%q: offset %d", text, e.Offset)
				}
			}
			return
		}
		if s.kind != kindCron {
			return // @every
		}
		canonical := s.Canonical()
		if len(s.text) > MaxCronBytes {
			t.Errorf("%q: %q is too long", text, canonical)
		}
		again, err := Compile(Spec{Cron: canonical}, Options{FlowID: "x"})
		if err != nil {
			t.Fatalf("%q: canonical %q: %v", text, canonical, err)
		}
		if again.Canonical() != canonical {
			t.Errorf("%q: %q becomes %q", text, canonical, again.Canonical())
		}
		if a, b := s.calendar, again.calendar; !sameCalendar(a, b) {
			t.Errorf("%q and %q mean different things", text, canonical)
		}
		if words, _ := s.Describe(time.Unix(1_800_000_000, 0)); words == "" || strings.Contains(words, "  ") {
			t.Errorf("%q: described as %q", text, words)
		}
	})
}

func sameCalendar(a, b calendar) bool {
	if (a.days == nil) != (b.days == nil) || a.days != nil && a.days.days != b.days.days {
		return false
	}
	a.days, b.days = nil, nil
	return a == b
}

// FuzzNext: fire times of any text after any instant grow, and asking a little
// earlier gives the same one.
func FuzzNext(f *testing.F) {
	for i, text := range seeds(f) {
		f.Add(text, uint16(i), int64(1_700_000_000+i*100_000), uint32(i))
	}
	zones := zoneNames(f)
	f.Fuzz(func(t *testing.T, text string, zone uint16, sec int64, ns uint32) {
		s, err := Compile(Spec{Cron: text, Zone: zones[int(zone)%len(zones)]}, Options{})
		if err != nil {
			return
		}
		a := Anchors{Start: time.Unix(sec/2, 0)}
		after := time.Unix(sec, int64(ns))
		for range 10 {
			next := s.Next(after, a)
			if next.IsZero() {
				return
			}
			if !next.After(after) {
				t.Fatalf("%s: %s after %s", s.Canonical(), next, after)
			}
			if again := s.Next(next.Add(-1), a); !again.Equal(next) {
				t.Fatalf("%s: %s, but %s when asked just before", s.Canonical(), next, again)
			}
			after = next
		}
	})
}
