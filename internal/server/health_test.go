package server

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/schedulerd/schedulerd/internal/core"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

func TestReadiness(t *testing.T) {
	fine := core.ServerInfo{Ready: true, OldestDue: time.Minute}
	for _, c := range []struct {
		name   string
		max    time.Duration
		set    func(*readiness)
		reason string // "": ready
	}{
		{"not started", time.Minute, func(*readiness) {}, "not ready yet"},
		{"started", time.Minute, func(r *readiness) { r.started(func() core.ServerInfo { return fine }) }, ""},
		{"due too long", time.Minute - 1, func(r *readiness) { r.started(func() core.ServerInfo { return fine }) }, "--max-due-age"},
		{"due for ever", 0, func(r *readiness) {
			r.started(func() core.ServerInfo { return core.ServerInfo{Ready: true, OldestDue: 1 << 60} })
		}, ""},
		{"trouble", time.Minute, func(r *readiness) {
			r.started(func() core.ServerInfo { return core.ServerInfo{NotReady: "the disk is full"} })
		}, "the disk is full"},
		{"stopping", time.Minute, func(r *readiness) {
			r.started(func() core.ServerInfo { return fine })
			r.stop()
		}, "stopping"},
	} {
		r := newReadiness(c.max)
		c.set(r)
		got := r.look()
		if (got == "") != (c.reason == "") || !strings.Contains(got, c.reason) {
			t.Errorf("%s: %q", c.name, got)
		}
		for _, service := range []string{"", "schedulerd.v1.SchedulerService"} {
			want := healthpb.HealthCheckResponse_SERVING
			if c.reason != "" {
				want = healthpb.HealthCheckResponse_NOT_SERVING
			}
			response, err := r.grpc.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
			if err != nil || response.GetStatus() != want {
				t.Errorf("%s: %q is %v, %v", c.name, service, response.GetStatus(), err)
			}
		}
	}
}

// A scheduler that stops firing is noticed, and so is its recovery, without anybody asking.
func TestReadinessIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReadiness(time.Minute)
		var oldest atomic.Int64
		r.started(func() core.ServerInfo { return core.ServerInfo{Ready: true, OldestDue: time.Duration(oldest.Load())} })
		ctx, cancel := context.WithCancel(t.Context())
		go r.run(ctx)
		is := func(want healthpb.HealthCheckResponse_ServingStatus) {
			t.Helper()
			time.Sleep(healthInterval + time.Millisecond)
			synctest.Wait()
			if got, err := r.grpc.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil || got.GetStatus() != want {
				t.Errorf("%v, %v", got, err)
			}
		}
		is(healthpb.HealthCheckResponse_SERVING)
		oldest.Store(int64(61 * time.Second))
		is(healthpb.HealthCheckResponse_NOT_SERVING)
		oldest.Store(0)
		is(healthpb.HealthCheckResponse_SERVING)
		cancel()
		synctest.Wait()
	})
}
