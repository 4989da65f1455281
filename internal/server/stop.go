package server

import (
	"context"
	"errors"
	"time"

	"github.com/schedulerd/schedulerd/internal/core"
)

// Stop stops the server, step by step:
//
//  1. health goes NOT_SERVING, so that load balancers send nobody here any more;
//  2. the drain delay passes, for them to notice;
//  3. open streams end: watches with a last response that says so;
//  4. the API takes no new connections, and clients are asked to go; the scheduler stops: runs finish within the grace, or are
//     cancelled, and resources are torn down. Workers report over the streams that they have;
//  5. the API ends: workers are sent away, and calls on their way finish;
//  6. the admin listener ends, the store is closed.
//
// A second Stop, also a concurrent one, waits for the same result. ctx bounds the caller's wait, not the stop: see Hurry.
func (s *Server) Stop(ctx context.Context) error {
	s.stopOnce.Do(func() { go s.stop() })
	select {
	case <-s.done:
		return s.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Hurry ends all waiting of a stop: for load balancers, for calls on their way, and for runs, which are cancelled.
func (s *Server) Hurry() {
	s.hurryUp()
	s.running.EndGrace()
}

func (s *Server) stop() {
	defer close(s.done)
	began := time.Now()
	s.log.Info("stopping", "grace", s.options.Grace, "drain_delay", s.options.DrainDelay)
	s.readiness.stop()
	select {
	case <-s.called:
		// The caller of Stop waits for the scheduler's result over the API, which must not end before.
		<-s.running.Done()
	default:
		s.pause(s.options.DrainDelay)
	}
	s.service.EndStreams()
	s.drain()
	calls := make(chan struct{})
	go func() { defer close(calls); s.api.GracefulStop() }()
	if result, err := s.running.Stop(context.Background(), s.options.Grace); err == nil { // it is: nothing bounds the wait
		s.report(result)
	}
	s.workers.Close()
	s.endAPI(calls)
	s.err = errors.Join(s.trouble(), s.cleanUp())
	if s.err != nil {
		s.log.Error("stopped, with an error", "took", time.Since(began), "error", s.err)
		return
	}
	s.log.Info("stopped", "took", time.Since(began))
}

// trouble is why the server could not go on, if that is why it stopped.
func (s *Server) trouble() error {
	select {
	case <-s.lost:
		return s.failure
	default:
	}
	if info := s.running.Info(); !info.Ready {
		return of{ErrStore, errors.New(info.NotReady)}
	}
	return nil
}

// pause waits, unless there is a hurry.
func (s *Server) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.hurry.Done():
	}
}

// endAPI lets calls finish, for as long as drainTimeout, or hurryTimeout in a hurry.
func (s *Server) endAPI(calls <-chan struct{}) {
	cut := func() {
		s.log.Warn("calls that do not end are cut off")
		s.api.Stop()
	}
	late := time.AfterFunc(drainTimeout, cut)
	defer late.Stop()
	forget := context.AfterFunc(s.hurry, func() { late.Reset(hurryTimeout) })
	defer forget()
	<-calls
}

// report tells of runs that did not end by themselves, and of teardowns that failed.
func (s *Server) report(result *core.StopResult) {
	for _, run := range result.CancelledRuns {
		s.log.Warn("a run did not finish within the grace and was cancelled", "run", run)
	}
	for _, run := range result.UnfinishedRuns {
		s.log.Error("a run did not end although it was cancelled", "run", run)
	}
	for _, err := range result.TeardownErrors {
		s.log.Error("teardown failed", "error", err)
	}
}

// stopByCall is the Stop call. It answers once the scheduler has stopped; the rest of the stop waits for the answer to be
// delivered.
func (s *Server) stopByCall(ctx context.Context, grace time.Duration) (*core.StopResult, error) {
	s.readiness.stop()
	s.callOnce.Do(func() { close(s.called) })
	if grace < 0 {
		grace = s.options.Grace
	}
	return s.running.Stop(ctx, grace)
}

// stopWhenOver stops the server once its scheduler was stopped by a call, and when it is of no more use: a process that ends is
// started again by its supervisor, one that only looks alive is not.
func (s *Server) stopWhenOver() {
	select {
	case <-s.running.Done():
	case <-s.running.Halted():
	case <-s.lost:
	}
	_ = s.Stop(context.Background()) // the error is Wait's
}
