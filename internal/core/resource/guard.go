package resource

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// Guard is a resource that admits calls to a target: a circuit breaker, a rate limit, or both.
type Guard interface {
	// Acquire waits for the right to make one call. Done must be called with how the call ended, exactly once.
	// A call that is not admitted gets a *Refused.
	Acquire(ctx context.Context) (done func(CallOutcome), err error)
}

// CallOutcome is how a guarded call ended.
type CallOutcome int

// The outcomes of a guarded call. A cancelled one counts for neither side.
const (
	CallSucceeded CallOutcome = iota
	CallFailed
	CallCancelled
)

// Refused tells why a call was not admitted and when to try again.
type Refused struct {
	Class      string        // "circuit_open" or "rate_limited"
	RetryAfter time.Duration // how long to wait before another call can be admitted
	reason     string
}

func (r *Refused) Error() string {
	return fmt.Sprintf("%s: try again in %v", r.reason, r.RetryAfter.Round(time.Millisecond))
}

// GuardStatus is what a guard shows of itself.
type GuardStatus struct {
	Resource string
	Breaker  *BreakerStatus // nil: there is none
	Limiter  *LimiterStatus // nil: there is none
}

// Gate is a Guard made of a breaker and a limiter; either may be nil. A call waits for its token first, so that it does not
// hold a trial call of a half-open breaker while it waits.
type Gate struct {
	Breaker *Breaker
	Limiter *Limiter
}

// Acquire implements Guard.
func (g *Gate) Acquire(ctx context.Context) (func(CallOutcome), error) {
	if g.Breaker != nil {
		// An open breaker refuses before a token is waited for.
		if err := g.Breaker.refusal(time.Now()); err != nil {
			return nil, err
		}
	}
	if g.Limiter != nil {
		if err := g.Limiter.Wait(ctx); err != nil {
			return nil, err
		}
	}
	if g.Breaker == nil {
		return func(CallOutcome) {}, nil
	}
	epoch, err := g.Breaker.admit(time.Now())
	if err != nil {
		if g.Limiter != nil {
			g.Limiter.giveBack()
		}
		return nil, err
	}
	var ended atomic.Bool
	return func(outcome CallOutcome) {
		if !ended.Swap(true) {
			g.Breaker.record(epoch, outcome, time.Now())
		}
	}, nil
}

// Status tells how breaker and limiter stand.
func (g *Gate) Status() GuardStatus {
	var s GuardStatus
	if g.Breaker != nil {
		b := g.Breaker.Status()
		s.Breaker = &b
	}
	if g.Limiter != nil {
		l := g.Limiter.Status()
		s.Limiter = &l
	}
	return s
}
