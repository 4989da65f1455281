package worker

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Bounds of what a worker may tell of an assignment.
const (
	maxLine       = 16 << 10 // bytes of a line of its log; the rest is cut off
	maxMessage    = 4 << 10  // bytes of a failure's or a progress' message
	maxClass      = 64
	maxRetryAfter = 24 * time.Hour
)

// flushWithin is how long what is on its way may take when a stream ends.
const flushWithin = time.Second

// deadAfter is the number of heartbeats without a word after which a stream is dead.
const deadAfter = 3

// Work is one stream of a worker.
func (h *Hub) Work(rpc grpc.BidiStreamingServer[schedulerdv1.WorkRequest, schedulerdv1.WorkResponse]) error {
	ctx := rpc.Context()
	requests, failed := make(chan *schedulerdv1.WorkRequest), make(chan error, 1)
	go func() {
		for {
			r, err := rpc.Recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case requests <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	patience := h.options.HeartbeatInterval * deadAfter
	silence := time.NewTimer(patience)
	defer silence.Stop()
	var s *session
	var st *stream
	select {
	case r := <-requests:
		var err error
		if s, st, err = h.attach(r.GetHello()); err != nil {
			return err
		}
	case <-failed:
		return status.Error(codes.InvalidArgument, "the first message of a stream must be hello")
	case <-silence.C:
		return status.Error(codes.DeadlineExceeded, "no hello came")
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	defer h.detach(s, st)
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		h.write(rpc, st)
	}()
	age := time.NewTimer(h.age())
	defer age.Stop()
	for {
		silence.Reset(patience)
		var err error
		select {
		case r := <-requests:
			if err = h.read(s, st, r); err == nil {
				continue
			}
		case <-failed: // the worker is gone, or has said all
			return nil
		case <-silence.C:
			err = unavailable(fmt.Sprintf("nothing was heard for %v: dial again", patience))
		case <-age.C:
			err = unavailable("the stream has reached its age: dial again, and resume")
		case <-st.over:
		}
		h.mu.Lock()
		st.end(err)
		h.mu.Unlock()
		late := time.NewTimer(flushWithin)
		defer late.Stop()
		select {
		case <-flushed:
		case <-late.C:
		case <-ctx.Done():
		}
		return st.err
	}
}

// write sends what a stream is to send, and heartbeats, until it is over and all is sent.
func (h *Hub) write(rpc grpc.BidiStreamingServer[schedulerdv1.WorkRequest, schedulerdv1.WorkResponse], st *stream) {
	heartbeat := time.NewTicker(h.options.HeartbeatInterval)
	defer heartbeat.Stop()
	for sequence := uint64(1); ; {
		h.mu.Lock()
		out, ended := st.out, st.ended
		st.out = nil
		h.mu.Unlock()
		for _, m := range out {
			if rpc.Send(m) != nil {
				return
			}
		}
		if ended {
			return
		}
		select {
		case <-st.wake:
		case <-st.over:
		case <-rpc.Context().Done():
			return
		case <-heartbeat.C:
			if rpc.Send(&schedulerdv1.WorkResponse{Message: &schedulerdv1.WorkResponse_Heartbeat{Heartbeat: &schedulerdv1.WorkerHeartbeat{Sequence: sequence}}}) != nil {
				return
			}
			sequence++
		}
	}
}

// read takes a message of a worker. An error is one of the protocol, and ends the stream.
func (h *Hub) read(s *session, st *stream, r *schedulerdv1.WorkRequest) error {
	switch m := r.GetMessage().(type) {
	case *schedulerdv1.WorkRequest_Accept:
		h.report(s, st, m.Accept.GetAssignmentId(), accepts, outcome{})
	case *schedulerdv1.WorkRequest_Reject:
		h.log.Info("worker rejected an assignment", "worker", s.name, "reason", cut(m.Reject.GetReason(), maxMessage))
		h.report(s, st, m.Reject.GetAssignmentId(), rejects, outcome{})
	case *schedulerdv1.WorkRequest_Result:
		h.report(s, st, m.Result.GetAssignmentId(), ends, resultOf(m.Result.GetResult()))
	case *schedulerdv1.WorkRequest_Failure:
		h.report(s, st, m.Failure.GetAssignmentId(), ends, outcome{err: failureOf(m.Failure)})
	case *schedulerdv1.WorkRequest_Progress:
		h.tell(s, st, m.Progress.GetAssignmentId(), func(j *job) {
			if j.Progress != nil {
				j.Progress(cut(m.Progress.GetProgress().GetMessage(), maxMessage), fraction(m.Progress.GetProgress()))
			}
		})
	case *schedulerdv1.WorkRequest_Log:
		h.tell(s, st, m.Log.GetAssignmentId(), func(j *job) {
			if j.Output != nil {
				for line := range strings.SplitSeq(strings.TrimSuffix(m.Log.GetText(), "\n"), "\n") {
					j.Output(m.Log.GetStderr(), cut(line, maxLine))
				}
			}
		})
	case *schedulerdv1.WorkRequest_Heartbeat:
	case *schedulerdv1.WorkRequest_Drain:
		h.mu.Lock()
		defer h.mu.Unlock()
		if s.stream == st {
			s.draining = true
			h.refresh(s)
			h.endIfDrained(s)
		}
	case *schedulerdv1.WorkRequest_Hello:
		return status.Error(codes.InvalidArgument, "hello comes once, at the beginning of a stream")
	}
	return nil // a message that is newer than this server means nothing to it
}

// report lets an event happen to an assignment.
func (h *Hub) report(s *session, st *stream, id string, e event, o outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.stream != st { // what an old stream still had to say is said again on the new one
		return
	}
	a := s.assignments[id]
	if a == nil {
		a = &assignment{id: id}
	}
	h.apply(s, a, e, o)
}

// tell passes on what a worker says of an assignment.
func (h *Hub) tell(s *session, st *stream, id string, pass func(*job)) {
	h.mu.Lock()
	a := s.assignments[id]
	if s.stream != st || a == nil || a.job == nil {
		h.mu.Unlock()
		return
	}
	j := a.job
	h.mu.Unlock()
	j.reporting.Lock()
	defer j.reporting.Unlock()
	if !j.over {
		pass(j)
	}
}

func resultOf(r *schedulerdv1.TaskResult) outcome {
	result := workflow.Result{Value: r.GetValue().AsInterface(), Action: r.GetAction()}
	if text, err := json.Marshal(result.Value); err != nil {
		return outcome{err: &workflow.Error{Err: fmt.Errorf("its result cannot be written as JSON: %w", err), Class: "result", Permanent: true}}
	} else if len(text) > workflow.MaxResultBytes {
		return outcome{err: &workflow.Error{Err: fmt.Errorf("its result has %d KiB, more than the %d KiB allowed: keep large data in a file or a store", len(text)>>10, workflow.MaxResultBytes>>10), Class: "result", Permanent: true}}
	}
	return outcome{result: result}
}

func failureOf(f *schedulerdv1.WorkerFailure) error {
	return &workflow.Error{
		Err:        errors.New(cmp.Or(cut(f.GetMessage(), maxMessage), "the worker gave no reason")),
		Class:      cmp.Or(cut(f.GetClass(), maxClass), "error"),
		Permanent:  f.GetPermanent(),
		RetryAfter: min(max(0, f.GetRetryAfter().AsDuration()), maxRetryAfter),
	}
}

// fraction is the share done; below 0 if it is not known.
func fraction(p *schedulerdv1.TaskProgress) float64 {
	if p == nil || p.Fraction == nil {
		return -1
	}
	return p.GetFraction()
}

// cut is the beginning of a text, in whole characters.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}

func assign(a *assignment, within time.Duration) *schedulerdv1.WorkResponse {
	return &schedulerdv1.WorkResponse{Message: &schedulerdv1.WorkResponse_Assign{Assign: &schedulerdv1.WorkerAssign{
		AssignmentId: a.id, Invocation: a.job.Invocation, AcceptWithin: durationpb.New(within),
	}}}
}

func cancelled(id string) *schedulerdv1.WorkResponse {
	return &schedulerdv1.WorkResponse{Message: &schedulerdv1.WorkResponse_Cancel{Cancel: &schedulerdv1.WorkerCancel{AssignmentId: id, Reason: "it is no longer wanted"}}}
}

func acknowledge(id string) *schedulerdv1.WorkResponse {
	return &schedulerdv1.WorkResponse{Message: &schedulerdv1.WorkResponse_Ack{Ack: &schedulerdv1.WorkerAck{AssignmentId: id}}}
}

func drain() *schedulerdv1.WorkResponse {
	return &schedulerdv1.WorkResponse{Message: &schedulerdv1.WorkResponse_Drain{Drain: &schedulerdv1.WorkerDrain{}}}
}
