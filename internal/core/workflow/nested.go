package workflow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"
)

// nested runs the workflow of a *Nested or *FlowCall inside the state or branch that v visits, and gives its last result and, as
// the action, the exit it reached. inner is where to go on, nil for from the start.
//
// It compensates by itself when it does not succeed. When it does and can be undone later, there is a frame to do so.
func (m *machine) nested(ctx context.Context, work Work, v *visit, inner *Checkpoint, durable bool) (Result, *Frame, error) {
	fail := func(err error) (Result, *Frame, error) { return Result{}, nil, &StateError{v.State, 1, err} }
	child, err := m.child(work, v)
	if err != nil {
		return fail(err)
	}
	child.durable = durable
	params, timeout := nestedSettings(work)
	if params != nil {
		own, err := evaluate(m, params, &v.scope)
		size := 0
		if err == nil {
			size, err = measure(own)
		}
		if err == nil && size > MaxResultBytes {
			err = fmt.Errorf("they take about %d KiB, more than the %d KiB allowed", size>>10, MaxResultBytes>>10)
		}
		if err != nil {
			return fail(fmt.Errorf("params: %w", err))
		}
		child.params = overlay(child.params, own)
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, child.start.Add(timeout), &timeoutError{"the nested run", timeout})
		defer cancel()
	}
	switch end := child.walk(ctx, inner); end.Outcome {
	case Succeeded:
		return measured(end.Result, end.Exit), child.frame(), nil
	case Failed:
		return Result{}, nil, end.Err
	default:
		return Result{}, nil, &stopped{end.Outcome, end.Err}
	}
}

// child makes the machine of a workflow nested in what v visits. Its params are those around it.
func (m *machine) child(work Work, v *visit) (*machine, error) {
	child := &machine{
		run:    m.run,
		log:    m.log,
		parent: m,
		depth:  m.depth + 1,
		path:   v.State + "/",
		key:    v.IdempotencyKey,
		start:  v.Entered,
	}
	if child.depth > MaxDepth {
		return nil, fmt.Errorf("workflows are nested more than %d deep", MaxDepth)
	}
	switch work := work.(type) {
	case *Nested:
		child.w, child.params, child.resources = work.Workflow, m.params, m.resources
		child.item, child.index = v.scope.Item, v.scope.Index
	case *FlowCall:
		callee, err := m.lookUp(work.FlowID)
		if err != nil {
			return nil, err
		}
		child.w, child.params, child.resources = callee.Workflow, callee.Params, callee.Resources
	default:
		return nil, errors.New("there is no nested workflow")
	}
	return child, nil
}

func nestedSettings(work Work) (params func(*Scope) (map[string]any, error), timeout time.Duration) {
	switch work := work.(type) {
	case *Nested:
		return work.Params, work.Timeout
	case *FlowCall:
		return work.Params, work.Timeout
	}
	return nil, 0
}

// frame is what is needed to undo the workflow, which has completed; nil: it has nothing to undo.
func (m *machine) frame() *Frame {
	if len(m.stack) == 0 {
		return nil
	}
	return &Frame{Params: m.params, Results: m.results, Item: m.item, Index: m.index, Compensations: m.stack}
}

// lookUp finds the flow that a FlowCall names.
func (m *machine) lookUp(id string) (c *Callee, err error) {
	if m.run.Flows == nil {
		return nil, fmt.Errorf("flow %q cannot be called: there are no other flows here", id)
	}
	defer func() {
		if p := recover(); p != nil {
			c, err = nil, recovered(m.log, "the look-up of a flow", p)
		}
	}()
	if c, err = m.run.Flows(id); err != nil {
		return nil, fmt.Errorf("flow %q cannot be called: %w", id, err)
	}
	return c, nil
}

// overlay lays some parameters over others.
func overlay(under, over map[string]any) map[string]any {
	if len(over) == 0 {
		return under
	}
	both := make(map[string]any, len(under)+len(over))
	maps.Copy(both, under)
	maps.Copy(both, over)
	return both
}
