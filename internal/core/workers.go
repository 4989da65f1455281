package core

import "sync"

// maxIdleWorkers bounds the workers that wait. They are kept because their stacks have grown already: growing one costs more than a
// short run.
const maxIdleWorkers = 64

// workers are the goroutines in which runs run. A run never waits for another one's end, but short runs share a few goroutines: at most one
// worker at a time is on its way to the queue, and one that finds a run there sends another before it begins, if more are waiting. So
// runs that block get a worker each, and a hundred thousand that do nothing are over before many were sent.
type workers struct {
	wake chan struct{} // to a worker that waits

	mu     sync.Mutex
	queue  []*activeRun
	head   int  // those before were taken
	coming bool // a worker was sent and has not looked yet
	idle   int  // workers that wait
	over   bool
}

func newWorkers() *workers { return &workers{wake: make(chan struct{})} }

// run makes a worker run r.
func (w *workers) run(r *activeRun) {
	w.mu.Lock()
	if w.head > len(w.queue)/2 {
		n := copy(w.queue, w.queue[w.head:])
		clear(w.queue[n:])
		w.queue, w.head = w.queue[:n], 0
	}
	w.queue = append(w.queue, r)
	send := !w.coming
	w.coming = true
	w.mu.Unlock()
	if send {
		w.send()
	}
}

func (w *workers) send() {
	select {
	case w.wake <- struct{}{}:
	default:
		go w.work()
	}
}

func (w *workers) work() {
	sent := true
	for {
		r, send := w.next(sent)
		sent = false
		if send {
			w.send()
		}
		if r != nil {
			r.main()
		} else if sent = w.wait(); !sent {
			return
		}
	}
}

// next takes a run off the queue, and says whether to send another worker. sent tells that this one is the one that was.
func (w *workers) next(sent bool) (r *activeRun, send bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if sent {
		w.coming = false
	}
	if w.head == len(w.queue) {
		return nil, false
	}
	r = w.queue[w.head]
	w.queue[w.head] = nil
	w.head++
	send = !w.coming && w.head < len(w.queue)
	w.coming = w.coming || send
	return r, send
}

// wait waits until this worker is sent again; if it reports false it is not needed any more.
func (w *workers) wait() (sent bool) {
	w.mu.Lock()
	stay := w.idle < maxIdleWorkers && !w.over
	if stay {
		w.idle++
	}
	w.mu.Unlock()
	if !stay {
		return false
	}
	_, sent = <-w.wake
	w.mu.Lock()
	w.idle--
	w.mu.Unlock()
	return sent
}

// end lets the workers go. Nothing may be run any more.
func (w *workers) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	close(w.wake)
}
