package definition

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/fault"
	"github.com/schedulerd/schedulerd/internal/task"
	"google.golang.org/protobuf/proto"
)

// Compiler turns definitions into flows. It knows the kinds of task and resource, and which flows in use share a shape: see
// core.Flow.Shape. It is safe for concurrent use.
type Compiler struct {
	kinds  *task.Registry
	shapes shapes
}

// New makes a compiler of the kinds of task and resource that a process has.
func New(kinds *task.Registry) *Compiler { return &Compiler{kinds: kinds} }

// Options say what a compilation needs to know beside the definitions.
type Options struct {
	// Now is the instant the flows are created. A once that has passed then is rejected. Zero: there is no such check.
	Now time.Time
	// Exists says whether a flow was created before, so that a once may have passed. Nil: none was.
	Exists func(id string) bool
	// Calls tells about flows outside of the definitions that those inside may call: which flows they call themselves, and
	// whether there is such a flow. Nil: there are none.
	Calls func(id string) (calls []string, known bool)
	// Shared has the kinds of shared resources that are there already, by name.
	Shared map[string]string
	// AllowExec lets flows run commands.
	AllowExec bool
	// Origin is where the definitions came from.
	Origin core.Origin
}

// Set is what a FlowsFile came to.
type Set struct {
	Flows  []*core.Flow
	Shared []resource.Declaration
	// Kinds has the kinds of the shared resources by name, as Options.Shared wants them.
	Kinds map[string]string
}

// maxFaults bounds what is told about one FlowsFile.
const maxFaults = 1000

// Compile compiles flows with the resources they share. If there are faults, the Set must not be used.
func (c *Compiler) Compile(file *schedulerdv1.FlowsFile, o Options) (*Set, fault.List) {
	set := &Set{Kinds: maps.Clone(o.Shared)}
	if set.Kinds == nil {
		set.Kinds = map[string]string{}
	}
	var faults fault.List
	for i, r := range file.GetResources() {
		checkRules(fault.Index("resources", i), r, &faults)
	}
	set.Shared = c.resources("resources", file.GetResources(), set.Kinds, o, &faults)

	first := make(map[string]int, len(file.GetFlows()))
	calls := calls{outside: o.Calls, ids: first}
	o.Shared = set.Kinds
	each := c.flows(file.GetFlows(), o)
	for i, f := range file.GetFlows() {
		path := fault.Index("flows", i)
		if at, twice := first[f.GetId()]; twice {
			faults = append(faults, fault.Fault{
				Field: fault.Field(path, "id"), Offset: -1,
				Message: "flow " + f.GetId() + " is defined twice", Other: fault.Field(fault.Index("flows", at), "id"),
			})
		} else if f.GetId() != "" {
			first[f.GetId()] = i
		}
		faults = append(faults, each[i].faults...)
		set.Flows = append(set.Flows, each[i].flow)
		calls.sites = append(calls.sites, each[i].sites)
		if len(faults) > maxFaults {
			break
		}
	}
	calls.check(set.Flows, &faults)
	if len(faults) > maxFaults {
		faults = append(faults[:maxFaults], fault.Fault{Offset: -1, Message: fmt.Sprintf("there are more than %d faults; these are the first", maxFaults)})
	}
	return set, faults
}

// compiledFlow is what a flow came to.
type compiledFlow struct {
	flow   *core.Flow
	sites  []callSite
	faults fault.List
}

// flows compiles flows, some at a time. What is wrong with one is bounded as all is.
func (c *Compiler) flows(flows []*schedulerdv1.Flow, o Options) []compiledFlow {
	out := make([]compiledFlow, len(flows))
	var workers sync.WaitGroup
	var next, faults atomic.Int64
	var panicked atomic.Pointer[any]
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					panicked.Store(&p)
				}
			}()
			for i := next.Add(1) - 1; i < int64(len(flows)); i = next.Add(1) - 1 {
				x := &out[i]
				x.flow, x.sites = c.flow(fault.Index("flows", int(i)), flows[i], o, &x.faults)
				if faults.Add(int64(len(x.faults))) > maxFaults {
					next.Store(int64(len(flows))) // those before are compiled or about to be: enough is told
				}
			}
		})
	}
	workers.Wait()
	if p := panicked.Load(); p != nil {
		panic(*p) // where the caller can recover from it
	}
	return out
}

// CompileFlow compiles one flow by itself. Flows that it calls are looked up when it runs.
func (c *Compiler) CompileFlow(f *schedulerdv1.Flow, o Options) (*core.Flow, fault.List) {
	var faults fault.List
	compiled, _ := c.flow("", f, o, &faults)
	return compiled, faults
}

// CompileSource compiles the source of a flow that was created before: see core.Flow.Source. It gives the flow, or its shape alone if
// flows in use share it.
func (c *Compiler) CompileSource(source []byte, o Options) (*core.Flow, error) {
	if shape := c.shapes.find(source, o); shape != nil {
		return shape, nil
	}
	var f schedulerdv1.Flow
	if err := proto.Unmarshal(source, &f); err != nil {
		return nil, fmt.Errorf("the stored definition cannot be read: %w", err)
	}
	o.Now = time.Time{}
	compiled, faults := c.CompileFlow(&f, o)
	if err := faults.Err(); err != nil {
		return nil, fmt.Errorf("the definition of flow %s is wrong: %w", f.GetId(), err)
	}
	if compiled.Shape != nil {
		return compiled.Shape, nil
	}
	return compiled, nil
}

// Source is the definition that a flow was made of.
func Source(d *core.Definition) (*schedulerdv1.Flow, error) {
	var source schedulerdv1.Flow
	if err := proto.Unmarshal(d.Source, &source); err != nil {
		return nil, fmt.Errorf("the definition of flow %s cannot be read: %w", d.ID, err)
	}
	return &source, nil
}

// compilation is the work on one flow.
type compilation struct {
	kinds   *task.Registry
	options Options
	flowID  string
	kindOf  map[string]string // of the resources that tasks can name
	now     time.Time         // see schedule.Options
	faults  *fault.List
	rules   fault.List // the faults that the message's own rules found
	calls   []callSite
	// personal is set when something compiled depends on the flow's id.
	personal bool
}

// flow compiles the flow at path.
func (c *Compiler) flow(path string, f *schedulerdv1.Flow, o Options, faults *fault.List) (*core.Flow, []callSite) {
	var own fault.List
	x := &compilation{kinds: c.kinds, options: o, flowID: f.GetId(), faults: &own, kindOf: maps.Clone(o.Shared)}
	if x.kindOf == nil {
		x.kindOf = map[string]string{}
	}
	checkRules(path, f, &own)
	x.rules = slices.Clone(own)
	x.now = creation(f, o)

	source, err := proto.MarshalOptions{Deterministic: true}.Marshal(f)
	if err != nil { // a string that is not UTF-8
		own.Add(path, "the definition cannot be stored: %v", strings.TrimPrefix(err.Error(), "proto: "))
	}
	compiled := &core.Flow{
		ID:                  f.GetId(),
		Description:         f.GetDescription(),
		Labels:              f.GetLabels(),
		Schedule:            x.schedule(fault.Field(path, "schedule"), f.GetSchedule()),
		Backoff:             x.backoff(fault.Field(path, "backoff"), f.GetBackoff()),
		Params:              x.params(fault.Field(path, "params"), f.GetParams()),
		Resources:           c.resources(fault.Field(path, "resources"), f.GetResources(), x.kindOf, o, &own),
		ResourceKey:         resourceKey(f.GetResources()),
		Timeout:             f.GetTimeout().AsDuration(),
		CompensationTimeout: f.GetCompensationTimeout().AsDuration(),
		CatchUp: core.CatchUp{
			Mode:   catchUpMode[f.GetCatchUp().GetMode()],
			Window: f.GetCatchUp().GetWindow().AsDuration(),
			Max:    int(f.GetCatchUp().GetMax()),
		},
		OnResume: catchUpMode[f.GetOnResume()],
		OnCrash:  onCrash[f.GetOnCrash()],
		Paused:   f.GetPaused(),
		KeepRuns: int(f.GetKeepRuns()),
		Source:   source,
		Origin:   o.Origin,
	}
	if f.KeepRuns != nil && f.GetKeepRuns() == 0 {
		compiled.KeepRuns = -1 // core's word for none
	}
	personalSchedule := x.personal
	x.personal = false
	compiled.Workflow = x.work(path, f)
	if len(own) == 0 {
		c.shapes.share(compiled, personalSchedule, x.personal, o)
	}
	*faults = append(*faults, x.distinct(own)...)
	return compiled, x.calls
}

var catchUpMode = map[schedulerdv1.CatchUpMode]core.CatchUpMode{
	schedulerdv1.CatchUpMode_CATCH_UP_MODE_SKIP: core.CatchUpSkip,
	schedulerdv1.CatchUpMode_CATCH_UP_MODE_LAST: core.CatchUpLast,
	schedulerdv1.CatchUpMode_CATCH_UP_MODE_ALL:  core.CatchUpAll,
}

var onCrash = map[schedulerdv1.OnCrash]core.OnCrash{
	schedulerdv1.OnCrash_ON_CRASH_RESUME: core.CrashResume,
	schedulerdv1.OnCrash_ON_CRASH_FAIL:   core.CrashFail,
}

// creation is the instant that fire times must not lie before; zero if they may. A catch-up policy that is written down
// lets a once lie as far back as its window.
func creation(f *schedulerdv1.Flow, o Options) time.Time {
	switch {
	case o.Now.IsZero() || o.Exists != nil && o.Exists(f.GetId()):
		return time.Time{}
	case f.GetCatchUp() == nil || f.GetCatchUp().GetMode() == schedulerdv1.CatchUpMode_CATCH_UP_MODE_SKIP:
		return o.Now
	case f.GetCatchUp().GetWindow() == nil:
		return o.Now.Add(-core.DefaultCatchUpWindow)
	}
	return o.Now.Add(-f.GetCatchUp().GetWindow().AsDuration())
}

// broken says whether the message at path, or one in it, breaks a rule. What depends on the rules is left out then.
func (x *compilation) broken(path string) bool {
	return slices.ContainsFunc(x.rules, func(f fault.Fault) bool { return fault.Within(f.Field, path) })
}

// distinct leaves out what was found where a rule is broken too: it is the same thing in other words.
func (x *compilation) distinct(found fault.List) fault.List {
	ruled := map[string]bool{}
	for _, f := range x.rules {
		ruled[f.Field] = true
	}
	rules := len(x.rules)
	return append(found[:rules:rules], slices.DeleteFunc(slices.Clone(found[rules:]), func(f fault.Fault) bool { return ruled[f.Field] })...)
}
