package service

import (
	"cmp"
	"context"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// WatchStatus streams the states of flows.
func (s *Service) WatchStatus(r *pb.WatchStatusRequest, stream grpc.ServerStreamingServer[pb.WatchStatusResponse]) error {
	scheduler, err := s.attached()
	if err != nil {
		return err
	}
	filter, err := flowFilter("filter", r.GetFilter())
	if err != nil {
		return err
	}
	instance := scheduler.Info().Instance
	from, err := resumeFrom(instance, r.GetResumeToken())
	if err != nil {
		return err
	}
	watch, err := scheduler.Watch(core.WatchOptions{
		Filter:      filter,
		From:        from,
		Instance:    instance,
		MinInterval: r.GetMinInterval().AsDuration(),
	})
	if err != nil {
		return err
	}
	s.watchers.Add(1)
	defer s.watchers.Add(-1)

	ctx, cancel := s.streamContext(stream.Context(), s.watchAge())
	defer cancel()
	at := from // the revision that the client can resume from
	for {
		batch, err := watch.Next(ctx)
		if err != nil {
			switch context.Cause(ctx) {
			case errDraining:
				return after(stream.Send(&pb.WatchStatusResponse{ResumeToken: tokenAfter(instance, at), Ending: true}), core.ErrStopping)
			case errAged:
				return stream.Send(&pb.WatchStatusResponse{ResumeToken: tokenAfter(instance, at), Ending: true})
			}
			return err
		}
		batch.Revision = cmp.Or(batch.Revision, at)
		if err := s.sendBatch(stream, instance, batch, at); err != nil {
			return err
		}
		if batch.Ending {
			return core.ErrStopping
		}
		at = batch.Revision
	}
}

// tokenAfter is the token of a watch at a revision; empty if it has seen nothing yet.
func tokenAfter(instance string, revision uint64) string {
	if revision == 0 {
		return ""
	}
	return resumeToken(instance, revision)
}

// after is err, or then if there is none.
func after(err, then error) error {
	if err != nil {
		return err
	}
	return then
}

// A response of a watch carries this many changes at most. gRPC clients take 4 MiB by default; small pieces flow better.
const (
	maxPieceChanges = 1000
	maxPieceBytes   = 512 << 10
)

// sendBatch sends a batch in as many responses as it takes. Only the last one carries the token to resume after the batch: a
// client that is cut off between two of them gets the batch again.
func (s *Service) sendBatch(stream grpc.ServerStreamingServer[pb.WatchStatusResponse], instance string, batch core.Batch, before uint64) error {
	if response := s.shared.response(batch); response != nil {
		return stream.Send(response)
	}
	rest := batch.Changes
	for {
		piece := make([]*pb.FlowChange, min(len(rest), maxPieceChanges))
		for i := range piece {
			piece[i] = &pb.FlowChange{Type: pb.FlowChangeType(rest[i].Type), Flow: s.shared.flow(rest[i]), Merged: rest[i].Merged}
		}
		piece = piece[:fitting(piece, maxPieceBytes)]
		rest = rest[len(piece):]
		if len(rest) == 0 {
			response := &pb.WatchStatusResponse{
				Changes: piece, ResumeToken: tokenAfter(instance, batch.Revision), InitialStateComplete: batch.InitialComplete, Ending: batch.Ending,
			}
			if len(piece) == len(batch.Changes) {
				response = s.shared.sent(batch, response)
			}
			return stream.Send(response)
		}
		if err := stream.Send(&pb.WatchStatusResponse{Changes: piece, ResumeToken: tokenAfter(instance, before)}); err != nil {
			return err
		}
	}
}

// fitting is how many of the messages, from the first one, take no more than limit bytes together; at least one of them.
func fitting[M proto.Message](messages []M, limit int) int {
	size := 0
	for i, m := range messages {
		if size += proto.Size(m); size > limit && i > 0 {
			return i
		}
	}
	return len(messages)
}
