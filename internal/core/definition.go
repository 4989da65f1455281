package core

import (
	"errors"
	"fmt"
	"hash/fnv"
	"sync/atomic"
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
	// Shape is the flow without ID, Description, Labels and Params, which flows that are otherwise alike share. If it is set, only it
	// and the Source are kept, and Config.Describe gives the rest. Nil: the flow is kept as it is.
	Shape *Flow
}

// runnable tells what the engine cannot run.
func (f *Flow) runnable() error {
	if f.Workflow == nil {
		return errors.New("it has no workflow")
	}
	if err := f.Backoff.Validate(); err != nil {
		return fmt.Errorf("backoff: %w", err)
	}
	var errs []error
	for _, fault := range f.Workflow.Validate(nil) {
		errs = append(errs, fault)
	}
	return errors.Join(errs...)
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

// Definition is a flow's definition as the scheduler keeps it: its source, and what that is compiled to when the flow is first due,
// triggered or called. What it is compiled to is shared by flows of one shape, so a million flows cost little more than their sources,
// and a start compiles nothing.
type Definition struct {
	ID     string
	Origin Origin
	Source []byte // see Flow.Source

	config   *Config // that compiles; nil: compiled is there
	compiled atomic.Pointer[Flow]
}

// Description is what flows of one shape differ in.
type Description struct {
	Description string
	Labels      map[string]string
	Params      map[string]any
}

func (f *Flow) describe() Description { return Description{f.Description, f.Labels, f.Params} }

// Define makes the definition of a flow that is compiled already, and complete.
func Define(f *Flow) *Definition {
	d := &Definition{ID: f.ID, Origin: f.Origin, Source: f.Source}
	d.compiled.Store(f)
	return d
}

// defined makes the definition of a compiled flow. Only its shape is kept if that says all.
func (c *Config) defined(f *Flow) *Definition {
	d := Define(f)
	if f.Shape != nil && c.Describe != nil {
		d.config = c
		d.compiled.Store(f.Shape)
	}
	return d
}

// stored makes a definition that is compiled later.
func (c *Config) stored(id string, origin Origin, source []byte) *Definition {
	return &Definition{ID: id, Origin: origin, Source: source, config: c}
}

// ErrBroken marks a definition that is not understood any more. The flow stays as it is, but does not run.
var ErrBroken = errors.New("the definition is not understood")

// flow is the definition in a form that can run. ID, Description, Labels and Params may be missing.
func (d *Definition) flow() (*Flow, error) {
	if f := d.compiled.Load(); f != nil {
		return f, nil
	}
	if d.config == nil {
		return nil, &FlowError{Err: fmt.Errorf("%w: there is none", ErrBroken), Flow: d.ID}
	}
	f, err := d.config.Compile(d.Source, d.Origin)
	if err == nil {
		err = f.runnable()
	}
	if err != nil {
		return nil, &FlowError{Err: fmt.Errorf("%w: %w", ErrBroken, err), Flow: d.ID}
	}
	d.compiled.CompareAndSwap(nil, f)
	return d.compiled.Load(), nil
}

// Describe gives what the flow does not share with others. It is not kept.
func (d *Definition) Describe() (Description, error) {
	if d.config != nil && d.config.Describe != nil {
		return d.config.Describe(d.Source)
	}
	f, err := d.flow()
	if err != nil {
		return Description{}, err
	}
	return f.describe(), nil
}

// Labels are those to filter by; none if the definition cannot be read.
func (d *Definition) Labels() map[string]string {
	description, _ := d.Describe()
	return description.Labels
}

// Schedule says when the flow is due. Nil: never by itself.
func (d *Definition) Schedule() (*schedule.Schedule, error) {
	f, err := d.flow()
	if err != nil {
		return nil, err
	}
	return f.Schedule, nil
}

// Calls lists the flows that this one calls.
func (d *Definition) Calls() ([]string, error) {
	f, err := d.flow()
	if err != nil {
		return nil, err
	}
	return f.Workflow.Calls(), nil
}

// keepRuns is how many ended runs are kept.
func (d *Definition) keepRuns() uint64 {
	f, err := d.flow()
	if err != nil {
		f = broken
	}
	return f.keepRuns()
}

// ETag changes with the definition.
func (d *Definition) ETag() string { return etag(d.hash()) }

func (d *Definition) hash() uint64 {
	h := fnv.New64a()
	h.Write([]byte(d.ID))
	h.Write([]byte{0, byte(d.Origin)})
	h.Write(d.Source)
	return h.Sum64()
}

func etag(hash uint64) string { return fmt.Sprintf("%016x", hash) }

// broken stands for a flow whose definition is not understood: never due, and with nothing to run.
var broken = &Flow{Backoff: flow.DefaultPolicy}

// plan is what a flow does, compiled now if it was not needed before. A definition that is not understood becomes the flow's schedule
// error.
func (e *engine) plan(en *entry) *Flow {
	f, err := en.flow.flow()
	if err == nil {
		return f
	}
	if text := validText(err.Error()); en.scheduleError != text {
		e.log.Error("a flow is not understood and does not run", "flow", en.id, "error", err)
		en.scheduleError = text
		e.touch(en)
	}
	return broken
}
