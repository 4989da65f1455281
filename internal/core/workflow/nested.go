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
// It compensates by itself when it does not succeed. Once it has succeeded, undoing it is the business of the state it is in.
func (m *machine) nested(ctx context.Context, work Work, v *visit, inner *Checkpoint, durable bool) (Result, error) {
	child := &machine{
		run:     m.run,
		log:     m.log,
		parent:  m,
		depth:   m.depth + 1,
		durable: durable,
		path:    v.State + "/",
		key:     v.IdempotencyKey,
		start:   v.Entered,
	}
	if child.depth > MaxDepth {
		return Result{}, &StateError{v.State, 1, fmt.Errorf("workflows are nested more than %d deep", MaxDepth)}
	}
	var params func(*Scope) (map[string]any, error)
	var timeout time.Duration
	switch work := work.(type) {
	case *Nested:
		child.w, params, timeout = work.Workflow, work.Params, work.Timeout
		child.params, child.resources = m.params, v.Resources
		child.item, child.index = v.scope.Item, v.scope.Index
	case *FlowCall:
		callee, err := m.lookUp(work.FlowID)
		if err != nil {
			return Result{}, &StateError{v.State, 1, err}
		}
		child.w, params, timeout = callee.Workflow, work.Params, work.Timeout
		child.params, child.resources = callee.Params, callee.Resources
	default:
		return Result{}, &StateError{v.State, 1, errors.New("there is nothing to do")}
	}
	if params != nil {
		own, err := evaluate(m, params, &v.scope)
		if err != nil {
			return Result{}, &StateError{v.State, 1, fmt.Errorf("params: %w", err)}
		}
		child.params = overlay(child.params, own)
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, child.start.Add(timeout), &timeoutError{"the nested run", timeout, child})
		defer cancel()
	}
	switch end := child.walk(ctx, inner); end.Outcome {
	case Succeeded:
		return Result{Value: end.Result, Action: end.Exit}, nil
	case Failed:
		return Result{}, end.Err
	default:
		return Result{}, &stopped{end.Outcome, end.Err}
	}
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
