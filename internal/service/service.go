package service

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"buf.build/go/protovalidate"
	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/definition"
	"github.com/schedulerd/schedulerd/internal/runlog"
)

// Scheduler is the engine as the handlers see it: a *core.Running, or a fake in tests.
type Scheduler interface {
	Trigger(ctx context.Context, r core.TriggerRequest) (*core.Run, uint64, error)
	Status(id string) (*core.Info, error)
	Guards(id string) []resource.GuardStatus
	List(o core.ListOptions) (infos []*core.Info, more bool, revision uint64)
	Reset(ctx context.Context, id, requestID string) (*core.Info, error)
	Cancel(ctx context.Context, id, runID, requestID string) (*core.Info, string, error)
	Pause(ctx context.Context, id, requestID string) (*core.Info, error)
	Resume(ctx context.Context, id string, mode core.CatchUpMode, requestID string) (*core.Info, error)
	Apply(ctx context.Context, r core.ApplyRequest) (*core.ApplyResult, error)
	Delete(ctx context.Context, id, etag, requestID string) (uint64, error)
	Runs(ctx context.Context, id string, o core.RunListOptions) (runs []*core.Run, more bool, err error)
	Run(ctx context.Context, runID string) (*core.Run, error)
	WatchRun(ctx context.Context, runID string) (RunWatch, error)
	Watch(o core.WatchOptions) (Watch, error)
	Info() core.ServerInfo
}

// Watch gives the changes of flows; see core.Watch.
type Watch interface {
	Next(ctx context.Context) (core.Batch, error)
}

// RunWatch gives the events of a run; see core.RunWatch.
type RunWatch interface {
	Next(ctx context.Context) ([]workflow.Event, *core.Run, error)
}

// Logs keeps what the tasks of runs write; see runlog.Logs.
type Logs interface {
	// Tail calls fn with the lines of a run, from tailBytes before the end (0: all that is kept); with follow it goes on until
	// the run ends. It ends with fn's error, if there is one.
	Tail(ctx context.Context, runID string, follow bool, tailBytes int64, fn func([]runlog.Line) error) error
}

// Backuper copies the data directory while it is in use.
type Backuper interface {
	// WriteBackup writes a tar archive.
	WriteBackup(ctx context.Context, w io.Writer) error
}

// Config is what a Service is made of.
type Config struct {
	Log     *slog.Logger
	Version string // of the daemon, for GetServerInfo

	// Compiler reads definitions.
	Compiler *definition.Compiler
	// SharedKinds has the kinds of the resources that all flows share, by name.
	SharedKinds map[string]string
	// AllowExec lets flows that come over the API run commands.
	AllowExec bool
	// Logs and Backup are nil without a data directory.
	Logs   Logs
	Backup Backuper
	// Stop stops the scheduler, and the process with it. grace < 0 is the default.
	Stop func(ctx context.Context, grace time.Duration) (*core.StopResult, error)

	// WatchAge bounds the age of a watch, to spread clients over replicas anew: each ends at a random age from half of it
	// to all of it. 0: DefaultWatchAge.
	WatchAge time.Duration
}

// DefaultWatchAge is the WatchAge of a Config that sets none.
const DefaultWatchAge = time.Hour

// Service is the gRPC service. It answers NOT_READY until Attach.
type Service struct {
	pb.UnimplementedSchedulerServiceServer

	config    Config
	validator protovalidate.Validator
	scheduler atomic.Pointer[Scheduler]
	start     time.Time
	shared    shared
	watchers  atomic.Int64

	draining context.Context // done when streams shall end
	drain    context.CancelFunc
}

// New makes a Service.
func New(c Config) (*Service, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.WatchAge == 0 {
		c.WatchAge = DefaultWatchAge
	}
	validator, err := protovalidate.New()
	if err != nil {
		return nil, err
	}
	s := &Service{config: c, validator: validator, start: time.Now()}
	s.draining, s.drain = context.WithCancel(context.Background())
	return s, nil
}

// Attach gives the service the scheduler it is about, once that has started.
func (s *Service) Attach(scheduler Scheduler) { s.scheduler.Store(&scheduler) }

// EndStreams ends the open streams, and new ones at once: watches with a last response that says so. GracefulStop of a
// gRPC server waits for streams but ends none.
func (s *Service) EndStreams() { s.drain() }

// Watchers is the number of open watches of flows.
func (s *Service) Watchers() int { return int(s.watchers.Load()) }

// attached is the scheduler.
func (s *Service) attached() (Scheduler, error) {
	if p := s.scheduler.Load(); p != nil {
		return *p, nil
	}
	return nil, core.ErrNotReady
}

// Why a stream ends though its client did not ask for it.
var (
	errDraining = errors.New("the server is draining")
	errAged     = errors.New("the stream has reached its greatest age")
)

// streamContext is a stream's context that also ends when the server drains, and after age unless that is 0. Its cause
// tells which. Streams end by themselves so that load spreads again.
func (s *Service) streamContext(ctx context.Context, age time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(s.draining, func() { cancel(errDraining) })
	if s.draining.Err() != nil { // AfterFunc takes its time
		cancel(errDraining)
	}
	var timer *time.Timer
	if age > 0 {
		timer = time.AfterFunc(age, func() { cancel(errAged) })
	}
	return ctx, func() {
		forget()
		if timer != nil {
			timer.Stop()
		}
		cancel(nil)
	}
}

// watchAge is how old this watch may get.
func (s *Service) watchAge() time.Duration {
	return s.config.WatchAge/2 + rand.N(s.config.WatchAge/2+1)
}
