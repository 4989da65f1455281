package schedule

import (
	"slices"
	"testing"
	"time"
)

func TestDescribe(t *testing.T) {
	const berlin = "Europe/Berlin"
	for _, tt := range []struct {
		name  string
		spec  Spec
		text  string
		notes []string
	}{
		{"issue", Spec{Cron: "30 2 * * SUN", Zone: berlin}, "at 02:30 on Sundays, Europe/Berlin", []string{
			"on 2027-03-28 at 03:00, since 02:30 does not exist",
			"on 2027-10-31 only the first time, since 02:30 comes twice",
			"on 2028-03-26 at 03:00, since 02:30 does not exist",
			"on 2028-10-29 only the first time, since 02:30 comes twice",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Compile(tt.spec, Options{})
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

func TestPrintDescriptions(t *testing.T) {
	for _, x := range []string{"* * * * *", "*/15 * * * *", "*/15 2 * * *", "0 9-17 * * MON-FRI", "*/10 9-17 * * MON-FRI", "5 * * * *", "0 */2 * * *", "30 */2 * * *",
		"0 0 1 1 *", "0 0 13 * +FRI", "0 0 13 * FRI", "0 0 L * *", "0 0 LW 3,6 *", "0 0 15W,L * 5L,MON#2,WED", "* * * * * *", "*/5 * 9 * * *", "0 9,12,17 * * *", "0 0 12 1 1 * 2027-2029",
		"0 0 */2 * *", "0 0 1-7 JAN-MAR SAT,SUN", "17 3,5,7,9,11,13,15 * * *", "1,7 1,7,9,11 * * *", "0 0 0 * * * 2099", "59 59 23 * * *", "0 30 1 * * 1 *", "7 8 9-11 * * MON#1","* * 2 * * *"} {
		s, err := Compile(Spec{Cron: x, Zone: "Europe/Berlin"}, Options{})
		if err != nil {
			t.Error(err)
			continue
		}
		text, notes := s.Describe(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))
		t.Log(x, " => ", text, notes, s.Canonical())
	}
}
