package resource

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// script drives a gate: "ok", "fail" and "cancel" are whole calls; "call" begins one and "=ok", "=fail", "=cancel" ends the
// oldest begun; a duration passes time; "closed", "open" and "half-open" are what the state must be; "refused" is a call that
// must not be admitted.
func script(t *testing.T, p BreakerPolicy, words string) {
	t.Helper()
	outcomes := map[string]CallOutcome{"ok": CallSucceeded, "fail": CallFailed, "cancel": CallCancelled}
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{Breaker: NewBreaker(p)}
		var begun []func(CallOutcome)
		for i, word := range strings.Fields(words) {
			where := fmt.Sprintf("%s (word %d of %q)", word, i, words)
			if outcome, ok := outcomes[strings.TrimPrefix(word, "=")]; ok {
				if word[0] == '=' {
					begun[0](outcome)
					begun[0](CallFailed) // a second call does not count
					begun = begun[1:]
					continue
				}
				done, err := g.Acquire(t.Context())
				if err != nil {
					t.Fatalf("%s: %v", where, err)
				}
				done(outcome)
				continue
			}
			switch word {
			case "call":
				done, err := g.Acquire(t.Context())
				if err != nil {
					t.Fatalf("%s: %v", where, err)
				}
				begun = append(begun, done)
			case "refused":
				_, err := g.Acquire(t.Context())
				var refused *Refused
				if !errors.As(err, &refused) || refused.Class != "circuit_open" || refused.RetryAfter <= 0 {
					t.Fatalf("%s: %v", where, err)
				}
			case "closed", "open", "half-open":
				if state := g.Status().Breaker.State.String(); state != word {
					t.Fatalf("%s: it is %s", where, state)
				}
			default:
				d, err := time.ParseDuration(word)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(d)
			}
		}
	})
}

func TestBreaker(t *testing.T) {
	three := BreakerPolicy{FailureThreshold: 3, ResetTimeout: time.Minute}
	trials := BreakerPolicy{FailureThreshold: 1, ResetTimeout: time.Minute, HalfOpenCalls: 2}
	for name, test := range map[string]struct {
		policy BreakerPolicy
		words  string
	}{
		"defaults":                          {BreakerPolicy{}, "closed fail fail fail fail closed fail open 29s refused 1s half-open ok closed"},
		"below the threshold":               {three, "fail fail closed ok closed"},
		"opens":                             {three, "fail fail fail open refused"},
		"a success resets the count":        {three, "fail fail ok fail fail closed fail open"},
		"a cancelled call does not count":   {three, "fail cancel fail cancel closed fail open"},
		"half open after the time":          {three, "fail fail fail 59s open refused 1s half-open ok closed fail fail closed"},
		"a failed trial opens it again":     {three, "fail fail fail 1m fail open refused 59s refused 1s ok closed"},
		"a cancelled trial frees its place": {three, "fail fail fail 1m call refused =cancel half-open call =ok closed"},
		"one trial at a time":               {three, "fail fail fail 1m call refused refused =ok closed"},
		"two trials":                        {trials, "fail 1m call call refused =ok half-open refused =ok closed"},
		"two trials, one after the other":   {trials, "fail 1m ok half-open ok closed"},
		"two trials, one fails":             {trials, "fail 1m call call =ok =fail open refused"},
		"two trials, the first fails":       {trials, "fail 1m call call =fail open =ok open refused"},
		"successes do not survive opening":  {trials, "fail 1m ok fail open 1m ok half-open ok closed"},

		// A call counts in the epoch it began in only.
		"a late failure after it opened":      {three, "call call fail fail fail open =fail =fail open 1m half-open ok closed"},
		"a late success after it opened":      {three, "call fail fail fail open =ok open refused"},
		"a late failure in half-open":         {trials, "call fail 1m call =fail half-open =ok half-open ok closed"},
		"a late failure after it closed":      {three, "call fail fail fail 1m ok closed =fail fail fail closed fail open"},
		"a trial of an earlier half-open":     {trials, "fail 1m call call =fail open 1m call =ok half-open =ok half-open ok closed"},
		"a late end does not free a place":    {trials, "call fail 1m call call refused =cancel refused =cancel call"},
		"a call begun before a whole circuit": {three, "call fail fail fail 1m ok fail fail =ok closed fail open"},
	} {
		t.Run(name, func(t *testing.T) { script(t, test.policy, test.words) })
	}
}

func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBreaker(BreakerPolicy{FailureThreshold: 2, ResetTimeout: time.Minute})
		g := &Gate{Breaker: b}
		for range 2 {
			done, _ := g.Acquire(t.Context())
			done(CallFailed)
		}
		time.Sleep(18 * time.Second)
		_, err := g.Acquire(t.Context())
		if err == nil || err.Error() != "the circuit breaker is open after 2 failures in a row: try again in 42s" {
			t.Error(err)
		}
		s := b.Status()
		if s.Opened != 1 || s.Refused != 1 || time.Until(s.Until) != 42*time.Second || s.Failures != 2 {
			t.Errorf("status %+v", s)
		}
		time.Sleep(42 * time.Second)
		if _, err := g.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = g.Acquire(t.Context())
		if err == nil || err.Error() != "the circuit breaker is half-open and its trial calls are under way: try again in 1s" {
			t.Error(err)
		}
	})
}

// Whatever happens: while it is half open no more trials are under way than allowed, and a threshold of failures in a row, and
// nothing less, opens it.
func TestBreakerInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := BreakerPolicy{FailureThreshold: rapid.IntRange(1, 4).Draw(t, "threshold"), ResetTimeout: time.Minute, HalfOpenCalls: rapid.IntRange(1, 3).Draw(t, "trials")}
		b := NewBreaker(p)
		now := time.Now()
		type call struct {
			epoch uint64
			trial bool
		}
		var calls []call
		var openedAt time.Time
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				before := b.state
				epoch, err := b.admit(now)
				switch {
				case before == Open && now.Sub(openedAt) < time.Minute && err == nil:
					t.Fatal("an open breaker admitted a call")
				case before == Open && now.Sub(openedAt) >= time.Minute && err != nil:
					t.Fatal("the first trial was refused")
				case before == Closed && err != nil:
					t.Fatal("a closed breaker refused a call")
				}
				if err == nil {
					calls = append(calls, call{epoch, b.state == HalfOpen})
				}
			case 1:
				if len(calls) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(calls)-1).Draw(t, "call")
				before := b.state
				b.record(calls[i].epoch, CallOutcome(rapid.IntRange(0, 2).Draw(t, "outcome")), now)
				if b.state == Open && before != Open {
					openedAt = now
				}
				if before == Open && b.state != Open {
					t.Fatal("the end of a call closed an open breaker")
				}
				calls = append(calls[:i:i], calls[i+1:]...)
			case 2:
				now = now.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second)
			}
			underWay := 0
			for _, c := range calls {
				if c.trial && c.epoch == b.epoch {
					underWay++
				}
			}
			if b.state == HalfOpen && (underWay != b.trials || b.trials+b.passed > p.HalfOpenCalls) {
				t.Fatalf("%d trials under way, %d counted, %d passed, %d allowed", underWay, b.trials, b.passed, p.HalfOpenCalls)
			}
			if b.state == Closed && b.failures >= p.FailureThreshold {
				t.Fatalf("closed after %d failures", b.failures)
			}
		}
	})
}

func TestBreakerUnderConcurrency(t *testing.T) {
	g := &Gate{Breaker: NewBreaker(BreakerPolicy{FailureThreshold: 100})}
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			done, err := g.Acquire(t.Context())
			if err == nil {
				done(CallFailed)
			}
		})
	}
	wg.Wait()
	if s := g.Breaker.Status(); s.State != Open || s.Opened != 1 {
		t.Errorf("status %+v", s)
	}
}
