package server

import (
	"context"
	"os"
	"sync"
	"syscall"
)

// Run runs a server until it has stopped. A signal stops it, the next one ends the stop's grace at once; SIGHUP reads the flows
// files again. A stop is no error.
func Run(o Options, signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := startOrSignal(ctx, cancel, o, signals)
	if s == nil {
		return err
	}
	var reloads sync.WaitGroup
	defer reloads.Wait()
	stopping := ctx.Err() != nil // a signal came while it started
	if stopping {
		go s.Stop(context.Background())
	}
	for {
		select {
		case sig := <-signals:
			switch {
			case sig == syscall.SIGHUP:
				reloads.Go(func() { _ = s.Reload(ctx) }) // it logs what is wrong
			case stopping:
				s.log.Warn("second signal: the grace ends now", "signal", sig.String())
				s.Hurry()
			default:
				s.log.Info("signal", "signal", sig.String())
				stopping = true
				go s.Stop(context.Background())
			}
		case <-s.Done():
			cancel() // a reload that waits
			return s.Wait()
		}
	}
}

// startOrSignal starts a server, which may take as long as resources take to be set up; a signal ends that, and is no error.
func startOrSignal(ctx context.Context, cancel context.CancelFunc, o Options, signals <-chan os.Signal) (s *Server, err error) {
	started := make(chan struct{})
	go func() {
		defer close(started)
		s, err = Start(ctx, o)
	}()
	for {
		select {
		case sig := <-signals:
			if sig != syscall.SIGHUP {
				cancel()
			}
		case <-started:
			if s == nil && ctx.Err() != nil {
				err = nil
			}
			return s, err
		}
	}
}
