package worker

import (
	"cmp"
	"container/list"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"google.golang.org/protobuf/proto"
)

// Options say how long to wait for workers and how much to take from them. Zeros are the defaults.
type Options struct {
	HeartbeatInterval time.Duration // how often workers and the hub say that they are alive; 5 s
	SessionTimeout    time.Duration // how long a session outlives its stream; 30 s
	AcceptWithin      time.Duration // how long a worker may take to accept an assignment; 10 s
	StreamAge         time.Duration // greatest age of a stream: it ends between half of it and all of it, and its worker resumes; 1 h
	MaxSessions       int           // workers at once; 10000
	MaxQueued         int           // attempts that wait for a worker, per name of a task; 10000
	MaxQueuedBytes    int           // of all attempts that wait; 256 MiB
	Log               *slog.Logger  // nil: discarded
}

// Bounds of what one worker may say of itself.
const (
	maxSlots  = 1000
	maxTasks  = 256
	maxLabels = 64
	maxName   = 256 // bytes of a name, a label or a version
)

// rejectPause is how long a worker that did not take an assignment is offered nothing, so that the two do not spin.
const rejectPause = time.Second

// Hub knows the workers, and the work that waits for them. It is safe for concurrent use.
type Hub struct {
	schedulerdv1.UnimplementedWorkerServiceServer
	options Options
	log     *slog.Logger
	id      string // part of the ids of assignments, which must not be those of another daemon

	mu          sync.Mutex
	closed      bool
	assignments uint64 // so far
	jobs        uint64 // so far
	sessions    map[string]*session
	idle        map[string]*list.List        // sessions with a free slot, by the tasks they do; the longest idle first
	queues      map[string]map[string]*queue // by task and labels
	queued      map[string]int               // jobs that wait, by task
	queuedBytes int
}

// queue is the work that waits for a worker that does a task and has some labels; the oldest first.
type queue struct {
	labels map[string]string
	jobs   *list.List
}

// New makes a hub.
func New(o Options) *Hub {
	o.HeartbeatInterval = cmp.Or(o.HeartbeatInterval, 5*time.Second)
	o.SessionTimeout = cmp.Or(o.SessionTimeout, 30*time.Second)
	o.AcceptWithin = cmp.Or(o.AcceptWithin, 10*time.Second)
	o.StreamAge = cmp.Or(o.StreamAge, time.Hour)
	o.MaxSessions = cmp.Or(o.MaxSessions, 10_000)
	o.MaxQueued = cmp.Or(o.MaxQueued, 10_000)
	o.MaxQueuedBytes = cmp.Or(o.MaxQueuedBytes, 256<<20)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Hub{
		options: o, log: o.Log, id: rand.Text()[:10], sessions: map[string]*session{},
		idle: map[string]*list.List{}, queues: map[string]map[string]*queue{}, queued: map[string]int{},
	}
}

// Work is an attempt for a worker.
type Work struct {
	Invocation   *schedulerdv1.TaskInvocation
	Labels       map[string]string // that the worker must carry
	QueueTimeout time.Duration     // how long it may wait to be accepted; 0: as long as its context lives
	// What the worker tells on its way; nil: nobody listens. They are not called any more when Do has returned.
	Output   func(stderr bool, line string)
	Progress func(message string, fraction float64) // fraction is below 0 if it is not known
}

// job is work on its way through the hub. Fields below mu are the hub's.
type job struct {
	*Work
	number  uint64 // grows in the order of submission
	size    int
	outcome chan outcome // of capacity 1: gets one

	reporting sync.Mutex // held while the worker's words are passed on
	over      bool       // Do has returned

	waits   *list.Element // in its queue; nil: it does not wait
	session *session      // that has it; nil: none
	held    *assignment   // by that session
}

type outcome struct {
	result workflow.Result
	err    error
}

// Do has work done, and gives its result. An error is a *workflow.Error, or the cause of ctx.
func (h *Hub) Do(ctx context.Context, w *Work) (workflow.Result, error) {
	j := &job{Work: w, size: proto.Size(w.Invocation), outcome: make(chan outcome, 1)}
	if err := h.submit(j); err != nil {
		return workflow.Result{}, err
	}
	defer func() {
		j.reporting.Lock()
		j.over = true
		j.reporting.Unlock()
	}()
	var impatient <-chan time.Time
	if w.QueueTimeout > 0 {
		timer := time.NewTimer(w.QueueTimeout)
		defer timer.Stop()
		impatient = timer.C
	}
	for {
		select {
		case o := <-j.outcome:
			return o.result, o.err
		case <-impatient:
			impatient = nil
			if text, given := h.giveUp(j); given {
				return workflow.Result{}, &workflow.Error{Err: fmt.Errorf("no worker took it within %v: %s", w.QueueTimeout, text), Class: "no_worker"}
			}
		case <-ctx.Done():
			h.withdraw(j)
			return workflow.Result{}, context.Cause(ctx)
		}
	}
}

var errStopping = &workflow.Error{Err: errors.New("the server is stopping"), Class: "no_worker"}

func (h *Hub) submit(j *job) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	task := j.Invocation.GetTask()
	switch {
	case h.closed:
		return errStopping
	case h.queued[task] >= h.options.MaxQueued:
		return &workflow.Error{Err: fmt.Errorf("%d attempts at task %q wait for a worker already: start more workers, or let fewer flows run at once", h.queued[task], task), Class: "queue_full"}
	case h.queuedBytes+j.size > h.options.MaxQueuedBytes:
		return &workflow.Error{Err: fmt.Errorf("the work that waits for workers takes %d MiB already: start more workers, or pass names of files instead of large inputs", h.queuedBytes>>20), Class: "queue_full"}
	}
	h.jobs++
	j.number = h.jobs
	h.place(j, false)
	return nil
}

// place gives a job to a worker that is free, or lets it wait: behind the others, or in front of them if it waited before.
func (h *Hub) place(j *job, front bool) {
	if h.closed {
		j.outcome <- outcome{err: errStopping}
		return
	}
	task := j.Invocation.GetTask()
	if free := h.idle[task]; free != nil {
		for e := free.Front(); e != nil; e = e.Next() {
			if s := e.Value.(*session); s.carries(j.Labels) {
				h.offer(j, s)
				h.refresh(s)
				return
			}
		}
	}
	key := labelsKey(j.Labels)
	if h.queues[task] == nil {
		h.queues[task] = map[string]*queue{}
	}
	q := h.queues[task][key]
	if q == nil {
		q = &queue{j.Labels, list.New()}
		h.queues[task][key] = q
	}
	if front {
		j.waits = q.jobs.PushFront(j)
	} else {
		j.waits = q.jobs.PushBack(j)
	}
	h.queued[task]++
	h.queuedBytes += j.size
}

// unqueue takes a job out of its queue.
func (h *Hub) unqueue(j *job) {
	task, key := j.Invocation.GetTask(), labelsKey(j.Labels)
	q := h.queues[task][key]
	q.jobs.Remove(j.waits)
	j.waits = nil
	h.queuedBytes -= j.size
	if h.queued[task]--; h.queued[task] == 0 {
		delete(h.queued, task)
	}
	if q.jobs.Len() == 0 {
		if delete(h.queues[task], key); len(h.queues[task]) == 0 {
			delete(h.queues, task)
		}
	}
}

// oldestFor is the job that has waited longest for a worker like a session; nil if there is none.
func (h *Hub) oldestFor(s *session) (oldest *job) {
	for _, task := range s.tasks {
		for _, q := range h.queues[task] {
			if j := q.jobs.Front().Value.(*job); s.carries(q.labels) && (oldest == nil || j.number < oldest.number) {
				oldest = j
			}
		}
	}
	return oldest
}

// refresh is called when a session may have become free, or is free no more: it gives it work that waits, and keeps the lists
// of idle sessions.
func (h *Hub) refresh(s *session) {
	for s.free() {
		j := h.oldestFor(s)
		if j == nil {
			break
		}
		h.unqueue(j)
		h.offer(j, s)
	}
	for i, task := range s.tasks {
		switch listed := s.listed[i] != nil; {
		case s.free() && !listed:
			if h.idle[task] == nil {
				h.idle[task] = list.New()
			}
			s.listed[i] = h.idle[task].PushBack(s)
		case s.free():
			h.idle[task].MoveToBack(s.listed[i])
		case listed:
			if h.idle[task].Remove(s.listed[i]); h.idle[task].Len() == 0 {
				delete(h.idle, task)
			}
			s.listed[i] = nil
		}
	}
}

// offer makes an assignment of a job.
func (h *Hub) offer(j *job, s *session) {
	h.assignments++
	a := &assignment{id: fmt.Sprintf("%s-%d", h.id, h.assignments), phase: offered, job: j}
	j.session, j.held = s, a
	s.assignments[a.id] = a
	a.late = time.AfterFunc(h.options.AcceptWithin, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if a.phase == offered {
			h.apply(s, a, late, outcome{})
		}
	})
	s.send(assign(a, h.options.AcceptWithin))
}

// apply lets an event happen to an assignment, which may be one that nobody knows.
func (h *Hub) apply(s *session, a *assignment, e event, report outcome) {
	to, do := a.phase.next(e)
	a.phase = to
	if to != offered && a.late != nil {
		a.late.Stop()
	}
	if do&ack != 0 {
		s.send(acknowledge(a.id))
	}
	if do&cancel != 0 {
		s.send(cancelled(a.id))
	}
	j := a.job
	if do&(requeue|settle|fail) != 0 || e == withdrawn {
		j.session, j.held, a.job = nil, nil, nil
	}
	switch {
	case do&settle != 0:
		j.outcome <- report
	case do&fail != 0:
		j.outcome <- outcome{err: lostError(s, e)}
	}
	if to == gone {
		delete(s.assignments, a.id)
	}
	if e == rejects || e == late {
		h.pause(s)
	}
	if do&requeue != 0 {
		h.place(j, true)
	}
	h.refresh(s)
	h.endIfDrained(s)
}

// lostError is the failure of an attempt that a worker had and does not finish.
func lostError(s *session, e event) error {
	why := fmt.Sprintf("was not heard of for %v", s.hub.options.SessionTimeout)
	switch e {
	case forgotten:
		why = "came back without it"
	case rejects:
		why = "gave it back after it had accepted it"
	}
	return &workflow.Error{Err: fmt.Errorf("worker %s %s", s, why), Class: "worker_lost"}
}

// pause lets a session have nothing new for a while.
func (h *Hub) pause(s *session) {
	if s.paused != nil {
		s.paused.Stop()
	}
	s.paused = time.AfterFunc(rejectPause, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		s.paused = nil
		h.refresh(s)
	})
	h.refresh(s) // out of the lists
}

// withdraw takes back a job whose attempt is over.
func (h *Hub) withdraw(j *job) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.takeBack(j)
}

func (h *Hub) takeBack(j *job) {
	switch {
	case j.waits != nil:
		h.unqueue(j)
	case j.held != nil:
		h.apply(j.session, j.held, withdrawn, outcome{})
	}
}

// giveUp takes back a job that no worker has accepted yet, and says why none may have.
func (h *Hub) giveUp(j *job) (why string, given bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if j.waits == nil && (j.held == nil || j.held.phase != offered) {
		return "", false
	}
	h.takeBack(j)
	connected, able, fitting := 0, 0, 0
	for _, s := range h.sessions {
		if s.stream == nil {
			continue
		}
		connected++
		if slices.Contains(s.tasks, j.Invocation.GetTask()) {
			able++
			if s.carries(j.Labels) {
				fitting++
			}
		}
	}
	switch {
	case connected == 0:
		return "no worker is connected", true
	case able == 0:
		return fmt.Sprintf("%d workers are connected, and none does task %q", connected, j.Invocation.GetTask()), true
	case fitting == 0:
		return fmt.Sprintf("%d workers do task %q, and none has the labels %v", able, j.Invocation.GetTask(), j.Labels), true
	}
	return fmt.Sprintf("the %d workers for task %q are busy", fitting, j.Invocation.GetTask()), true
}

// Close ends all sessions. Workers are told to finish and dial again; work that waits fails.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, byLabels := range h.queues {
		for _, q := range byLabels {
			for e := q.jobs.Front(); e != nil; e = e.Next() {
				j := e.Value.(*job)
				j.waits = nil
				j.outcome <- outcome{err: errStopping}
			}
		}
	}
	h.queues, h.queued, h.queuedBytes = map[string]map[string]*queue{}, map[string]int{}, 0
	for _, s := range h.sessions {
		s.send(drain())
		h.end(s, unavailable("the server is stopping: finish, and dial again"))
		h.remove(s)
	}
}

// Figures are numbers about the hub, for metrics.
type Figures struct {
	Sessions int // workers known
	Streams  int // of them connected
	Slots    int
	Busy     int // slots with an assignment
	Queued   int // attempts that wait
}

// Figures counts.
func (h *Hub) Figures() Figures {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := Figures{Sessions: len(h.sessions)}
	for _, s := range h.sessions {
		if s.stream != nil {
			f.Streams++
		}
		f.Slots += s.slots
		f.Busy += len(s.assignments)
	}
	for _, n := range h.queued {
		f.Queued += n
	}
	return f
}

// labelsKey is the same for the same labels.
func labelsKey(labels map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(&b, "%q=%q ", key, labels[key])
	}
	return b.String()
}
