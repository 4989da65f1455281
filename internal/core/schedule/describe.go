package schedule

import "time"

// Describe says in words when the schedule is due, and what the clock changes
// that come after from do to it.
func (s *Schedule) Describe(from time.Time) (text string, notes []string) {
	return s.Canonical(), nil
}
