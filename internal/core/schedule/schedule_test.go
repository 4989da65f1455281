package schedule

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

// TestNext is the table of what each kind answers; the clock changes have their own.
func TestNext(t *testing.T) {
	start := at(t, "2026-05-13T10:17:23Z")
	for _, tt := range []struct {
		name  string
		spec  Spec
		a     Anchors
		after string
		want  []string
	}{
		{"manual", Spec{Manual: true}, Anchors{}, "2026-05-13T10:17:23Z", []string{""}},

		{
			"every: first tick at the start",
			Spec{Every: &Every{Interval: 30 * time.Second}},
			Anchors{Start: start},
			"2026-05-13T10:17:22.999999999Z",
			[]string{"2026-05-13T10:17:23Z", "2026-05-13T10:17:53Z", "2026-05-13T10:18:23Z"},
		},
		{"every: strictly after", Spec{Every: &Every{Interval: 30 * time.Second}}, Anchors{Start: start}, "2026-05-13T10:17:53Z", []string{"2026-05-13T10:18:23Z"}},
		{"every: a run of 45 s skips a tick", Spec{Every: &Every{Interval: 30 * time.Second}}, Anchors{Start: start}, "2026-05-13T10:18:08Z", []string{"2026-05-13T10:18:23Z"}},
		{"every: asked long before", Spec{Every: &Every{Interval: time.Hour}}, Anchors{Start: start}, "1950-01-01T00:00:00Z", []string{"2026-05-13T10:17:23Z"}},
		{
			"every: the grid survives a restart years later",
			Spec{Every: &Every{Interval: 7 * time.Minute}},
			Anchors{Start: start},
			"2036-05-13T10:17:23Z",
			[]string{"2036-05-13T10:22:23Z", "2036-05-13T10:29:23Z"},
		},
		{
			"every: initial delay",
			Spec{Every: &Every{Interval: time.Minute, InitialDelay: 10 * time.Second}},
			Anchors{Start: start},
			"2026-05-13T10:17:22Z",
			[]string{"2026-05-13T10:17:33Z", "2026-05-13T10:18:33Z"},
		},
		{
			"every: clock changes do not matter",
			Spec{Every: &Every{Interval: time.Hour}, Zone: "Europe/Berlin"},
			Anchors{Start: at(t, "2027-03-28T00:30:00Z")},
			"2027-03-28T00:30:00Z",
			[]string{"2027-03-28T01:30:00Z", "2027-03-28T02:30:00Z"},
		},
		{
			"every: fixed delay before the first run ended",
			Spec{Every: &Every{Interval: time.Minute, FixedDelay: true}},
			Anchors{Start: start},
			"2026-05-13T10:17:22Z",
			[]string{"2026-05-13T10:17:23Z"},
		},
		{
			"every: fixed delay",
			Spec{Every: &Every{Interval: time.Minute, FixedDelay: true}},
			Anchors{start, at(t, "2026-05-13T10:20:05.25Z")},
			"2026-05-13T10:20:05.25Z",
			[]string{"2026-05-13T10:21:05.25Z"},
		},
		{
			"every: fixed delay, its tick was skipped",
			Spec{Every: &Every{Interval: time.Minute, FixedDelay: true}},
			Anchors{start, at(t, "2026-05-13T10:20:05Z")},
			"2026-05-13T10:21:05Z",
			[]string{"2026-05-13T10:22:05Z"},
		},
		{
			"every: milliseconds",
			Spec{Every: &Every{Interval: time.Millisecond}},
			Anchors{Start: start},
			"2026-05-13T10:17:23.0005Z",
			[]string{"2026-05-13T10:17:23.001Z", "2026-05-13T10:17:23.002Z"},
		},
		{
			"every: not_before does not move the grid",
			Spec{Every: &Every{Interval: time.Minute}, NotBefore: at(t, "2026-05-13T12:00:00Z")},
			Anchors{Start: start},
			"2026-05-13T10:17:23Z",
			[]string{"2026-05-13T12:00:23Z"},
		},
		{
			"every: the largest interval",
			Spec{Every: &Every{Interval: math.MaxInt64}},
			Anchors{Start: start},
			"2026-05-13T10:17:23Z",
			[]string{"2318-08-23T10:04:39.854775807Z"},
		},
		{"every: not beyond year 9999", Spec{Every: &Every{Interval: math.MaxInt64}}, Anchors{Start: start}, "9990-01-01T00:00:00Z", []string{""}},
		{"every: large delay", Spec{Every: &Every{Interval: 1 * time.Hour, InitialDelay: math.MaxInt64}}, Anchors{Start: at(t, "9900-01-01T00:00:00Z")}, "2026-05-13T10:17:23Z", []string{""}},
		{"every: no start", Spec{Every: &Every{Interval: time.Hour}}, Anchors{}, "2026-05-13T10:17:23Z", []string{"2026-05-13T11:00:00Z"}},

		{"once: ahead", Spec{Once: "2026-05-13T12:00:00.000000007Z"}, Anchors{}, "2026-05-13T10:17:23Z", []string{"2026-05-13T12:00:00.000000007Z", ""}},
		{"once: equal is over", Spec{Once: "2026-05-13T12:00:00Z"}, Anchors{}, "2026-05-13T12:00:00Z", []string{""}},
		{"once: offset", Spec{Once: "2027-01-01T09:00:00+09:00"}, Anchors{}, "2026-05-13T12:00:00Z", []string{"2027-01-01T00:00:00Z"}},
		{"once: local", Spec{Once: "2027-01-01T09:00", Zone: "Asia/Tokyo"}, Anchors{}, "2026-05-13T12:00:00Z", []string{"2027-01-01T00:00:00Z"}},
		{"once: far ahead", Spec{Once: "9999-12-31T23:59:59Z"}, Anchors{}, "2026-05-13T12:00:00Z", []string{"9999-12-31T23:59:59Z", ""}},

		{"daily: later today", Spec{Daily: &Daily{At: "12:00"}}, Anchors{}, "2026-05-13T10:17:23Z", []string{"2026-05-13T12:00:00Z"}},
		{"daily: equal is over", Spec{Daily: &Daily{At: "12:00"}}, Anchors{}, "2026-05-13T12:00:00Z", []string{"2026-05-14T12:00:00Z"}},
		{"daily: a nanosecond past", Spec{Daily: &Daily{At: "12:00"}}, Anchors{}, "2026-05-13T12:00:00.000000001Z", []string{"2026-05-14T12:00:00Z"}},
		{"daily: a nanosecond before", Spec{Daily: &Daily{At: "12:00"}}, Anchors{}, "2026-05-13T11:59:59.999999999Z", []string{"2026-05-13T12:00:00Z"}},
		{"daily: seconds", Spec{Daily: &Daily{At: "23:59:59"}}, Anchors{}, "2026-12-31T23:59:58Z", []string{"2026-12-31T23:59:59Z", "2027-01-01T23:59:59Z"}},
		{"daily: one digit", Spec{Daily: &Daily{At: "9:05"}}, Anchors{}, "2026-12-31T00:00:00Z", []string{"2026-12-31T09:05:00Z"}},
		{"daily: zone", Spec{Daily: &Daily{At: "00:00"}, Zone: "Asia/Kathmandu"}, Anchors{}, "2026-05-13T10:17:23Z", []string{"2026-05-13T18:15:00Z"}},
		{"daily: before the first year", Spec{Daily: &Daily{At: "00:00"}}, Anchors{}, "0001-01-01T00:00:00Z", []string{"1970-01-01T00:00:00Z"}},
		{"daily: to the last year", Spec{Daily: &Daily{At: "12:00"}, Zone: "Pacific/Pago_Pago"}, Anchors{}, "2099-12-31T22:00:00Z", []string{"2099-12-31T23:00:00Z", ""}},

		{"weekly: later the same day", Spec{Weekly: &Weekly{Days: []time.Weekday{time.Wednesday}, At: "12:00"}}, Anchors{}, "2026-05-13T10:17:23Z", []string{"2026-05-13T12:00:00Z"}},
		{"weekly: equal is over", Spec{Weekly: &Weekly{Days: []time.Weekday{time.Wednesday}, At: "12:00"}}, Anchors{}, "2026-05-13T12:00:00Z", []string{"2026-05-20T12:00:00Z"}},
		{"weekly: earlier the same day", Spec{Weekly: &Weekly{Days: []time.Weekday{time.Wednesday}, At: "09:00"}}, Anchors{}, "2026-05-13T10:17:23Z", []string{"2026-05-20T09:00:00Z"}},
		{
			"weekly: other days",
			Spec{Weekly: &Weekly{Days: []time.Weekday{time.Sunday, time.Monday, time.Sunday}, At: "09:00"}},
			Anchors{},
			"2026-05-13T10:17:23Z",
			[]string{"2026-05-17T09:00:00Z", "2026-05-18T09:00:00Z", "2026-05-24T09:00:00Z"},
		},

		{"monthly: this month", Spec{Monthly: &Monthly{Day: 15, At: "12:00"}}, Anchors{}, "2026-05-13T10:17:23Z", []string{"2026-05-15T12:00:00Z", "2026-06-15T12:00:00Z"}},
		{"monthly: equal is over", Spec{Monthly: &Monthly{Day: 13, At: "12:00"}}, Anchors{}, "2026-05-13T12:00:00Z", []string{"2026-06-13T12:00:00Z"}},
		{"monthly: short months are skipped", Spec{Monthly: &Monthly{Day: 31, At: "12:00"}}, Anchors{}, "2026-01-31T12:00:00Z", []string{"2026-03-31T12:00:00Z", "2026-05-31T12:00:00Z"}},
		{"monthly: or end early", Spec{Monthly: &Monthly{Day: 31, At: "12:00", ShortMonth: LastDay}}, Anchors{}, "2026-01-31T12:00:00Z", []string{"2026-02-28T12:00:00Z", "2026-03-31T12:00:00Z", "2026-04-30T12:00:00Z"}},
		{"monthly: last day", Spec{Monthly: &Monthly{Day: -1, At: "23:30"}}, Anchors{}, "2028-01-31T23:30:00Z", []string{"2028-02-29T23:30:00Z", "2028-03-31T23:30:00Z"}},
		{"monthly: 29 in leap years", Spec{Monthly: &Monthly{Day: 29, At: "00:00"}}, Anchors{}, "2027-01-30T00:00:00Z", []string{"2027-03-29T00:00:00Z"}},

		{
			"any of: earliest first, equal ones once",
			Spec{AnyOf: []Spec{{Cron: "0 */6 * * *"}, {Daily: &Daily{At: "12:00"}}, {Once: "2026-05-13T13:00:00Z"}}},
			Anchors{},
			"2026-05-13T10:17:23Z",
			[]string{"2026-05-13T12:00:00Z", "2026-05-13T13:00:00Z", "2026-05-13T18:00:00Z"},
		},
		{
			"any of: zones are inherited or set",
			Spec{Zone: "Asia/Tokyo", AnyOf: []Spec{{Daily: &Daily{At: "09:00"}}, {Daily: &Daily{At: "09:00"}, Zone: "UTC"}, {Cron: "TZ=Europe/Berlin 0 9 * * *"}}},
			Anchors{},
			"2026-05-13T10:17:23Z",
			[]string{"2026-05-14T00:00:00Z", "2026-05-14T07:00:00Z", "2026-05-14T09:00:00Z"},
		},
		{
			"any of: with every",
			Spec{AnyOf: []Spec{{Every: &Every{Interval: time.Hour}}, {Daily: &Daily{At: "11:00"}}}},
			Anchors{Start: start},
			"2026-05-13T10:17:23Z",
			[]string{"2026-05-13T11:00:00Z", "2026-05-13T11:17:23Z"},
		},
		{
			"any of: bounds of a member",
			Spec{AnyOf: []Spec{{Daily: &Daily{At: "09:00"}, NotAfter: at(t, "2026-05-14T09:00:00Z")}, {Daily: &Daily{At: "10:00"}, NotBefore: at(t, "2026-05-15T10:00:00Z")}}},
			Anchors{},
			"2026-05-13T10:17:23Z",
			[]string{"2026-05-14T09:00:00Z", "2026-05-15T10:00:00Z"},
		},
		{
			"any of: ends",
			Spec{AnyOf: []Spec{{Once: "2026-06-01T00:00:00Z"}, {Once: "2026-07-01T00:00:00Z"}}},
			Anchors{},
			"2026-05-13T10:17:23Z",
			[]string{"2026-06-01T00:00:00Z", "2026-07-01T00:00:00Z", ""},
		},

		{
			"bounds are inclusive",
			Spec{Daily: &Daily{At: "09:00"}, NotBefore: at(t, "2026-06-01T09:00:00Z"), NotAfter: at(t, "2026-06-02T09:00:00Z")},
			Anchors{},
			"2026-05-13T10:17:23Z",
			[]string{"2026-06-01T09:00:00Z", "2026-06-02T09:00:00Z", ""},
		},
		{"jitter is not part of it", Spec{Daily: &Daily{At: "09:00"}, Jitter: time.Minute}, Anchors{}, "2026-05-13T10:17:23Z", []string{"2026-05-14T09:00:00Z"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fires(t, compile(t, tt.spec), tt.a, tt.after, tt.want)
		})
	}
}

// TestMonthlyRollover is what floxide's timer got wrong: months after the 28th.
// https://github.com/aitoroses/floxide, crates/floxide-timer at v1.1.2, moves 32
// days ahead from the target day.
func TestMonthlyRollover(t *testing.T) {
	for _, tt := range []struct {
		day         int
		after, want string
	}{
		{28, "2025-01-28T13:00:00Z", "2025-02-28T12:00:00Z"},
		{28, "2025-02-28T13:00:00Z", "2025-03-28T12:00:00Z"},
		{29, "2024-01-29T13:00:00Z", "2024-02-29T12:00:00Z"},
		{29, "2024-02-29T13:00:00Z", "2024-03-29T12:00:00Z"},
		{30, "2025-04-30T13:00:00Z", "2025-05-30T12:00:00Z"},
		{30, "2025-06-30T13:00:00Z", "2025-07-30T12:00:00Z"},
		{30, "2025-12-30T13:00:00Z", "2026-01-30T12:00:00Z"},
		{31, "2025-01-31T13:00:00Z", "2025-03-31T12:00:00Z"},
		{31, "2025-07-31T13:00:00Z", "2025-08-31T12:00:00Z"},
		{31, "2025-08-31T13:00:00Z", "2025-10-31T12:00:00Z"},
		{31, "2025-12-31T13:00:00Z", "2026-01-31T12:00:00Z"},
		{31, "2025-02-01T13:00:00Z", "2025-03-31T12:00:00Z"},
		{31, "2025-04-05T13:00:00Z", "2025-05-31T12:00:00Z"},
	} {
		fires(t, compile(t, Spec{Monthly: &Monthly{Day: tt.day, At: "12:00"}}), Anchors{}, tt.after, []string{tt.want})
	}
}

// TestMonthlySweep asks at 09:00 on every day of 2023 and 2024, for every day of
// the month, before and after that hour.
func TestMonthlySweep(t *testing.T) {
	cases := 0
	for day := 1; day <= 31; day++ {
		for _, hour := range []int{6, 12} {
			skip := compile(t, Spec{Monthly: &Monthly{Day: day, At: []string{6: "06:00", 12: "12:00"}[hour]}})
			clamp := compile(t, Spec{Monthly: &Monthly{Day: day, At: []string{6: "06:00", 12: "12:00"}[hour], ShortMonth: LastDay}})
			for now := at(t, "2023-01-01T09:00:00Z"); now.Year() < 2025; now = now.AddDate(0, 0, 1) {
				cases++
				want := func(clamp bool) time.Time {
					for y, m := now.Year(), now.Month(); ; m++ {
						length := time.Date(y, m+1, 0, 0, 0, 0, 0, time.UTC).Day()
						d := day
						if d > length {
							if !clamp {
								continue
							}
							d = length
						}
						if w := time.Date(y, m, d, hour, 0, 0, 0, time.UTC); w.After(now) {
							return w
						}
					}
				}
				if got := skip.Next(now, Anchors{}); !got.Equal(want(false)) {
					t.Fatalf("day %d after %s: %s, want %s", day, now, got, want(false))
				}
				if got := clamp.Next(now, Anchors{}); !got.Equal(want(true)) {
					t.Fatalf("day %d or last after %s: %s, want %s", day, now, got, want(true))
				}
			}
		}
	}
	if cases != 45322 {
		t.Errorf("%d cases", cases)
	}
}

// TestErrors is the table of what is refused, and where the fault is said to be.
func TestErrors(t *testing.T) {
	now := at(t, "2026-05-13T10:17:23Z")
	daily := Spec{Daily: &Daily{At: "09:00"}}
	with := func(f func(*Spec)) Spec {
		s := daily
		f(&s)
		return s
	}
	deep := daily
	for range MaxDepth + 1 {
		deep = Spec{AnyOf: []Spec{deep}}
	}
	for _, tt := range []struct {
		name  string
		spec  Spec
		field string
		msg   string
		is    error
	}{
		{"nothing", Spec{}, "", "no schedule given", nil},
		{"two kinds", Spec{Manual: true, Cron: "* * * * *"}, "", "not cron and manual together", nil},
		{"every 0", Spec{Every: &Every{}}, "every.interval", "0s is too short", nil},
		{"every 999 µs", Spec{Every: &Every{Interval: 999 * time.Microsecond}}, "every.interval", "at least 1ms", nil},
		{"every -5m", Spec{Every: &Every{Interval: -5 * time.Minute}}, "every.interval", "-5m0s is too short", nil},
		{"negative delay", Spec{Every: &Every{Interval: time.Second, InitialDelay: -1}}, "every.initial_delay", "negative", nil},
		{"once past", Spec{Once: "2026-05-13T10:17:22Z"}, "once.at", "lies in the past", ErrPast},
		{"once now", Spec{Once: "2026-05-13T10:17:23Z"}, "once.at", "lies in the past", ErrPast},
		{"once nonsense", Spec{Once: "tomorrow"}, "once.at", "no instant", nil},
		{"once one-digit hour", Spec{Once: "2027-01-01T9:00:00Z"}, "once.at", "no instant", nil},
		{"once comma", Spec{Once: "2027-01-01T09:00:00,5Z"}, "once.at", "no instant", nil},
		{"once 30 February", Spec{Once: "2027-02-30T09:00:00Z"}, "once.at", "no instant", nil},
		{"once too far", Spec{Once: "2100-01-01T09:00:00", Zone: "Europe/Berlin"}, "once.at", "out of range", nil},
		{"once too far with offset", Spec{Once: "9999-12-31T23:59:59-01:00"}, "once.at", "out of range", nil},
		{"once before 1970", Spec{Once: "1969-12-31T23:59:59Z"}, "once.at", "out of range", nil},
		{"daily 24:00", Spec{Daily: &Daily{At: "24:00"}}, "daily.at", "no time of day", nil},
		{"daily 12:60", Spec{Daily: &Daily{At: "12:60"}}, "daily.at", "no time of day", nil},
		{"daily 12:00:60", Spec{Daily: &Daily{At: "12:00:60"}}, "daily.at", "no time of day", nil},
		{"daily empty", Spec{Daily: &Daily{}}, "daily.at", "no time of day", nil},
		{"daily 12", Spec{Daily: &Daily{At: "12"}}, "daily.at", "no time of day", nil},
		{"daily -1:00", Spec{Daily: &Daily{At: "-1:00"}}, "daily.at", "no time of day", nil},
		{"daily 12:0", Spec{Daily: &Daily{At: "12:0"}}, "daily.at", "no time of day", nil},
		{"weekly without days", Spec{Weekly: &Weekly{At: "09:00"}}, "weekly.days", "no weekday", nil},
		{"weekly bad day", Spec{Weekly: &Weekly{Days: []time.Weekday{1, 7}, At: "09:00"}}, "weekly.days[1]", "7 is no weekday", nil},
		{"weekly bad time", Spec{Weekly: &Weekly{Days: []time.Weekday{1}, At: "25:00"}}, "weekly.at", "no time of day", nil},
		{"monthly 0", Spec{Monthly: &Monthly{At: "09:00"}}, "monthly.day", "0 is no day", nil},
		{"monthly 32", Spec{Monthly: &Monthly{Day: 32, At: "09:00"}}, "monthly.day", "32 is no day", nil},
		{"monthly -2", Spec{Monthly: &Monthly{Day: -2, At: "09:00"}}, "monthly.day", "-2 is no day", nil},
		{"monthly bad rule", Spec{Monthly: &Monthly{Day: 31, At: "09:00", ShortMonth: 2}}, "monthly.short_month", "unknown", nil},
		{"unknown zone", with(func(s *Spec) { s.Zone = "Mars/Phobos" }), "time_zone", "unknown time zone", nil},
		{"local zone", with(func(s *Spec) { s.Zone = "Local" }), "time_zone", "depends on the machine", nil},
		{"bounds", with(func(s *Spec) { s.NotBefore, s.NotAfter = now, now.Add(-1) }), "not_after", "lies before not_before", nil},
		{"bounds without a fire time", with(func(s *Spec) { s.NotBefore, s.NotAfter = now, now.Add(time.Hour) }), "daily", "never fires", ErrNever},
		{"over", with(func(s *Spec) { s.NotAfter = now }), "daily", "never fires again", ErrNever},
		{"every over", Spec{Every: &Every{Interval: 1 * time.Hour}, NotAfter: now}, "every", "never fires again", ErrNever},
		{"any of over", Spec{AnyOf: []Spec{daily}, NotAfter: now}, "any_of", "never fires again", ErrNever},
		{"huge bound", with(func(s *Spec) { s.NotAfter = time.Unix(math.MaxInt64/2, 0) }), "not_after", "years 1 to 9999", nil},
		{"negative jitter", with(func(s *Spec) { s.Jitter = -1 }), "jitter", "out of range", nil},
		{"huge splay", with(func(s *Spec) { s.Splay = math.MaxInt64 }), "splay", "out of range", nil},
		{"cron years are over", Spec{Cron: "0 0 0 1 1 * 1999-2025"}, "cron", "never fires again", ErrNever},
		{"cron never", Spec{Cron: "0 0 30 2 *"}, "cron", "never fires", ErrNever},
		{"cron never by AND", Spec{Cron: "0 0 8-14 * +MON#1"}, "cron", "never fires", ErrNever},
		{"cron not in that year", Spec{Cron: "0 0 0 29 2 * 2027"}, "cron", "never fires", ErrNever},
		{"any of nothing", Spec{AnyOf: []Spec{}}, "any_of", "no schedule given", nil},
		{"any of manual", Spec{AnyOf: []Spec{daily, {Manual: true}}}, "any_of[1].manual", "never due", nil},
		{"any of broken", Spec{AnyOf: []Spec{daily, {Cron: "x"}}}, "any_of[1].cron", "found 1", nil},
		{"any of never", Spec{AnyOf: []Spec{daily, {AnyOf: []Spec{{Cron: "0 0 31 4 *"}}}}}, "any_of[1].any_of[0].cron", "never fires", ErrNever},
		{"any of empty", Spec{AnyOf: []Spec{daily, {}}}, "any_of[1]", "no schedule given", nil},
		{"any of jitter", Spec{AnyOf: []Spec{{Daily: daily.Daily, Jitter: 1}}}, "any_of[0].jitter", "whole schedule", nil},
		{"any of many", Spec{AnyOf: make([]Spec, MaxMembers+1)}, "any_of", "at most 64", nil},
		{"any of deep", deep, "any_of[0].any_of[0].any_of[0].any_of[0].any_of", "deeper than 4", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Compile(tt.spec, Options{Now: now})
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("error %v", err)
			}
			if e.Field != tt.field || !strings.Contains(e.Msg, tt.msg) {
				t.Errorf("%q %q, want %q … %q", e.Field, e.Msg, tt.field, tt.msg)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("%v is not %v", err, tt.is)
			}
			if tt.is == nil && (errors.Is(err, ErrNever) || errors.Is(err, ErrPast)) {
				t.Errorf("%v is marked as %v", err, e.Unwrap())
			}
		})
	}
}

// TestAllErrors finds every fault at once.
func TestAllErrors(t *testing.T) {
	_, err := Compile(Spec{Zone: "Nowhere", Jitter: -1, AnyOf: []Spec{
		{Daily: &Daily{At: "x"}},
		{Cron: "60 24 32 13 8"},
	}}, Options{})
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%T", err)
	}
	var fields []string
	for _, e := range joined.Unwrap() {
		fields = append(fields, e.(*Error).Field)
	}
	want := "time_zone jitter any_of[0].daily.at any_of[1].cron any_of[1].cron any_of[1].cron any_of[1].cron any_of[1].cron"
	if got := strings.Join(fields, " "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestPast: what lies in the past is refused at creation and taken afterwards.
func TestPast(t *testing.T) {
	now := at(t, "2026-05-13T10:17:23Z")
	for _, spec := range []Spec{
		{Once: "2026-05-13T10:17:22Z"},
		{Cron: "0 0 0 1 1 * 2026"},
		{Daily: &Daily{At: "09:00"}, NotAfter: now},
	} {
		if _, err := Compile(spec, Options{Now: now}); err == nil {
			t.Errorf("%+v was accepted at creation", spec)
		}
		for _, o := range []Options{{}, {Now: now, AllowPast: true}} {
			s, err := Compile(spec, o)
			if err != nil {
				t.Errorf("%+v with %+v: %v", spec, o, err)
				continue
			}
			if got := s.Next(now, Anchors{}); !got.IsZero() {
				t.Errorf("%+v: %s", spec, got)
			}
			_, notes := s.Describe(now)
			if len(notes) != 1 || notes[0] != noMore {
				t.Errorf("%+v: notes %q", spec, notes)
			}
		}
	}
}

func TestProperties(t *testing.T) {
	every, delay := Spec{Every: &Every{Interval: time.Minute}}, Spec{Every: &Every{Interval: time.Minute, FixedDelay: true}}
	daily := Spec{Daily: &Daily{At: "09:00"}}
	for _, tt := range []struct {
		name                         string
		spec                         Spec
		manual, interval, fixedDelay bool
		jitter                       time.Duration
	}{
		{"manual", Spec{Manual: true}, true, false, false, 0},
		{"every", every, false, true, false, 0},
		{"@every", Spec{Cron: "@every 90s"}, false, true, false, 0},
		{"fixed delay", delay, false, true, true, 0},
		{"daily", daily, false, false, false, 0},
		{"jitter", Spec{Daily: daily.Daily, Jitter: time.Minute}, false, false, false, time.Minute},
		{"any of intervals", Spec{AnyOf: []Spec{every, {AnyOf: []Spec{delay}}}}, false, true, true, 0},
		{"any of mixed", Spec{AnyOf: []Spec{every, daily}}, false, false, false, 0},
	} {
		s := compile(t, tt.spec)
		if s.Manual() != tt.manual || s.Interval() != tt.interval || s.FixedDelay() != tt.fixedDelay || s.Jitter() != tt.jitter {
			t.Errorf("%s: manual %v, interval %v, fixed delay %v, jitter %v", tt.name, s.Manual(), s.Interval(), s.FixedDelay(), s.Jitter())
		}
	}
	once, ok := compile(t, Spec{Once: "2027-03-28T02:30:00", Zone: "Europe/Berlin"}).Once()
	if !ok || !once.Equal(at(t, "2027-03-28T01:00:00Z")) {
		t.Errorf("once is %s, %v", once, ok)
	}
	if _, ok := compile(t, daily).Once(); ok {
		t.Error("daily is a once")
	}
}

// TestSplay: flows are spread evenly, each in its own place for ever.
func TestSplay(t *testing.T) {
	const splay = 10 * time.Minute
	spec := Spec{Daily: &Daily{At: "09:00"}, Splay: splay}
	var buckets [10]int
	for i := range 1000 {
		id := "flow-" + string(rune('a'+i%26)) + strings.Repeat("x", i/26)
		s, err := Compile(spec, Options{FlowID: id})
		if err != nil {
			t.Fatal(err)
		}
		first := s.Next(at(t, "2026-05-13T00:00:00Z"), Anchors{})
		offset := first.Sub(at(t, "2026-05-13T09:00:00Z"))
		if offset < 0 || offset >= splay {
			t.Fatalf("%s: offset %v", id, offset)
		}
		buckets[offset*10/splay]++
		if next := s.Next(first, Anchors{}); next.Sub(first) != 24*time.Hour {
			t.Fatalf("%s: %s follows %s", id, next, first)
		}
		if again := s.Next(first.Add(-1), Anchors{}); !again.Equal(first) {
			t.Fatalf("%s: %s, want %s", id, again, first)
		}
	}
	for i, n := range buckets {
		if n < 60 || n > 150 {
			t.Errorf("%d of 1000 flows in tenth %d", n, i)
		}
	}
	// The place is part of the contract: it must not move with a new version.
	fires(t, compile(t, spec), Anchors{}, "2026-05-13T00:00:00Z", []string{"2026-05-13T09:02:24.201Z"})
}

func TestCanonical(t *testing.T) {
	bounds := Spec{Every: &Every{Interval: 90 * time.Minute, InitialDelay: time.Second, FixedDelay: true}, NotBefore: at(t, "2026-05-13T10:17:23+02:00"), NotAfter: at(t, "2027-01-01T00:00:00Z"), Jitter: time.Minute, Splay: time.Hour}
	for _, tt := range []struct {
		spec Spec
		want string
	}{
		{Spec{Manual: true}, "manual"},
		{bounds, "every 1h30m initial_delay=1s fixed_delay not_before=2026-05-13T08:17:23Z not_after=2027-01-01T00:00:00Z jitter=1m splay=1h"},
		{Spec{Once: "2027-03-28T02:30:00", Zone: "Europe/Berlin"}, "once 2027-03-28T01:00:00Z"},
		{Spec{Daily: &Daily{At: "9:00"}}, "daily 09:00:00 UTC"},
		{Spec{Weekly: &Weekly{Days: []time.Weekday{0, 5, 1}, At: "09:00"}, Zone: "Asia/Tokyo"}, "weekly MON,FRI,SUN 09:00:00 Asia/Tokyo"},
		{Spec{Monthly: &Monthly{Day: 31, At: "09:00", ShortMonth: LastDay}}, "monthly 31 09:00:00 short_month=LAST_DAY UTC"},
		{Spec{Monthly: &Monthly{Day: 28, At: "09:00", ShortMonth: LastDay}}, "monthly 28 09:00:00 UTC"},
		{Spec{Monthly: &Monthly{Day: -1, At: "09:00"}}, "monthly -1 09:00:00 UTC"},
		{Spec{Cron: "0 9 * * MON"}, "TZ=UTC 0 0 9 * * 1 *"},
		{Spec{Cron: "@every 5m"}, "every 5m"},
		{Spec{Zone: "Asia/Tokyo", AnyOf: []Spec{{Cron: "@daily"}, {Daily: &Daily{At: "12:00"}, Zone: "UTC"}}}, "any_of [TZ=Asia/Tokyo 0 0 0 * * * *; daily 12:00:00 UTC]"},
	} {
		if got := compile(t, tt.spec).Canonical(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

// TestExtremes asks about instants that no calendar holds.
func TestExtremes(t *testing.T) {
	specs := []Spec{
		{Every: &Every{Interval: time.Millisecond}},
		{Every: &Every{Interval: math.MaxInt64, InitialDelay: math.MaxInt64, FixedDelay: true}},
		{Cron: "* * * * * *", Zone: "America/New_York"},
		{Once: "2027-01-01T00:00:00Z"},
		{Daily: &Daily{At: "09:00"}, Splay: MaxSpread},
		{Manual: true},
		{AnyOf: []Spec{{Every: &Every{Interval: time.Hour}}, {Cron: "0 0 29 2 *"}}},
	}
	instants := []time.Time{
		{},
		time.Unix(math.MinInt64, 0), time.Unix(math.MaxInt64, 999999999), time.Unix(0, 0), time.Unix(-1, 1),
		time.Unix(math.MaxInt32, 0), minInstant, maxInstant, minInstant.Add(-1), maxInstant.Add(1), time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	for _, spec := range specs {
		s := compile(t, spec)
		for _, after := range instants {
			for _, start := range instants {
				for _, ended := range instants {
					got := s.Next(after, Anchors{start, ended})
					if !got.IsZero() && (!got.After(after) || got.After(maxInstant) || got.Location() != time.UTC) {
						t.Fatalf("%s after %s with %s, %s: %s", s.Canonical(), after, start, ended, got)
					}
				}
			}
			s.Describe(after)
		}
	}
}
