package flow

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDelay(t *testing.T) {
	const ms = time.Millisecond
	hundred := Policy{Initial: 100 * ms, Multiplier: 2, MaxDelay: time.Minute}
	tenfold := Policy{Initial: 100 * ms, Multiplier: 10, MaxDelay: 500 * ms}
	jittered := Policy{Initial: time.Second, Multiplier: 2, MaxDelay: time.Minute, Jitter: 0.5}
	capped := Policy{Initial: time.Second, Multiplier: 2, MaxDelay: 10 * time.Second, Jitter: 0.5}
	full := Policy{Initial: time.Second, Multiplier: 1, MaxDelay: time.Second, Jitter: 1}
	for _, test := range []struct {
		name   string
		policy Policy
		streak uint32
		random float64
		want   time.Duration
	}{
		{"first", hundred, 1, 0, 100 * ms},
		{"second", hundred, 2, 0, 200 * ms},
		{"third", hundred, 3, 0, 400 * ms},
		{"fourth", hundred, 4, 0, 800 * ms},
		{"no streak is the first", hundred, 0, 0, 100 * ms},
		{"without jitter the random number counts for nothing", hundred, 2, 1, 200 * ms},
		{"capped at streak 5", tenfold, 5, 0, 500 * ms},
		{"capped at streak 20", tenfold, 20, 0, 500 * ms},
		{"capped where the power is infinite", tenfold, 1000, 0, 500 * ms},
		{"capped at the largest streak", tenfold, math.MaxUint32, 0, 500 * ms},
		{"capped where an int32 exponent would be negative", hundred, 1<<31 + 5, 0, time.Minute},
		{"jitter down", jittered, 1, -1, 500 * ms},
		{"jitter up", jittered, 1, 1, 1500 * ms},
		{"jitter halfway", jittered, 2, 0.5, 2500 * ms},
		{"at the cap jitter only shortens: up", capped, 9, 1, 10 * time.Second},
		{"at the cap jitter only shortens: down", capped, 9, -1, 5 * time.Second},
		{"full jitter may leave nothing", full, 1, -1, 0},
		{"constant", Policy{Initial: time.Minute, Multiplier: 1, MaxDelay: time.Hour}, 500, 0, time.Minute},
		{"the longest there is", Policy{Initial: time.Hour, Multiplier: 1e300, MaxDelay: math.MaxInt64}, 3, 0, math.MaxInt64},
		{"the longest there is, jittered up", Policy{Initial: time.Hour, Multiplier: 1e300, MaxDelay: math.MaxInt64, Jitter: 1}, 3, 1, math.MaxInt64},
		{"a nanosecond", Policy{Initial: 1, Multiplier: 1, MaxDelay: 1}, 1, 0, 1},
	} {
		if got := test.policy.Delay(test.streak, test.random); (got-test.want).Abs() > time.Microsecond || got < 0 || got > test.policy.MaxDelay {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestDefaultPolicy(t *testing.T) {
	if want := (Policy{Initial: time.Second, Multiplier: 2, MaxDelay: 5 * time.Minute, Jitter: 0.1}); DefaultPolicy != want {
		t.Errorf("%+v, want %+v", DefaultPolicy, want)
	}
	if err := DefaultPolicy.Validate(); err != nil {
		t.Error(err)
	}
}

func TestValidate(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Policy)
		faults []string // none: valid
	}{
		"default":                 {func(*Policy) {}, nil},
		"least":                   {func(p *Policy) { *p = Policy{Initial: 1, Multiplier: 1, MaxDelay: 1} }, nil},
		"full jitter":             {func(p *Policy) { p.Jitter = 1 }, nil},
		"trips at once":           {func(p *Policy) { p.TripAfter = 1 }, nil},
		"zero initial":            {func(p *Policy) { p.Initial = 0 }, []string{"initial"}},
		"negative initial":        {func(p *Policy) { p.Initial = -time.Second }, []string{"initial"}},
		"multiplier below one":    {func(p *Policy) { p.Multiplier = 0.99 }, []string{"multiplier"}},
		"negative multiplier":     {func(p *Policy) { p.Multiplier = -2 }, []string{"multiplier"}},
		"infinite multiplier":     {func(p *Policy) { p.Multiplier = math.Inf(1) }, []string{"multiplier"}},
		"multiplier not a number": {func(p *Policy) { p.Multiplier = math.NaN() }, []string{"multiplier"}},
		"negative jitter":         {func(p *Policy) { p.Jitter = -0.1 }, []string{"jitter"}},
		"jitter above one":        {func(p *Policy) { p.Jitter = 1.1 }, []string{"jitter"}},
		"jitter not a number":     {func(p *Policy) { p.Jitter = math.NaN() }, []string{"jitter"}},
		"cap below initial":       {func(p *Policy) { p.MaxDelay = p.Initial - 1 }, []string{"max_delay"}},
		"negative probe":          {func(p *Policy) { p.RetryAfterTrip = -1 }, []string{"retry_after_trip"}},
		"nothing set":             {func(p *Policy) { *p = Policy{} }, []string{"initial", "multiplier"}},
		"everything wrong": {
			func(p *Policy) { *p = Policy{Initial: -1, MaxDelay: -2, Multiplier: 0, Jitter: 2, RetryAfterTrip: -1} },
			[]string{"initial", "multiplier", "max_delay", "jitter", "retry_after_trip"},
		},
	} {
		p := DefaultPolicy
		test.change(&p)
		err := p.Validate()
		if (err == nil) != (test.faults == nil) {
			t.Errorf("%s: %v", name, err)
		}
		for _, fault := range test.faults {
			if err != nil && !strings.Contains(err.Error(), fault) {
				t.Errorf("%s: %v does not speak of %s", name, err, fault)
			}
		}
	}
}

// For every valid policy and streak the delay lies in [0, max], in the band that the jitter allows, and never shrinks as the streak grows.
func TestDelayBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{
			Initial:    time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "initial")),
			Multiplier: rapid.Float64Range(1, math.MaxFloat64).Draw(t, "multiplier"),
			Jitter:     rapid.Float64Range(0, 1).Draw(t, "jitter"),
		}
		p.MaxDelay = time.Duration(rapid.Int64Range(int64(p.Initial), math.MaxInt64).Draw(t, "max"))
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		streak, random := rapid.Uint32().Draw(t, "streak"), rapid.Float64Range(-1, 1).Draw(t, "random")
		d, steady := p.Delay(streak, random), p.Delay(streak, 0)
		slack := time.Duration(float64(p.MaxDelay)*1e-9) + 2
		if d < 0 || d > p.MaxDelay {
			t.Fatalf("delay %v is outside [0, %v]", d, p.MaxDelay)
		}
		if low, high := float64(steady)*(1-p.Jitter), float64(steady)*(1+p.Jitter); float64(d)+float64(slack) < low || float64(d)-float64(slack) > high {
			t.Fatalf("delay %v of %v is outside the jitter's band", d, steady)
		}
		if streak > 0 && p.Delay(streak-1, 0)-steady > slack {
			t.Fatalf("the delay shrinks from %v to %v", p.Delay(streak-1, 0), steady)
		}
	})
}
