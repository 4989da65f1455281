package definition

import (
	"maps"
	"slices"
	"strings"

	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/fault"
)

// callSite is a place where a flow calls another one.
type callSite struct {
	field  string // path of the flow_id
	flowID string // the flow called
}

// calls is who calls whom.
type calls struct {
	ids     map[string]int // flows by id
	sites   [][]callSite   // of each flow
	outside func(id string) (calls []string, known bool)
}

// of lists the flows that a flow calls.
func (c *calls) of(id string) []string {
	var list []string
	if i, ok := c.ids[id]; ok && i < len(c.sites) {
		for _, site := range c.sites[i] {
			list = append(list, site.flowID)
		}
	} else if c.outside != nil {
		list, _ = c.outside(id)
	}
	return list
}

// check finds calls that cannot work.
func (c *calls) check(flows []*core.Flow, faults *fault.List) {
	for i := range c.sites {
		for _, site := range c.sites[i] {
			if site.flowID == "" || c.known(site.flowID) {
				continue
			}
			faults.Add(site.field, "there is no flow %s%s", site.flowID, fault.DidYouMean(site.flowID, slices.Collect(maps.Keys(c.ids))))
		}
	}
	// Each circle is told at one of its calls, which is left out of the search for the next one.
	cut := map[string]bool{}
	for i, f := range flows {
		for {
			cycle := workflow.CallCycle([]string{f.ID}, func(id string) []string {
				return slices.DeleteFunc(c.of(id), func(called string) bool { return cut[id+" "+called] })
			})
			if cycle == nil {
				break
			}
			cut[cycle[0]+" "+cycle[1]] = true
			at := c.site(cycle[0], cycle[1])
			if at == "" {
				at = fault.Index("flows", i)
			}
			faults.Add(at, "flows call each other in a circle, which would never end: %s", strings.Join(cycle, " → "))
		}
	}
	if len(cut) > 0 {
		return
	}
	depth := map[string]int{}
	for _, f := range flows {
		if c.depth(f.ID, depth) == workflow.MaxDepth+1 {
			faults.Add(c.site(f.ID, c.of(f.ID)[0]), "flows call each other more than %d deep from here", workflow.MaxDepth)
		}
	}
}

func (c *calls) known(id string) bool {
	if _, ok := c.ids[id]; ok {
		return true
	}
	if c.outside == nil {
		return false
	}
	_, known := c.outside(id)
	return known
}

// site is where one flow calls another; empty if that is outside of the definitions.
func (c *calls) site(caller, called string) string {
	if i, ok := c.ids[caller]; ok {
		for _, site := range c.sites[i] {
			if site.flowID == called {
				return site.field
			}
		}
	}
	return ""
}

// depth is the length of the longest chain of calls from a flow. There are no circles.
func (c *calls) depth(id string, known map[string]int) int {
	if d, ok := known[id]; ok {
		return d
	}
	deepest := 0
	for _, called := range c.of(id) {
		deepest = max(deepest, c.depth(called, known)+1)
	}
	known[id] = deepest
	return deepest
}
