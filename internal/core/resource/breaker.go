package resource

import (
	"fmt"
	"sync"
	"time"
)

// BreakerPolicy says when a breaker opens and how it closes again.
type BreakerPolicy struct {
	FailureThreshold int           // consecutive failures that open it; 0: 5
	ResetTimeout     time.Duration // how long it stays open before trial calls; 0: 30 s
	HalfOpenCalls    int           // trial calls at once, and successes that close it; 0: 1
}

// BreakerState is how a breaker stands.
type BreakerState uint8

// The states of a breaker.
const (
	Closed   BreakerState = iota // calls are admitted
	Open                         // calls are refused
	HalfOpen                     // trial calls are admitted
)

func (s BreakerState) String() string { return [...]string{"closed", "open", "half-open"}[s] }

// BreakerStatus is what a breaker shows of itself.
type BreakerStatus struct {
	State    BreakerState
	Failures int       // consecutive ones, while closed
	Until    time.Time // when trial calls begin, while open
	Opened   uint64    // times it has opened
	Refused  uint64    // calls it has refused
}

// Breaker is a circuit breaker.
type Breaker struct {
	policy BreakerPolicy

	mu       sync.Mutex
	state    BreakerState
	epoch    uint64 // grows with each change of state
	failures int    // consecutive, while closed
	until    time.Time
	trials   int // under way, while half open
	passed   int // trials that succeeded, while half open
	opened   uint64
	refused  uint64
}

// NewBreaker makes a closed breaker. Values below zero count as zero.
func NewBreaker(p BreakerPolicy) *Breaker {
	if p.FailureThreshold <= 0 {
		p.FailureThreshold = 5
	}
	if p.ResetTimeout <= 0 {
		p.ResetTimeout = 30 * time.Second
	}
	if p.HalfOpenCalls <= 0 {
		p.HalfOpenCalls = 1
	}
	return &Breaker{policy: p}
}

// refusal is the error of a call that would be refused now; nil if it would be admitted.
func (b *Breaker) refusal(now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refuse(now)
}

func (b *Breaker) refuse(now time.Time) error {
	switch {
	case b.state == Open && now.Before(b.until):
		b.refused++
		return &Refused{"circuit_open", b.until.Sub(now), fmt.Sprintf("the circuit breaker is open after %d failures in a row", b.failures)}
	case b.state == HalfOpen && b.trials+b.passed >= b.policy.HalfOpenCalls:
		b.refused++
		// Nobody knows when the trial ends. Whatever it tells, it is worth asking again soon.
		return &Refused{"circuit_open", min(b.policy.ResetTimeout, time.Second), "the circuit breaker is half-open and its trial calls are under way"}
	}
	return nil
}

// admit lets a call through and gives the epoch it belongs to.
func (b *Breaker) admit(now time.Time) (epoch uint64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.refuse(now); err != nil {
		return 0, err
	}
	if b.state == Open {
		b.enter(HalfOpen)
	}
	if b.state == HalfOpen {
		b.trials++
	}
	return b.epoch, nil
}

// record counts the end of a call, unless the breaker has changed its state since it was admitted.
func (b *Breaker) record(epoch uint64, outcome CallOutcome, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if epoch != b.epoch {
		return
	}
	if b.state == HalfOpen {
		b.trials--
	}
	switch outcome {
	case CallCancelled:
	case CallSucceeded:
		b.failures = 0
		if b.state == HalfOpen {
			if b.passed++; b.passed >= b.policy.HalfOpenCalls {
				b.enter(Closed)
			}
		}
	default:
		b.failures++
		if b.state == HalfOpen || b.failures >= b.policy.FailureThreshold {
			b.until = now.Add(b.policy.ResetTimeout)
			b.opened++
			b.enter(Open)
		}
	}
}

func (b *Breaker) enter(s BreakerState) {
	b.state = s
	b.epoch++
	b.trials, b.passed = 0, 0
}

// Status tells how the breaker stands. An open one whose time has passed is half open, though no trial call came yet.
func (b *Breaker) Status() BreakerStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := BreakerStatus{State: b.state, Failures: b.failures, Opened: b.opened, Refused: b.refused}
	if b.state == Open {
		s.Until = b.until
		if !time.Now().Before(b.until) {
			s.State = HalfOpen
		}
	}
	return s
}
