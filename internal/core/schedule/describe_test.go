package schedule

import (
	"slices"
	"testing"
	"time"
)

func TestDescribe(t *testing.T) {
	const berlin = "Europe/Berlin"
	springs := func(clock, since string) []string {
		return []string{"on 2027-03-28 " + clock + since, "on 2028-03-26 " + clock + since}
	}
	noon := Spec{Daily: &Daily{At: "12:00"}}
	for _, tt := range []struct {
		name  string
		spec  Spec
		text  string
		notes []string
	}{
		{"manual", Spec{Manual: true}, "only when triggered", nil},
		{"every", Spec{Every: &Every{Interval: 90 * time.Second}}, "every 1m30s", nil},
		{"every hour", Spec{Every: &Every{Interval: time.Hour, InitialDelay: 10 * time.Minute}}, "every 1h, first 10m after the start", nil},
		{"fixed delay", Spec{Every: &Every{Interval: 5 * time.Minute, FixedDelay: true}}, "5m after the end of each run", nil},
		{"once", Spec{Once: "2027-05-01T10:00:00Z", Zone: berlin}, "once, on 2027-05-01 at 12:00:00, Europe/Berlin", nil},
		{"once in a gap", Spec{Once: "2027-03-28T02:30:00", Zone: berlin}, "once, on 2027-03-28 at 03:00:00, Europe/Berlin", []string{"at 03:00, since 02:30:00 does not exist"}},
		{"once over", Spec{Once: "2026-05-01T10:00:00Z"}, "once, on 2026-05-01 at 10:00:00, UTC", []string{"never fires again"}},
		{"daily", noon, "at 12:00 every day, UTC", nil},
		{"weekly", Spec{Weekly: &Weekly{Days: []time.Weekday{0, 1, 2, 3, 5}, At: "09:00:30"}}, "at 09:00:30 on Mondays to Wednesdays, Fridays and Sundays, UTC", nil},
		{"monthly", Spec{Monthly: &Monthly{Day: 1, At: "09:00"}}, "at 09:00 on the 1st of the month, UTC", nil},
		{"monthly last", Spec{Monthly: &Monthly{Day: -1, At: "09:00"}}, "at 09:00 on the last day of the month, UTC", nil},
		{"monthly 31", Spec{Monthly: &Monthly{Day: 31, At: "09:00"}}, "at 09:00 on the 31st of the month, UTC", []string{"months without a 31st are skipped"}},
		{"monthly 31 or last", Spec{Monthly: &Monthly{Day: 31, At: "09:00", ShortMonth: LastDay}}, "at 09:00 on the 31st of the month, or its last day, UTC", nil},
		{
			"qualified",
			Spec{Daily: noon.Daily, NotBefore: at(t, "2027-01-01T00:00:00Z"), NotAfter: at(t, "2027-12-31T00:00:00Z"), Splay: time.Minute, Jitter: time.Minute},
			"at 12:00 every day, UTC, not before 2027-01-01T00:00:00Z, not after 2027-12-31T00:00:00Z, each 14.42s later to spread load, and up to 1m later at random", nil,
		},
		{
			"any of",
			Spec{Zone: berlin, AnyOf: []Spec{{Daily: &Daily{At: "02:30"}, NotAfter: at(t, "2027-05-01T00:00:00Z")}, noon}},
			"any of: at 02:30 every day, Europe/Berlin, not after 2027-05-01T00:00:00Z; at 12:00 every day, Europe/Berlin",
			[]string{"at 02:30 every day, Europe/Berlin: on 2027-03-28 at 03:00, since 02:30 does not exist"},
		},

		{"fixed", Spec{Cron: "30 2 * * SUN", Zone: berlin}, "at 02:30 on Sundays, Europe/Berlin", []string{
			"on 2027-03-28 at 03:00, since 02:30 does not exist",
			"on 2027-10-31 only the first time, since 02:30 comes twice",
			"on 2028-03-26 at 03:00, since 02:30 does not exist",
			"on 2028-10-29 only the first time, since 02:30 comes twice",
		}},
		{"wildcard", Spec{Cron: "*/15 2 * * *", Zone: berlin}, "at 02:00, 02:15, 02:30 and 02:45 every day, Europe/Berlin", []string{
			"on 2027-03-28 not at 02:00 to 02:45, which do not exist",
			"on 2027-10-31 both times, since 02:00 to 02:45 come twice",
			"on 2028-03-26 not at 02:00 to 02:45, which do not exist",
			"on 2028-10-29 both times, since 02:00 to 02:45 come twice",
		}},
		{"fixed, several", Spec{Cron: "0,30 2 * MAR *", Zone: berlin}, "at 02:00 and 02:30 every day in March, Europe/Berlin", springs("at 03:00", ", since 02:00 to 02:30 do not exist")},
		{"each minute is untouched", Spec{Cron: "* * * * *", Zone: berlin}, "every minute, Europe/Berlin", nil},
		{"each second", Spec{Cron: "* * * * * *"}, "every second, UTC", nil},
		{"seconds", Spec{Cron: "*/5 * 9 * * *"}, "every 5 seconds, in hour 9, UTC", nil},
		{"seconds and minutes", Spec{Cron: "1,2 */10 * * * *"}, "at seconds 1 and 2, every 10 minutes, UTC", nil},
		{"minutes", Spec{Cron: "*/15 * * * *"}, "every 15 minutes, UTC", nil},
		{"odd minutes", Spec{Cron: "3,5-9 * * * *"}, "at minutes 3 and 5 to 9, UTC", nil},
		{"a minute", Spec{Cron: "5 * * * *"}, "every hour at :05, UTC", nil},
		{"hourly", Spec{Cron: "@hourly"}, "every hour, UTC", nil},
		{"some hours", Spec{Cron: "0 */2 * * *"}, "every 2 hours, UTC", nil},
		{"some hours and a minute", Spec{Cron: "30 */2 * * *"}, "every 2 hours at :30, UTC", nil},
		{"office hours", Spec{Cron: "0 9-17 * * MON-FRI"}, "every hour from 09:00 to 17:00 on Mondays to Fridays, UTC", nil},
		{"office minutes", Spec{Cron: "*/10 9-17 * * MON-FRI"}, "every 10 minutes from 09:00 to 17:50 on Mondays to Fridays, UTC", nil},
		{"odd hours", Spec{Cron: "17 3,5,7,9,11,13,15 * * *"}, "every hour at :17, in hours 3, 5, 7, 9, 11, 13 and 15, UTC", nil},
		{"odd both", Spec{Cron: "1,7 1,7,9,11 * * *"}, "at minutes 1 and 7, in hours 1, 7, 9 and 11, UTC", nil},
		{"three times", Spec{Cron: "7 8 9-11 * * MON#1"}, "at 09:08:07, 10:08:07 and 11:08:07 on the 1st Monday of the month, UTC", nil},
		{"last second", Spec{Cron: "59 59 23 * * *"}, "at 23:59:59 every day, UTC", nil},
		{"yearly", Spec{Cron: "@yearly"}, "at 00:00 on the 1st of January, UTC", nil},
		{"years", Spec{Cron: "0 0 12 1 1 * 2027-2029,2040"}, "at 12:00 on the 1st of January in 2027 to 2029 and 2040, UTC", nil},
		{"OR", Spec{Cron: "0 0 13 * FRI"}, "at 00:00 on the 13th of the month, and on Fridays, UTC", nil},
		{"AND", Spec{Cron: "0 0 13 * +FRI"}, "at 00:00 on Fridays if it is also the 13th of the month, UTC", nil},
		{"days", Spec{Cron: "0 0 1-7,21,22,*/10 * *"}, "at 00:00 on the 1st to the 7th, the 21st to the 22nd and every 10th day from the 1st of the month, UTC", nil},
		{"working days", Spec{Cron: "0 0 15W,LW,L 3,6 *"}, "at 00:00 on the working day nearest to the 15th, the last day and the last working day of March and June, UTC", nil},
		{"weekdays", Spec{Cron: "0 0 * JAN-MAR 5L,MON#3,WED"}, "at 00:00 on Wednesdays and on the 3rd Monday and the last Friday of January to March, UTC", nil},
		{"weekend in March", Spec{Cron: "0 0 * 3 SAT,SUN"}, "at 00:00 on Saturdays and Sundays in March, UTC", nil},
		{"some days", Spec{Cron: "0 0 2-20/3,3/9 * *"}, "at 00:00 on every 3rd day from the 2nd to the 20th and every 9th day from the 3rd of the month, UTC", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Compile(tt.spec, Options{FlowID: "reports/daily"})
			if err != nil {
				t.Fatal(err)
			}
			text, notes := s.Describe(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))
			if text != tt.text {
				t.Errorf("text %q, want %q", text, tt.text)
			}
			if !slices.Equal(notes, tt.notes) {
				t.Errorf("notes %q, want %q", notes, tt.notes)
			}
		})
	}
}

// TestMissingDayNote looks at the day that Samoa left out.
func TestMissingDayNote(t *testing.T) {
	s := compile(t, Spec{Daily: &Daily{At: "12:00"}, Zone: "Pacific/Apia"})
	_, notes := s.Describe(at(t, "2011-12-01T00:00:00Z"))
	if len(notes) == 0 || notes[0] != "on 2011-12-30 not at 12:00, which does not exist" {
		t.Errorf("notes %q", notes)
	}
}
