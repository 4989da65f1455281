package service

import (
	"context"

	"github.com/schedulerd/schedulerd/internal/core"
)

// Engine is a running scheduler as the handlers see it.
type Engine struct{ *core.Running }

var _ Scheduler = Engine{}

// Watch begins a watch of flows.
func (e Engine) Watch(o core.WatchOptions) (Watch, error) {
	w, err := e.Running.Watch(o)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// WatchRun begins a watch of one run.
func (e Engine) WatchRun(ctx context.Context, runID string) (RunWatch, error) {
	w, err := e.Running.WatchRun(ctx, runID)
	if err != nil {
		return nil, err
	}
	return w, nil
}
