package workflow

import (
	"testing"

	"pgregory.net/rapid"
)

func TestShareOf(t *testing.T) {
	for _, test := range []struct {
		share float64
		total int
		want  int
	}{
		// The cases that multiplication of floats rounds up.
		{0.55, 100, 55},
		{0.07, 100, 7},
		{0.28, 25, 7},
		{0.14, 50, 7},

		{0.5, 3, 2},
		{0.5, 0, 0},
		{0.75, 4, 3},
		{1, 7, 7},
		{0.001, 1000, 1},
		{0.001, 1001, 2},
		{5e-324, 10, 1},
		{0.9999999999999999, 10, 10},
		{1.0 / 3, 3, 1}, // 0.3333333333333333 as a decimal
		{2.0 / 3, 3, 2},
	} {
		if got := shareOf(test.share, test.total); got != test.want {
			t.Errorf("%v of %d is %d, want %d", test.share, test.total, got, test.want)
		}
	}
}

// Shares of whole tenths of percents are those of integer arithmetic.
func TestShareOfIsExact(t *testing.T) {
	for permille := 1; permille <= 1000; permille++ {
		share := float64(permille) / 1000
		for total := range 120 {
			if got, want := shareOf(share, total), (permille*total+999)/1000; got != want {
				t.Fatalf("%v of %d is %d, want %d", share, total, got, want)
			}
		}
	}
}

func TestDecide(t *testing.T) {
	all, anyOf, timeout := Join{Strategy: JoinAll}, Join{Strategy: JoinAny}, Join{Strategy: JoinPartialTimeout}
	quorum := func(n int) Join { return Join{Strategy: JoinQuorum, N: n} }
	partial := func(n int) Join { return Join{Strategy: JoinPartialResults, N: n} }
	share := func(s float64) Join { return Join{Strategy: JoinPercentage, Share: s} }
	for _, test := range []struct {
		join  Join
		tally tally
		want  decision
		final decision
	}{
		{all, tally{0, 0, 0}, met, met},
		{all, tally{3, 2, 0}, undecided, missed},
		{all, tally{3, 3, 0}, met, met},
		{all, tally{3, 0, 1}, missed, missed},
		{anyOf, tally{0, 0, 0}, missed, missed},
		{anyOf, tally{3, 0, 2}, undecided, missed},
		{anyOf, tally{3, 1, 2}, met, met},
		{anyOf, tally{3, 0, 3}, missed, missed},
		{quorum(2), tally{0, 0, 0}, missed, missed},
		{quorum(2), tally{3, 1, 1}, undecided, missed},
		{quorum(2), tally{3, 2, 0}, met, met},
		{quorum(2), tally{3, 1, 2}, missed, missed},
		{quorum(5), tally{3, 0, 0}, missed, missed},
		{share(0.5), tally{0, 0, 0}, met, met},
		{share(0.5), tally{3, 1, 0}, undecided, missed},
		{share(0.5), tally{3, 2, 0}, met, met},
		{share(0.5), tally{3, 0, 2}, missed, missed},
		{share(1), tally{3, 2, 1}, missed, missed},
		{partial(2), tally{0, 0, 0}, missed, missed},
		{partial(2), tally{4, 1, 2}, undecided, missed},
		{partial(2), tally{4, 2, 2}, met, met},
		{partial(2), tally{4, 0, 3}, missed, missed},
		{timeout, tally{0, 0, 0}, missed, missed},
		{timeout, tally{2, 0, 0}, undecided, missed},
		{timeout, tally{2, 1, 0}, undecided, met},
		{timeout, tally{2, 0, 1}, undecided, met},
		{timeout, tally{2, 0, 2}, met, met},
	} {
		needed := test.join.needed(test.tally.total)
		if got := test.join.decide(test.tally, needed, false); got != test.want {
			t.Errorf("%v %+v: %d, want %d", test.join, test.tally, got, test.want)
		}
		if got := test.join.decide(test.tally, needed, true); got != test.final {
			t.Errorf("%v %+v at the end: %d, want %d", test.join, test.tally, got, test.final)
		}
	}
}

// A decision does not change when more branches end, and at the end there always is one.
func TestDecisionsStand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(0, 12).Draw(t, "total")
		join := drawJoin(t)
		needed := join.needed(total)
		counts := tally{total: total}
		before := join.decide(counts, needed, false)
		for range total {
			if rapid.Bool().Draw(t, "ok") {
				counts.succeeded++
			} else {
				counts.failed++
			}
			now := join.decide(counts, needed, false)
			if before != undecided && now != before {
				t.Fatalf("%+v: from %d to %d at %+v", join, before, now, counts)
			}
			before = now
		}
		if before == undecided && join.Strategy != JoinPartialTimeout {
			t.Fatalf("%+v: undecided at %+v", join, counts)
		}
		if join.decide(counts, needed, true) == undecided {
			t.Fatalf("%+v: undecided at the end", join)
		}
	})
}

func drawJoin(t *rapid.T) Join {
	return Join{
		Strategy: Strategy(rapid.IntRange(int(JoinAll), int(JoinPartialTimeout)).Draw(t, "strategy")),
		N:        rapid.IntRange(1, 14).Draw(t, "n"),
		Share:    float64(rapid.IntRange(1, 100).Draw(t, "percent")) / 100,
	}
}

func TestDescribe(t *testing.T) {
	for want, join := range map[string]Join{
		"all must succeed":            {Strategy: JoinAll},
		"any must succeed":            {Strategy: JoinAny},
		"a quorum of 2 must succeed":  {Strategy: JoinQuorum, N: 2},
		"7% must succeed: 1":          {Strategy: JoinPercentage, Share: 0.07},
		"2 must succeed":              {Strategy: JoinPartialResults, N: 2},
		"one must end by the timeout": {Strategy: JoinPartialTimeout},
		"55% must succeed: 2":         {Strategy: JoinPercentage, Share: 0.55},
	} {
		if got := join.describe(join.needed(3), 3); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
