package schedule

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestSegments compares the segments of every zone with what the zone database
// says every few days, to the end of the last year a schedule can fire in.
func TestSegments(t *testing.T) {
	last := time.Date(LastYear+1, 1, 2, 0, 0, 0, 0, time.UTC).Unix()
	for _, name := range zoneNames(t) {
		loc := location(t, name)
		z, err := loadZone(name)
		if err != nil {
			t.Fatal(err)
		}
		check := func(at int64) {
			_, want := time.Unix(at, 0).In(loc).Zone()
			if got := z.segments[z.at(at)].offset; got != int64(want) {
				t.Fatalf("%s at %s: offset %d, want %d", name, time.Unix(at, 0).UTC(), got, want)
			}
		}
		const step = 5 * daySeconds // a stretch that is missing is longer than that
		for at := int64(0); at < last; at += step {
			check(at)
		}
		for i, s := range z.segments[1:] {
			check(s.start - 1)
			check(s.start)
			if before := z.segments[i]; s.start-before.start < daySeconds {
				t.Errorf("%s: segment of %d s at %s", name, s.start-before.start, time.Unix(before.start, 0).UTC())
			}
		}
	}
}

// TestLeapYearEnd walks into 31 December of leap years, where ZoneBounds gives an
// end before its argument: https://github.com/golang/go/issues/81583.
func TestLeapYearEnd(t *testing.T) {
	s := compile(t, Spec{Daily: &Daily{At: "12:00"}, Zone: "Europe/Berlin"})
	for year := 2040; year <= 2096; year += 4 {
		at := time.Date(year, 12, 31, 0, 0, 0, 0, time.UTC)
		for _, want := range []time.Time{at.Add(11 * time.Hour), at.Add(35 * time.Hour)} {
			if at = s.Next(at, Anchors{}); !at.Equal(want) {
				t.Fatalf("got %s, want %s", at, want)
			}
		}
	}
}

// TestEveryZone walks two years of every zone with a job each hour and one each day.
func TestEveryZone(t *testing.T) {
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	to := from.AddDate(2, 0, 0)
	for _, name := range zoneNames(t) {
		loc := location(t, name)
		hourly := compile(t, Spec{Cron: "@hourly", Zone: name})
		for at := from; at.Before(to); {
			next := hourly.Next(at, Anchors{})
			if !next.After(at) {
				t.Fatalf("%s: %s after %s", name, next, at)
			}
			if local := next.In(loc); local.Minute() != 0 || local.Second() != 0 {
				t.Fatalf("%s: %s is no full hour", name, local)
			}
			// All offsets and changes of these years are multiples of 15 minutes.
			for between := at.Add(15 * time.Minute); at != from && between.Before(next); between = between.Add(15 * time.Minute) {
				if between.In(loc).Minute() == 0 {
					t.Fatalf("%s: %s was left out", name, between.In(loc))
				}
			}
			at = next
		}
		daily := compile(t, Spec{Daily: &Daily{At: "02:30"}, Zone: name})
		day := ""
		for at := daily.Next(from, Anchors{}); at.Before(to); at = daily.Next(at, Anchors{}) {
			local := at.In(loc).Format(time.DateOnly)
			if day != "" {
				d, err := time.Parse(time.DateOnly, day)
				if err != nil {
					t.Fatal(err)
				}
				if want := d.AddDate(0, 0, 1).Format(time.DateOnly); local != want {
					t.Fatalf("%s: %s follows %s", name, local, day)
				}
			}
			day = local
		}
	}
}

func TestZoneNames(t *testing.T) {
	for _, name := range []string{
		"Local", "localtime", "posixrules", "local", "Europe/Berlim", "../etc/passwd", "/usr/share/zoneinfo/UTC",
		"right/Europe/Berlin", "posix/UTC", "Europe//Berlin", "Europe/", "/Europe/Berlin", "Europe/Berlin\x00", "Europe Berlin", "Zürich", "zone.tab",
		"tzdata.zi", "leapseconds", "+VERSION", strings.Repeat("A", 65),
	} {
		_, err := Compile(Spec{Daily: &Daily{At: "09:00"}, Zone: name}, Options{})
		var e *Error
		if !errors.As(err, &e) || e.Field != "time_zone" {
			t.Errorf("zone %q: %v", name, err)
		}
	}
	for _, name := range []string{"", "UTC", "Etc/UTC", "Etc/GMT+12", "EST5EDT", "America/Argentina/ComodRivadavia", "Asia/Kolkata"} {
		if _, err := Compile(Spec{Daily: &Daily{At: "09:00"}, Zone: name}, Options{}); err != nil {
			t.Errorf("zone %q: %v", name, err)
		}
	}
}

// TestClockChanges is the table of the reference, docs/schedules.md.
func TestClockChanges(t *testing.T) {
	const berlin = "Europe/Berlin" // 2027-03-28 02:00 → 03:00, 2027-10-31 03:00 → 02:00
	for _, tt := range []struct {
		name  string
		spec  Spec
		after string
		want  []string
	}{
		{
			"fixed in a gap runs at its end",
			Spec{Cron: "30 2 * * *", Zone: berlin},
			"2027-03-27T12:00:00Z",
			[]string{"2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"},
		},
		{
			"several in a gap run once",
			Spec{Cron: "0,20,40 2 * * *", Zone: berlin},
			"2027-03-28T00:00:00Z",
			[]string{"2027-03-28T01:00:00Z", "2027-03-29T00:00:00Z"},
		},
		{
			"gap and its end run once",
			Spec{Cron: "0,30 2,3 * * *", Zone: berlin},
			"2027-03-28T00:00:00Z",
			[]string{"2027-03-28T01:00:00Z", "2027-03-28T01:30:00Z", "2027-03-29T00:00:00Z"},
		},
		{"asked at the end of the gap", Spec{Cron: "30 2 * * *", Zone: berlin}, "2027-03-28T01:00:00Z", []string{"2027-03-29T00:30:00Z"}},
		{"asked just before the end of the gap", Spec{Cron: "30 2 * * *", Zone: berlin}, "2027-03-28T00:59:59.999999999Z", []string{"2027-03-28T01:00:00Z"}},
		{
			"fixed in an overlap runs in the first pass",
			Spec{Cron: "30 2 * * *", Zone: berlin},
			"2027-10-30T12:00:00Z",
			[]string{"2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z"},
		},
		{"asked between the passes", Spec{Cron: "30 2 * * *", Zone: berlin}, "2027-10-31T00:45:00Z", []string{"2027-11-01T01:30:00Z"}},
		{"asked in the second pass", Spec{Cron: "30 2 * * *", Zone: berlin}, "2027-10-31T01:00:00Z", []string{"2027-11-01T01:30:00Z"}},
		{
			"the end of an overlap is not repeated",
			Spec{Cron: "0 2,3 * * *", Zone: berlin},
			"2027-10-30T23:00:00Z",
			[]string{"2027-10-31T00:00:00Z", "2027-10-31T02:00:00Z"},
		},
		{"wildcard is absent in a gap", Spec{Cron: "*/15 2 * * *", Zone: berlin}, "2027-03-27T12:00:00Z", []string{"2027-03-29T00:00:00Z"}},
		{
			"wildcard runs in both passes",
			Spec{Cron: "*/30 2 * * *", Zone: berlin},
			"2027-10-30T12:00:00Z",
			[]string{"2027-10-31T00:00:00Z", "2027-10-31T00:30:00Z", "2027-10-31T01:00:00Z", "2027-10-31T01:30:00Z", "2027-11-01T01:00:00Z"},
		},
		{"a star in the hour makes it wildcard", Spec{Cron: "30 */2 * * *", Zone: berlin}, "2027-03-28T00:00:00Z", []string{"2027-03-28T02:30:00Z"}},
		{"a star in a day field does not", Spec{Cron: "30 2 */1 * *", Zone: berlin}, "2027-03-28T00:00:00Z", []string{"2027-03-28T01:00:00Z"}},
		{"a star that is not first does not", Spec{Cron: "30,*/45 2 * * *", Zone: berlin}, "2027-03-28T00:00:00Z", []string{"2027-03-28T01:00:00Z"}},
		{"0-59 is fixed", Spec{Cron: "0-59 2 * * *", Zone: berlin}, "2027-03-28T00:00:00Z", []string{"2027-03-28T01:00:00Z", "2027-03-29T00:00:00Z"}},
		{"daily", Spec{Daily: &Daily{At: "02:30"}, Zone: berlin}, "2027-03-27T12:00:00Z", []string{"2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"}},
		{
			"weekly",
			Spec{Weekly: &Weekly{Days: []time.Weekday{time.Sunday}, At: "02:30"}, Zone: berlin},
			"2027-10-30T12:00:00Z",
			[]string{"2027-10-31T00:30:00Z", "2027-11-07T01:30:00Z"},
		},
		{
			"monthly",
			Spec{Monthly: &Monthly{Day: 28, At: "02:30"}, Zone: berlin},
			"2027-03-01T12:00:00Z",
			[]string{"2027-03-28T01:00:00Z", "2027-04-28T00:30:00Z"},
		},
		{"once in a gap", Spec{Once: "2027-03-28T02:30:00", Zone: berlin}, "2027-03-01T12:00:00Z", []string{"2027-03-28T01:00:00Z", ""}},
		{"once in an overlap", Spec{Once: "2027-10-31T02:30:00.5", Zone: berlin}, "2027-03-01T12:00:00Z", []string{"2027-10-31T00:30:00.5Z", ""}},
		{"once with an offset", Spec{Once: "2027-10-31T02:30:00+01:00", Zone: berlin}, "2027-03-01T12:00:00Z", []string{"2027-10-31T01:30:00Z", ""}},
		{
			"midnight gap",
			Spec{Daily: &Daily{At: "00:00"}, Zone: "Africa/Cairo"},
			"2025-04-23T23:00:00Z",
			[]string{"2025-04-24T22:00:00Z", "2025-04-25T21:00:00Z"},
		},
		{
			"day of the week of a midnight gap",
			Spec{Cron: "0 0 * * FRI", Zone: "Africa/Cairo"},
			"2025-04-23T23:00:00Z",
			[]string{"2025-04-24T22:00:00Z", "2025-05-01T21:00:00Z"},
		},
		{
			"a gap across midnight belongs to the day before",
			Spec{Cron: "45 23 28 3 *", Zone: "America/Scoresbysund"},
			"2026-01-01T00:00:00Z",
			[]string{"2026-03-29T01:00:00Z"},
		},
		{"a missing day is not made up for", Spec{Cron: "0 12 30 12 * ", Zone: "Pacific/Apia"}, "2011-12-01T00:00:00Z", []string{"2012-12-29T22:00:00Z"}},
		{"nor by wildcards", Spec{Cron: "*/30 12 30 12 * ", Zone: "Pacific/Apia"}, "2011-12-01T00:00:00Z", []string{"2012-12-29T22:00:00Z"}},
		{
			"a gap of exactly three hours is",
			Spec{Daily: &Daily{At: "03:30"}, Zone: "Antarctica/Casey"},
			"2009-10-17T00:00:00Z",
			[]string{"2009-10-17T18:00:00Z"},
		},
		{
			"overlap of exactly three hours",
			Spec{Daily: &Daily{At: "00:30"}, Zone: "Antarctica/Casey"},
			"2010-03-04T12:00:00Z",
			[]string{"2010-03-04T13:30:00Z", "2010-03-05T16:30:00Z"},
		},
		{
			"half an hour",
			Spec{Daily: &Daily{At: "02:15"}, Zone: "Australia/Lord_Howe"},
			"2027-10-01T20:00:00Z",
			[]string{"2027-10-02T15:30:00Z", "2027-10-03T15:15:00Z"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fires(t, compile(t, tt.spec), Anchors{}, tt.after, tt.want)
		})
	}
}

// TestMissingDay compiles what only a missing day could hold.
func TestMissingDay(t *testing.T) {
	for _, spec := range []Spec{
		{Once: "2011-12-30T12:00:00", Zone: "Pacific/Apia"},
		{Cron: "0 0 12 30 12 * 2011", Zone: "Pacific/Apia"},
		{Cron: "0 */15 2 28 3 * 2027", Zone: "Europe/Berlin"},
	} {
		if _, err := Compile(spec, Options{}); !errors.Is(err, ErrNever) {
			t.Errorf("%+v: %v, want ErrNever", spec, err)
		}
	}
}

func compile(t testing.TB, s Spec) *Schedule {
	t.Helper()
	out, err := Compile(s, Options{FlowID: "reports/daily"})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// fires checks fire times after an instant; an empty one is "never".
func fires(t *testing.T, s *Schedule, a Anchors, after string, want []string) {
	t.Helper()
	at := at(t, after)
	for i, w := range want {
		at = s.Next(at, a)
		got := ""
		if !at.IsZero() {
			got = at.Format(time.RFC3339Nano)
		}
		if got != w {
			t.Fatalf("%s after %s: fire time %d is %q, want %q", s.Canonical(), after, i+1, got, w)
		}
	}
}

func at(t testing.TB, text string) time.Time {
	t.Helper()
	out, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
