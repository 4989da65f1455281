// Package resource holds what a flow's tasks share: things set up once when the scheduler starts and torn down once when it
// stops, in reverse order.
package resource

import (
	"context"
	"time"
)

// Resource is something with a life: a store, a directory, a connection.
type Resource interface {
	// Setup makes it ready. It is called once, before any run.
	Setup(ctx context.Context) error
	// Teardown releases it. It is called once, after the last run, and only if Setup succeeded.
	Teardown(ctx context.Context) error
}

// Guard is a resource that admits calls to a target: a circuit breaker, a rate limit, or both.
type Guard interface {
	// Acquire waits for the right to make one call. Done must be called with how the call ended, exactly once.
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

// Declaration names a resource and bounds its setup and teardown.
type Declaration struct {
	Name            string
	Resource        Resource
	SetupTimeout    time.Duration // 0: DefaultTimeout
	TeardownTimeout time.Duration // 0: DefaultTimeout
}

// DefaultTimeout bounds a setup or teardown that sets no bound itself.
const DefaultTimeout = 30 * time.Second
