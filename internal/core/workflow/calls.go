package workflow

import "slices"

// Calls lists the flows that w calls, sorted, each once.
func (w *Workflow) Calls() []string {
	set := map[string]bool{}
	collectCalls(w, set, 0)
	return sortedKeys(set)
}

func collectCalls(w *Workflow, set map[string]bool, depth int) {
	if w == nil || depth > MaxDepth {
		return
	}
	of := func(work Work) {
		switch work := work.(type) {
		case *FlowCall:
			set[work.FlowID] = true
		case *Nested:
			collectCalls(work.Workflow, set, depth+1)
		}
	}
	for _, s := range w.States {
		if s == nil {
			continue
		}
		of(s.Work)
		if split, ok := s.Work.(*Split); ok {
			for _, b := range split.Branches {
				of(b.Work)
			}
			if split.ForEach != nil {
				of(split.ForEach.Branch.Work)
			}
		}
	}
}

// CallCycle finds flows that call each other in a circle, which would never end: the ids from one flow around to itself, or
// nil. calls gives what a flow calls (see Calls), nothing for an unknown flow.
func CallCycle(flows []string, calls func(flow string) []string) []string {
	const (
		open = iota + 1
		done
	)
	mark := map[string]int{}
	var path []string
	var visit func(string) []string
	visit = func(id string) []string {
		switch mark[id] {
		case done:
			return nil
		case open:
			return append(slices.Clone(path[slices.Index(path, id):]), id)
		}
		mark[id] = open
		path = append(path, id)
		for _, called := range calls(id) {
			if cycle := visit(called); cycle != nil {
				return cycle
			}
		}
		path = path[:len(path)-1]
		mark[id] = done
		return nil
	}
	for _, id := range flows {
		if cycle := visit(id); cycle != nil {
			return cycle
		}
	}
	return nil
}
