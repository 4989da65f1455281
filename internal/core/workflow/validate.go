package workflow

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Fault is something wrong with a workflow, and where. Path is spelled as flows files spell it, relative to the workflow:
// "initial", "states.fetch.next", "states.fetch.split.branches[2].task.target", "states.poll.timers.timers.check.routes.later".
type Fault struct {
	Path string
	Msg  string
}

func (f Fault) Error() string {
	if f.Path == "" {
		return f.Msg
	}
	return f.Path + ": " + f.Msg
}

// Validate gives all faults of the workflow; none: it can run. target says whether there is a resource of a name; nil: targets are
// not checked.
func (w *Workflow) Validate(target func(name string) bool) []Fault {
	v := &validator{target: target}
	v.workflow("", w, 0)
	return v.faults
}

type validator struct {
	target func(string) bool
	faults []Fault
}

func (v *validator) fault(path, format string, args ...any) {
	v.faults = append(v.faults, Fault{strings.TrimPrefix(path, "."), fmt.Sprintf(format, args...)})
}

func (v *validator) workflow(path string, w *Workflow, depth int) {
	if w == nil {
		v.fault(path, "there is no definition")
		return
	}
	if depth > MaxDepth {
		v.fault(path, "workflows are nested more than %d deep", MaxDepth)
		return
	}
	if len(w.States) == 0 {
		v.fault(path+".states", "there must be at least one state")
	}
	if len(w.Exits) == 0 {
		v.fault(path+".exits", "there must be at least one exit: without one a run could never end")
	}
	if w.MaxTransitions < 0 {
		v.fault(path+".max_transitions", "must not be negative")
	}
	for _, name := range sortedKeys(w.Exits) {
		at := path + ".exits." + name
		v.name(at, name)
		if w.Exits[name] == nil {
			v.fault(at, "there is no definition")
		}
		if _, both := w.States[name]; both {
			v.fault(at, "%q is a state as well: a name is one or the other", name)
		}
	}
	known := w.States[w.Initial] != nil
	if !known && len(w.States) > 0 {
		v.fault(path+".initial", "%s is not a state; states: %s", quoteName(w.Initial), list(sortedKeys(w.States)))
	}
	for _, name := range sortedKeys(w.States) {
		at := path + ".states." + name
		v.name(at, name)
		state := w.States[name]
		if state == nil {
			v.fault(at, "there is no definition")
			continue
		}
		v.work(at, state.Work, depth)
		v.transitions(at, w, state)
		if state.Compensate != nil {
			v.step(at+".compensate", state.Compensate)
		}
	}
	v.paths(path, w)
}

func (v *validator) transitions(path string, w *Workflow, s *State) {
	known := func(path, next string) {
		if w.States[next] == nil && w.Exits[next] == nil {
			v.fault(path, "%s is neither a state nor an exit; states: %s; exits: %s", quoteName(next), list(sortedKeys(w.States)), list(sortedKeys(w.Exits)))
		}
	}
	switch {
	case s.Next == "" && len(s.Transitions) == 0:
		v.fault(path, "needs next or transitions, to say what follows")
	case s.Next != "" && len(s.Transitions) > 0:
		v.fault(path+".transitions", "set next or transitions, not both")
	}
	if s.Next != "" {
		known(path+".next", s.Next)
	}
	for i, t := range s.Transitions {
		at := path + ".transitions" + index(i)
		if t.When == nil && i < len(s.Transitions)-1 {
			v.fault(at, "the default (without when) must be the last transition: those after it are never tried")
		}
		known(at+".next", t.Next)
	}
}

// paths finds states that are never entered and states that no exit can be reached from.
func (v *validator) paths(path string, w *Workflow) {
	if w.States[w.Initial] == nil || len(w.Exits) == 0 {
		return // what follows from a fault that was told already is noise
	}
	entered := map[string]bool{}
	before := map[string][]string{} // state -> states that lead to it
	var ends []string               // states that lead out
	for queue := []string{w.Initial}; len(queue) > 0; queue = queue[1:] {
		name := queue[0]
		if entered[name] {
			continue
		}
		entered[name] = true
		out := false
		for next := range targets(w.States[name]) {
			if w.States[next] == nil { // an exit, or a fault that was told already
				out = true
				continue
			}
			before[next] = append(before[next], name)
			queue = append(queue, next)
		}
		if out {
			ends = append(ends, name)
		}
	}
	leads := map[string]bool{}
	for queue := ends; len(queue) > 0; queue = queue[1:] {
		if name := queue[0]; !leads[name] {
			leads[name] = true
			queue = append(queue, before[name]...)
		}
	}
	for _, name := range sortedKeys(w.States) {
		switch {
		case w.States[name] == nil:
		case !entered[name]:
			v.fault(path+".states."+name, "is never entered: no transition leads here from %q", w.Initial)
		case !leads[name] && len(targets(w.States[name])) > 0:
			v.fault(path+".states."+name, "no exit can be reached from here")
		}
	}
}

// targets is the set of what a state can lead to.
func targets(s *State) map[string]bool {
	set := map[string]bool{}
	if s.Next != "" {
		set[s.Next] = true
	}
	for _, t := range s.Transitions {
		set[t.Next] = true
	}
	return set
}

func (v *validator) work(path string, work Work, depth int) {
	switch work := work.(type) {
	case *Step:
		v.step(path+".task", work)
	case *Split:
		v.split(path+".split", work, depth)
	case *Timer:
		v.timer(path+".timer", work)
	case *TimerWorkflow:
		v.timers(path+".timers", work)
	case *Nested:
		v.timeout(path+".workflow", work.Timeout)
		v.workflow(path+".workflow.definition", work.Workflow, depth+1)
	case *FlowCall:
		v.timeout(path+".flow", work.Timeout)
		if work.FlowID == "" {
			v.fault(path+".flow.flow_id", "must name the flow to call")
		}
	default:
		v.fault(path, "has no work: set one of task, split, timer, timers, workflow, flow")
	}
}

func (v *validator) step(path string, s *Step) {
	if s == nil || s.Task == nil {
		v.fault(path, "there is no task")
		return
	}
	v.timeout(path, s.Timeout)
	if s.Target != "" && v.target != nil && !v.target(s.Target) {
		v.fault(path+".target", "no resource %q is declared", s.Target)
	}
	r := s.Retry
	if r == nil {
		return
	}
	at := path + ".retry"
	if r.Retries < 0 {
		v.fault(at, "retries must not be negative")
	}
	if r.Retries > 0 {
		if r.Initial < 0 || r.MaxDelay < r.Initial {
			v.fault(at, "delays must not be negative, and the longest (%v) not below the first (%v)", r.MaxDelay, r.Initial)
		}
		if !(r.Multiplier >= 1) || math.IsInf(r.Multiplier, 0) {
			v.fault(at, "multiplier must be a finite number of at least 1, not %v", r.Multiplier)
		}
		if !(r.Jitter >= 0 && r.Jitter <= 1) {
			v.fault(at, "jitter must be from 0 to 1, not %v", r.Jitter)
		}
	}
}

func (v *validator) split(path string, s *Split, depth int) {
	switch {
	case s.ForEach != nil && len(s.Branches) > 0:
		v.fault(path+".for_each", "set branches or for_each, not both")
	case s.ForEach == nil && len(s.Branches) == 0:
		v.fault(path, "needs branches or for_each")
	}
	if s.Bulkhead < 0 {
		v.fault(path+".bulkhead", "must be at least 1")
	}
	names := map[string]int{}
	for i, b := range s.Branches {
		at := path + ".branches" + index(i)
		v.branch(at, b, depth)
		name := branchName(b, i, false)
		if first, twice := names[name]; twice {
			v.fault(at+".name", "%q is the name of branches[%d] already", name, first)
			continue
		}
		names[name] = i
	}
	if f := s.ForEach; f != nil {
		if f.Items == nil {
			v.fault(path+".for_each.items", "must give the list of items")
		}
		if f.MaxItems < 0 {
			v.fault(path+".for_each.max_items", "must not be negative")
		}
		v.branch(path+".for_each.branch", f.Branch, depth)
	}
	v.join(path+".join", s)
}

func (v *validator) branch(path string, b Branch, depth int) {
	if len(b.Name) > maxName || strings.ContainsFunc(b.Name, func(r rune) bool { return !nameRune(r) }) {
		v.fault(path+".name", "%q: use at most %d letters, digits, '_' and '-'", b.Name, maxName)
	}
	switch b.Work.(type) {
	case *Split, *Timer, *TimerWorkflow:
		v.fault(path, "a branch is one of task, workflow, flow; put other work into a state of a workflow")
	default:
		v.work(path, b.Work, depth)
	}
}

func (v *validator) join(path string, s *Split) {
	j := s.Join
	v.timeout(path, j.Timeout)
	enough := func(path string) {
		switch {
		case j.N < 1:
			v.fault(path+".n", "must be at least 1")
		case s.ForEach == nil && j.N > len(s.Branches) && len(s.Branches) > 0:
			v.fault(path+".n", "%d successes can never be reached with %d branches", j.N, len(s.Branches))
		}
	}
	switch j.Strategy {
	case JoinAll, JoinAny:
	case JoinQuorum:
		enough(path + ".quorum")
	case JoinPartialResults:
		enough(path + ".partial_results")
	case JoinPercentage:
		if !(j.Share > 0 && j.Share <= 1) {
			v.fault(path+".percentage.share", "must be a number above 0, at most 1, not %v", j.Share)
		}
	case JoinPartialTimeout:
		if j.Timeout <= 0 {
			v.fault(path+".timeout", "partial_timeout needs it: it is when the split is decided")
		}
	default:
		v.fault(path, "needs a strategy: one of all, any, quorum, percentage, partial_results, partial_timeout")
	}
}

func (v *validator) timer(path string, t *Timer) {
	if t == nil {
		v.fault(path, "there is no timer")
		return
	}
	switch {
	case t.Schedule == nil:
		v.fault(path+".schedule", "there is no schedule")
	case t.Schedule.Manual():
		v.fault(path+".schedule", "a manual schedule is never due: use another kind")
	}
	v.timeout(path, t.Timeout)
	v.step(path+".task", t.Step)
}

func (v *validator) timers(path string, w *TimerWorkflow) {
	if len(w.Timers) == 0 {
		v.fault(path+".timers", "there must be at least one timer")
		return
	}
	names := sortedKeys(w.Timers)
	known := func(path, name string) {
		if w.Timers[name] == nil {
			v.fault(path, "%s is not a timer; timers: %s", quoteName(name), list(names))
		}
	}
	known(path+".initial", w.Initial)
	if w.MaxFirings < 0 {
		v.fault(path+".max_firings", "must not be negative")
	}
	for _, name := range names {
		at := path + ".timers." + name
		v.name(at, name)
		n := w.Timers[name]
		if n == nil {
			v.fault(at, "there is no definition")
			continue
		}
		v.timer(at+".timer", n.Timer)
		for _, action := range sortedKeys(n.Routes) {
			if action == ActionComplete || action == ActionRetry {
				v.fault(at+".routes."+action, "the action %q needs no route and would not follow this one", action)
			}
			known(at+".routes."+action, n.Routes[action])
		}
		if n.Default != "" {
			known(at+".default_route", n.Default)
		}
		if n.MaxRetries != nil && *n.MaxRetries < 0 {
			v.fault(at+".max_retries", "must not be negative")
		}
		if n.Backoff != nil {
			if err := n.Backoff.Validate(); err != nil {
				v.fault(at+".retry_backoff", "%v", err)
			}
		}
	}
	if w.Timers[w.Initial] == nil {
		return
	}
	armed := map[string]bool{}
	for queue := []string{w.Initial}; len(queue) > 0; queue = queue[1:] {
		name := queue[0]
		n := w.Timers[name]
		if armed[name] || n == nil {
			continue
		}
		armed[name] = true
		queue = append(queue, slices.Collect(maps.Values(n.Routes))...)
		if n.Default != "" {
			queue = append(queue, n.Default)
		}
	}
	for _, name := range names {
		if !armed[name] && w.Timers[name] != nil {
			v.fault(path+".timers."+name, "is never armed: no route leads here from %q", w.Initial)
		}
	}
}

func (v *validator) timeout(path string, d time.Duration) {
	if d < 0 {
		v.fault(path+".timeout", "must not be negative")
	}
}

const maxName = 64

// name holds names to what paths, events and idempotency keys can be made of.
func (v *validator) name(path, name string) {
	if name == "" || len(name) > maxName || name[0] >= '0' && name[0] <= '9' || name[0] == '-' ||
		strings.ContainsFunc(name, func(r rune) bool { return !nameRune(r) }) {
		v.fault(path, "%q is not a name: at most %d letters, digits, '_' and '-', and a letter or '_' first", name, maxName)
	}
}

func nameRune(r rune) bool {
	return r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func index(i int) string { return "[" + strconv.Itoa(i) + "]" }

func quoteName(name string) string {
	if name == "" {
		return "the empty name"
	}
	return strconv.Quote(name)
}

// list names the choices, but not a thousand of them.
func list(names []string) string {
	const most = 10
	if len(names) == 0 {
		return "none"
	}
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
