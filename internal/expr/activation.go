package expr

import (
	"cel.dev/cel-go/cel"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

// activation shows a scope to CEL without copying it.
type activation workflow.Scope

// ResolveName gives the value of a variable. Objects that are nil are empty: has(params.x) must be false, not an error.
func (a *activation) ResolveName(name string) (any, bool) {
	switch name {
	case "params":
		return object(a.Params), true
	case "results":
		return object(a.Results), true
	case "result":
		return a.Result, true
	case "resources":
		return object(a.Resources.Describe()), true
	case "action":
		return a.Action, true
	case "item":
		return a.Item, true
	case "index":
		return int64(a.Index), true
	case "run.flow":
		return a.Identity.FlowID, true
	case "run.id":
		return a.Identity.RunID, true
	case "run.number":
		return int64(min(a.Identity.Number, 1<<63-1)), true
	case "run.cause":
		return a.Identity.Cause, true
	case "run.start":
		return a.Identity.Start, true
	case "run.fire_time":
		if a.Identity.FireTime.IsZero() {
			return a.Identity.Start, true
		}
		return a.Identity.FireTime, true
	}
	return nil, false
}

// Parent is none.
func (a *activation) Parent() cel.Activation { return nil }

func object(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}
