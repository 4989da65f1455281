package core

import (
	"sync"
)

// ringSize is how many changes the hub remembers. Who is further behind gets the present states of what changed, in one sweep.
const ringSize = 1 << 16

// hub is where watchers learn what was committed. It keeps no queue for anybody: a ring of what changed, and each watcher knows how
// far it has read. A watcher that does not read costs nothing and delays nobody.
type hub struct {
	mu       sync.Mutex
	ring     []ringItem // the newest ringSize changes; item number n is at n % ringSize
	next     uint64     // number of the next change
	revision uint64     // of the newest commit
	grown    chan struct{}
	waiters  bool // somebody waits on grown
	ended    bool
}

type ringItem struct {
	entry    *entry
	revision uint64
}

func newHub(revision uint64) *hub {
	return &hub{revision: revision, grown: make(chan struct{})}
}

// publish tells of a commit.
func (h *hub) publish(entries []*entry, infos []*Info, revision uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, en := range entries {
		item := ringItem{en, infos[i].Revision}
		if len(h.ring) < ringSize {
			h.ring = append(h.ring, item)
		} else {
			h.ring[h.next%ringSize] = item
		}
		h.next++
	}
	h.revision = revision
	h.wake()
}

// end tells watchers that nothing follows.
func (h *hub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	h.wake()
}

func (h *hub) wake() {
	if h.waiters {
		close(h.grown)
		h.grown = make(chan struct{})
		h.waiters = false
	}
}

// position is where a watcher that wants only what comes now begins.
func (h *hub) position() (next, revision uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.next, h.revision
}

// reading is what a watcher finds.
type reading struct {
	items    []ringItem // since its position; nil if lost
	next     uint64     // its new position
	revision uint64     // to resume from
	lost     bool       // the ring no longer holds its position
	ended    bool
	grown    <-chan struct{} // closed when there is more
}

// since reads the changes from position on.
func (h *hub) since(position uint64, items []ringItem) reading {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := reading{next: h.next, revision: h.revision, ended: h.ended, items: items[:0]}
	oldest := h.next - uint64(len(h.ring))
	r.lost = position < oldest
	if !r.lost {
		for n := position; n < h.next; n++ {
			r.items = append(r.items, h.ring[n%ringSize])
		}
	}
	h.waiters = true
	r.grown = h.grown
	return r
}
