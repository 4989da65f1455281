package definition_test

import (
	"fmt"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/schedule"
	"github.com/schedulerd/schedulerd/internal/definition"
	"github.com/schedulerd/schedulerd/internal/manifest"
	"github.com/schedulerd/schedulerd/internal/task/tasktest"
)

// pair compiles two flows that have the same text but for what is given.
func pair(t *testing.T, a, b string) (*core.Flow, *core.Flow) {
	t.Helper()
	text := fmt.Sprintf("flows:\n- {id: a, %s}\n- {id: b, %s}\n", a, b)
	_, set, problems := manifest.Check([]manifest.Source{{Name: "f", Content: []byte(text)}}, definition.New(tasktest.Registry()), definition.Options{Now: now, Origin: core.FromFile})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return set.Flows[0], set.Flows[1]
}

func TestShapesAreShared(t *testing.T) {
	const task = "task: {log: {message: '${ params.who }'}}"
	for _, c := range []struct {
		name           string
		a, b           string
		shape, working bool // what they share
	}{
		{"the same", task, task, true, true},
		{"labels, params, description", "labels: {n: x}, params: {who: 1}, " + task, "description: d, " + task, true, true},
		{"the same schedule", "schedule: {cron: '0 5 * * *'}, " + task, "schedule: {cron: '0 5 * * *'}, " + task, true, true},
		{"schedules that differ", "schedule: {cron: '0 5 * * *'}, " + task, "schedule: {cron: '0 6 * * *'}, " + task, false, true},
		{"schedules that depend on the id", "schedule: {cron: 'H 5 * * *'}, " + task, "schedule: {cron: 'H 5 * * *'}, " + task, false, true},
		{"splay", "schedule: {cron: '0 5 * * *', splay: 1h}, " + task, "schedule: {cron: '0 5 * * *', splay: 1h}, " + task, false, true},
		{"tasks that differ", task, "task: {log: {message: x}}", false, false},
		{"timeouts that differ", "timeout: 5s, " + task, task, false, false},
		{
			"timers that depend on the id", "workflow: {initial: w, states: {w: {timer: {schedule: {cron: 'H 5 * * *'}, task: {log: {message: x}}}, next: done}}, exits: {done: {}}}",
			"workflow: {initial: w, states: {w: {timer: {schedule: {cron: 'H 5 * * *'}, task: {log: {message: x}}}, next: done}}, exits: {done: {}}}", false, false,
		},
		{"resources of their own", "resources: [{name: r, rate_limit: {calls: 1, per: 1s}, store: {}}], " + task, "resources: [{name: r, rate_limit: {calls: 1, per: 1s}, store: {}}], " + task, false, false},
	} {
		a, b := pair(t, c.a, c.b)
		if shared := a.Shape != nil && a.Shape == b.Shape; shared != c.shape {
			t.Errorf("%s: share their shape: %v", c.name, shared)
		}
		if shared := a.Shape != nil && b.Shape != nil && a.Shape.Workflow == b.Shape.Workflow; shared != c.working {
			t.Errorf("%s: share their workflow: %v", c.name, shared)
		}
		if a.Shape == nil {
			continue
		}
		if got, want := a.Shape.Schedule, a.Schedule; (got == nil) != (want == nil) || got != nil && got.Canonical() != want.Canonical() {
			t.Errorf("%s: schedule %v, want %v", c.name, got, want)
		}
		if c.name == "splay" && a.Shape.Schedule.Next(now, schedule.Anchors{}).Equal(b.Shape.Schedule.Next(now, schedule.Anchors{})) {
			t.Errorf("%s: both are due at the same time", c.name)
		}
		description, err := definition.Describe(a.Source)
		if want := (core.Description{Description: a.Description, Labels: a.Labels, Params: a.Params}); err != nil || !reflect.DeepEqual(description, want) {
			t.Errorf("%s: described as %+v, %v; want %+v", c.name, description, err, want)
		}
	}
}

// A shape that no flow has any more is not kept.
func TestShapesGo(t *testing.T) {
	c := definition.New(tasktest.Registry())
	source := one(t, `flows: [{id: x, task: {log: {message: hi}}}]`).Source
	first, err := c.CompileSource(source, definition.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := c.CompileSource(source, definition.Options{}); err != nil || again != first {
		t.Fatalf("compiled twice: %v", err)
	}
	if other, err := c.CompileSource(source, definition.Options{AllowExec: true}); err != nil || other == first {
		t.Fatalf("one that may run commands has the shape of one that may not: %v", err)
	}
	gone := make(chan struct{})
	runtime.AddCleanup(first, func(struct{}) { close(gone) }, struct{}{})
	first = nil
	for {
		runtime.GC()
		select {
		case <-gone:
			return
		case <-time.After(time.Millisecond):
		}
	}
}
