package core

import (
	"time"

	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/core/schedule"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

// Flow is a flow's definition in a form that can run. It is not changed after it was handed to a Scheduler.
type Flow struct {
	ID          string
	Description string
	Labels      map[string]string
	Schedule    *schedule.Schedule // nil: manual
	Backoff     flow.Policy
	Workflow    *workflow.Workflow
	Params      map[string]any // defaults of its runs
	Resources   []resource.Declaration
	ResourceKey string // equal for equal Resources: then a changed definition keeps them as they are

	Timeout             time.Duration // of a whole run; 0: none
	CompensationTimeout time.Duration // 0: DefaultCompensationTimeout
	CatchUp             CatchUp
	OnResume            CatchUpMode // 0: CatchUpSkip
	OnCrash             OnCrash     // 0: CrashResume
	Paused              bool        // start paused, when the flow is new
	KeepRuns            int         // runs kept after they ended; 0: DefaultKeepRuns; negative: none

	// Source is the definition as it was written, in bytes that Config.Compile understands. It is stored and handed out as it is.
	Source []byte
	Origin Origin
}

// keepRuns is how many ended runs are kept.
func (f *Flow) keepRuns() uint64 {
	if f.KeepRuns == 0 {
		return DefaultKeepRuns
	}
	return uint64(max(f.KeepRuns, 0))
}

// Origin is where a definition came from.
type Origin uint8

// The origins.
const (
	FromFile Origin = iota + 1
	FromAPI
)

// CatchUp says what happens to fire times that passed during an outage, a failover or a clock jump.
type CatchUp struct {
	Mode   CatchUpMode   // 0: CatchUpLast
	Window time.Duration // only fire times this recent count; 0: DefaultCatchUpWindow
	Max    int           // runs at most, with CatchUpAll; 0: DefaultCatchUpMax
}

func (c CatchUp) withDefaults() CatchUp {
	setDefault(&c.Mode, CatchUpLast)
	setDefault(&c.Window, DefaultCatchUpWindow)
	setDefault(&c.Max, DefaultCatchUpMax)
	return c
}

// most is how many missed fire times run.
func (c CatchUp) most() int {
	switch c.Mode {
	case CatchUpSkip:
		return 0
	case CatchUpAll:
		return c.Max
	}
	return 1
}

// CatchUpMode says which of the missed fire times are run.
type CatchUpMode uint8

// The modes.
const (
	CatchUpSkip CatchUpMode = iota + 1
	CatchUpLast
	CatchUpAll
)

// OnCrash says what happens to a run that a crash interrupted.
type OnCrash uint8

// What happens.
const (
	CrashResume OnCrash = iota + 1
	CrashFail
)

// Defaults of a flow.
const (
	DefaultCatchUpWindow       = time.Hour
	DefaultCatchUpMax          = 100
	DefaultCompensationTimeout = 30 * time.Second
	DefaultKeepRuns            = 20
)
