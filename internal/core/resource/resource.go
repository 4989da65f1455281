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

// Declaration names a resource, bounds its setup and teardown, and says what guards calls to it.
type Declaration struct {
	Name            string
	Resource        Resource
	SetupTimeout    time.Duration // 0: DefaultTimeout
	TeardownTimeout time.Duration // 0: DefaultTimeout
	Guard           Guard         // nil: none
}

// DefaultTimeout bounds a setup or teardown that sets no bound itself.
const DefaultTimeout = 30 * time.Second

// AbandonAfter is how long a setup or teardown may go on after its bound before it is left alone.
const AbandonAfter = time.Second
