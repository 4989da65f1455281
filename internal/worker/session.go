package worker

import (
	"cmp"
	"container/list"
	"crypto/rand"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// session is a worker. Its fields are the hub's, guarded by its mutex.
type session struct {
	hub         *Hub
	id          string
	name        string
	tasks       []string
	slots       int
	labels      map[string]string
	assignments map[string]*assignment // that take a slot
	listed      []*list.Element        // in the lists of idle sessions, by task; nil: not there
	draining    bool                   // it wants no more work
	resuming    bool                   // its assignments are being compared
	paused      *time.Timer            // it gets nothing new until then; nil: it is not paused
	stream      *stream                // nil: it is broken
	loss        *time.Timer            // gives the session up; nil while there is a stream
}

// assignment is one offer of one attempt to one session.
type assignment struct {
	id    string
	phase phase
	job   *job        // nil: its attempt is over, or with another worker
	late  *time.Timer // the end of the time to accept it
}

// stream is what is to be sent on a stream, and how that ends.
type stream struct {
	out   []*schedulerdv1.WorkResponse
	wake  chan struct{} // of capacity 1
	over  chan struct{} // closed when it shall end
	err   error         // that it ends with; set before over is closed
	ended bool
}

func (s *session) String() string { return fmt.Sprintf("%q", s.name) }

// free says whether the session can be given an assignment.
func (s *session) free() bool {
	return s.stream != nil && !s.stream.ended && !s.draining && !s.resuming && s.paused == nil && len(s.assignments) < s.slots
}

// carries says whether the worker has all of some labels.
func (s *session) carries(labels map[string]string) bool {
	for key, value := range labels {
		if mine, ok := s.labels[key]; !ok || mine != value {
			return false
		}
	}
	return true
}

// send puts a message on its way, if there is a stream. One that breaks takes its messages with it: what they were about is
// found again when the worker resumes.
func (s *session) send(m *schedulerdv1.WorkResponse) {
	st := s.stream
	if st == nil || st.ended {
		return
	}
	if len(st.out) > 4*maxSlots {
		s.hub.end(s, status.Error(codes.ResourceExhausted, "the worker does not read what it is sent"))
		return
	}
	st.out = append(st.out, m)
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// end ends the stream of a session, after what is on its way.
func (h *Hub) end(s *session, err error) { s.stream.end(err) }

func (st *stream) end(err error) {
	if st != nil && !st.ended {
		st.ended, st.err = true, err
		close(st.over)
	}
}

func unavailable(text string) error { return status.Error(codes.Unavailable, text) }

// attach begins or resumes a session with the first message of a stream.
func (h *Hub) attach(hello *schedulerdv1.WorkerHello) (*session, *stream, error) {
	if err := check(hello); err != nil {
		return nil, nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, nil, unavailable("the server is stopping: dial again")
	}
	st := &stream{wake: make(chan struct{}, 1), over: make(chan struct{})}
	s := h.sessions[hello.GetSessionId()]
	resumed := s != nil
	if !resumed {
		if len(h.sessions) >= h.options.MaxSessions {
			return nil, nil, status.Errorf(codes.ResourceExhausted, "%d workers are connected, and no more are taken", len(h.sessions))
		}
		s = &session{hub: h, id: rand.Text(), assignments: map[string]*assignment{}}
		h.sessions[s.id] = s
	} else {
		s.stream.end(unavailable("the session goes on with another stream"))
		s.stream = nil
		h.refresh(s) // out of the lists for its old tasks
	}
	s.name = cmp.Or(hello.GetName(), "without a name")
	s.tasks, s.slots, s.labels, s.draining = slices.Compact(slices.Sorted(slices.Values(hello.GetTasks()))), int(hello.GetSlots()), hello.GetLabels(), false
	s.listed = make([]*list.Element, len(s.tasks))
	if s.loss != nil {
		s.loss.Stop()
		s.loss = nil
	}
	s.stream = st
	welcome := &schedulerdv1.WorkerWelcome{
		SessionId:         s.id,
		HeartbeatInterval: durationpb.New(h.options.HeartbeatInterval),
		SessionTimeout:    durationpb.New(h.options.SessionTimeout),
	}
	s.send(&schedulerdv1.WorkResponse{Message: &schedulerdv1.WorkResponse_Welcome{Welcome: welcome}})
	welcome.CancelledAssignmentIds = h.reconcile(s, hello.GetAssignmentIds())
	h.refresh(s)
	h.log.Info("worker connected", "worker", s.name, "version", hello.GetVersion(), "tasks", s.tasks, "slots", s.slots, "resumed", resumed)
	return s, st, nil
}

// reconcile compares the assignments of a session with those that its worker has, and gives those that are not wanted.
func (h *Hub) reconcile(s *session, has []string) (unwantedIDs []string) {
	s.resuming = true // it gets nothing new meanwhile
	defer func() { s.resuming = false }()
	holds := map[string]bool{}
	for _, id := range has {
		holds[id] = true
		a := s.assignments[id]
		if a == nil {
			a = &assignment{id: id}
		}
		if _, do := a.phase.next(held); do&cancel != 0 {
			unwantedIDs = append(unwantedIDs, id)
		} else {
			h.apply(s, a, held, outcome{})
		}
	}
	for _, a := range slices.Collect(maps.Values(s.assignments)) {
		if !holds[a.id] {
			h.apply(s, a, forgotten, outcome{})
		}
	}
	return unwantedIDs
}

// detach is called when a stream has ended. Its session lives on for a while, unless it has another stream or no work is left
// of it that wants no more.
func (h *Hub) detach(s *session, st *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	st.end(nil)
	if s.stream != st || h.sessions[s.id] != s {
		return
	}
	s.stream = nil
	h.refresh(s)
	h.log.Info("worker disconnected", "worker", s.name, "assignments", len(s.assignments))
	s.loss = time.AfterFunc(h.options.SessionTimeout, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if s.stream == nil && h.sessions[s.id] == s {
			h.log.Warn("worker lost", "worker", s.name, "assignments", len(s.assignments))
			h.remove(s)
		}
	})
}

// remove gives a session up.
func (h *Hub) remove(s *session) {
	delete(h.sessions, s.id)
	s.stream.end(nil)
	s.stream = nil
	h.refresh(s) // out of the lists: it gets nothing more
	if s.loss != nil {
		s.loss.Stop()
	}
	for _, a := range slices.Collect(maps.Values(s.assignments)) {
		h.apply(s, a, lost, outcome{})
	}
	if s.paused != nil {
		s.paused.Stop()
	}
}

// endIfDrained ends the session of a worker that wants no more work and has none.
func (h *Hub) endIfDrained(s *session) {
	if s.draining && s.stream != nil && len(s.assignments) == 0 {
		h.log.Info("worker drained", "worker", s.name)
		h.remove(s)
	}
}

// check tells what is wrong with the first message of a stream.
func check(hello *schedulerdv1.WorkerHello) error {
	invalid := func(format string, args ...any) error {
		return status.Errorf(codes.InvalidArgument, "hello: "+format, args...)
	}
	switch {
	case hello == nil:
		return status.Error(codes.InvalidArgument, "the first message of a stream must be hello")
	case len(hello.GetTasks()) == 0 || len(hello.GetTasks()) > maxTasks:
		return invalid("%d tasks; a worker does 1 to %d", len(hello.GetTasks()), maxTasks)
	case hello.GetSlots() == 0 || hello.GetSlots() > maxSlots:
		return invalid("%d slots; a worker has 1 to %d", hello.GetSlots(), maxSlots)
	case len(hello.GetLabels()) > maxLabels:
		return invalid("%d labels; a worker has %d at most", len(hello.GetLabels()), maxLabels)
	case len(hello.GetAssignmentIds()) > 2*maxSlots:
		return invalid("%d assignments; a worker has %d at most", len(hello.GetAssignmentIds()), 2*maxSlots)
	case len(hello.GetName()) > maxName || len(hello.GetVersion()) > maxName:
		return invalid("name or version has more than %d bytes", maxName)
	}
	for _, task := range hello.GetTasks() {
		if task == "" || len(task) > maxName {
			return invalid("a task's name has 1 to %d bytes", maxName)
		}
	}
	for key, value := range hello.GetLabels() {
		if key == "" || len(key) > maxName || len(value) > maxName {
			return invalid("a label's name has 1 to %d bytes, and its value at most so many", maxName)
		}
	}
	return nil
}

// age is how old a stream gets.
func (h *Hub) age() time.Duration {
	half := h.options.StreamAge / 2
	return half + mathrand.N(half+1)
}
