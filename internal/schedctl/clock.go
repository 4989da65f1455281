package schedctl

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// none stands for a value that is not there.
const none = "-"

// clock shows times to people.
type clock struct {
	now  func() time.Time
	zone *time.Location
}

// relative shows a time within a day as a distance ("12s ago", "in 4m"), any other as a date.
func (c clock) relative(ts *timestamppb.Timestamp) string {
	if ts == nil {
		return none
	}
	t := ts.AsTime()
	d := t.Sub(c.now())
	if d.Abs() >= 24*time.Hour {
		return t.In(c.zone).Format("2006-01-02 15:04")
	}
	return distance(d)
}

// distance shows how far away an instant is.
func distance(d time.Duration) string {
	switch {
	case d.Abs() < time.Second:
		return "now"
	case d < 0:
		return coarse(-d) + " ago"
	default:
		return "in " + coarse(d)
	}
}

// exact shows a time to the second, and the distance if it is near.
func (c clock) exact(ts *timestamppb.Timestamp) string {
	if ts == nil {
		return none
	}
	t := ts.AsTime()
	text := t.In(c.zone).Format("2006-01-02 15:04:05 MST")
	if t.Sub(c.now()).Abs() < 24*time.Hour {
		text += " (" + c.relative(ts) + ")"
	}
	return text
}

// coarse shows a distance with the one or two units that matter.
func coarse(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 10*time.Minute && d%time.Minute >= time.Second:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 10*time.Hour && d%time.Hour >= time.Minute:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// shortDuration shows how long something took, with three digits: "35ms", "1.25s", "2m3s".
func shortDuration(d time.Duration) string {
	abs := d.Abs()
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		switch {
		case abs >= time.Minute:
			return strings.Replace(d.Round(time.Second).String(), "m0s", "m", 1)
		case abs >= 100*unit:
			return d.Round(unit).String()
		case abs >= 10*unit:
			return d.Round(unit / 10).String()
		case abs >= unit:
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}

// count is a number with its noun: "1 flow", "2 flows".
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

func took(d *durationpb.Duration) string {
	if d == nil {
		return none
	}
	return shortDuration(d.AsDuration())
}
