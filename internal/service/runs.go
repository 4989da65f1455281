package service

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/runlog"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// ListRuns shows a page of a flow's runs.
func (s *Service) ListRuns(ctx context.Context, r *pb.ListRunsRequest) (*pb.ListRunsResponse, error) {
	scheduler, err := s.attached()
	if err != nil {
		return nil, err
	}
	outcomes, err := outcomes(r.GetOutcomes())
	if err != nil {
		return nil, err
	}
	pages := pages{scheduler.Info().Instance, &pb.ListRunsRequest{FlowId: r.GetFlowId(), Outcomes: r.GetOutcomes(), View: r.GetView()}}
	cursor, err := pages.cursor(r.GetPageToken())
	if err != nil {
		return nil, err
	}
	before, _ := binary.Uvarint(cursor) // 0 for the first page
	runs, more, err := scheduler.Runs(ctx, r.GetFlowId(), core.RunListOptions{
		Before:   before,
		Limit:    pageSize(r.GetPageSize()),
		Outcomes: outcomes,
	})
	if err != nil {
		return nil, err
	}
	show := basicRun
	if r.GetView() == pb.RunView_RUN_VIEW_FULL {
		show = fullRun
	}
	out := &pb.ListRunsResponse{Runs: make([]*pb.Run, len(runs))}
	for i, run := range runs {
		out.Runs[i] = show(run)
	}
	if n := fitting(out.Runs, maxPageBytes); n < len(runs) {
		out.Runs, more = out.Runs[:n], true
	}
	if n := len(out.Runs); more && n > 0 {
		out.NextPageToken, err = pages.token(binary.AppendUvarint(nil, out.Runs[n-1].GetNumber()))
	}
	return out, err
}

// GetRun shows one run.
func (s *Service) GetRun(ctx context.Context, r *pb.GetRunRequest) (*pb.GetRunResponse, error) {
	scheduler, err := s.attached()
	if err != nil {
		return nil, err
	}
	run, err := scheduler.Run(ctx, r.GetRunId())
	if err != nil {
		return nil, err
	}
	return &pb.GetRunResponse{Run: fullRun(run)}, nil
}

// WatchRun streams the events of a run until it ends.
func (s *Service) WatchRun(r *pb.WatchRunRequest, stream grpc.ServerStreamingServer[pb.WatchRunResponse]) error {
	scheduler, err := s.attached()
	if err != nil {
		return err
	}
	ctx, cancel := s.streamContext(stream.Context(), 0)
	defer cancel()
	watch, err := scheduler.WatchRun(ctx, r.GetRunId())
	if err != nil {
		return err
	}
	for {
		events, run, err := watch.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && context.Cause(ctx) == errDraining:
			return core.ErrStopping
		case err != nil:
			return err
		}
		out := &pb.WatchRunResponse{}
		if run != nil {
			out.Run = basicRun(run)
		}
		rest := runEvents(events)
		for first := true; first || len(rest) > 0; first = false {
			n := fitting(rest, maxPieceBytes)
			out.Events, rest = rest[:n], rest[n:]
			if err := stream.Send(out); err != nil {
				return err
			}
			out = &pb.WatchRunResponse{}
		}
	}
}

// TailLogs streams what the tasks of a run wrote.
func (s *Service) TailLogs(r *pb.TailLogsRequest, stream grpc.ServerStreamingServer[pb.TailLogsResponse]) error {
	scheduler, err := s.attached()
	if err != nil {
		return err
	}
	if s.config.Logs == nil {
		return fmt.Errorf("the output of tasks is not kept: %w", errNoData)
	}
	ctx, cancel := s.streamContext(stream.Context(), 0)
	defer cancel()
	if _, err := scheduler.Run(ctx, r.GetRunId()); err != nil {
		return err
	}
	err = s.config.Logs.Tail(ctx, r.GetRunId(), r.GetFollow(), int64(min(r.GetTailBytes(), math.MaxInt64)), func(lines []runlog.Line) error {
		for rest := logLines(lines); len(rest) > 0; {
			n := fitting(rest, maxPieceBytes)
			if err := stream.Send(&pb.TailLogsResponse{Lines: rest[:n]}); err != nil {
				return err
			}
			rest = rest[n:]
		}
		return nil
	})
	switch {
	case errors.Is(err, runlog.ErrNotFound): // the run is known, so it wrote nothing, or nothing that is still kept
		return nil
	case err != nil && context.Cause(ctx) == errDraining:
		return core.ErrStopping
	}
	return err
}

func logLines(lines []runlog.Line) []*pb.LogLine {
	out := make([]*pb.LogLine, len(lines))
	for i, l := range lines {
		out[i] = &pb.LogLine{
			Time:    timestamppb.New(l.Time),
			State:   text(l.State),
			Attempt: uint32(l.Attempt),
			Stderr:  l.Stderr,
			Text:    text(l.Text),
		}
	}
	return out
}

// backupPiece is how much of an archive a response carries.
const backupPiece = 256 << 10

// Backup streams a copy of the data directory.
func (s *Service) Backup(_ *pb.BackupRequest, stream grpc.ServerStreamingServer[pb.BackupResponse]) error {
	if s.config.Backup == nil {
		return fmt.Errorf("there is nothing to copy: %w", errNoData)
	}
	ctx, cancel := s.streamContext(stream.Context(), 0)
	defer cancel()
	out := bufio.NewWriterSize(writerFunc(func(piece []byte) (int, error) {
		if ctx.Err() != nil { // in the middle of a large file
			return 0, context.Cause(ctx)
		}
		// The writer uses its buffer again; a message must not change once it was sent.
		return len(piece), stream.Send(&pb.BackupResponse{Data: bytes.Clone(piece)})
	}), backupPiece)
	err := s.config.Backup.WriteBackup(ctx, out)
	if err == nil {
		err = out.Flush()
	}
	if err != nil && context.Cause(ctx) == errDraining {
		return core.ErrStopping
	}
	return err
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
