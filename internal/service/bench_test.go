package service

import (
	"context"
	"testing"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// BenchmarkStatus is what a call costs beside gRPC itself: validation, the handler, translation.
func BenchmarkStatus(b *testing.B) {
	s, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	s.Attach(newFake())
	request := &pb.StatusRequest{FlowId: "backup"}
	call := &grpc.UnaryServerInfo{FullMethod: pb.SchedulerService_Status_FullMethodName}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Unary(b.Context(), request, call, func(ctx context.Context, request any) (any, error) {
			return s.Status(ctx, request.(*pb.StatusRequest))
		}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkValidate is the part of it that checks the contract's rules.
func BenchmarkValidate(b *testing.B) {
	s, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	request := &pb.TriggerRequest{FlowId: "backup", RequestId: someUUID}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.validate(request); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWatchers is one change on its way to a thousand watchers, up to the transport: encoded once, or by each.
func BenchmarkWatchers(b *testing.B) {
	const watchers = 1000
	info := testInfo("backup", flow.Running)
	send := func(b *testing.B, f *pb.FlowInfo) {
		if _, err := proto.Marshal(&pb.WatchStatusResponse{Changes: []*pb.FlowChange{{Flow: f}}, ResumeToken: "token"}); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("shared", func(b *testing.B) {
		for b.Loop() {
			var s shared
			for range watchers {
				send(b, s.flow(core.Change{Type: core.Updated, Info: info}))
			}
		}
	})
	b.Run("each", func(b *testing.B) {
		for b.Loop() {
			for range watchers {
				send(b, flowInfo(info))
			}
		}
	})
}
