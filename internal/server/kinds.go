package server

import (
	"github.com/schedulerd/schedulerd/internal/task"
	"github.com/schedulerd/schedulerd/internal/task/exec"
	"github.com/schedulerd/schedulerd/internal/task/exec/process"
	"github.com/schedulerd/schedulerd/internal/task/fail"
	"github.com/schedulerd/schedulerd/internal/task/log"
	"github.com/schedulerd/schedulerd/internal/task/set"
	"github.com/schedulerd/schedulerd/internal/task/wait"
)

// kinds are the kinds of tasks and resources that this program has. processes remembers what commands run; nil: nobody does.
func (o Options) kinds(processes process.Tracker) *task.Registry {
	if o.registry != nil {
		return o.registry
	}
	return task.NewRegistry(
		[]task.Kind{exec.KindWith(processes), fail.Kind, log.Kind, set.Kind, wait.Kind},
		[]task.ResourceKind{exec.ResourceKind},
	)
}
