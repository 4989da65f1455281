package server

import (
	"context"
	"log/slog"
	"strings"
	"time"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/descriptorpb"
)

// callLog writes a line for each call: what changes something at level info, what reads at debug.
type callLog struct {
	log     *slog.Logger
	changes map[string]bool // full names of the methods that change something
}

func newCallLog(log *slog.Logger) *callLog {
	c := &callLog{log: log, changes: map[string]bool{}}
	services := pb.File_schedulerd_v1_scheduler_service_proto.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			m := methods.Get(j)
			options, _ := m.Options().(*descriptorpb.MethodOptions)
			if options.GetIdempotencyLevel() != descriptorpb.MethodOptions_NO_SIDE_EFFECTS {
				c.changes["/"+string(services.Get(i).FullName())+"/"+string(m.Name())] = true
			}
		}
	}
	return c
}

func (c *callLog) unary(ctx context.Context, request any, call *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	level := c.level(call.FullMethod)
	if !c.log.Enabled(ctx, level) {
		return next(ctx, request)
	}
	began := time.Now()
	response, err := next(ctx, request)
	c.write(ctx, level, call.FullMethod, began, request, response, err)
	return response, err
}

func (c *callLog) stream(server any, stream grpc.ServerStream, call *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx, level := stream.Context(), c.level(call.FullMethod)
	if !c.log.Enabled(ctx, level) {
		return next(server, stream)
	}
	began := time.Now()
	seen := &firstRequest{ServerStream: stream}
	err := next(server, seen)
	c.write(ctx, level, call.FullMethod, began, seen.request, nil, err)
	return err
}

// firstRequest remembers what the client asked for.
type firstRequest struct {
	grpc.ServerStream
	request any
}

func (s *firstRequest) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if s.request == nil {
		s.request = m
	}
	return err
}

func (c *callLog) level(method string) slog.Level {
	if c.changes[method] {
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

func (c *callLog) write(ctx context.Context, level slog.Level, method string, began time.Time, request, response any, err error) {
	st := status.Convert(err)
	attrs := []slog.Attr{
		slog.String("rpc", method[strings.LastIndexByte(method, '/')+1:]),
		slog.String("code", st.Code().String()),
		slog.Duration("took", time.Since(began)),
	}
	if p, ok := peer.FromContext(ctx); ok {
		attrs = append(attrs, slog.String("peer", p.Addr.String()))
	}
	if r, ok := request.(interface{ GetFlowId() string }); ok && r.GetFlowId() != "" {
		attrs = append(attrs, slog.String("flow", r.GetFlowId()))
	}
	if id := runOf(request, response); id != "" {
		attrs = append(attrs, slog.String("run", id))
	}
	if r, ok := request.(interface{ GetRequestId() string }); ok && r.GetRequestId() != "" {
		attrs = append(attrs, slog.String("request_id", r.GetRequestId()))
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", st.Message()))
	}
	c.log.LogAttrs(ctx, level, "call", attrs...)
}

// runOf is the run that a call was about.
func runOf(request, response any) string {
	for _, message := range []any{response, request} {
		switch m := message.(type) {
		case interface{ GetRun() *pb.Run }:
			if id := m.GetRun().GetId(); id != "" {
				return id
			}
		case interface{ GetRunId() string }:
			if id := m.GetRunId(); id != "" {
				return id
			}
		}
	}
	return ""
}
