package schedctl

import (
	"context"
	"errors"
	"hash/maphash"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

const (
	resumeFirst = 100 * time.Millisecond // delay before the first try to resume
	resumeMost  = 5 * time.Second        // and the longest one
	// A stream that lasted this long was a good one: the delays begin anew after it.
	resumeSettled = 5 * time.Second
	// The server sends a bookmark every 20 s. After three that are missing the
	// stream is dead, although some proxy may hold it open.
	watchSilence = 65 * time.Second
)

// errEnough ends a stream whose reader has what it wants.
var errEnough = errors.New("enough")

// errSilence is why a stream is given up that should have said something.
var errSilence = errors.New("the stream has been silent for too long")

// resuming reads a server stream to its end, over as many connections as that takes.
type resuming[Response any] struct {
	// open begins a stream where the last one broke off.
	open func(context.Context) (grpc.ServerStreamingClient[Response], error)
	// receive takes one message. errEnough ends the whole; so does any other error, which is returned.
	receive func(*Response) error
	// ended says whether a stream that the server closed without an error was complete. Optional: none is.
	ended func() bool
	// restart is asked about an error that resuming cannot cure: whether the next
	// stream may begin from nothing instead. Optional.
	restart func(error) bool
	// lost is told why a stream broke (nil: the server ended it) and how long the pause before the next one is. Optional.
	lost func(error, time.Duration)
	// begun says that what is read is known to be there, so that the first stream is waited for as well.
	begun bool
	// silence is the longest time between two messages of a stream that lives. 0: any.
	silence time.Duration
}

// run returns nil when the stream is complete or its reader has enough. Unless begun
// is set the first stream must come about: only what was once read can be resumed.
func (r *resuming[Response]) run(ctx context.Context) error {
	everReceived := r.begun
	for failures := 0; ; failures++ {
		begun := time.Now()
		received, broken, err := r.once(ctx)
		everReceived = everReceived || received
		switch {
		case errors.Is(err, errEnough):
			return nil
		case err != nil:
			return err
		case broken == nil && r.ended != nil && r.ended():
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case wireStatus(broken).Code() == codes.DeadlineExceeded: // the server's clock was first
			return context.DeadlineExceeded
		case broken == nil: // the server lets streams end to spread load
		case r.restart != nil && r.restart(broken):
		case !everReceived || !resumable(broken, received):
			return broken
		}
		if received && time.Since(begun) >= resumeSettled {
			failures = 0
		}
		delay := max(pause(failures), retryDelay(broken))
		if r.lost != nil {
			r.lost(broken, delay)
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// once reads one stream. broken is why it broke, nil if the server ended it; err is an error of receive.
func (r *resuming[Response]) once(ctx context.Context) (received bool, broken, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	heard := func() {}
	if r.silence > 0 {
		watchdog := time.AfterFunc(r.silence, func() { cancel(errSilence) })
		defer watchdog.Stop()
		heard = func() { watchdog.Reset(r.silence) }
	}
	stream, err := r.open(ctx)
	if err != nil {
		return false, err, nil
	}
	for {
		response, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return received, nil, nil
		case err != nil && errors.Is(context.Cause(ctx), errSilence):
			return received, errSilence, nil
		case err != nil:
			return received, err, nil
		}
		received = true
		heard()
		if err := r.receive(response); err != nil {
			return received, nil, err
		}
	}
}

// resumable says whether a stream that broke with err can go on in another one.
func resumable(err error, received bool) bool {
	if errors.Is(err, errSilence) {
		return true
	}
	st := wireStatus(err)
	if st == nil {
		return false
	}
	switch st.Code() {
	case codes.Unavailable, codes.ResourceExhausted:
		return true
	case codes.Internal, codes.Unknown, codes.Canceled:
		// Proxies that cut a stream make one of these of it. The server's own carry an
		// ErrorInfo; and a stream that never gave anything was not cut.
		return received && errorInfo(st) == nil
	}
	return false
}

// pause is the delay before another try: it doubles, and is spread so that clients do not come back as a herd.
func pause(failures int) time.Duration {
	longest := min(resumeFirst<<min(failures, 16), resumeMost)
	return longest/2 + rand.N(longest/2)
}

// retryDelay is the delay that the server asks for, or 0.
func retryDelay(err error) time.Duration {
	if st := wireStatus(err); st != nil {
		for _, detail := range st.Details() {
			if info, ok := detail.(*errdetails.RetryInfo); ok {
				return min(info.GetRetryDelay().AsDuration(), time.Minute)
			}
		}
	}
	return 0
}

// StatusWatch follows the states of flows. It survives broken connections,
// restarts of the daemon and tokens that are no longer good: then it starts over.
type StatusWatch struct {
	Client      pb.SchedulerServiceClient
	Filter      *pb.FlowFilter
	MinInterval time.Duration // least time between two responses, to merge changes; 0: none
	// Lost is told why the connection broke (nil: the server ended the stream) and
	// how long the pause before the next one is. Optional.
	Lost func(err error, pause time.Duration)
}

// Run calls handle with each response until ctx ends or handle returns an error,
// and returns that error. A server that cannot be reached at first is an error too.
//
// fresh marks the first response of a stream that begins from nothing: what is
// not told again until initial_state_complete is no longer true.
func (w *StatusWatch) Run(ctx context.Context, handle func(response *pb.WatchStatusResponse, fresh bool) error) error {
	token, fresh := "", true
	stream := resuming[pb.WatchStatusResponse]{
		silence: watchSilence,
		lost:    w.Lost,
		open: func(ctx context.Context) (grpc.ServerStreamingClient[pb.WatchStatusResponse], error) {
			fresh = token == ""
			request := &pb.WatchStatusRequest{Filter: w.Filter, ResumeToken: token}
			if w.MinInterval > 0 {
				request.MinInterval = durationpb.New(w.MinInterval)
			}
			return w.Client.WatchStatus(ctx, request)
		},
		receive: func(response *pb.WatchStatusResponse) error {
			if response.GetResumeToken() != "" {
				token = response.GetResumeToken()
			}
			first := fresh
			fresh = false
			return handle(response, first)
		},
		// OUT_OF_RANGE: the token is too old. INVALID_ARGUMENT: it belongs to another
		// store, as after the restart of a daemon that keeps its state in memory.
		restart: func(err error) bool {
			code := wireStatus(err).Code()
			if token == "" || code != codes.OutOfRange && code != codes.InvalidArgument {
				return false
			}
			token = ""
			return true
		},
	}
	return stream.run(ctx)
}

// RunWatch follows one run to its end, over broken connections and restarts of the daemon.
type RunWatch struct {
	Client pb.SchedulerServiceClient
	RunID  string
	// Begun says that the run is known to be there: a server that cannot be reached at first is waited for.
	Begun bool
	Lost  func(err error, pause time.Duration) // as in StatusWatch
}

// Run calls handle with each response until the run has ended, and returns the run
// as it ended, in the basic view. No event comes twice; a response without news does not come.
func (w *RunWatch) Run(ctx context.Context, handle func(*pb.WatchRunResponse) error) (*pb.Run, error) {
	var run *pb.Run
	// A stream begins with the first event kept. There is no token to resume from, nor a
	// number to tell events by: after a crash some that were shown may be gone.
	seen := map[uint64]bool{}
	seed := maphash.MakeSeed()
	known := func(event *pb.RunEvent) bool {
		text, err := proto.MarshalOptions{Deterministic: true}.Marshal(event)
		hash := maphash.Bytes(seed, text)
		before := err == nil && seen[hash]
		seen[hash] = true
		return before
	}
	stream := resuming[pb.WatchRunResponse]{
		begun: w.Begun,
		lost:  w.Lost,
		open: func(ctx context.Context) (grpc.ServerStreamingClient[pb.WatchRunResponse], error) {
			return w.Client.WatchRun(ctx, &pb.WatchRunRequest{RunId: w.RunID})
		},
		receive: func(response *pb.WatchRunResponse) error {
			events := slices.DeleteFunc(response.GetEvents(), known)
			if response.GetRun() != nil {
				run = response.GetRun()
			}
			if len(events) > 0 || response.GetRun() != nil {
				if err := handle(&pb.WatchRunResponse{Events: events, Run: response.GetRun()}); err != nil {
					return err
				}
			}
			if run.GetEndTime() != nil {
				return errEnough
			}
			return nil
		},
	}
	if err := stream.run(ctx); err != nil {
		return nil, err
	}
	return run, nil
}
