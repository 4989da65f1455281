package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/schedulerd/schedulerd/bench/measure"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

type workflowLoad struct {
	How string // see the switch
	N   int    // states, or branches
	For time.Duration
}

var runWorkflow = measure.Program("workflow", func(l workflowLoad, _ *measure.Talk) (measure.Sample, error) {
	task := workflow.Task(workflow.TaskFunc(func(context.Context, *workflow.Invocation) (workflow.Result, error) { return workflow.Result{}, nil }))
	ctx, in := context.Background(), &workflow.Invocation{}
	var once func() error
	switch l.How {
	case "states":
		once = runOf(chain(l.N, task))
	case "split":
		once = runOf(fan(l.N, task))
	case "calls":
		once = func() error {
			for range l.N {
				if err := checked(ctx, task, in); err != nil {
					return err
				}
			}
			return nil
		}
	case "goroutines":
		once = func() error { return group(ctx, l.N, func(int) error { return checked(ctx, task, in) }) }
	}
	var fault error
	s := measure.Loop(l.For, func() {
		if err := once(); err != nil {
			fault = err
		}
	})
	s["per_ns"] = s["cpu_ns"] / float64(l.N)
	return s, fault
})

// checked is a plain call of a task with the least that a workflow engine owes it: a look at the context, a guard against panics, two
// looks at the clock.
func checked(ctx context.Context, task workflow.Task, in *workflow.Invocation) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	began := time.Now()
	_, err = task.Run(ctx, in)
	if time.Since(began) < 0 {
		return errors.New("the clock runs backward")
	}
	return err
}

// group runs branches in a goroutine each and waits for all.
func group(ctx context.Context, n int, branch func(int) error) error {
	_, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = branch(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// runOf runs a workflow as its package's own benchmarks do: nothing configured.
func runOf(w *workflow.Workflow) func() error {
	run := &workflow.Run{Identity: workflow.Identity{FlowID: "bench", RunID: "bench@1", Instance: "0123456789abcdef", Start: time.Now()}}
	return func() error { return w.Run(context.Background(), run).Err }
}

func chain(n int, task workflow.Task) *workflow.Workflow {
	w := &workflow.Workflow{Initial: "s0", States: map[string]*workflow.State{}, Exits: map[string]*workflow.Exit{"done": {}}}
	for i := range n {
		w.States["s"+strconv.Itoa(i)] = &workflow.State{Work: &workflow.Step{Task: task}, Next: "s" + strconv.Itoa(i+1)}
	}
	w.States["s"+strconv.Itoa(n-1)].Next = "done"
	return w
}

func fan(n int, task workflow.Task) *workflow.Workflow {
	split := &workflow.Split{Join: workflow.Join{Strategy: workflow.JoinAll}}
	for range n {
		split.Branches = append(split.Branches, workflow.Branch{Work: &workflow.Step{Task: task}})
	}
	return &workflow.Workflow{
		Initial: "fan", States: map[string]*workflow.State{"fan": {Work: split, Next: "done"}}, Exits: map[string]*workflow.Exit{"done": {}},
	}
}

func workflows(s *session) error {
	s.result.Notes = "The floor is plain calls with a look at the context, a guard against panics and two looks at the clock each; of splits, a goroutine a branch that does that."
	length := pick(s, 200*time.Millisecond, 100*time.Millisecond)
	columns := []measure.Column{{Key: "per_ns", Title: "CPU ns each"}, {Key: "cpu_ns", Title: "CPU ns in all"}, {Key: "allocs", Title: "allocs"}, {Key: "bytes", Title: "bytes"}}
	for _, n := range []int{1, 5} {
		name := fmt.Sprintf("%d states", n)
		t := s.compare(measure.Table{Title: name, Columns: columns, Ratio: "cpu_ns"},
			measure.Alone("workflow", runWorkflow(workflowLoad{"states", n, length})), measure.Alone("plain calls", runWorkflow(workflowLoad{"calls", n, length})))
		s.atMost(name+": ns a state", t.Value("workflow", "per_ns"), 250)
		s.goal(measure.Goal{Text: name + ": allocations a run", Value: t.Value("workflow", "allocs"), Bound: 0, Exact: true})
	}
	for _, n := range pick(s, []int{5, 10, 100, 1000}, []int{5, 100}) {
		name := fmt.Sprintf("split of %d", n)
		t := s.compare(measure.Table{Title: name, Columns: columns, Ratio: "cpu_ns"},
			measure.Alone("workflow", runWorkflow(workflowLoad{"split", n, length})), measure.Alone("goroutines", runWorkflow(workflowLoad{"goroutines", n, length})))
		s.atMost(name+": ÷ goroutines", t.Value("workflow", "cpu_ns")/t.Value("goroutines", "cpu_ns"), 1.5)
	}
	return nil
}
