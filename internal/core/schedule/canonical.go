package schedule

import "strings"

// Canonical gives the schedule as one line of text: the same for all ways to
// write it, and for cron itself a cron text with its zone as prefix.
func (s *Schedule) Canonical() string {
	var b strings.Builder
	switch s.kind {
	case kindCron:
		b.WriteString("TZ=" + s.zone.name + " " + s.text)
	case kindDaily, kindWeekly, kindMonthly:
		b.WriteString(s.text + " " + s.zone.name)
	default:
		b.WriteString(s.text)
	}
	if !s.notBefore.IsZero() {
		b.WriteString(" not_before=" + instant(s.notBefore))
	}
	if !s.notAfter.IsZero() {
		b.WriteString(" not_after=" + instant(s.notAfter))
	}
	if s.jitter != 0 {
		b.WriteString(" jitter=" + short(s.jitter))
	}
	if s.splay != 0 {
		b.WriteString(" splay=" + short(s.splay))
	}
	return b.String()
}
