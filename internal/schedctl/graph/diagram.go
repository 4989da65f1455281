package graph

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

const (
	maxBranches = 12 // drawn of one split; the rest is counted
	maxLabel    = 80 // characters of a label
)

// Diagram is a flow's state machine, ready to be drawn.
type Diagram struct {
	Title string
	region
}

// region is a state machine: the whole, or the inside of a state.
type region struct {
	start string // id of the node entered first
	nodes []node
	edges []edge
}

type kind int

const (
	work kind = iota
	timer
	success
	failure
	missing // named by a transition, but not defined
)

// node is a state or an exit. With regions inside it is drawn around them.
type node struct {
	id     string // unique in the diagram, letters and digits
	name   string
	notes  []string // what it does
	kind   kind
	inside []region // several run at once
}

// edge is a transition; to is end where a region ends.
type edge struct{ from, to, label string }

const end = ""

// Of makes the diagram of a flow.
func Of(flow *pb.Flow) Diagram {
	d := Diagram{Title: flow.GetId()}
	if flow.GetSchedule() != nil {
		d.Title += ", " + scheduleText(flow.GetSchedule())
	}
	b := &builder{}
	switch flow.GetWork().(type) {
	case *pb.Flow_Workflow:
		d.region = b.workflow(flow.GetWorkflow())
	case *pb.Flow_Timers:
		d.region = b.timers(flow.GetTimers())
	case *pb.Flow_Task:
		d.region = b.workflow(&pb.Workflow{ // what the short form stands for
			Initial: "run",
			States:  map[string]*pb.State{"run": {Work: &pb.State_Task{Task: flow.GetTask()}, Next: "done"}},
			Exits:   map[string]*pb.Exit{"done": {}},
		})
	}
	return d
}

type builder struct{ last int }

func (b *builder) id() string {
	b.last++
	return "s" + strconv.Itoa(b.last)
}

// scope gives the names of one state machine their ids. Names that are asked for but were
// never declared become nodes of their own.
type scope struct {
	*builder
	ids      map[string]string
	declared map[string]bool
	region   region
}

func (b *builder) scope(names []string) *scope {
	s := &scope{builder: b, ids: map[string]string{}, declared: map[string]bool{}}
	for _, name := range names {
		s.ids[name], s.declared[name] = b.id(), true
	}
	return s
}

func (s *scope) target(name string) string {
	if s.ids[name] == "" {
		s.ids[name] = s.id()
		s.region.nodes = append(s.region.nodes, node{id: s.ids[name], name: name, kind: missing, notes: []string{"not defined"}})
	}
	return s.ids[name]
}

func (s *scope) edge(from, to, label string) {
	s.region.edges = append(s.region.edges, edge{s.ids[from], to, shorten(label)})
}

func (b *builder) workflow(w *pb.Workflow) region {
	names := reachOrder(w)
	s := b.scope(names)
	for _, name := range names {
		if exit, ok := w.GetExits()[name]; ok {
			s.exit(name, exit)
		} else {
			s.state(name, w.GetStates()[name])
		}
	}
	s.region.start = s.target(w.GetInitial())
	return s.region
}

// reachOrder is the names of a workflow's states and exits, in the order a run may come to
// them; those that no run comes to are last.
func reachOrder(w *pb.Workflow) []string {
	var order []string
	seen := map[string]bool{}
	visit := func(name string) {
		_, state := w.GetStates()[name]
		_, exit := w.GetExits()[name]
		if (state || exit) && !seen[name] {
			seen[name] = true
			order = append(order, name)
		}
	}
	visit(w.GetInitial())
	for i := 0; ; i++ {
		if i == len(order) {
			for _, name := range slices.Sorted(maps.Keys(w.GetStates())) {
				if !seen[name] {
					visit(name)
					break
				}
			}
		}
		if i == len(order) {
			break
		}
		state := w.GetStates()[order[i]]
		visit(state.GetNext())
		for _, transition := range state.GetTransitions() {
			visit(transition.GetNext())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.GetExits())) {
		visit(name)
	}
	return order
}

func (s *scope) exit(name string, exit *pb.Exit) {
	n := node{id: s.ids[name], name: name, kind: success}
	if exit.Failure != nil {
		n.kind = failure
		n.notes = []string{"fails: " + shorten(exit.GetFailure())}
	}
	s.region.nodes = append(s.region.nodes, n)
	s.edge(name, end, "")
}

func (s *scope) state(name string, state *pb.State) {
	n := node{id: s.ids[name], name: name}
	switch state.GetWork().(type) {
	case *pb.State_Task:
		n.notes = []string{taskText(state.GetTask())}
	case *pb.State_Timer:
		n.kind = timer
		n.notes = timerNotes(state.GetTimer())
	case *pb.State_Split:
		n.notes = []string{splitText(state.GetSplit())}
		n.inside = s.split(state.GetSplit())
	case *pb.State_Timers:
		n.inside = []region{s.timers(state.GetTimers())}
	case *pb.State_Workflow:
		n.inside = []region{s.workflow(state.GetWorkflow().GetDefinition())}
	case *pb.State_Flow:
		n.notes = []string{"flow " + state.GetFlow().GetFlowId()}
	}
	if state.GetCompensate() != nil {
		n.notes = append(n.notes, "undo: "+taskText(state.GetCompensate()))
	}
	s.region.nodes = append(s.region.nodes, n)

	if state.GetNext() != "" {
		s.edge(name, s.target(state.GetNext()), "")
	}
	for _, transition := range state.GetTransitions() {
		label := transition.GetWhen()
		if label == "" && len(state.GetTransitions()) > 1 {
			label = "otherwise"
		}
		s.edge(name, s.target(transition.GetNext()), label)
	}
}

func (b *builder) split(split *pb.Split) []region {
	if each := split.GetForEach(); each != nil {
		return []region{b.branch(each.GetBranch(), "each")}
	}
	var regions []region
	branches := split.GetBranches()
	for i, branch := range branches[:min(len(branches), maxBranches)] {
		regions = append(regions, b.branch(branch, strconv.Itoa(i)))
	}
	if rest := len(branches) - len(regions); rest > 0 {
		id := b.id()
		regions = append(regions, region{
			start: id,
			nodes: []node{{id: id, name: fmt.Sprintf("… %d more", rest)}},
			edges: []edge{{from: id, to: end}},
		})
	}
	return regions
}

func (b *builder) branch(branch *pb.Branch, index string) region {
	n := node{id: b.id(), name: branch.GetName()}
	if n.name == "" {
		n.name = index
	}
	switch branch.GetWork().(type) {
	case *pb.Branch_Task:
		n.notes = []string{taskText(branch.GetTask())}
	case *pb.Branch_Workflow:
		n.inside = []region{b.workflow(branch.GetWorkflow().GetDefinition())}
	case *pb.Branch_Flow:
		n.notes = []string{"flow " + branch.GetFlow().GetFlowId()}
	}
	return region{start: n.id, nodes: []node{n}, edges: []edge{{from: n.id, to: end}}}
}

// The actions that need no route.
const (
	actionComplete = "complete"
	actionRetry    = "retry"
)

func (b *builder) timers(timers *pb.TimerWorkflow) region {
	names := slices.Sorted(maps.Keys(timers.GetTimers()))
	if at := slices.Index(names, timers.GetInitial()); at > 0 {
		names = slices.Insert(slices.Delete(names, at, at+1), 0, timers.GetInitial())
	}
	s := b.scope(names)
	for _, name := range names {
		definition := timers.GetTimers()[name]
		s.region.nodes = append(s.region.nodes, node{id: s.ids[name], name: name, kind: timer, notes: timerNotes(definition.GetTimer())})
		routes := definition.GetRoutes()
		for _, action := range slices.Sorted(maps.Keys(routes)) {
			s.edge(name, s.target(routes[action]), action)
		}
		if definition.GetDefaultRoute() != "" {
			s.edge(name, s.target(definition.GetDefaultRoute()), "otherwise")
		}
		if routes[actionRetry] == "" {
			s.edge(name, s.ids[name], actionRetry)
		}
		if routes[actionComplete] == "" {
			s.edge(name, end, actionComplete)
		}
	}
	s.region.start = s.target(timers.GetInitial())
	return s.region
}
