package server

import (
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"google.golang.org/grpc"
	channelz "google.golang.org/grpc/channelz/service"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
)

// adminGRPC is the gRPC server behind the admin listener: health, reflection, channelz, and the service itself, so that one
// address is enough for grpcurl and buf curl. With TLS client certificates on the API, the service is not offered here: it
// would be a way around them.
func (s *Server) adminGRPC() *grpc.Server {
	server := grpc.NewServer(s.callOptions()...)
	healthpb.RegisterHealthServer(server, healthService{s.readiness.grpc, s.draining.Done()})
	if s.options.TLSClientCA == "" {
		pb.RegisterSchedulerServiceServer(server, s.service)
	}
	channelz.RegisterChannelzServiceToServer(server)
	reflection.Register(server)
	return server
}

// adminHTTP is the admin listener: HTTP/1.1, and HTTP/2 without TLS, over which gRPC comes.
func (s *Server) adminHTTP(rpc *grpc.Server) *http.Server {
	pages := http.NewServeMux()
	pages.Handle("GET /metrics", promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	pages.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { tell(w, http.StatusOK, "ok") })
	pages.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if reason := s.readiness.look(); reason != "" {
			tell(w, http.StatusServiceUnavailable, "not ready: "+reason)
			return
		}
		tell(w, http.StatusOK, "ready")
	})
	pages.HandleFunc("/debug/pprof/", pprof.Index)
	pages.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	pages.HandleFunc("/debug/pprof/profile", pprof.Profile)
	pages.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	pages.HandleFunc("/debug/pprof/trace", pprof.Trace)

	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Protocols: &protocols,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
				rpc.ServeHTTP(w, r)
				return
			}
			pages.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
}

func tell(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text + "\n")) // a client that went away
}
