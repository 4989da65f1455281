package core

import (
	"container/heap"

	"github.com/schedulerd/schedulerd/internal/core/flow"
)

// waiter is a fire time or a trigger that found no free slot.
type waiter struct {
	entry   *entry
	since   flow.Instant // the fire time, or when the trigger came: first come, first served
	order   uint64
	trigger *triggerCall // nil: a fire time
	catchUp bool
	at      int // place in the queue
}

// waitQueue is the waiters in order of fire time.
type waitQueue struct {
	heap  []*waiter
	count uint64
}

func (q *waitQueue) add(w *waiter) {
	q.count++
	w.order = q.count
	heap.Push(q, w)
}

func (q *waitQueue) next() *waiter    { return heap.Pop(q).(*waiter) }
func (q *waitQueue) remove(w *waiter) { heap.Remove(q, w.at) }
func (q *waitQueue) Len() int         { return len(q.heap) }
func (q *waitQueue) Swap(i, j int) {
	q.heap[i], q.heap[j] = q.heap[j], q.heap[i]
	q.heap[i].at, q.heap[j].at = i, j
}
func (q *waitQueue) Push(x any) { w := x.(*waiter); w.at = len(q.heap); q.heap = append(q.heap, w) }
func (q *waitQueue) Less(i, j int) bool {
	a, b := q.heap[i], q.heap[j]
	return a.since < b.since || a.since == b.since && a.order < b.order
}

func (q *waitQueue) Pop() any {
	last := len(q.heap) - 1
	w := q.heap[last]
	q.heap[last] = nil
	q.heap = q.heap[:last]
	return w
}
