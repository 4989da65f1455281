package definition

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/expr"
	"github.com/schedulerd/schedulerd/internal/fault"
	"github.com/schedulerd/schedulerd/internal/task"
	"google.golang.org/protobuf/types/known/structpb"
)

// The state and the exit of a flow that is one task or one timer workflow.
const (
	shortState = "run"
	shortExit  = "done"
)

// work compiles what a flow does.
func (x *compilation) work(path string, f *schedulerdv1.Flow) *workflow.Workflow {
	short := func(work workflow.Work) *workflow.Workflow {
		w := &workflow.Workflow{
			Initial: shortState,
			States:  map[string]*workflow.State{shortState: {Work: work, Next: shortExit}},
			Exits:   map[string]*workflow.Exit{shortExit: {}},
		}
		x.validate(path, "states."+shortState+".", w, f)
		return w
	}
	sees := scope{names: expr.Run, states: map[string]bool{shortState: true}}
	switch work := f.GetWork().(type) {
	case *schedulerdv1.Flow_Workflow:
		at := fault.Field(path, "workflow")
		w := x.workflow(at, work.Workflow, expr.Run)
		x.validate(at, "", w, work.Workflow)
		return w
	case *schedulerdv1.Flow_Timers:
		return short(x.timers(fault.Field(path, "timers"), work.Timers, sees))
	case *schedulerdv1.Flow_Task:
		return short(x.step(fault.Field(path, "task"), work.Task, sees))
	}
	return nil // a rule tells that something must be set
}

// scope is what the expressions of a workflow see.
type scope struct {
	names  expr.Names
	states map[string]bool
}

func (s scope) with(names expr.Names) scope { return scope{s.names | names, s.states} }

// env gives what the task or the expressions at path are compiled with.
func (x *compilation) env(path string, sees scope) *task.Env {
	return task.NewEnv(path, sees.names, task.Config{Resources: x.kindOf, States: sees.states, AllowExec: x.options.AllowExec}, x.faults)
}

// workflow compiles the workflow at path, whose expressions see names.
func (x *compilation) workflow(path string, w *schedulerdv1.Workflow, names expr.Names) *workflow.Workflow {
	sees := scope{names: names, states: map[string]bool{}}
	for name := range w.GetStates() {
		sees.states[name] = true
	}
	compiled := &workflow.Workflow{
		Initial:        w.GetInitial(),
		States:         map[string]*workflow.State{},
		Exits:          map[string]*workflow.Exit{},
		MaxTransitions: int(w.GetMaxTransitions()),
	}
	for _, name := range slices.Sorted(maps.Keys(w.GetStates())) {
		compiled.States[name] = x.state(fault.Key(fault.Field(path, "states"), name), w.GetStates()[name], sees)
	}
	for _, name := range slices.Sorted(maps.Keys(w.GetExits())) {
		exit := &workflow.Exit{}
		if e := w.GetExits()[name]; e != nil && e.Failure != nil {
			exit.Failure = x.env(fault.Key(fault.Field(path, "exits"), name), sees.with(expr.Action)).Template("failure", e.GetFailure()).String
		}
		compiled.Exits[name] = exit
	}
	return compiled
}

func (x *compilation) state(path string, s *schedulerdv1.State, sees scope) *workflow.State {
	compiled := &workflow.State{Next: s.GetNext()}
	switch work := s.GetWork().(type) {
	case *schedulerdv1.State_Task:
		compiled.Work = x.step(fault.Field(path, "task"), work.Task, sees)
	case *schedulerdv1.State_Split:
		compiled.Work = x.split(fault.Field(path, "split"), work.Split, sees)
	case *schedulerdv1.State_Timer:
		compiled.Work = x.timer(fault.Field(path, "timer"), work.Timer, sees)
	case *schedulerdv1.State_Timers:
		compiled.Work = x.timers(fault.Field(path, "timers"), work.Timers, sees)
	case *schedulerdv1.State_Workflow:
		compiled.Work = x.nested(fault.Field(path, "workflow"), work.Workflow, sees)
	case *schedulerdv1.State_Flow:
		compiled.Work = x.call(fault.Field(path, "flow"), work.Flow, sees)
	}
	for i, t := range s.GetTransitions() {
		transition := workflow.Transition{Next: t.GetNext()}
		if t.GetWhen() != "" {
			env := x.env(fault.Index(fault.Field(path, "transitions"), i), sees.with(expr.Action))
			transition.When = env.Condition("when", t.GetWhen()).Eval
		}
		compiled.Transitions = append(compiled.Transitions, transition)
	}
	if s.GetCompensate() != nil {
		compiled.Compensate = x.step(fault.Field(path, "compensate"), s.GetCompensate(), sees)
	}
	return compiled
}

// step compiles a task and how it is attempted.
func (x *compilation) step(path string, t *schedulerdv1.Task, sees scope) *workflow.Step {
	step := &workflow.Step{
		Task:    faulty{},
		Retry:   x.retry(fault.Field(path, "retry"), t.GetRetry()),
		Timeout: t.GetTimeout().AsDuration(),
		Target:  t.GetTarget(),
	}
	if x.broken(path) {
		return step
	}
	env := x.env(path, sees)
	if built := x.kinds.Task(t, env); built != nil {
		step.Task = built
	}
	if t.GetTarget() != "" {
		env.Resource("target", t.GetTarget())
	}
	if t.GetAction() != "" {
		step.Action = action(env.Expression("action", t.GetAction()))
	}
	return step
}

// faulty stands for a task that could not be compiled, so that the workflow around it can be checked.
type faulty struct{}

func (faulty) Run(context.Context, *workflow.Invocation) (workflow.Result, error) {
	return workflow.Result{}, errors.New("the task's definition is wrong")
}

func action(v *expr.Value) func(*workflow.Scope) (string, error) {
	return func(s *workflow.Scope) (string, error) {
		value, err := v.Eval(s)
		if err != nil {
			return "", err
		}
		name, ok := value.(string)
		if !ok {
			return "", fmt.Errorf("an action must be a string, this is %v", value)
		}
		return name, nil
	}
}

func (x *compilation) split(path string, s *schedulerdv1.Split, sees scope) *workflow.Split {
	split := &workflow.Split{Bulkhead: int(s.GetBulkhead()), Join: join(s.GetJoin())}
	for i, b := range s.GetBranches() {
		split.Branches = append(split.Branches, x.branch(fault.Index(fault.Field(path, "branches"), i), b, sees))
	}
	if f := s.GetForEach(); f != nil {
		at := fault.Field(path, "for_each")
		split.ForEach = &workflow.ForEach{
			Items:    items(x.env(at, sees).Expression("items", f.GetItems())),
			Branch:   x.branch(fault.Field(at, "branch"), f.GetBranch(), sees.with(expr.Item)),
			MaxItems: int(f.GetMaxItems()),
		}
	}
	return split
}

func items(v *expr.Value) func(*workflow.Scope) ([]any, error) {
	return func(s *workflow.Scope) ([]any, error) {
		value, err := v.Eval(s)
		if err != nil {
			return nil, err
		}
		list, ok := value.([]any)
		if !ok {
			return nil, errors.New("items must be a list")
		}
		return list, nil
	}
}

func (x *compilation) branch(path string, b *schedulerdv1.Branch, sees scope) workflow.Branch {
	branch := workflow.Branch{Name: b.GetName()}
	switch work := b.GetWork().(type) {
	case *schedulerdv1.Branch_Task:
		branch.Work = x.step(fault.Field(path, "task"), work.Task, sees)
	case *schedulerdv1.Branch_Workflow:
		branch.Work = x.nested(fault.Field(path, "workflow"), work.Workflow, sees)
	case *schedulerdv1.Branch_Flow:
		branch.Work = x.call(fault.Field(path, "flow"), work.Flow, sees)
	}
	return branch
}

func join(j *schedulerdv1.Join) workflow.Join {
	compiled := workflow.Join{Timeout: j.GetTimeout().AsDuration(), WaitAll: j.GetWaitAll()}
	switch strategy := j.GetStrategy().(type) {
	case *schedulerdv1.Join_All:
		compiled.Strategy = workflow.JoinAll
	case *schedulerdv1.Join_Any:
		compiled.Strategy = workflow.JoinAny
	case *schedulerdv1.Join_Quorum:
		compiled.Strategy, compiled.N = workflow.JoinQuorum, int(strategy.Quorum.GetN())
	case *schedulerdv1.Join_Percentage:
		compiled.Strategy, compiled.Share = workflow.JoinPercentage, strategy.Percentage.GetShare()
	case *schedulerdv1.Join_PartialResults:
		compiled.Strategy, compiled.N = workflow.JoinPartialResults, int(strategy.PartialResults.GetN())
	case *schedulerdv1.Join_PartialTimeout:
		compiled.Strategy = workflow.JoinPartialTimeout
	}
	return compiled
}

func (x *compilation) timer(path string, t *schedulerdv1.Timer, sees scope) *workflow.Timer {
	timer := &workflow.Timer{
		Step:      x.step(fault.Field(path, "task"), t.GetTask(), sees),
		Immediate: t.GetExecuteImmediately(),
		Timeout:   t.GetTimeout().AsDuration(),
	}
	// A nil *Schedule must not become a Schedule that is not nil.
	if s := x.schedule(fault.Field(path, "schedule"), t.GetSchedule()); s != nil {
		timer.Schedule = s
	} else {
		timer.Schedule = faultySchedule
	}
	return timer
}

func (x *compilation) timers(path string, w *schedulerdv1.TimerWorkflow, sees scope) *workflow.TimerWorkflow {
	compiled := &workflow.TimerWorkflow{
		Initial:    w.GetInitial(),
		Timers:     map[string]*workflow.TimerNode{},
		MaxFirings: int(w.GetMaxFirings()),
	}
	for _, name := range slices.Sorted(maps.Keys(w.GetTimers())) {
		n, at := w.GetTimers()[name], fault.Key(fault.Field(path, "timers"), name)
		node := &workflow.TimerNode{
			Timer:   x.timer(fault.Field(at, "timer"), n.GetTimer(), sees),
			Routes:  n.GetRoutes(),
			Default: n.GetDefaultRoute(),
		}
		if n.GetMaxRetries() != 0 || n != nil && n.MaxRetries != nil {
			retries := int(n.GetMaxRetries())
			node.MaxRetries = &retries
		}
		if n.GetRetryBackoff() != nil {
			policy := x.backoff(fault.Field(at, "retry_backoff"), n.GetRetryBackoff())
			node.Backoff = &policy
		}
		compiled.Timers[name] = node
	}
	return compiled
}

func (x *compilation) nested(path string, n *schedulerdv1.NestedWorkflow, sees scope) *workflow.Nested {
	// Inside, the items around are seen, the results around are not.
	return &workflow.Nested{
		Workflow: x.workflow(fault.Field(path, "definition"), n.GetDefinition(), sees.names),
		Params:   x.laidOver(path, n.GetParams(), sees),
		Timeout:  n.GetTimeout().AsDuration(),
	}
}

func (x *compilation) call(path string, c *schedulerdv1.FlowCall, sees scope) *workflow.FlowCall {
	x.calls = append(x.calls, callSite{fault.Field(path, "flow_id"), c.GetFlowId()})
	return &workflow.FlowCall{
		FlowID:  c.GetFlowId(),
		Params:  x.laidOver(path, c.GetParams(), sees),
		Timeout: c.GetTimeout().AsDuration(),
	}
}

// laidOver compiles the params of a nested workflow; nil if there are none.
func (x *compilation) laidOver(path string, params map[string]*structpb.Value, sees scope) func(*workflow.Scope) (map[string]any, error) {
	if len(params) == 0 {
		return nil
	}
	object := x.env(path, sees).Object("params", params)
	return func(s *workflow.Scope) (map[string]any, error) {
		value, err := object.Eval(s)
		if err != nil {
			return nil, err
		}
		return value.(map[string]any), nil
	}
}
