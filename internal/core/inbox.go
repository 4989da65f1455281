package core

import (
	"sync"

	"github.com/schedulerd/schedulerd/internal/core/flow"
)

// message is something the engine is asked to do, in its own goroutine.
type message func(e *engine, now flow.Instant)

// inbox is how everybody else talks to the engine: an unbounded queue, since those who fill it (runs that end, calls that wait for
// their answer) are bounded themselves. A channel would make a run's end wait for the engine.
type inbox struct {
	mu     sync.Mutex
	queue  []message
	closed bool
	wake   chan struct{} // holds one token while the queue is not empty
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// put queues m. It reports false when the engine has ended and will never read it.
func (b *inbox) put(m message) bool {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false
	}
	b.queue = append(b.queue, m)
	first := len(b.queue) == 1
	b.mu.Unlock()
	if first {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
	return true
}

// take swaps the queue for an empty one, spare, whose array is used again.
func (b *inbox) take(spare []message) []message {
	b.mu.Lock()
	defer b.mu.Unlock()
	queue := b.queue
	b.queue = spare[:0]
	return queue
}

// close refuses further messages and returns those not yet read.
func (b *inbox) close() []message {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	queue := b.queue
	b.queue = nil
	return queue
}
