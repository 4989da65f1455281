package server

import (
	"github.com/schedulerd/schedulerd/internal/task"
	"github.com/schedulerd/schedulerd/internal/task/channel"
	"github.com/schedulerd/schedulerd/internal/task/exec"
	"github.com/schedulerd/schedulerd/internal/task/fail"
	"github.com/schedulerd/schedulerd/internal/task/grpc"
	"github.com/schedulerd/schedulerd/internal/task/http"
	"github.com/schedulerd/schedulerd/internal/task/log"
	"github.com/schedulerd/schedulerd/internal/task/service"
	"github.com/schedulerd/schedulerd/internal/task/set"
	"github.com/schedulerd/schedulerd/internal/task/store"
	"github.com/schedulerd/schedulerd/internal/task/tempdir"
	"github.com/schedulerd/schedulerd/internal/task/wait"
	workertask "github.com/schedulerd/schedulerd/internal/task/worker"
	"github.com/schedulerd/schedulerd/internal/worker"
)

// kinds are the kinds of tasks and resources that this program has. owner marks the commands it runs; pool has the connections
// to the addresses that tasks name. To compile definitions only, all may be zero.
func (o Options) kinds(owner string, pool *channel.Pool, workers *worker.Hub) *task.Registry {
	if o.registry != nil {
		return o.registry
	}
	return task.NewRegistry(
		[]task.Kind{
			exec.KindOf(owner), fail.Kind, grpc.KindOf(pool, nil), http.Kind, log.Kind, service.KindOf(pool, nil), set.Kind, store.Kind,
			wait.Kind, workertask.KindOf(workers, nil),
		},
		[]task.ResourceKind{channel.ResourceKind, exec.ResourceKindOf(owner), http.ResourceKind, store.ResourceKind, tempdir.ResourceKind},
	)
}
