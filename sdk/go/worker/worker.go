// Package worker does tasks for a schedulerd: a process that dials in, from wherever it is.
//
//	conn, err := grpc.NewClient("schedulerd:7420", …)
//	err = worker.Run(ctx, conn, worker.Options{Name: "packer", Slots: 4}, map[string]worker.Handler{
//		"pack": func(ctx context.Context, t *worker.Task) (any, error) {
//			t.Logf("packing %v", t.Input.AsInterface())
//			return map[string]any{"boxes": 3}, nil
//		},
//	})
//
// A task may come more than once: after a failure, or when a worker or the daemon was lost. Its idempotency key is the same
// then. Run dials again when its stream breaks, and goes on with the tasks at hand; when it has heard nothing for as long as
// the daemon keeps a session, it cancels them, because by then another worker may have been given them.
package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

// MaxResultBytes is how large a result may be, as JSON.
const MaxResultBytes = 64 << 10

// Options describe a worker.
type Options struct {
	Name    string            // for people
	Version string            // for people
	Slots   int               // tasks at once; 0: 1
	Labels  map[string]string // that flows may ask for
	// How long tasks may go on when the context of Run is done, before they are cancelled. 0: 30 s.
	Grace time.Duration
	// Called with why a stream ended, before the next is opened. Nil: nobody is told.
	Disconnected func(err error)
}

// Handler does a task. Its result is anything that can be written as JSON, or a *schedulerdv1.TaskResult, which can carry an
// action, too. ctx is done when the task is no longer wanted; the handler should return then.
type Handler func(ctx context.Context, t *Task) (any, error)

// Error is a failure with what the flow's retry policy needs to know. Any other error, and a panic, may be repeated.
type Error struct {
	Err        error
	Class      string        // for retry_on and no_retry_on; empty: "error"
	Permanent  bool          // trying again cannot help
	RetryAfter time.Duration // wait at least this long before a retry
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Task is one attempt at a task.
type Task struct {
	*schedulerdv1.TaskInvocation
	id     string
	worker *worker
}

// Logf writes a line to the run's log. It is lost while there is no connection.
func (t *Task) Logf(format string, args ...any) {
	t.worker.say(&schedulerdv1.WorkRequest{Message: &schedulerdv1.WorkRequest_Log{Log: &schedulerdv1.WorkerLog{AssignmentId: t.id, Text: strings.ToValidUTF8(fmt.Sprintf(format, args...), "\uFFFD")}}})
}

// Progress tells how far the task has come; a fraction below 0 is not known. It is lost while there is no connection.
func (t *Task) Progress(message string, fraction float64) {
	p := &schedulerdv1.TaskProgress{Message: strings.ToValidUTF8(message, "\uFFFD")}
	if fraction >= 0 {
		p.Fraction = &fraction
	}
	t.worker.say(&schedulerdv1.WorkRequest{Message: &schedulerdv1.WorkRequest_Progress{Progress: &schedulerdv1.WorkerProgress{AssignmentId: t.id, Progress: p}}})
}

// Run works until ctx is done and the tasks at hand are, and gives nil then; or until the daemon refuses the worker, with the
// status of that.
func Run(ctx context.Context, conn grpc.ClientConnInterface, o Options, handlers map[string]Handler) error {
	o.Slots, o.Grace = max(o.Slots, 1), cmp.Or(o.Grace, 30*time.Second)
	handle, cancel := context.WithCancel(context.WithoutCancel(ctx)) // of the handlers: outlives ctx for the grace
	life, end := context.WithCancel(context.WithoutCancel(ctx))      // of the streams: for them to tell how they ended
	w := &worker{options: o, handlers: handlers, handle: handle, assignments: map[string]*assignment{}, wake: make(chan struct{}, 1)}
	defer w.handling.Wait()
	defer end()
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		w.drain()
		time.AfterFunc(o.Grace, cancel)
		time.AfterFunc(o.Grace+endWithin, end)
	})()
	w.fence = time.AfterFunc(time.Hour, w.cancelAll)
	defer w.fence.Stop()
	for failures := 0; ; failures++ {
		began := time.Now()
		err := w.stream(life, schedulerdv1.NewWorkerServiceClient(conn))
		switch status.Code(err) {
		case codes.InvalidArgument, codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented:
			return err
		}
		if life.Err() != nil || ctx.Err() != nil && w.done() {
			return nil
		}
		if o.Disconnected != nil {
			o.Disconnected(err)
		}
		if time.Since(began) > 10*time.Second {
			failures = 0
		}
		select { // up to 0.2, 0.4 … 5 s: a thousand workers must not dial a daemon that comes back at the same moment
		case <-time.After(rand.N(min(200*time.Millisecond<<min(failures, 5), 5*time.Second))):
		case <-life.Done():
			return nil
		}
	}
}

const (
	endWithin     = 5 * time.Second  // that handlers have to return, and their reports to arrive, after they were cancelled
	welcomeWithin = 15 * time.Second // of dialling
	maxOut        = 10_000           // messages on their way, beyond which lines and progress are dropped
	maxMessage    = 4 << 10          // bytes of a failure's message; one that is too large for a message would come again and again
)

type worker struct {
	options  Options
	handlers map[string]Handler
	handle   context.Context
	handling sync.WaitGroup
	fence    *time.Timer // cancels all tasks when nothing was heard for as long as a session lives

	mu          sync.Mutex
	session     string
	draining    bool
	assignments map[string]*assignment
	busy        int // handlers that have not returned
	connected   bool
	out         []*schedulerdv1.WorkRequest
	wake        chan struct{}
}

// assignment is a task at hand, until the daemon has acknowledged how it ended.
type assignment struct {
	cancel context.CancelFunc
	report *schedulerdv1.WorkRequest // nil: it has not ended
}

// stream lives through one stream. Its end without an error is that of a worker which drained.
func (w *worker) stream(ctx context.Context, client schedulerdv1.WorkerServiceClient) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(welcomeWithin, cancel)
	defer silence.Stop()
	rpc, err := client.Work(ctx)
	if err != nil {
		return err
	}
	if err := rpc.Send(w.hello()); err != nil && !errors.Is(err, io.EOF) { // EOF: Recv says why
		return err
	}
	first, err := rpc.Recv()
	if err != nil {
		return err
	}
	welcome := first.GetWelcome()
	interval, timeout := welcome.GetHeartbeatInterval().AsDuration(), welcome.GetSessionTimeout().AsDuration()
	if interval <= 0 || timeout <= 0 {
		return status.Error(codes.InvalidArgument, "the daemon did not begin with a welcome")
	}
	w.resume(welcome)
	defer w.disconnect()
	var sending sync.WaitGroup
	defer sending.Wait()
	defer cancel()
	sending.Go(func() { w.send(ctx, rpc, interval) })
	for {
		silence.Reset(3 * interval)
		w.fence.Reset(timeout)
		m, err := rpc.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		switch m := m.GetMessage().(type) {
		case *schedulerdv1.WorkResponse_Assign:
			w.assign(m.Assign)
		case *schedulerdv1.WorkResponse_Cancel:
			w.cancel(m.Cancel.GetAssignmentId())
		case *schedulerdv1.WorkResponse_Ack:
			w.forget(m.Ack.GetAssignmentId())
		}
	}
}

func (w *worker) hello() *schedulerdv1.WorkRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &schedulerdv1.WorkRequest{Message: &schedulerdv1.WorkRequest_Hello{Hello: &schedulerdv1.WorkerHello{
		Name: w.options.Name, Version: w.options.Version, Slots: uint32(w.options.Slots), Labels: w.options.Labels,
		Tasks: slices.Sorted(maps.Keys(w.handlers)), SessionId: w.session, AssignmentIds: slices.Sorted(maps.Keys(w.assignments)),
	}}}
}

// resume begins where the last stream ended.
func (w *worker) resume(welcome *schedulerdv1.WorkerWelcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.session, w.connected, w.out = welcome.GetSessionId(), true, nil
	for _, id := range welcome.GetCancelledAssignmentIds() {
		if a := w.assignments[id]; a != nil {
			a.cancel()
		}
	}
	for _, a := range w.assignments {
		if a.report != nil { // it may have got lost
			w.push(a.report)
		}
	}
	if w.draining {
		w.push(drained)
	}
}

var drained = &schedulerdv1.WorkRequest{Message: &schedulerdv1.WorkRequest_Drain{Drain: &schedulerdv1.WorkerDrain{}}}

func (w *worker) disconnect() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.connected = false
}

// push puts a message on its way, if there is a stream.
func (w *worker) push(m *schedulerdv1.WorkRequest) {
	if w.connected {
		w.out = append(w.out, m)
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// say is push for what may be lost.
func (w *worker) say(m *schedulerdv1.WorkRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.out) < maxOut {
		w.push(m)
	}
}

// send sends what is on its way, and heartbeats.
func (w *worker) send(ctx context.Context, rpc grpc.BidiStreamingClient[schedulerdv1.WorkRequest, schedulerdv1.WorkResponse], interval time.Duration) {
	heartbeat := time.NewTicker(interval)
	defer heartbeat.Stop()
	for sequence := uint64(1); ; {
		w.mu.Lock()
		out := w.out
		w.out = nil
		w.mu.Unlock()
		for _, m := range out {
			if rpc.Send(m) != nil {
				return
			}
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		case <-heartbeat.C:
			if rpc.Send(&schedulerdv1.WorkRequest{Message: &schedulerdv1.WorkRequest_Heartbeat{Heartbeat: &schedulerdv1.WorkerHeartbeat{Sequence: sequence}}}) != nil {
				return
			}
			sequence++
		}
	}
}

func (w *worker) assign(m *schedulerdv1.WorkerAssign) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id, handler := m.GetAssignmentId(), w.handlers[m.GetInvocation().GetTask()]
	switch {
	case w.assignments[id] != nil:
		return
	case handler == nil, w.draining, w.busy >= w.options.Slots:
		w.push(&schedulerdv1.WorkRequest{Message: &schedulerdv1.WorkRequest_Reject{Reject: &schedulerdv1.WorkerReject{AssignmentId: id, Reason: "no handler, or no free slot"}}})
		return
	}
	ctx, cancel := context.WithCancel(w.handle)
	a := &assignment{cancel: cancel}
	w.assignments[id] = a
	w.busy++
	w.push(&schedulerdv1.WorkRequest{Message: &schedulerdv1.WorkRequest_Accept{Accept: &schedulerdv1.WorkerAccept{AssignmentId: id}}})
	w.handling.Go(func() {
		defer cancel()
		report := call(ctx, handler, &Task{TaskInvocation: m.GetInvocation(), id: id, worker: w})
		w.mu.Lock()
		defer w.mu.Unlock()
		w.busy--
		a.report = report
		w.push(report)
	})
}

// call does a task and gives the report of its end.
func call(ctx context.Context, handler Handler, t *Task) *schedulerdv1.WorkRequest {
	value, err := func() (value any, err error) {
		defer func() {
			if p := recover(); p != nil {
				t.Logf("panic: %v\n%s", p, debug.Stack())
				err = &Error{Err: fmt.Errorf("panic: %v", p), Class: "panic"}
			}
		}()
		return handler(ctx, t)
	}()
	var result *schedulerdv1.TaskResult
	if err == nil {
		result, err = resultOf(value)
	}
	if err == nil {
		return &schedulerdv1.WorkRequest{Message: &schedulerdv1.WorkRequest_Result{Result: &schedulerdv1.WorkerResult{AssignmentId: t.id, Result: result}}}
	}
	text := err.Error()
	if len(text) > maxMessage {
		text = text[:maxMessage]
	}
	f := &schedulerdv1.WorkerFailure{AssignmentId: t.id, Message: strings.ToValidUTF8(text, "\uFFFD"), Class: "error"}
	if e, ok := errors.AsType[*Error](err); ok {
		f.Class, f.Permanent, f.RetryAfter = e.Class, e.Permanent, durationpb.New(e.RetryAfter)
	} else if ctx.Err() != nil {
		f.Class = "cancelled"
	}
	return &schedulerdv1.WorkRequest{Message: &schedulerdv1.WorkRequest_Failure{Failure: f}}
}

func resultOf(value any) (*schedulerdv1.TaskResult, error) {
	result, ok := value.(*schedulerdv1.TaskResult)
	if !ok {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, &Error{Err: fmt.Errorf("the result cannot be written as JSON: %w", err), Class: "result", Permanent: true}
		}
		result = &schedulerdv1.TaskResult{Value: &structpb.Value{}}
		if err := result.Value.UnmarshalJSON(text); err != nil {
			return nil, &Error{Err: fmt.Errorf("the result as JSON: %w", err), Class: "result", Permanent: true}
		}
	}
	if result.GetValue() == nil { // an action only
		return result, nil
	}
	if text, err := result.GetValue().MarshalJSON(); err != nil || len(text) > MaxResultBytes {
		return nil, &Error{Err: fmt.Errorf("the result is no JSON of at most %d KiB", MaxResultBytes>>10), Class: "result", Permanent: true}
	}
	return result, nil
}

func (w *worker) cancel(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a := w.assignments[id]; a != nil {
		a.cancel()
	}
}

func (w *worker) cancelAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.assignments {
		a.cancel()
	}
}

func (w *worker) forget(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a := w.assignments[id]; a != nil && a.report != nil {
		delete(w.assignments, id)
	}
}

func (w *worker) drain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.draining = true
	w.push(drained)
}

// done says whether no task is at hand.
func (w *worker) done() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.assignments) == 0
}
