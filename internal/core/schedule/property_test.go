package schedule

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// anySpec draws a Spec of any kind that is valid, or nearly so.
func anySpec(t *rapid.T, depth int) Spec {
	zones := []string{"", "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "Asia/Kathmandu", "America/Sao_Paulo", "Antarctica/Troll"}
	clock := rapid.StringMatching(`([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?`)
	s := Spec{Zone: rapid.SampledFrom(zones).Draw(t, "zone")}
	if rapid.IntRange(0, 4).Draw(t, "splay?") == 0 {
		s.Splay = time.Duration(rapid.Int64Range(1, int64(MaxSpread)).Draw(t, "splay"))
	}
	if rapid.IntRange(0, 4).Draw(t, "bounds?") == 0 {
		s.NotBefore = anyInstant(t, "not before")
		s.NotAfter = s.NotBefore.Add(time.Duration(rapid.Int64Range(0, 1<<62).Draw(t, "length")))
	}
	kinds := 6
	if depth == 0 {
		kinds = 7
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		s.Every = &Every{
			Interval:     time.Duration(rapid.Int64Range(int64(MinInterval), 1<<62).Draw(t, "interval")),
			InitialDelay: time.Duration(rapid.Int64Range(0, 1<<62).Draw(t, "delay")),
			FixedDelay:   rapid.Bool().Draw(t, "fixed delay"),
		}
	case 1:
		s.Once = anyInstant(t, "once").Format(rapid.SampledFrom([]string{time.RFC3339Nano, "2006-01-02T15:04:05"}).Draw(t, "layout"))
	case 2:
		s.Daily = &Daily{At: clock.Draw(t, "at")}
	case 3:
		s.Weekly = &Weekly{At: clock.Draw(t, "at"), Days: rapid.SliceOfN(rapid.Map(rapid.IntRange(0, 6), func(d int) time.Weekday { return time.Weekday(d) }), 1, 4).Draw(t, "days")}
	case 4:
		s.Monthly = &Monthly{At: clock.Draw(t, "at"), Day: rapid.SampledFrom([]int{-1, 1, 15, 28, 29, 30, 31}).Draw(t, "day"), ShortMonth: ShortMonth(rapid.IntRange(0, 1).Draw(t, "short"))}
	case 5:
		r := maker{rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))}
		s.Cron = r.cron(anyInstant(t, "near"), rapid.Bool().Draw(t, "seconds")).text
	case 6:
		for range rapid.IntRange(1, 3).Draw(t, "members") {
			s.AnyOf = append(s.AnyOf, anySpec(t, depth+1))
		}
	}
	return s
}

func anyInstant(t *rapid.T, name string) time.Time {
	return time.Unix(rapid.Int64Range(0, 4102444800).Draw(t, name), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC()
}

// TestProgress: whatever the schedule, Next moves on, answers alike from every
// instant before a fire time, keeps its bounds, and gives UTC.
func TestProgress(t *testing.T) {
	drawn, taken := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		spec := anySpec(t, 0)
		drawn++
		s, err := Compile(spec, Options{FlowID: "x"})
		if err != nil {
			return // a schedule that never fires, mostly
		}
		taken++
		a := Anchors{Start: anyInstant(t, "start")}
		if rapid.Bool().Draw(t, "ran") {
			a.Ended = anyInstant(t, "ended")
		}
		after := anyInstant(t, "after")
		for range 20 {
			next := s.Next(after, a)
			if next.IsZero() {
				far := after.Add(time.Duration(rapid.Int64Range(0, 1<<62).Draw(t, "far")))
				if again := s.Next(far, a); !again.IsZero() {
					t.Fatalf("%s: never after %s, but %s after %s", s.Canonical(), after, again, far)
				}
				return
			}
			switch {
			case !next.After(after):
				t.Fatalf("%s: %s after %s", s.Canonical(), next, after)
			case next.Location() != time.UTC:
				t.Fatalf("%s: in %s", s.Canonical(), next.Location())
			case !spec.NotBefore.IsZero() && next.Before(spec.NotBefore), !spec.NotAfter.IsZero() && next.After(spec.NotAfter):
				t.Fatalf("%s: %s is out of bounds", s.Canonical(), next)
			}
			between := after.Add(time.Duration(rapid.Int64Range(0, max(0, int64(next.Sub(after))-1)).Draw(t, "between")))
			if again := s.Next(between, a); !again.Equal(next) {
				t.Fatalf("%s: %s after %s, but %s after %s", s.Canonical(), next, after, again, between)
			}
			after = next
		}
	})
	if taken < drawn/2 {
		t.Errorf("only %d of %d schedules could be compiled", taken, drawn)
	}
}

// benchSpecs is one schedule of each kind, and of each kind of cron text.
var benchSpecs = []struct {
	name string
	spec Spec
}{
	{"every", Spec{Every: &Every{Interval: 30 * time.Second}}},
	{"once", Spec{Once: "2099-01-01T00:00:00Z"}},
	{"daily", Spec{Daily: &Daily{At: "02:30"}}},
	{"weekly", Spec{Weekly: &Weekly{Days: []time.Weekday{1, 3, 5}, At: "02:30"}}},
	{"monthly", Spec{Monthly: &Monthly{Day: 31, At: "02:30"}}},
	{"cron each second", Spec{Cron: "* * * * * *"}},
	{"cron each 5 minutes", Spec{Cron: "*/5 * * * *"}},
	{"cron daily", Spec{Cron: "30 2 * * *"}},
	{"cron weekdays", Spec{Cron: "0 9 * * MON-FRI"}},
	{"cron 15W", Spec{Cron: "0 9 15W * *"}},
	{"cron Friday 13", Spec{Cron: "0 9 13 * +FRI"}},
	{"cron leap day", Spec{Cron: "0 0 29 2 *"}},
	{"cron leap day on a fifth Monday", Spec{Cron: "0 0 29 2 +MON#5"}},
	{"cron far year", Spec{Cron: "0 0 0 1 1 * 2099"}},
	{"any of", Spec{AnyOf: []Spec{{Cron: "0 9 * * MON-FRI"}, {Daily: &Daily{At: "12:00"}}, {Every: &Every{Interval: time.Hour}}}}},
	{"splay", Spec{Daily: &Daily{At: "02:30"}, Splay: time.Hour}},
}

// walk asks again and again, and starts over where the schedule ends.
func walk(s *Schedule, t time.Time) time.Time {
	start := Anchors{Start: time.Unix(1_767_225_600, 0)}
	if t = s.Next(t, start); t.IsZero() {
		t = time.Unix(1_767_225_600, 0)
	}
	return t
}

func TestNextDoesNotAllocate(t *testing.T) {
	for _, zone := range []string{"UTC", "Europe/Berlin"} {
		for _, b := range benchSpecs {
			b.spec.Zone = zone
			s := compile(t, b.spec)
			now := time.Unix(1_767_225_600, 0)
			if n := testing.AllocsPerRun(500, func() { now = walk(s, now) }); n != 0 {
				t.Errorf("%s in %s: %v allocations", b.name, zone, n)
			}
		}
	}
}

// TestConcurrentUse lets the race detector look at shared schedules and at the
// tables behind Compile.
func TestConcurrentUse(t *testing.T) {
	shared := make([]*Schedule, len(benchSpecs))
	for i, b := range benchSpecs {
		b.spec.Zone = "Europe/Lisbon"
		shared[i] = compile(t, b.spec)
	}
	var wg sync.WaitGroup
	answers := make([][]time.Time, 8)
	for g := range answers {
		wg.Go(func() {
			for i, s := range shared {
				spec := benchSpecs[i].spec
				spec.Zone = "Europe/Lisbon"
				own, err := Compile(spec, Options{FlowID: "reports/daily"})
				if err != nil {
					t.Error(err)
					return
				}
				now := time.Unix(1_767_225_600, 0)
				for range 50 {
					next := walk(s, now)
					if mine := walk(own, now); !mine.Equal(next) {
						t.Errorf("%s: %s and %s", s.Canonical(), next, mine)
					}
					now = next
				}
				answers[g] = append(answers[g], now)
				s.Describe(now)
			}
		})
	}
	wg.Wait()
	for g := range answers {
		for i := range answers[g] {
			if !answers[g][i].Equal(answers[0][i]) {
				t.Errorf("%s: goroutines disagree", shared[i].Canonical())
			}
		}
	}
}

// TestCompileWork bounds the work of the costliest texts, counted in
// allocations since those do not depend on the machine.
func TestCompileWork(t *testing.T) {
	hostile := []string{
		"*/2,*/3,*/5,*/7,*/11,*/13,*/17,*/19,*/23,*/29 */2,*/3,*/5,*/7,*/11,*/13 */2,*/3,*/5,*/7 1-31/2,L,LW,1W,2W,3W,4W,5W,6W,7W,8W,9W,10W,11W,12W,13W,14W,15W,16W,17W,18W 1/1 +0-7,1L,2L,3L,4L,5L,6L,0L,1#1,2#2 1970/3,1971/5",
		"0 0 0 1-31 * +MON#5 *",
		"0 0 0 30,31 2 * *",
		"59 59 23 31 12 +7#5 2099",
		"H H H H H H */7",
	}
	zones := []string{"UTC", "Africa/Casablanca"}
	for _, text := range hostile {
		for _, zone := range zones {
			n := testing.AllocsPerRun(5, func() {
				for i := range clockAnswers {
					clockAnswers[i].forget()
				}
				monthAnswers.forget()
				yearAnswers.forget()
				dayAnswers.forget()
				s, err := Compile(Spec{Cron: text, Zone: zone}, Options{})
				if err == nil {
					s.Next(minInstant, Anchors{})
				}
			})
			if n > 4000 {
				t.Errorf("%q in %s: %v allocations", text, zone, n)
			}
		}
	}
}

func (a *answers[K, V]) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.said = nil
}

// TestAnswersStayBounded: hostile texts do not fill the memory.
func TestAnswersStayBounded(t *testing.T) {
	var a answers[string, int]
	var e engine
	for i := range 3 * maxAnswers {
		text := time.Duration(i).String()
		for range 2 {
			if got := a.get(&e, text, func() int { return i }); got != i {
				t.Fatalf("%s: %d, want %d", text, got, i)
			}
		}
	}
	if len(a.said) > maxAnswers {
		t.Errorf("%d answers kept", len(a.said))
	}
}

func BenchmarkNext(b *testing.B) {
	for _, zone := range []string{"UTC", "Europe/Berlin"} {
		for _, s := range benchSpecs {
			b.Run(s.name+"/"+zone, func(b *testing.B) {
				s.spec.Zone = zone
				schedule := compile(b, s.spec)
				b.ReportAllocs()
				now := time.Unix(1_767_225_600, 0)
				for b.Loop() {
					now = walk(schedule, now)
				}
			})
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	for _, s := range benchSpecs {
		b.Run(s.name, func(b *testing.B) {
			s.spec.Zone = "Europe/Berlin"
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Compile(s.spec, Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
