package server

import "github.com/schedulerd/schedulerd/internal/task"

// kinds are the kinds of tasks and resources that this program has. kept is nil where nothing will run.
func (o Options) kinds(kept *data) *task.Registry {
	if o.registry != nil {
		return o.registry
	}
	return task.NewRegistry(nil, nil)
}
