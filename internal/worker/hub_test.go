package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	sdk "github.com/schedulerd/schedulerd/sdk/go/worker"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/structpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// place is a hub that is served in memory, with links to it that can be cut.
type place struct {
	*testing.T
	*Hub
	listener *bufconn.Listener
	server   *grpc.Server
	closers  []func()
}

// bubble runs a test on virtual time. Whatever it began has ended when it returns.
func bubble(t *testing.T, o Options, test func(p *place)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &place{T: t, Hub: New(o), listener: bufconn.Listen(1 << 20), server: grpc.NewServer()}
		schedulerdv1.RegisterWorkerServiceServer(p.server, p.Hub)
		var serving sync.WaitGroup
		serving.Go(func() { _ = p.server.Serve(p.listener) })
		test(p)
		for _, f := range slices.Backward(p.closers) {
			f()
		}
		p.Hub.Close()
		p.server.Stop()
		serving.Wait()
		if f := p.Figures(); f != (Figures{}) {
			t.Errorf("left: %+v", f)
		}
	})
}

// link is the network between a worker and the hub.
type link struct {
	place *place
	mu    sync.Mutex
	down  bool // nothing passes, and nobody is told
	conns []*linked
}

type linked struct {
	net.Conn
	link *link
}

func (l *link) dial(ctx context.Context, _ string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return nil, errors.New("the network is down")
	}
	c, err := l.place.listener.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	l.conns = append(l.conns, &linked{c, l})
	return l.conns[len(l.conns)-1], nil
}

func (l *link) isDown() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.down
}

func (c *linked) Write(b []byte) (int, error) {
	if c.link.isDown() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *linked) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.link.isDown() {
			return n, err
		}
	}
}

// swallow lets nothing pass any more, as an unplugged cable does.
func (l *link) swallow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
}

// reset breaks the connections, and lets new ones be made.
func (l *link) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
	for _, c := range l.conns {
		c.Close()
	}
	l.conns = nil
}

// connect gives a connection over a link.
func (p *place) connect() (*grpc.ClientConn, *link) {
	p.Helper()
	l := &link{place: p}
	conn, err := grpc.NewClient("passthrough:///hub", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(l.dial),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second}))
	if err != nil {
		p.Fatal(err)
	}
	p.closers = append(p.closers, func() { conn.Close() })
	return conn, l
}

// worker runs a worker of the SDK until stop is called, which gives what Run gave.
func (p *place) worker(o sdk.Options, handlers map[string]sdk.Handler) (l *link, stop func() error) {
	p.Helper()
	conn, l := p.connect()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- sdk.Run(ctx, conn, o, handlers) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	p.closers = append(p.closers, func() { _ = stop() })
	synctest.Wait()
	return l, stop
}

// raw is a worker that speaks the protocol word by word.
type raw struct {
	*place
	grpc.BidiStreamingClient[schedulerdv1.WorkRequest, schedulerdv1.WorkResponse]
	welcome *schedulerdv1.WorkerWelcome
}

func (p *place) raw(hello *schedulerdv1.WorkerHello) *raw {
	p.Helper()
	conn, _ := p.connect()
	stream, err := schedulerdv1.NewWorkerServiceClient(conn).Work(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	r := &raw{p, stream, nil}
	r.say(&schedulerdv1.WorkRequest{Message: &schedulerdv1.WorkRequest_Hello{Hello: hello}})
	r.welcome = r.hear().GetWelcome()
	return r
}

func (r *raw) say(m *schedulerdv1.WorkRequest) {
	r.Helper()
	if err := r.Send(m); err != nil {
		r.Fatal(err)
	}
	synctest.Wait()
}

// hear gives the next message that is not a heartbeat.
func (r *raw) hear() *schedulerdv1.WorkResponse {
	r.Helper()
	for {
		m, err := r.Recv()
		if err != nil {
			r.Fatal(err)
		}
		if m.GetHeartbeat() == nil {
			return m
		}
	}
}

func (r *raw) accept(id string) {
	r.say(&schedulerdv1.WorkRequest{Message: &schedulerdv1.WorkRequest_Accept{Accept: &schedulerdv1.WorkerAccept{AssignmentId: id}}})
}

func (r *raw) reject(id string) {
	r.say(&schedulerdv1.WorkRequest{Message: &schedulerdv1.WorkRequest_Reject{Reject: &schedulerdv1.WorkerReject{AssignmentId: id}}})
}

func (r *raw) result(id string, n float64) {
	r.say(&schedulerdv1.WorkRequest{Message: &schedulerdv1.WorkRequest_Result{Result: &schedulerdv1.WorkerResult{AssignmentId: id, Result: &schedulerdv1.TaskResult{Value: structpb.NewNumberValue(n)}}}})
}

// done is what became of work.
type done struct {
	workflow.Result
	error
}

// do begins work.
func (p *place) do(ctx context.Context, w *Work) <-chan done {
	c := make(chan done, 1)
	go func() {
		r, err := p.Do(ctx, w)
		c <- done{r, err}
	}()
	synctest.Wait()
	return c
}

func work(task, input string) *Work {
	return &Work{Invocation: &schedulerdv1.TaskInvocation{Task: task, Input: structpb.NewStringValue(input), IdempotencyKey: "key of " + input, Attempt: 1}}
}

func (d done) class() string {
	if e, ok := errors.AsType[*workflow.Error](d.error); ok {
		return e.Class
	}
	return ""
}

var echo = map[string]sdk.Handler{"echo": func(_ context.Context, t *sdk.Task) (any, error) { return t.GetInput().AsInterface(), nil }}

func TestWork(t *testing.T) {
	bubble(t, Options{}, func(p *place) {
		p.worker(sdk.Options{Name: "one"}, map[string]sdk.Handler{
			"echo": func(_ context.Context, t *sdk.Task) (any, error) {
				t.Logf("%s on attempt %d", t.GetIdempotencyKey(), t.GetAttempt())
				t.Progress("half", 0.5)
				t.Progress("unknown", -1)
				return &schedulerdv1.TaskResult{Value: t.GetInput(), Action: "again"}, nil
			},
			"plain":  func(context.Context, *sdk.Task) (any, error) { return map[string]any{"boxes": 3}, nil },
			"action": func(context.Context, *sdk.Task) (any, error) { return &schedulerdv1.TaskResult{Action: "on"}, nil },
			"fail": func(context.Context, *sdk.Task) (any, error) {
				return nil, fmt.Errorf("about it: %w", &sdk.Error{Err: errors.New("no"), Class: "mine", Permanent: true, RetryAfter: time.Minute})
			},
			"plain fail": func(context.Context, *sdk.Task) (any, error) { return nil, errors.New("just so") },
			"long fail": func(context.Context, *sdk.Task) (any, error) {
				return nil, errors.New("\xff" + strings.Repeat("x", 10<<20))
			},
			"panic":   func(context.Context, *sdk.Task) (any, error) { panic("oh") },
			"large":   func(context.Context, *sdk.Task) (any, error) { return strings.Repeat("x", 65<<10), nil },
			"no JSON": func(context.Context, *sdk.Task) (any, error) { return make(chan int), nil },
		})
		var told []string
		w := work("echo", "hello")
		w.Output = func(stderr bool, line string) { told = append(told, fmt.Sprint(stderr, " ", line)) }
		w.Progress = func(message string, fraction float64) { told = append(told, fmt.Sprint(message, " ", fraction)) }
		r, err := p.Do(p.Context(), w)
		if err != nil || r.Value != "hello" || r.Action != "again" {
			t.Errorf("%v, %v", r, err)
		}
		if want := []string{"false key of hello on attempt 1", "half 0.5", "unknown -1"}; !slices.Equal(told, want) {
			t.Errorf("told %q", told)
		}
		if r, err := p.Do(p.Context(), work("plain", "")); err != nil || r.Value.(map[string]any)["boxes"] != 3.0 {
			t.Errorf("%v, %v", r, err)
		}
		if r, err := p.Do(p.Context(), work("action", "")); err != nil || r.Value != nil || r.Action != "on" {
			t.Errorf("%v, %v", r, err)
		}
		for task, want := range map[string]workflow.Error{
			"fail":       {Class: "mine", Permanent: true, RetryAfter: time.Minute, Err: errors.New("about it: no")},
			"plain fail": {Class: "error", Err: errors.New("just so")},
			"long fail":  {Class: "error", Err: errors.New("\uFFFD" + strings.Repeat("x", 4<<10-3))},
			"panic":      {Class: "panic", Err: errors.New("panic: oh")},
			"large":      {Class: "result", Permanent: true, Err: errors.New("the result is no JSON of at most 64 KiB")},
			"no JSON":    {Class: "result", Permanent: true, Err: errors.New("the result cannot be written as JSON: json: unsupported type: chan int")},
		} {
			_, err := p.Do(p.Context(), work(task, ""))
			if e, ok := errors.AsType[*workflow.Error](err); !ok || e.Class != want.Class || e.Permanent != want.Permanent || e.RetryAfter != want.RetryAfter || e.Error() != want.Error() {
				t.Errorf("%s: %+v", task, err)
			}
		}
	})
}

// Work waits for a worker that does the task, carries the labels and has a free slot; the oldest goes first.
func TestQueue(t *testing.T) {
	bubble(t, Options{}, func(p *place) {
		west := work("echo", "west")
		west.Labels = map[string]string{"zone": "west"}
		later := p.do(p.Context(), west)
		first, second := p.do(p.Context(), work("echo", "first")), p.do(p.Context(), work("echo", "second"))
		if f := p.Figures(); f.Queued != 3 {
			t.Errorf("%+v", f)
		}
		p.worker(sdk.Options{Labels: map[string]string{"zone": "east"}}, echo)
		if a, b := <-first, <-second; a.Value != "first" || b.Value != "second" {
			t.Errorf("%v %v", a, b)
		}
		select {
		case d := <-later:
			t.Errorf("done by a worker without the label: %v", d)
		default:
		}
		p.worker(sdk.Options{Labels: map[string]string{"zone": "west", "disk": "fast"}}, echo)
		if d := <-later; d.Value != "west" {
			t.Errorf("%v", d)
		}
	})
}

func TestSlots(t *testing.T) {
	bubble(t, Options{}, func(p *place) {
		release := make(chan bool)
		busy, most := 0, 0
		var mu sync.Mutex
		p.worker(sdk.Options{Slots: 3}, map[string]sdk.Handler{"hold": func(context.Context, *sdk.Task) (any, error) {
			mu.Lock()
			busy++
			most = max(most, busy)
			mu.Unlock()
			<-release
			mu.Lock()
			busy--
			mu.Unlock()
			return nil, nil
		}})
		var all []<-chan done
		for range 10 {
			all = append(all, p.do(p.Context(), work("hold", "")))
		}
		if f := p.Figures(); f.Busy != 3 || f.Slots != 3 || f.Queued != 7 {
			t.Errorf("%+v", f)
		}
		for range all {
			release <- true
		}
		for _, c := range all {
			if d := <-c; d.error != nil {
				t.Error(d)
			}
		}
		if most != 3 {
			t.Errorf("%d at once", most)
		}
	})
}

func TestQueueTimeout(t *testing.T) {
	bubble(t, Options{MaxQueued: 1}, func(p *place) {
		expect := func(w *Work, class, text string) {
			t.Helper()
			w.QueueTimeout = 50 * time.Second
			_, err := p.Do(p.Context(), w)
			if d := (done{error: err}); d.class() != class || !strings.Contains(err.Error(), text) {
				t.Errorf("%v of class %q, want %s: %s", err, d.class(), class, text)
			}
		}
		expect(work("echo", ""), "no_worker", "no worker took it within 50s: no worker is connected")
		p.worker(sdk.Options{}, map[string]sdk.Handler{"hold": func(ctx context.Context, _ *sdk.Task) (any, error) { <-ctx.Done(); return nil, ctx.Err() }})
		expect(work("echo", ""), "no_worker", `1 workers are connected, and none does task "echo"`)
		labelled := work("hold", "")
		labelled.Labels = map[string]string{"zone": "west"}
		expect(labelled, "no_worker", "none has the labels map[zone:west]")
		ctx, cancel := context.WithCancelCause(p.Context())
		held := p.do(ctx, work("hold", ""))
		expect(work("hold", ""), "no_worker", `the 1 workers for task "hold" are busy`)
		waiting := p.do(ctx, work("hold", ""))
		expect(work("hold", ""), "queue_full", `1 attempts at task "hold" wait`)
		why := errors.New("over")
		cancel(why)
		if a, b := <-held, <-waiting; a.error != why || b.error != why {
			t.Errorf("%v %v", a, b)
		}
		// A timeout of the queue does not touch what a worker has accepted.
		w := work("hold", "")
		w.QueueTimeout = time.Second
		ctx, cancel = context.WithCancelCause(p.Context())
		accepted := p.do(ctx, w)
		time.Sleep(time.Minute)
		select {
		case d := <-accepted:
			t.Errorf("%v", d)
		default:
		}
		cancel(why)
		<-accepted
	})
}

// What is not accepted goes to another worker, and what the first one still says of it does not count.
func TestNotAccepted(t *testing.T) {
	bubble(t, Options{AcceptWithin: 4 * time.Second, HeartbeatInterval: time.Hour}, func(p *place) {
		slow := p.raw(&schedulerdv1.WorkerHello{Name: "slow", Tasks: []string{"echo"}, Slots: 5})
		c := p.do(p.Context(), work("echo", "x"))
		assignment := slow.hear().GetAssign()
		if assignment.GetAcceptWithin().AsDuration() != 4*time.Second {
			t.Error(assignment)
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if m := slow.hear(); m.GetCancel().GetAssignmentId() != assignment.GetAssignmentId() {
			t.Errorf("%v", m)
		}
		quick := p.raw(&schedulerdv1.WorkerHello{Name: "quick", Tasks: []string{"echo"}, Slots: 1})
		second := quick.hear().GetAssign()
		if second.GetAssignmentId() == assignment.GetAssignmentId() || second.GetInvocation().GetIdempotencyKey() != assignment.GetInvocation().GetIdempotencyKey() {
			t.Errorf("%v, then %v", assignment, second)
		}
		slow.accept(assignment.GetAssignmentId())
		slow.result(assignment.GetAssignmentId(), 1)
		if m := slow.hear(); m.GetAck().GetAssignmentId() != assignment.GetAssignmentId() {
			t.Errorf("%v", m)
		}
		quick.accept(second.GetAssignmentId())
		quick.result(second.GetAssignmentId(), 2)
		if d := <-c; d.Value != 2.0 {
			t.Errorf("%v", d)
		}
		quick.result(second.GetAssignmentId(), 3) // again, as after a lost ack
		for range 2 {
			if m := quick.hear(); m.GetAck().GetAssignmentId() != second.GetAssignmentId() {
				t.Errorf("%v", m)
			}
		}
		quick.accept("unknown")
		if m := quick.hear(); m.GetCancel().GetAssignmentId() != "unknown" {
			t.Errorf("%v", m)
		}
	})
}

// A worker that rejects everything does not spin, and does not keep others from the work.
func TestReject(t *testing.T) {
	bubble(t, Options{HeartbeatInterval: time.Hour}, func(p *place) {
		unwilling := p.raw(&schedulerdv1.WorkerHello{Tasks: []string{"echo"}, Slots: 1})
		began := time.Now()
		c := p.do(p.Context(), work("echo", "x"))
		for range 3 {
			unwilling.reject(unwilling.hear().GetAssign().GetAssignmentId())
		}
		if d := time.Since(began); d != 2*rejectPause {
			t.Errorf("three rejections took %v", d)
		}
		p.worker(sdk.Options{}, echo)
		if d := <-c; d.Value != "x" {
			t.Errorf("%v", d)
		}
	})
}

// A cancelled attempt ends at once; its worker is told, and has its slot again when it says that it ended.
func TestCancel(t *testing.T) {
	bubble(t, Options{}, func(p *place) {
		stopped, goOn := make(chan error, 1), make(chan bool)
		p.worker(sdk.Options{}, map[string]sdk.Handler{
			"hold": func(ctx context.Context, _ *sdk.Task) (any, error) {
				<-ctx.Done()
				stopped <- ctx.Err()
				<-goOn
				return "too late", nil
			},
			"echo": echo["echo"],
		})
		ctx, cancel := context.WithCancelCause(p.Context())
		c := p.do(ctx, work("hold", ""))
		why := errors.New("no longer wanted")
		cancel(why)
		if d := <-c; d.error != why {
			t.Errorf("%v", d)
		}
		<-stopped
		next := p.do(p.Context(), work("echo", "next"))
		if f := p.Figures(); f.Busy != 1 || f.Queued != 1 {
			t.Errorf("%+v", f)
		}
		goOn <- true
		if d := <-next; d.Value != "next" {
			t.Errorf("%v", d)
		}
	})
}

// holder is a handler that counts its calls by key, and ends when it is told to.
type holder struct {
	mu      sync.Mutex
	calls   map[string]int
	stopped map[string]bool
	release chan bool
}

func newHolder() *holder {
	return &holder{calls: map[string]int{}, stopped: map[string]bool{}, release: make(chan bool)}
}

func (h *holder) handlers() map[string]sdk.Handler {
	return map[string]sdk.Handler{"hold": func(ctx context.Context, t *sdk.Task) (any, error) {
		h.mu.Lock()
		h.calls[t.GetIdempotencyKey()]++
		h.mu.Unlock()
		select {
		case <-h.release:
			return "done", nil
		case <-ctx.Done():
			h.mu.Lock()
			h.stopped[t.GetIdempotencyKey()] = true
			h.mu.Unlock()
			return nil, ctx.Err()
		}
	}}
}

// Work goes on over a broken stream, told or not, and runs once.
func TestResume(t *testing.T) {
	for name, breaks := range map[string]func(*link){
		"reset":            func(l *link) { l.reset() },
		"reset and again":  func(l *link) { l.reset(); time.Sleep(3 * time.Second); l.reset() },
		"swallowed for 8s": func(l *link) { l.swallow(); time.Sleep(8 * time.Second); l.reset() },
		// Heartbeats tell both sides after three intervals.
		"swallowed for 20s": func(l *link) { l.swallow(); time.Sleep(20 * time.Second); l.reset() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, func(p *place) {
				h := newHolder()
				l, _ := p.worker(sdk.Options{Slots: 2}, h.handlers())
				one, two := p.do(p.Context(), work("hold", "one")), p.do(p.Context(), work("hold", "two"))
				breaks(l)
				h.release <- true // one ends in the middle of it all
				time.Sleep(time.Minute)
				h.release <- true
				if a, b := <-one, <-two; a.Value != "done" || b.Value != "done" {
					t.Errorf("%v, %v", a, b)
				}
				if h.calls["key of one"] != 1 || h.calls["key of two"] != 1 {
					t.Errorf("%v", h.calls)
				}
				synctest.Wait()
				if f := p.Figures(); f.Sessions != 1 || f.Busy != 0 {
					t.Errorf("%+v", f)
				}
			})
		})
	}
}

// A stream is ended at its age, without any harm to the work on it.
func TestStreamAge(t *testing.T) {
	bubble(t, Options{StreamAge: 10 * time.Minute}, func(p *place) {
		h := newHolder()
		var ends []error
		p.worker(sdk.Options{Disconnected: func(err error) { ends = append(ends, err) }}, h.handlers())
		c := p.do(p.Context(), work("hold", "x"))
		time.Sleep(time.Hour)
		h.release <- true
		if d := <-c; d.Value != "done" || h.calls["key of x"] != 1 {
			t.Errorf("%v %v", d, h.calls)
		}
		if len(ends) < 6 || len(ends) > 12 || status.Code(ends[0]) != codes.Unavailable || !strings.Contains(ends[0].Error(), "reached its age") {
			t.Errorf("%d ends, such as %v", len(ends), ends[0])
		}
	})
}

// A worker that stays away loses its work, and has stopped working on it by then.
func TestLost(t *testing.T) {
	bubble(t, Options{}, func(p *place) {
		h := newHolder()
		l, _ := p.worker(sdk.Options{}, h.handlers())
		c := p.do(p.Context(), work("hold", "x"))
		began := time.Now()
		l.swallow()
		d := <-c
		if d.class() != "worker_lost" || !strings.Contains(d.Error(), "was not heard of for 30s") {
			t.Errorf("%v of class %q", d, d.class())
		}
		if e, _ := errors.AsType[*workflow.Error](d.error); e.Permanent {
			t.Error("it is not repeated")
		}
		if took := time.Since(began); took < 30*time.Second || took > 46*time.Second {
			t.Errorf("after %v", took)
		}
		h.mu.Lock()
		if !h.stopped["key of x"] {
			t.Error("the worker still works on it")
		}
		h.mu.Unlock()
		again := p.do(p.Context(), work("hold", "x")) // the next attempt
		l.reset()
		h.release <- true
		if d := <-again; d.Value != "done" || h.calls["key of x"] != 2 {
			t.Errorf("%v %v", d, h.calls)
		}
	})
}

// A worker that resumes is told what is not wanted any more; what it has lost, the attempt is told.
func TestReconcile(t *testing.T) {
	bubble(t, Options{HeartbeatInterval: time.Hour, SessionTimeout: time.Hour, AcceptWithin: time.Hour}, func(p *place) {
		hello := &schedulerdv1.WorkerHello{Tasks: []string{"a", "b", "c", "d", "e"}, Slots: 5}
		r := p.raw(hello)
		ctx, cancel := context.WithCancel(p.Context())
		var outcomes []<-chan done
		var ids []string
		for _, task := range hello.GetTasks() {
			within := p.Context()
			if task == "b" {
				within = ctx
			}
			outcomes = append(outcomes, p.do(within, work(task, task)))
			ids = append(ids, r.hear().GetAssign().GetAssignmentId())
		}
		for _, id := range ids[:3] { // d and e are not accepted, as far as the hub knows
			r.accept(id)
		}
		hello.SessionId = r.welcome.GetSessionId()
		hello.AssignmentIds = []string{ids[0], ids[1], ids[3], "foreign"} // c and e are not there
		cancel()
		<-outcomes[1]
		resumed := p.raw(hello)
		if resumed.welcome.GetSessionId() != hello.GetSessionId() {
			t.Error("another session")
		}
		if got, want := resumed.welcome.GetCancelledAssignmentIds(), []string{ids[1], "foreign"}; !slices.Equal(got, want) {
			t.Errorf("cancelled %v, want %v", got, want)
		}
		for { // the old stream is over
			if _, err := r.Recv(); err != nil {
				if status.Code(err) != codes.Unavailable {
					t.Error(err)
				}
				break
			}
		}
		if d := <-outcomes[2]; d.class() != "worker_lost" || !strings.Contains(d.Error(), "came back without it") {
			t.Errorf("c: %v", d)
		}
		e := resumed.hear().GetAssign()
		if e.GetInvocation().GetTask() != "e" || e.GetAssignmentId() == ids[4] {
			t.Errorf("e: %v", e)
		}
		for i, id := range []string{ids[0], ids[3], e.GetAssignmentId()} {
			resumed.result(id, float64(i))
		}
		for i, c := range []<-chan done{outcomes[0], outcomes[3], outcomes[4]} {
			if d := <-c; d.Value != float64(i) {
				t.Errorf("%d: %v", i, d)
			}
		}
		// Another daemon knows nothing of the session.
		hello.SessionId, hello.AssignmentIds = "of another daemon", []string{"x", "y"}
		stranger := p.raw(hello)
		if w := stranger.welcome; w.GetSessionId() == hello.GetSessionId() || !slices.Equal(w.GetCancelledAssignmentIds(), []string{"x", "y"}) {
			t.Errorf("%v", w)
		}
	})
}

// A worker that is to end finishes what it has, takes nothing new, and goes.
func TestDrainOfWorker(t *testing.T) {
	bubble(t, Options{}, func(p *place) {
		h := newHolder()
		_, stop := p.worker(sdk.Options{Slots: 2, Grace: time.Hour}, h.handlers())
		c := p.do(p.Context(), work("hold", "x"))
		ended := make(chan error, 1)
		go func() { ended <- stop() }()
		synctest.Wait()
		waiting := p.do(p.Context(), work("hold", "y"))
		if f := p.Figures(); f.Queued != 1 {
			t.Errorf("%+v", f)
		}
		time.Sleep(30 * time.Minute)
		h.release <- true
		if d := <-c; d.Value != "done" {
			t.Errorf("%v", d)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if f := p.Figures(); f.Sessions != 0 {
			t.Errorf("%+v", f)
		}
		p.worker(sdk.Options{}, h.handlers())
		h.release <- true
		<-waiting
	})
}

// What does not end within the grace is cancelled, and its attempt told at once.
func TestGraceOfWorker(t *testing.T) {
	bubble(t, Options{}, func(p *place) {
		h := newHolder()
		_, stop := p.worker(sdk.Options{Grace: 10 * time.Second}, h.handlers())
		c := p.do(p.Context(), work("hold", "x"))
		began := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if d := <-c; d.class() != "cancelled" || time.Since(began) != 10*time.Second {
			t.Errorf("%v of class %q after %v", d, d.class(), time.Since(began))
		}
	})
}

// A daemon that stops fails what waits, and its workers come back to the next one.
func TestClose(t *testing.T) {
	bubble(t, Options{}, func(p *place) {
		var mu sync.Mutex
		var ends []error
		p.worker(sdk.Options{Disconnected: func(err error) { mu.Lock(); ends = append(ends, err); mu.Unlock() }}, newHolder().handlers())
		running, waiting := p.do(p.Context(), work("hold", "x")), p.do(p.Context(), work("hold", "y"))
		p.Close()
		if a, b := <-running, <-waiting; a.class() != "worker_lost" || b.class() != "no_worker" {
			t.Errorf("%v, %v", a, b)
		}
		if _, err := p.Do(p.Context(), work("hold", "z")); (done{error: err}).class() != "no_worker" {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if len(ends) < 10 || status.Code(ends[0]) != codes.Unavailable {
			t.Errorf("%v", ends)
		}
	})
}

func TestWrongHello(t *testing.T) {
	long := strings.Repeat("x", maxName+1)
	bubble(t, Options{MaxSessions: 1}, func(p *place) {
		for name, test := range map[string]struct {
			hello *schedulerdv1.WorkRequest
			want  codes.Code
			text  string
		}{
			"no hello": {&schedulerdv1.WorkRequest{}, codes.InvalidArgument, "must be hello"},
			"no tasks": {helloOf(&schedulerdv1.WorkerHello{Slots: 1}), codes.InvalidArgument, "0 tasks"},
			"no slots": {helloOf(&schedulerdv1.WorkerHello{Tasks: []string{"x"}}), codes.InvalidArgument, "0 slots"},
			"slots":    {helloOf(&schedulerdv1.WorkerHello{Tasks: []string{"x"}, Slots: 1 << 31}), codes.InvalidArgument, "a worker has 1 to 1000"},
			"name":     {helloOf(&schedulerdv1.WorkerHello{Tasks: []string{"x"}, Slots: 1, Name: long}), codes.InvalidArgument, "name"},
			"task":     {helloOf(&schedulerdv1.WorkerHello{Tasks: []string{long}, Slots: 1}), codes.InvalidArgument, "a task's name"},
			"label":    {helloOf(&schedulerdv1.WorkerHello{Tasks: []string{"x"}, Slots: 1, Labels: map[string]string{"": "x"}}), codes.InvalidArgument, "a label's name"},
		} {
			conn, _ := p.connect()
			stream, err := schedulerdv1.NewWorkerServiceClient(conn).Work(p.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(test.hello); err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Recv(); status.Code(err) != test.want || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%s: %v", name, err)
			}
		}
		p.worker(sdk.Options{}, echo)
		conn, _ := p.connect()
		stream, err := schedulerdv1.NewWorkerServiceClient(conn).Work(p.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(helloOf(&schedulerdv1.WorkerHello{Tasks: []string{"x"}, Slots: 1})); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("one worker too many: %v", err)
		}
		// Who says nothing at all is not waited for.
		conn, _ = p.connect()
		stream, err = schedulerdv1.NewWorkerServiceClient(conn).Work(p.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("without hello: %v", err)
		}
		// A worker that is refused is told so, and does not try again.
		other, _ := p.connect()
		if err := sdk.Run(p.Context(), other, sdk.Options{}, nil); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v", err)
		}
	})
}

func helloOf(h *schedulerdv1.WorkerHello) *schedulerdv1.WorkRequest {
	return &schedulerdv1.WorkRequest{Message: &schedulerdv1.WorkRequest_Hello{Hello: h}}
}
