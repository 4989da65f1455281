package workflow

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/schedule"
)

// recorder is a journal that keeps what it is told.
type recorder struct {
	mu          sync.Mutex
	events      []Event
	checkpoints []*Checkpoint
	refuse      func(*Checkpoint) error // nil: accept all
}

func (r *recorder) Checkpoint(_ context.Context, c *Checkpoint) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse != nil {
		if err := r.refuse(c); err != nil {
			return err
		}
	}
	r.checkpoints = append(r.checkpoints, c)
	return nil
}

func (r *recorder) Event(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

var eventNames = map[EventType]string{
	StateEntered: "enter", AttemptStarted: "start", AttemptSucceeded: "ok", AttemptFailed: "fail", AttemptCancelled: "cancel", RetryScheduled: "retry",
	TimerArmed: "arm", TimerFired: "fire", SplitDecided: "split", Compensated: "undo", CompensationFailed: "undo failed", Resumed: "resume", Progress: "progress",
}

// trace writes the events as words: "enter a", "start a 1", "ok a 1".
func (r *recorder) trace() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []string
	for _, e := range r.events {
		line := eventNames[e.Type] + " " + e.State
		if e.Attempt > 0 {
			line += fmt.Sprint(" ", e.Attempt)
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

func (r *recorder) count(t EventType) int {
	n := 0
	for _, e := range r.events {
		if e.Type == t {
			n++
		}
	}
	return n
}

// last is the newest checkpoint as a store would give it back: a copy that shares nothing that may change.
func (r *recorder) last(t *testing.T) *Checkpoint {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.checkpoints) == 0 {
		t.Fatal("no checkpoint was made")
	}
	return r.checkpoints[len(r.checkpoints)-1]
}

// log is an ordered note of what tasks did, safe for concurrent use.
type notes struct {
	mu   sync.Mutex
	list []string
}

func (n *notes) add(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, fmt.Sprintf(format, args...))
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.list, " ")
}

// Tasks.

// gives is a task with a result.
func gives(v any) TaskFunc {
	return func(context.Context, *Invocation) (Result, error) { return Result{Value: v}, nil }
}

// acts is a task with an action.
func acts(actions ...string) TaskFunc {
	i := 0
	return func(context.Context, *Invocation) (Result, error) {
		action := actions[min(i, len(actions)-1)]
		i++
		return Result{Action: action}, nil
	}
}

// fails is a task that fails.
func fails(text string) TaskFunc {
	return func(context.Context, *Invocation) (Result, error) { return Result{}, errors.New(text) }
}

// after does something after some time, unless it is cancelled.
func after(d time.Duration, task TaskFunc) TaskFunc {
	return func(ctx context.Context, in *Invocation) (Result, error) {
		if err := sleep(ctx, d); err != nil {
			return Result{}, err
		}
		return task(ctx, in)
	}
}

// notesState notes the state it runs in, then does something.
func (n *notes) then(task TaskFunc) TaskFunc {
	return func(ctx context.Context, in *Invocation) (Result, error) {
		n.add("%s", in.State)
		return task(ctx, in)
	}
}

func panics(v any) TaskFunc {
	return func(context.Context, *Invocation) (Result, error) { panic(v) }
}

// again is a policy of some retries without delay.
func again(retries int) *Retry { r := FixedRetry(retries, 0); return &r }

// once is a step without retries.
func once(task TaskFunc) *Step { return &Step{Task: task, Retry: &Retry{}} }

// Definitions.

// line is a workflow of states in a row that ends in "done".
func line(states ...*State) *Workflow {
	w := &Workflow{Initial: "s1", States: map[string]*State{}, Exits: map[string]*Exit{"done": {}}}
	for i, s := range states {
		s.Next = fmt.Sprintf("s%d", i+2)
		if i == len(states)-1 {
			s.Next = "done"
		}
		w.States[fmt.Sprintf("s%d", i+1)] = s
	}
	return w
}

func does(work Work) *State { return &State{Work: work} }

func identity() Identity {
	return Identity{FlowID: "f", RunID: "f@1", Number: 1, Cause: "trigger", Instance: "i", Start: time.Now()}
}

// run runs a valid workflow with a recorder.
func run(t *testing.T, ctx context.Context, w *Workflow, r *Run) (End, *recorder) {
	t.Helper()
	for _, fault := range w.Validate(nil) {
		t.Fatal(fault)
	}
	journal, _ := r.Journal.(*recorder)
	if journal == nil {
		journal = &recorder{}
		r.Journal = journal
	}
	if r.Identity.RunID == "" {
		r.Identity = identity()
	}
	return w.Run(ctx, r), journal
}

func wantOutcome(t *testing.T, end End, want Outcome) {
	t.Helper()
	if end.Outcome != want {
		t.Fatalf("outcome %d, want %d: %v", end.Outcome, want, end.Err)
	}
	if (end.Err == nil) != (want == Succeeded) {
		t.Fatalf("outcome %d with error %v", end.Outcome, end.Err)
	}
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Fatalf("error %q does not say %q", err, part)
		}
	}
}

func wantTrace(t *testing.T, got []string, want string) {
	t.Helper()
	var lines []string
	for l := range strings.SplitSeq(want, ",") {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	if strings.Join(got, ", ") != strings.Join(lines, ", ") {
		t.Fatalf("events\n got %s\nwant %s", strings.Join(got, ", "), strings.Join(lines, ", "))
	}
}

// is holds a result against a value.
func is(v any) func(*Scope) (bool, error) {
	return func(s *Scope) (bool, error) { return s.Result == v, nil }
}

func on(action string) func(*Scope) (bool, error) {
	return func(s *Scope) (bool, error) { return s.Action == action, nil }
}

// every is a schedule with a fixed interval, compiled as flows are.
func every(t testing.TB, d time.Duration) *schedule.Schedule {
	t.Helper()
	s, err := schedule.Compile(schedule.Spec{Every: &schedule.Every{Interval: d}}, schedule.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func at(t testing.TB, instant time.Time) *schedule.Schedule {
	t.Helper()
	s, err := schedule.Compile(schedule.Spec{Once: instant.Format(time.RFC3339Nano)}, schedule.Options{AllowPast: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
