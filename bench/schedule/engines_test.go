package schedule

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	gorhill "github.com/gorhill/cronexpr"
	hashicorp "github.com/hashicorp/cronexpr"
	netresearch "github.com/netresearch/go-cron"
	robfig "github.com/robfig/cron/v3"

	"github.com/schedulerd/schedulerd/internal/core/schedule"
)

// engine compiles a cron text of five fields for a zone, into what answers Next.
type engine struct {
	name  string
	parse func(text string, loc *time.Location) (next func(time.Time) time.Time, err error)
}

var engines = []engine{
	{"schedulerd", func(text string, loc *time.Location) (func(time.Time) time.Time, error) {
		s, err := schedule.Compile(schedule.Spec{Cron: text, Zone: loc.String()}, schedule.Options{})
		if err != nil {
			return nil, err
		}
		return func(t time.Time) time.Time { return s.Next(t, schedule.Anchors{}) }, nil
	}},
	{"gorhill", func(text string, loc *time.Location) (func(time.Time) time.Time, error) {
		e, err := gorhill.Parse("0 " + text + " *")
		if err != nil {
			return nil, err
		}
		return func(t time.Time) time.Time { c := *e; return c.Next(t.In(loc)) }, nil
	}},
	{"hashicorp", func(text string, loc *time.Location) (func(time.Time) time.Time, error) {
		e, err := hashicorp.Parse("0 " + text + " *")
		if err != nil {
			return nil, err
		}
		return func(t time.Time) time.Time { return e.Next(t.In(loc)) }, nil
	}},
	{"robfig", func(text string, loc *time.Location) (func(time.Time) time.Time, error) {
		s, err := robfig.ParseStandard("CRON_TZ=" + loc.String() + " " + text)
		if err != nil {
			return nil, err
		}
		return s.Next, nil
	}},
	{"netresearch", func(text string, loc *time.Location) (func(time.Time) time.Time, error) {
		s, err := netresearch.ParseStandard("CRON_TZ=" + loc.String() + " " + text)
		if err != nil {
			return nil, err
		}
		return s.Next, nil
	}},
}

var cases = []struct{ name, text string }{
	{"each minute", "* * * * *"},
	{"each 5 minutes", "*/5 * * * *"},
	{"daily", "30 2 * * *"},
	{"weekdays", "0 9 * * MON-FRI"},
	{"first of the month", "0 9 1 * *"},
	{"13th or Friday", "0 9 13 * FRI"},
	{"leap day", "0 0 29 2 *"},
}

var zones = []string{"UTC", "Europe/Berlin"}

func location(t testing.TB, name string) *time.Location {
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// steps gives the fire times after which the engines are asked for the next one.
// All are asked the same: cronexpr would not get past a spring gap by itself.
func steps(t testing.TB, text string, loc *time.Location) []time.Time {
	next, err := engines[0].parse(text, loc)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]time.Time, 512)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range out {
		if at = next(at); at.IsZero() {
			return out[:i]
		}
		out[i] = at
	}
	return out
}

var sink time.Time

func benchNext(text string, loc *time.Location, e engine, after []time.Time) func(*testing.B) {
	return func(b *testing.B) {
		next, err := e.parse(text, loc)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			sink = next(after[i%len(after)])
		}
	}
}

func BenchmarkNext(b *testing.B) {
	for _, zone := range zones {
		loc := location(b, zone)
		for _, c := range cases {
			after := steps(b, c.text, loc)
			for _, e := range engines {
				b.Run(c.name+"/"+zone+"/"+e.name, benchNext(c.text, loc, e, after))
			}
		}
	}
}

func benchParse(text string, loc *time.Location, e engine) func(*testing.B) {
	return func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := e.parse(text, loc); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkParse(b *testing.B) {
	for _, zone := range zones {
		loc := location(b, zone)
		for _, c := range cases {
			for _, e := range engines {
				b.Run(c.name+"/"+zone+"/"+e.name, benchParse(c.text, loc, e))
			}
		}
	}
}

// The goals, as multiples of another engine's time in the same run.
const (
	overGorhill    = 2.0     // at most, on one calendar step
	overRobfig     = 1.0 / 8 // at most, in UTC
	overRobfigZone = 1.0 / 4 // at most, in a zone with clock changes
)

// TestGoals compares the least of some short interleaved rounds, so that a busy
// machine does not decide.
func TestGoals(t *testing.T) {
	for _, zone := range zones {
		loc := location(t, zone)
		for _, c := range cases {
			after := steps(t, c.text, loc)
			least := map[string]float64{}
			for range 5 {
				for _, e := range engines {
					next, err := e.parse(c.text, loc)
					if err != nil {
						t.Fatal(err)
					}
					const n = 500
					start := time.Now()
					for i := range n {
						sink = next(after[i%len(after)])
					}
					ns := float64(time.Since(start).Nanoseconds()) / n
					if old, ok := least[e.name]; !ok || ns < old {
						least[e.name] = ns
					}
				}
			}
			ours := least["schedulerd"]
			t.Logf("%-20s %-14s schedulerd %4.0f ns, gorhill %.0f, hashicorp %.0f, robfig %.0f, netresearch %.0f",
				c.name, zone, ours, least["gorhill"], least["hashicorp"], least["robfig"], least["netresearch"])
			toRobfig := overRobfig
			if zone != "UTC" {
				toRobfig = overRobfigZone
			}
			if ours > overGorhill*least["gorhill"] || ours > toRobfig*least["robfig"] {
				t.Errorf("%s in %s takes %.0f ns", c.name, zone, ours)
			}
			next, err := engines[0].parse(c.text, loc)
			if err != nil {
				t.Fatal(err)
			}
			if n := testing.AllocsPerRun(200, func() { sink = next(after[0]) }); n != 0 {
				t.Errorf("%s in %s: %v allocations", c.name, zone, n)
			}
		}
	}
}

// TestAgreement compares with robfig/cron in UTC on texts that both read alike:
// five fields, lists, ranges, steps, weekdays 0 to 6, either day field may match.
func TestAgreement(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	number := func(lo, hi int) int { return lo + r.IntN(hi-lo+1) }
	field := func(lo, hi int) string {
		text := ""
		for n := 1 + r.IntN(3); n > 0; n-- {
			if text != "" {
				text += ","
			}
			a := number(lo, hi)
			b := number(a, hi)
			step := strconv.Itoa(number(1, hi-lo))
			text += []string{"*", "*/" + step, strconv.Itoa(a), strconv.Itoa(a) + "-" + strconv.Itoa(b), strconv.Itoa(a) + "-" + strconv.Itoa(b) + "/" + step, strconv.Itoa(a) + "/" + step}[r.IntN(6)]
		}
		return text
	}
	compared := 0
	for range 3000 {
		text := field(0, 59) + " " + field(0, 23) + " " + field(1, 31) + " " + field(1, 12) + " " + field(0, 6)
		theirs, err := robfig.ParseStandard(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		at := time.Date(1990+r.IntN(80), time.Month(number(1, 12)), number(1, 28), number(0, 23), number(0, 59), number(0, 59), r.IntN(1e9), time.UTC)
		ours, err := schedule.Compile(schedule.Spec{Cron: text}, schedule.Options{})
		if err != nil {
			if next := theirs.Next(at); !next.IsZero() {
				t.Errorf("%q: %v, but robfig says %s", text, err, next)
			}
			continue
		}
		for range 50 {
			want, got := theirs.Next(at), ours.Next(at, schedule.Anchors{})
			if want.IsZero() { // it gives up after five years
				if !got.IsZero() && got.Before(at.AddDate(5, 0, 0)) {
					t.Errorf("%q after %s: %s, robfig finds none", text, at, got)
				}
				break
			}
			if !got.Equal(want) {
				t.Fatalf("%q after %s: %s, robfig says %s", text, at, got, want)
			}
			compared++
			at = got
		}
	}
	if compared < 100_000 {
		t.Errorf("only %d fire times compared", compared)
	}
}
