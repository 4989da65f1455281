package server

import (
	"github.com/schedulerd/schedulerd/internal/task"
	"github.com/schedulerd/schedulerd/internal/task/exec"
	"github.com/schedulerd/schedulerd/internal/task/fail"
	"github.com/schedulerd/schedulerd/internal/task/http"
	"github.com/schedulerd/schedulerd/internal/task/log"
	"github.com/schedulerd/schedulerd/internal/task/set"
	"github.com/schedulerd/schedulerd/internal/task/store"
	"github.com/schedulerd/schedulerd/internal/task/tempdir"
	"github.com/schedulerd/schedulerd/internal/task/wait"
)

// kinds are the kinds of tasks and resources that this program has. owner marks the commands it runs.
func (o Options) kinds(owner string) *task.Registry {
	if o.registry != nil {
		return o.registry
	}
	return task.NewRegistry(
		[]task.Kind{exec.KindOf(owner), fail.Kind, http.Kind, log.Kind, set.Kind, store.Kind, wait.Kind},
		[]task.ResourceKind{exec.ResourceKindOf(owner), http.ResourceKind, store.ResourceKind, tempdir.ResourceKind},
	)
}
