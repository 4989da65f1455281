package service

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/store"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/definition"
	"github.com/schedulerd/schedulerd/internal/task"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// realKinds are a log that takes a second and a fail that fails.
func realKinds() *task.Registry {
	kind := func(field string, run workflow.TaskFunc) task.Kind {
		return task.Kind{Field: field, New: func(*pb.Task, *task.Env) (workflow.Task, error) { return run, nil }}
	}
	return task.NewRegistry([]task.Kind{
		kind("log", func(ctx context.Context, _ *workflow.Invocation) (workflow.Result, error) {
			select {
			case <-time.After(time.Second):
				return workflow.Result{Value: "done"}, nil
			case <-ctx.Done():
				return workflow.Result{}, ctx.Err()
			}
		}),
		kind("fail", func(context.Context, *workflow.Invocation) (workflow.Result, error) {
			return workflow.Result{}, &workflow.Error{Err: errors.New("no"), Permanent: true}
		}),
	}, nil)
}

// real is a service on a real scheduler in memory, and a client of it. All of it stops at the end of the test.
func real(t *testing.T, flows ...*pb.Flow) (pb.SchedulerServiceClient, *Service) {
	t.Helper()
	compiler := definition.New(realKinds())
	scheduler := core.New(core.Config{Store: store.NewMemory()})
	for _, f := range flows {
		compiled, faults := compiler.CompileFlow(f, definition.Options{Now: time.Now(), Origin: core.FromAPI})
		if err := faults.Err(); err != nil {
			t.Fatal(err)
		}
		if err := scheduler.Add(compiled); err != nil {
			t.Fatal(err)
		}
	}
	running, err := scheduler.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Compiler: compiler, Stop: running.Stop})
	if err != nil {
		t.Fatal(err)
	}
	s.Attach(Engine{running})
	t.Cleanup(func() {
		s.EndStreams()
		if _, err := running.Stop(context.Background(), 0); err != nil {
			t.Error(err)
		}
	})
	return client(t, s), s
}

func every(interval time.Duration) *pb.Schedule {
	return &pb.Schedule{Kind: &pb.Schedule_Every{Every: &pb.EverySchedule{Interval: durationpb.New(interval)}}}
}

func fails() *pb.Flow_Task {
	return &pb.Flow_Task{Task: &pb.Task{Kind: &pb.Task_Fail{Fail: &pb.FailTask{Message: "no"}}}}
}

// A flow's life, told over gRPC: backoff, trip, reset, trigger, cancel, pause.
func TestLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := real(t,
			&pb.Flow{Id: "slow", Work: logs("x")},
			&pb.Flow{Id: "flaky", Work: fails(), Backoff: &pb.BackoffPolicy{
				Initial: durationpb.New(10 * time.Second), Jitter: proto.Float64(0), TripAfter: proto.Uint32(2),
			}},
		)
		ctx := t.Context()
		status := func(id string) *pb.FlowInfo {
			t.Helper()
			r, err := c.Status(ctx, &pb.StatusRequest{FlowId: id})
			if err != nil {
				t.Fatal(err)
			}
			return r.GetFlow()
		}
		trigger := func(id, requestID string) (*pb.Run, error) {
			r, err := c.Trigger(ctx, &pb.TriggerRequest{FlowId: id, RequestId: requestID})
			return r.GetRun(), err
		}

		first, err := trigger("flaky", "")
		if err != nil || first.GetId() != "flaky@1" || first.GetCause() != pb.RunCause_RUN_CAUSE_TRIGGER {
			t.Fatal(first, err)
		}
		synctest.Wait()
		if f := status("flaky"); f.GetStatus() != pb.FlowStatus_FLOW_STATUS_BACKOFF || f.GetFailureStreak() != 1 ||
			f.GetNextEligible().AsTime().Sub(f.GetLastFinish().AsTime()) != 10*time.Second {
			t.Errorf("%v", f)
		}
		if _, err := trigger("flaky", ""); err != nil { // an operator may override the window
			t.Fatal(err)
		}
		synctest.Wait()
		_, err = trigger("flaky", "")
		if got := tell(err); got.reason != "FLOW_TRIPPED" || got.metadata["streak"] != "2" {
			t.Errorf("%+v", got)
		}
		reset, err := c.ResetFlow(ctx, &pb.ResetFlowRequest{FlowId: "flaky"})
		if err != nil || reset.GetFlow().GetStatus() != pb.FlowStatus_FLOW_STATUS_IDLE || reset.GetFlow().GetLastError() != "" {
			t.Errorf("%v, %v", reset, err)
		}

		run, err := trigger("slow", someUUID)
		if err != nil {
			t.Fatal(err)
		}
		_, err = trigger("slow", "")
		if got := tell(err); got.reason != "FLOW_RUNNING" || got.metadata["run"] != run.GetId() {
			t.Errorf("%+v", got)
		}
		again, err := trigger("slow", someUUID)
		if err != nil || again.GetId() != run.GetId() {
			t.Errorf("the same request gave %v, %v", again, err)
		}
		if _, err := trigger("flaky", someUUID); tell(err).reason != "CONFLICT" {
			t.Errorf("%v", err)
		}
		cancelled, err := c.CancelFlow(ctx, &pb.CancelFlowRequest{FlowId: "slow"})
		if err != nil || cancelled.GetRunId() != run.GetId() || !cancelled.GetFlow().GetCurrentRun().GetCancelling() {
			t.Errorf("%v, %v", cancelled, err)
		}
		watch, err := c.WatchRun(ctx, &pb.WatchRunRequest{RunId: run.GetId()})
		if err != nil {
			t.Fatal(err)
		}
		var last *pb.Run
		for {
			r, err := watch.Recv()
			if err != nil {
				break
			}
			if r.GetRun() != nil {
				last = r.GetRun()
			}
		}
		if last.GetOutcome() != pb.Outcome_OUTCOME_CANCELLED {
			t.Errorf("%v", last)
		}
		paused, err := c.PauseFlow(ctx, &pb.PauseFlowRequest{FlowId: "slow"})
		if err != nil || !paused.GetFlow().GetPaused() {
			t.Errorf("%v, %v", paused, err)
		}
		resumed, err := c.ResumeFlow(ctx, &pb.ResumeFlowRequest{FlowId: "slow"})
		if err != nil || resumed.GetFlow().GetPaused() {
			t.Errorf("%v, %v", resumed, err)
		}
		list, err := c.ListRuns(ctx, &pb.ListRunsRequest{FlowId: "flaky"})
		if err != nil || len(list.GetRuns()) != 2 || list.GetRuns()[0].GetNumber() != 2 || len(list.GetRuns()[0].GetEvents()) != 0 {
			t.Errorf("%v, %v", list, err)
		}
		got, err := c.GetRun(ctx, &pb.GetRunRequest{RunId: "flaky@2"})
		if err != nil || len(got.GetRun().GetEvents()) == 0 || got.GetRun().GetOutcome() != pb.Outcome_OUTCOME_FAILED {
			t.Errorf("%v, %v", got, err)
		}
		if _, err := c.GetRun(ctx, &pb.GetRunRequest{RunId: "flaky@9"}); tell(err).reason != "RUN_NOT_FOUND" {
			t.Errorf("%v", err)
		}
		if _, err := c.GetRun(ctx, &pb.GetRunRequest{RunId: "what"}); tell(err).code.String() == "Internal" {
			t.Errorf("%v", err)
		}
	})
}

// history is what one client saw of a watch over several streams.
type history struct {
	states   map[string]*pb.FlowInfo // the newest of each flow
	gone     map[string]bool
	token    string
	streams  int
	longest  time.Duration // of silence
	problems []string
}

func (h *history) problem(format string, args ...any) {
	h.problems = append(h.problems, fmt.Sprintf(format, args...))
}

// follow reads one stream until ctx ends or the server ends it.
func (h *history) follow(ctx context.Context, c pb.SchedulerServiceClient) error {
	stream, err := c.WatchStatus(ctx, &pb.WatchStatusRequest{ResumeToken: h.token})
	if err != nil {
		return err
	}
	h.streams++
	complete, newest := h.token != "", uint64(0)
	seen := map[string]bool{}
	last := time.Now()
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		h.longest = max(h.longest, time.Since(last))
		last = time.Now()
		for _, change := range r.GetChanges() {
			f := change.GetFlow()
			key := fmt.Sprint(f.GetId(), " ", f.GetRevision())
			if seen[key] {
				h.problem("not unique: %s came twice on a stream", key)
			}
			seen[key] = true
			if complete && f.GetRevision() < newest {
				h.problem("not ordered: %d after %d", f.GetRevision(), newest)
			}
			newest = max(newest, f.GetRevision())
			if before := h.states[f.GetId()]; before.GetRevision() > f.GetRevision() {
				h.problem("%s went back from revision %d to %d", f.GetId(), before.GetRevision(), f.GetRevision())
			}
			h.states[f.GetId()] = f
			h.gone[f.GetId()] = change.GetType() == pb.FlowChangeType_FLOW_CHANGE_TYPE_DELETED
		}
		complete = complete || r.GetInitialStateComplete()
		if r.GetResumeToken() != "" {
			h.token = r.GetResumeToken()
		}
	}
}

// The promises of WatchStatus, checked on what a client saw that is cut off now and then and resumes: ordered, unique,
// reliable, resumable, bookmarked.
func TestWatchPromises(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			var flows []*pb.Flow
			for i := range 15 {
				f := &pb.Flow{Id: fmt.Sprintf("flow-%02d", i), Schedule: every(time.Duration(1+random.IntN(20)) * time.Second), Work: logs("x")}
				if i%5 == 0 {
					f.Work = fails()
				}
				flows = append(flows, f)
			}
			c, _ := real(t, flows...)
			began := time.Now()
			h := &history{states: map[string]*pb.FlowInfo{}, gone: map[string]bool{}}
			busy := func(lasting time.Duration) {
				for end := time.Now().Add(lasting); time.Now().Before(end); {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.Int64N(int64(15*time.Second))))
					_ = h.follow(ctx, c) // how it ended does not matter
					cancel()
					time.Sleep(time.Duration(random.Int64N(int64(3 * time.Second))))
				}
			}
			busy(3 * time.Minute)
			if _, err := c.DeleteFlow(t.Context(), &pb.DeleteFlowRequest{FlowId: "flow-00"}); err != nil && tell(err).reason != "FLOW_RUNNING" {
				t.Fatal(err)
			}
			busy(time.Minute)
			for i := range flows { // the world stands still
				_, _ = c.PauseFlow(t.Context(), &pb.PauseFlowRequest{FlowId: flows[i].GetId()})
			}
			time.Sleep(5 * time.Minute) // what runs ends, windows close
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			_ = h.follow(ctx, c)

			for _, p := range h.problems {
				t.Errorf("seed %d: %s", seed, p)
			}
			if h.streams < 10 || h.longest > 20*time.Second {
				t.Errorf("seed %d: %d streams, silent for %v", seed, h.streams, h.longest)
			}
			list, err := c.List(t.Context(), &pb.ListRequest{})
			if err != nil {
				t.Fatal(err)
			}
			there := map[string]bool{}
			for _, f := range list.GetFlows() {
				there[f.GetId()] = true
				if f.GetRunCount() == 0 {
					t.Errorf("seed %d: %s did not run in %v", seed, f.GetId(), time.Since(began))
				}
				// Paused fire times are counted without a change of state being due at once; what is told is the state at a revision.
				if seen := h.states[f.GetId()]; seen.GetRevision() > f.GetRevision() || seen.GetRunCount() != f.GetRunCount() ||
					seen.GetStatus() != f.GetStatus() || !seen.GetPaused() || h.gone[f.GetId()] {
					t.Errorf("seed %d: not reliable: the watch ended with %v, List says %v", seed, seen, f)
				}
			}
			for id := range h.states {
				if !there[id] && !h.gone[id] {
					t.Errorf("seed %d: nobody told that %s is gone", seed, id)
				}
			}
		})
	}
}
