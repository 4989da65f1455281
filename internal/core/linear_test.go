package core_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/store/storetest"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

// The operations of a history. A run's end is one too: it comes from inside, at some time between the run's start and the moment that
// somebody saw it ended.
type call struct {
	flow string
	kind string // trigger, end, reset, cancel, status
	run  uint64 // of an end
	how  flow.Outcome
}

type answer struct {
	refused error       // of a trigger
	run     uint64      // of a trigger, or told to stop by a cancel; 0: none
	status  flow.Status // of a reset or a status
	runs    uint64
	streak  uint32
}

// truth is what a flow is, by the words of the documentation rather than by flow.Apply.
type truth struct {
	status  flow.Status
	before  flow.Status // a cancelled run leads back to it
	running uint64
	runs    uint64
	streak  uint32
}

const linearTrip = 3

func step(state, input, output any) (bool, any) {
	s, in, out := state.(truth), input.(call), output.(answer)
	switch in.kind {
	case "trigger":
		switch s.status {
		case flow.Running:
			return errors.Is(out.refused, core.ErrFlowRunning), s
		case flow.Tripped:
			return errors.Is(out.refused, core.ErrFlowTripped), s
		}
		s.before = s.status
		if s.before == flow.Completed {
			s.before = flow.Idle
		}
		s.status, s.runs = flow.Running, s.runs+1
		s.running = s.runs
		return out.refused == nil && out.run == s.running, s
	case "end":
		if s.status != flow.Running || s.running != in.run {
			return false, s
		}
		s.running = 0
		switch in.how {
		case flow.Succeeded:
			s.status, s.streak = flow.Completed, 0
		case flow.Cancelled:
			s.status = s.before
		default:
			s.streak++
			s.status = flow.Backoff
			if s.streak >= linearTrip {
				s.status = flow.Tripped
			}
		}
		return true, s
	case "reset":
		s.streak = 0
		if s.status == flow.Running {
			s.before = flow.Idle
		} else {
			s.status = flow.Idle
		}
		return out.status == s.status, s
	case "cancel":
		return out.run == s.running, s
	}
	return out.status == s.status && out.runs == s.runs && out.streak == s.streak, s
}

// TestHistoriesAreLinearizable lets clients trigger, reset, cancel and ask at once, and checks that what they were told has an order in
// which one at a time would have been told the same.
func TestHistoriesAreLinearizable(t *testing.T) {
	disk := storetest.NewDisk(1)
	s, err := disk.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	work := task(func(ctx context.Context, _ *workflow.Invocation) (workflow.Result, error) {
		select {
		case <-time.After(time.Duration(rand.IntN(500)) * time.Microsecond):
		case <-ctx.Done():
			return workflow.Result{}, context.Cause(ctx)
		}
		if rand.IntN(4) == 0 {
			return workflow.Result{}, errors.New("boom")
		}
		return workflow.Result{}, nil
	})
	scheduler := core.New(core.Config{Store: s})
	policy := flow.Policy{Initial: time.Millisecond, Multiplier: 1, MaxDelay: time.Millisecond, TripAfter: linearTrip}
	const flows, clients, calls = 4, 5, 60
	for i := range flows {
		if err := scheduler.Add(&core.Flow{ID: fmt.Sprintf("f%d", i), Workflow: work, Backoff: policy}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := scheduler.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var mu sync.Mutex
	var history []porcupine.Operation
	record := func(client int, in call, at time.Duration, out answer) {
		mu.Lock()
		defer mu.Unlock()
		history = append(history, porcupine.Operation{
			ClientId: client, Input: in, Call: at.Nanoseconds(), Output: out, Return: time.Since(began).Nanoseconds(),
		})
	}
	var wg sync.WaitGroup
	end := func(client int, id string, run *core.Run, at time.Duration) {
		w, err := r.WatchRun(t.Context(), run.ID)
		if err != nil {
			t.Error(err)
			return
		}
		for {
			_, seen, err := w.Next(t.Context())
			if errors.Is(err, io.EOF) || err != nil {
				t.Errorf("run %s: its end was not seen: %v", run.ID, err)
				return
			}
			if seen != nil && seen.End != 0 {
				record(client, call{flow: id, kind: "end", run: run.Number, how: seen.Outcome}, at, answer{})
				return
			}
		}
	}
	client := func(number int) {
		for n := range calls {
			id := fmt.Sprintf("f%d", rand.IntN(flows))
			time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond) // so that runs end meanwhile
			at := time.Since(began)
			switch rand.IntN(8) {
			case 0, 1, 2:
				run, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: id})
				out := answer{refused: err}
				if err == nil {
					out.run = run.Number
					// Porcupine wants one call at a time of a client: each end is by a client of its own.
					wg.Go(func() { end(1000+1000*number+n, id, run, at) })
				}
				record(number, call{flow: id, kind: "trigger"}, at, out)
			case 3:
				info, err := r.Reset(t.Context(), id, "")
				if err != nil {
					t.Error(err)
					return
				}
				record(number, call{flow: id, kind: "reset"}, at, answer{status: info.Status})
			case 4:
				_, told, err := r.Cancel(t.Context(), id, "", "")
				if err != nil {
					t.Error(err)
					return
				}
				var run uint64
				if told != "" {
					fmt.Sscanf(told, id+"@%d", &run)
				}
				record(number, call{flow: id, kind: "cancel"}, at, answer{run: run})
			default:
				info, err := r.Status(id)
				if err != nil {
					t.Error(err)
					return
				}
				record(number, call{flow: id, kind: "status"}, at, answer{status: info.Status, runs: info.RunCount, streak: info.Streak})
			}
		}
	}
	for c := range clients {
		wg.Go(func() { client(c) })
	}
	wg.Wait()
	stop(t, r)
	model := porcupine.Model{
		Init: func() any { return truth{status: flow.Idle} },
		Step: step,
		Partition: func(all []porcupine.Operation) (parts [][]porcupine.Operation) {
			by := map[string][]porcupine.Operation{}
			for _, op := range all {
				id := op.Input.(call).flow
				by[id] = append(by[id], op)
			}
			for _, part := range by {
				parts = append(parts, part)
			}
			return parts
		},
	}
	kinds := map[string]int{}
	for _, op := range history {
		kinds[op.Input.(call).kind]++
	}
	t.Logf("%d operations: %v", len(history), kinds)
	if got := porcupine.CheckOperationsTimeout(model, history, time.Minute); got != porcupine.Ok {
		t.Errorf("the history is not linearizable: %v", got)
	}
	if kinds["end"] < 5 {
		t.Errorf("too few runs for this to mean anything")
	}
	// A history with a lie in it is found out: the check can fail.
	for i, op := range history {
		if out := op.Output.(answer); op.Input.(call).kind == "status" {
			out.runs += 1000
			history[i].Output = out
			break
		}
	}
	if porcupine.CheckOperationsTimeout(model, history, time.Minute) == porcupine.Ok {
		t.Errorf("a history with a lie in it passes")
	}
}
