package workflow

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"
)

// The benchmarks run workflows whose tasks do nothing, next to plain Go doing the same.

var noop = TaskFunc(func(context.Context, *Invocation) (Result, error) { return Result{}, nil })

// chain is a workflow of n states, one after the other.
func chain(n int, s *Step) *Workflow {
	w := &Workflow{Initial: "s0", States: map[string]*State{}, Exits: map[string]*Exit{"done": {}}}
	for i := range n {
		w.States["s"+strconv.Itoa(i)] = &State{Work: s, Next: "s" + strconv.Itoa(i+1)}
	}
	w.States["s"+strconv.Itoa(n-1)].Next = "done"
	return w
}

func fan(n int, task Task) *Workflow {
	split := &Split{Join: Join{Strategy: JoinAll}}
	for range n {
		split.Branches = append(split.Branches, Branch{Work: &Step{Task: task}})
	}
	return &Workflow{Initial: "fan", States: map[string]*State{"fan": {Work: split, Next: "done"}}, Exits: map[string]*Exit{"done": {}}}
}

// countingJournal is the least a journal can do.
type countingJournal struct {
	mu     sync.Mutex
	events int
}

func (j *countingJournal) Checkpoint(context.Context, *Checkpoint) error { return nil }

func (j *countingJournal) Event(Event) {
	j.mu.Lock()
	j.events++
	j.mu.Unlock()
}

func benchmark(b *testing.B, w *Workflow, run *Run) {
	b.Helper()
	if faults := w.Validate(nil); faults != nil {
		b.Fatal(faults)
	}
	run.Identity = Identity{FlowID: "bench", RunID: "bench@1", Instance: "0123456789abcdef", Start: time.Now()}
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if end := w.Run(ctx, run); end.Outcome != Succeeded {
			b.Fatal(end.Err)
		}
	}
}

func BenchmarkRun(b *testing.B) {
	for _, n := range []int{1, 5} {
		name := strconv.Itoa(n) + " states/"
		b.Run(name+"plain calls", func(b *testing.B) {
			ctx, in := context.Background(), &Invocation{}
			var task Task = noop
			b.ReportAllocs()
			for b.Loop() {
				for range n {
					if _, err := task.Run(ctx, in); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
		b.Run(name+"workflow", func(b *testing.B) { benchmark(b, chain(n, &Step{Task: noop}), &Run{}) })
		b.Run(name+"workflow with journal", func(b *testing.B) {
			benchmark(b, chain(n, &Step{Task: noop}), &Run{Journal: &countingJournal{}})
		})
		b.Run(name+"workflow with timeouts", func(b *testing.B) {
			benchmark(b, chain(n, &Step{Task: noop, Timeout: time.Minute}), &Run{Timeout: time.Hour})
		})
	}
}

func BenchmarkSplit(b *testing.B) {
	for _, n := range []int{5, 100} {
		name := strconv.Itoa(n) + " branches/"
		b.Run(name+"goroutines", func(b *testing.B) {
			var task Task = noop
			b.ReportAllocs()
			for b.Loop() {
				ctx, cancel := context.WithCancel(context.Background())
				errs := make([]error, n)
				var wg sync.WaitGroup
				for i := range n {
					wg.Go(func() { _, errs[i] = task.Run(ctx, &Invocation{}) })
				}
				wg.Wait()
				cancel()
			}
		})
		b.Run(name+"goroutines that report", func(b *testing.B) {
			var task Task = noop
			b.ReportAllocs()
			for b.Loop() {
				ctx, cancel := context.WithCancel(context.Background())
				ends := make([]branchEnd, n)
				var wg sync.WaitGroup
				for i := range n {
					wg.Go(func() {
						ends[i].result, ends[i].err = task.Run(ctx, &Invocation{State: "fan/" + strconv.Itoa(i), IdempotencyKey: "bench@1/fan/1/" + strconv.Itoa(i)})
					})
				}
				wg.Wait()
				cancel()
				list := make([]any, n)
				for i := range ends {
					list[i] = endOf(strconv.Itoa(i), "", &ends[i])
				}
			}
		})
		b.Run(name+"workflow", func(b *testing.B) { benchmark(b, fan(n, noop), &Run{}) })
	}
}
