package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// healthInterval is how often a started server's health is looked at.
const healthInterval = time.Second

// readiness says whether the server can do its work: it has started, is not stopping, its store takes changes, and no due
// fire time waits too long. A scheduler that silently stops firing is the failure that hurts most.
type readiness struct {
	maxDueAge time.Duration
	grpc      *health.Server // "" and the service's name

	mu       sync.Mutex
	info     func() core.ServerInfo // nil until started
	stopping bool
}

func newReadiness(maxDueAge time.Duration) *readiness {
	r := &readiness{maxDueAge: maxDueAge, grpc: health.NewServer()}
	r.look()
	return r
}

// started begins to look at the scheduler's figures.
func (r *readiness) started(info func() core.ServerInfo) {
	r.mu.Lock()
	r.info = info
	r.mu.Unlock()
	r.look()
}

// stop makes the server NOT_SERVING for good.
func (r *readiness) stop() {
	r.mu.Lock()
	r.stopping = true
	r.mu.Unlock()
	r.look()
}

// run looks again and again until ctx is done.
func (r *readiness) run(ctx context.Context) {
	ticker := time.NewTicker(healthInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			r.look()
		case <-ctx.Done():
			return
		}
	}
}

// look sets the status, and gives the reason why the server is not ready; empty if it is.
func (r *readiness) look() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	reason := r.reason()
	serving := healthpb.HealthCheckResponse_SERVING
	if reason != "" {
		serving = healthpb.HealthCheckResponse_NOT_SERVING
	}
	r.grpc.SetServingStatus("", serving)
	r.grpc.SetServingStatus(pb.SchedulerService_ServiceDesc.ServiceName, serving)
	return reason
}

func (r *readiness) reason() string {
	switch {
	case r.stopping:
		return core.ErrStopping.Error()
	case r.info == nil:
		return core.ErrNotReady.Error()
	}
	info := r.info()
	switch {
	case !info.Ready:
		return info.NotReady
	case r.maxDueAge > 0 && info.OldestDue > r.maxDueAge:
		return fmt.Sprintf("a due fire time has waited for %v (--max-due-age is %v)", info.OldestDue.Round(time.Second), r.maxDueAge)
	}
	return ""
}

// healthService is the health service of the API listener. Its watches end when the server drains: GracefulStop would wait
// for them, and not every client lets go of one by itself.
type healthService struct {
	*health.Server
	draining <-chan struct{}
}

func (h healthService) Watch(request *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	go func() {
		select {
		case <-h.draining:
			cancel()
		case <-ctx.Done():
		}
	}()
	return h.Server.Watch(request, contextStream{stream, ctx})
}

type contextStream struct {
	grpc.ServerStreamingServer[healthpb.HealthCheckResponse]
	ctx context.Context
}

func (s contextStream) Context() context.Context { return s.ctx }
