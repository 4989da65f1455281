package core

import (
	"errors"
	"log/slog"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/core/store"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

// Config is what a Scheduler needs. The zero value of each field but Store is replaced by its default.
type Config struct {
	Store             store.Store
	Shared            []resource.Declaration // resources of all flows, set up before theirs
	MaxConcurrentRuns int                    // default 1000
	Grace             time.Duration          // how long runs may take to finish at a stop; default 30 s
	KillTime          time.Duration          // how long cancelled runs may take to end at a stop; default 5 s
	Logger            *slog.Logger           // default: discarded
	// Compile turns the source of a stored definition into a flow, or into the shape that it shares with others: see Flow.Shape. It is
	// called when the flow is first needed, by any goroutine. Needed only if flows come from the store or over the API.
	Compile func(source []byte, origin Origin) (*Flow, error)
	// Basis names what the meaning of definitions depends on, beside themselves: the version of the program and of the time zones. A
	// start takes next fire times from the store; when the Basis has changed they are computed anew soon after it.
	Basis string
	// Describe reads what Flow.Shape leaves out from a source. It is quick: lists and filters call it for each flow. Nil: flows are
	// kept whole, and Compile gives them whole.
	Describe func(source []byte) (Description, error)
	// BeforeResume is called at a start for each run that a crash interrupted, before its flow may run again: the place to end what
	// it left behind.
	BeforeResume func(runID string)
	// Output gives the place where the output of a run's tasks goes. Default: discarded.
	Output func(runID string) RunOutput
	// Observer is told what happens, for metrics. Default: nobody.
	Observer Observer
	// Now is the wall clock. Default: time.Now. Timers run on the monotonic one.
	Now func() time.Time
	// ClockCheck is how often the wall clock is compared with the time slept, to notice that it was set. Default 1 s.
	ClockCheck time.Duration
	// Random gives numbers in [0, 1) for jitter. Default: math/rand/v2.
	Random func() float64
}

// Defaults of a Config.
const (
	DefaultMaxConcurrentRuns = 1000
	DefaultGrace             = 30 * time.Second
	DefaultKillTime          = 5 * time.Second
	DefaultClockCheck        = time.Second
)

// Observer is told what happens, in the engine's goroutine: its methods must not block. Flow ids are not passed on, since a metric
// with a label a flow would not be bounded.
type Observer interface {
	RunStarted(cause flow.Cause, lateness time.Duration)
	RunEnded(outcome flow.Outcome, duration time.Duration)
	FireTimesSkipped(reason flow.SkipReason, count uint64)
	Committed(changes int, took time.Duration)
	ClockJumped(by time.Duration)
}

type noObserver struct{}

func (noObserver) RunStarted(flow.Cause, time.Duration)     {}
func (noObserver) RunEnded(flow.Outcome, time.Duration)     {}
func (noObserver) FireTimesSkipped(flow.SkipReason, uint64) {}
func (noObserver) Committed(int, time.Duration)             {}
func (noObserver) ClockJumped(time.Duration)                {}

// RunOutput takes what the tasks of one run write.
type RunOutput interface {
	workflow.Output
	// End tells that nothing more comes, and how the run ended.
	End(flow.Outcome)
}

type noOutput struct{}

func (noOutput) Line(string, int, bool, string) {}
func (noOutput) End(flow.Outcome)               {}

func (c Config) withDefaults() (Config, error) {
	if c.Store == nil {
		return c, errors.New("core: Config.Store is missing")
	}
	if c.MaxConcurrentRuns < 0 || c.Grace < 0 || c.KillTime < 0 || c.ClockCheck < 0 {
		return c, errors.New("core: MaxConcurrentRuns, Grace, KillTime and ClockCheck must not be negative")
	}
	setDefault(&c.MaxConcurrentRuns, DefaultMaxConcurrentRuns)
	setDefault(&c.Grace, DefaultGrace)
	setDefault(&c.KillTime, DefaultKillTime)
	setDefault(&c.ClockCheck, DefaultClockCheck)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Compile == nil {
		c.Compile = func([]byte, Origin) (*Flow, error) {
			return nil, errors.New("this scheduler does not read definitions from its store")
		}
	}
	if c.BeforeResume == nil {
		c.BeforeResume = func(string) {}
	}
	if c.Output == nil {
		c.Output = func(string) RunOutput { return noOutput{} }
	}
	if c.Observer == nil {
		c.Observer = noObserver{}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Random == nil {
		c.Random = randomFloat
	}
	return c, nil
}

func setDefault[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

// Why a run's context ended.
var (
	errStopped   = errors.New("the scheduler stopped")
	errCancelled = errors.New("cancelled by request")
)
