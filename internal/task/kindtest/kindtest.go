// Package kindtest builds and runs the tasks and resources of one kind in that kind's tests, from the JSON of their messages.
package kindtest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/expr"
	"github.com/schedulerd/schedulerd/internal/fault"
	"github.com/schedulerd/schedulerd/internal/task"
	"google.golang.org/protobuf/encoding/protojson"
)

// Config allows everything.
func Config() task.Config { return task.Config{AllowExec: true} }

// Compile builds a task from the JSON of a Task message. The error is everything that is wrong with it.
func Compile(t testing.TB, kind task.Kind, config task.Config, definition string) (workflow.Task, error) {
	t.Helper()
	message := &schedulerdv1.Task{}
	if err := protojson.Unmarshal([]byte(definition), message); err != nil {
		t.Fatalf("%v in %s", err, definition)
	}
	var faults fault.List
	built := task.NewRegistry([]task.Kind{kind}, nil).Task(message, task.NewEnv("", expr.Run, config, &faults))
	return built, faults.Err()
}

// Task builds a task that must be right.
func Task(t testing.TB, kind task.Kind, config task.Config, definition string) workflow.Task {
	t.Helper()
	built, err := Compile(t, kind, config, definition)
	if err != nil {
		t.Fatalf("%v in %s", err, definition)
	}
	return built
}

// CompileResource builds a resource from the JSON of a Resource message, as Compile builds a task.
func CompileResource(t testing.TB, kind task.ResourceKind, config task.Config, definition string) (resource.Resource, error) {
	t.Helper()
	message := &schedulerdv1.Resource{}
	if err := protojson.Unmarshal([]byte(definition), message); err != nil {
		t.Fatalf("%v in %s", err, definition)
	}
	var faults fault.List
	built := task.NewRegistry(nil, []task.ResourceKind{kind}).Resource(message, task.NewEnv("", 0, config, &faults))
	return built, faults.Err()
}

// SetUp builds resources, which must be right, and sets them up until the test ends.
func SetUp(t testing.TB, kind task.ResourceKind, definitions map[string]string) *resource.Set {
	t.Helper()
	var declarations []resource.Declaration
	for name, definition := range definitions {
		built, err := CompileResource(t, kind, Config(), definition)
		if err != nil {
			t.Fatalf("%v in %s", err, definition)
		}
		declarations = append(declarations, resource.Declaration{Name: name, Resource: built})
	}
	set, err := resource.Setup(t.Context(), declarations, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if errs := set.Teardown(context.Background()); len(errs) > 0 {
			t.Error(errs)
		}
	})
	return set
}

// Line is a line of output.
type Line struct {
	Stderr bool
	Text   string
}

// Output keeps the lines a task writes.
type Output struct {
	mu    sync.Mutex
	lines []Line
	Wrote chan string // gets the text of each line, if it is not nil
}

// Line keeps a line.
func (o *Output) Line(_ string, _ int, stderr bool, text string) {
	o.mu.Lock()
	o.lines = append(o.lines, Line{stderr, text})
	o.mu.Unlock()
	if o.Wrote != nil {
		o.Wrote <- text
	}
}

// Lines are the lines so far.
func (o *Output) Lines() []Line {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]Line(nil), o.lines...)
}

// Call is an attempt at a task, with what it leaves behind.
type Call struct {
	*workflow.Invocation
	Written *Output
	Logged  *bytes.Buffer
}

// Fire is the fire time of a Call's run.
var Fire = time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)

// NewCall is the second attempt of the state "work" of the run "flow@7".
func NewCall() *Call {
	output, log := &Output{}, &bytes.Buffer{}
	identity := &workflow.Identity{
		FlowID: "flow", RunID: "flow@7", Number: 7, Cause: "schedule",
		FireTime: Fire, Start: Fire.Add(time.Second), Instance: "i1", Fencing: 3,
	}
	return &Call{
		Invocation: &workflow.Invocation{
			Identity: identity, State: "work", Attempt: 2, IdempotencyKey: "i1/flow@7/work/1", Entered: Fire.Add(2 * time.Second),
			Scope: &workflow.Scope{
				Identity: identity,
				Params:   map[string]any{"name": "Ada", "n": 3.0, "list": []any{1.0, "two"}},
				Results:  map[string]any{},
			},
			Log:      slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			Output:   output,
			Progress: func(string, float64) {},
		},
		Written: output, Logged: log,
	}
}

// Failure is what the retry policy sees of an error. It fails the test if that is not a workflow.Error.
func Failure(t testing.TB, err error) *workflow.Error {
	t.Helper()
	e, ok := errors.AsType[*workflow.Error](err)
	if !ok {
		t.Fatalf("got the error %v, want a workflow.Error", err)
	}
	return e
}
