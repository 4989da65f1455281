package flow

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Policy says how a flow holds off after failures.
type Policy struct {
	Initial        time.Duration // delay after the first failure
	Multiplier     float64       // growth per further failure
	MaxDelay       time.Duration // longest delay
	Jitter         float64       // share of the delay that is random, both ways
	TripAfter      uint32        // consecutive failures that trip the flow; 0: it never trips
	RetryAfterTrip time.Duration // after a trip, try one run once this has passed; 0: wait for a reset
}

// DefaultPolicy is the policy of a flow that sets none.
var DefaultPolicy = Policy{Initial: time.Second, Multiplier: 2, MaxDelay: 5 * time.Minute, Jitter: 0.1}

// Validate tells what is wrong with the policy.
func (p Policy) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(p.Initial > 0, "initial must be above 0, not %v", p.Initial)
	check(p.Multiplier >= 1 && !math.IsInf(p.Multiplier, 0), "multiplier must be a finite number of at least 1, not %v", p.Multiplier)
	check(p.MaxDelay >= p.Initial, "max_delay must be at least initial (%v), not %v", p.Initial, p.MaxDelay)
	check(p.Jitter >= 0 && p.Jitter <= 1, "jitter must be from 0 to 1, not %v", p.Jitter)
	check(p.RetryAfterTrip >= 0, "retry_after_trip must not be negative")
	return errors.Join(errs...)
}

// Delay is how long to hold off after streak consecutive failures: min(initial * multiplier^(streak-1), max), then jittered by
// random in [-1, 1], then clamped again.
func (p Policy) Delay(streak uint32, random float64) time.Duration {
	longest := p.MaxDelay.Seconds()
	exponent := float64(max(streak, 1) - 1)
	// Pow of a large streak is +Inf, which min turns into the cap.
	delay := min(p.Initial.Seconds()*math.Pow(p.Multiplier, exponent), longest)
	delay = max(delay*(1+p.Jitter*random), 0)
	if delay >= longest {
		return p.MaxDelay // the longest there is does not survive the way through a float
	}
	return time.Duration(delay * float64(time.Second))
}
