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
