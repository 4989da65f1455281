package service

import (
	"context"
	"time"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core"
)

// Trigger starts a run.
func (s *Service) Trigger(ctx context.Context, r *pb.TriggerRequest) (*pb.TriggerResponse, error) {
	scheduler, err := s.attached()
	if err != nil {
		return nil, err
	}
	params, err := params(r.GetParams())
	if err != nil {
		return nil, err
	}
	run, revision, err := scheduler.Trigger(ctx, core.TriggerRequest{
		FlowID:      r.GetFlowId(),
		Params:      params,
		RequestID:   r.GetRequestId(),
		WaitForSlot: r.GetWaitForSlot(),
	})
	if err != nil {
		return nil, err
	}
	return &pb.TriggerResponse{Run: basicRun(run), Revision: revision}, nil
}

// Status shows one flow's state.
func (s *Service) Status(_ context.Context, r *pb.StatusRequest) (*pb.StatusResponse, error) {
	scheduler, err := s.attached()
	if err != nil {
		return nil, err
	}
	info, err := scheduler.Status(r.GetFlowId())
	if err != nil {
		return nil, err
	}
	return &pb.StatusResponse{Flow: flowInfo(info), Guards: guards(scheduler.Guards(r.GetFlowId()))}, nil
}

// List shows a page of flows.
func (s *Service) List(_ context.Context, r *pb.ListRequest) (*pb.ListResponse, error) {
	scheduler, err := s.attached()
	if err != nil {
		return nil, err
	}
	filter, err := flowFilter("filter", r.GetFilter())
	if err != nil {
		return nil, err
	}
	pages := pages{scheduler.Info().Instance, &pb.ListRequest{Filter: r.GetFilter(), View: r.GetView()}}
	after, err := pages.cursor(r.GetPageToken())
	if err != nil {
		return nil, err
	}
	infos, more, revision := scheduler.List(core.ListOptions{
		After:  string(after),
		Limit:  pageSize(r.GetPageSize()),
		Filter: filter,
	})
	show := flowInfo
	if r.GetView() == pb.FlowView_FLOW_VIEW_BASIC {
		show = basicFlowInfo
	}
	out := &pb.ListResponse{Flows: make([]*pb.FlowInfo, len(infos)), Revision: revision}
	for i, info := range infos {
		out.Flows[i] = show(info)
	}
	if n := fitting(out.Flows, maxPageBytes); n < len(infos) {
		out.Flows, more = out.Flows[:n], true
	}
	if n := len(out.Flows); more && n > 0 {
		out.NextPageToken, err = pages.token([]byte(out.Flows[n-1].GetId()))
	}
	return out, err
}

// ResetFlow clears a flow's failures.
func (s *Service) ResetFlow(ctx context.Context, r *pb.ResetFlowRequest) (*pb.ResetFlowResponse, error) {
	scheduler, err := s.attached()
	if err != nil {
		return nil, err
	}
	info, err := scheduler.Reset(ctx, r.GetFlowId(), r.GetRequestId())
	if err != nil {
		return nil, err
	}
	return &pb.ResetFlowResponse{Flow: flowInfo(info)}, nil
}

// CancelFlow asks a flow's run to stop.
func (s *Service) CancelFlow(ctx context.Context, r *pb.CancelFlowRequest) (*pb.CancelFlowResponse, error) {
	scheduler, err := s.attached()
	if err != nil {
		return nil, err
	}
	info, runID, err := scheduler.Cancel(ctx, r.GetFlowId(), r.GetRunId(), r.GetRequestId())
	if err != nil {
		return nil, err
	}
	return &pb.CancelFlowResponse{Flow: flowInfo(info), RunId: runID}, nil
}

// PauseFlow pauses a flow.
func (s *Service) PauseFlow(ctx context.Context, r *pb.PauseFlowRequest) (*pb.PauseFlowResponse, error) {
	scheduler, err := s.attached()
	if err != nil {
		return nil, err
	}
	info, err := scheduler.Pause(ctx, r.GetFlowId(), r.GetRequestId())
	if err != nil {
		return nil, err
	}
	return &pb.PauseFlowResponse{Flow: flowInfo(info)}, nil
}

// ResumeFlow ends a pause.
func (s *Service) ResumeFlow(ctx context.Context, r *pb.ResumeFlowRequest) (*pb.ResumeFlowResponse, error) {
	scheduler, err := s.attached()
	if err != nil {
		return nil, err
	}
	info, err := scheduler.Resume(ctx, r.GetFlowId(), core.CatchUpMode(r.GetCatchUp()), r.GetRequestId())
	if err != nil {
		return nil, err
	}
	return &pb.ResumeFlowResponse{Flow: flowInfo(info)}, nil
}

// Stop stops the scheduler and the process.
func (s *Service) Stop(ctx context.Context, r *pb.StopRequest) (*pb.StopResponse, error) {
	if _, err := s.attached(); err != nil {
		return nil, err
	}
	grace := time.Duration(-1)
	if r.GetGrace() != nil {
		grace = r.GetGrace().AsDuration()
	}
	result, err := s.config.Stop(ctx, grace)
	if err != nil {
		return nil, err
	}
	return stopResult(result), nil
}
