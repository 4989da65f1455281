package core

import (
	"slices"
	"sync"

	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

// maxEvents bounds the events kept of a run: the newest ones.
const maxEvents = 200

// history is what happened in a run, for its record and for those who watch it.
type history struct {
	mu      sync.Mutex
	events  []workflow.Event
	dropped uint64        // older events left out
	grown   chan struct{} // closed at the next event, made when somebody waits
	end     *Run          // the ended run, once its end is durable
}

func (h *history) add(ev workflow.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.events == nil {
		h.events = make([]workflow.Event, 0, 6) // a run of one state has four
	}
	if len(h.events) >= 2*maxEvents { // halve, so that a long run does not move the list at each event
		h.events = append(h.events[:0], h.events[maxEvents:]...)
		h.dropped += maxEvents
	}
	h.events = append(h.events, ev)
	h.wake()
}

// newest is snapshot without a copy, for a run that has ended: nothing is added any more.
func (h *history) newest() ([]workflow.Event, uint64) {
	left := max(len(h.events)-maxEvents, 0)
	return h.events[left:], h.dropped + uint64(left)
}

func (h *history) finish(run *Run) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end = run
	h.wake()
}

func (h *history) wake() {
	if h.grown != nil {
		close(h.grown)
		h.grown = nil
	}
}

// snapshot is the newest events and the number of those left out.
func (h *history) snapshot() ([]workflow.Event, uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	events, dropped := h.newest()
	return slices.Clone(events), dropped
}

// since is the events from number n on (counted from the run's start), the number of the next, the ended run if it has ended, and a
// channel that is closed when there is more.
func (h *history) since(n uint64) (events []workflow.Event, next uint64, end *Run, more <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	next = h.dropped + uint64(len(h.events))
	if from := max(n, h.dropped); from < next {
		events = append(events, h.events[from-h.dropped:]...)
	}
	if h.grown == nil {
		h.grown = make(chan struct{})
	}
	return events, next, h.end, h.grown
}
