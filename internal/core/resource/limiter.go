package resource

import (
	"context"
	"math"
	"sync"
	"time"
)

// Rate is a token bucket's.
type Rate struct {
	Calls int           // allowed per period; at least 1
	Per   time.Duration // 0: 1 s
	Burst int           // calls that may be saved up; 0: Calls
}

// LimiterStatus is what a limiter shows of itself.
type LimiterStatus struct {
	Tokens  float64 // calls that would be admitted at once
	Waiting int     // calls that wait for a token
	Refused uint64  // calls refused because their context would have ended first
}

// Limiter is a token bucket that starts full.
type Limiter struct {
	perToken float64 // nanoseconds
	burst    float64

	mu      sync.Mutex
	tokens  float64 // below 0: owed to calls that wait
	at      time.Time
	waiting int
	refused uint64
}

// NewLimiter makes a full bucket. Values below 1 count as the defaults of Rate.
func NewLimiter(r Rate) *Limiter {
	if r.Calls <= 0 {
		r.Calls = 1
	}
	if r.Per <= 0 {
		r.Per = time.Second
	}
	if r.Burst <= 0 {
		r.Burst = r.Calls
	}
	return &Limiter{perToken: float64(r.Per) / float64(r.Calls), burst: float64(r.Burst), tokens: float64(r.Burst), at: time.Now()}
}

// Wait takes a token, waiting for it in order of arrival. It gives a *Refused at once if ctx ends before the token comes, and the
// cause of ctx if it is cancelled meanwhile; the token goes back then.
func (l *Limiter) Wait(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	wait, err := l.reserve(ctx)
	if err != nil || wait == 0 {
		return err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		l.mu.Lock()
		l.waiting--
		l.mu.Unlock()
		return nil
	case <-ctx.Done():
		l.mu.Lock()
		l.waiting--
		l.mu.Unlock()
		l.giveBack()
		return context.Cause(ctx)
	}
}

// reserve takes a token that may not be there yet, and tells how long it takes to come.
func (l *Limiter) reserve(ctx context.Context) (time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.refill(now)
	if l.tokens >= 1 {
		l.tokens--
		return 0, nil
	}
	wait := time.Duration(math.Ceil((1 - l.tokens) * l.perToken))
	if deadline, ok := ctx.Deadline(); ok && now.Add(wait).After(deadline) {
		l.refused++
		return 0, &Refused{"rate_limited", wait, "the rate limit has no call left before the time is up"}
	}
	l.tokens--
	l.waiting++
	return wait, nil
}

// refill adds what has come since the last look. l.mu is held.
func (l *Limiter) refill(now time.Time) {
	if since := now.Sub(l.at); since > 0 {
		l.tokens = min(l.burst, l.tokens+float64(since)/l.perToken)
		l.at = now
	}
}

// giveBack returns a token that was taken but not used.
func (l *Limiter) giveBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tokens = min(l.burst, l.tokens+1)
}

// Status tells how the limiter stands.
func (l *Limiter) Status() LimiterStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refill(time.Now())
	return LimiterStatus{Tokens: max(l.tokens, 0), Waiting: l.waiting, Refused: l.refused}
}
