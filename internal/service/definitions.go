package service

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/core/schedule"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Definitions reads what users write.
type Definitions interface {
	// Parse reads flows files together. Its flows are ready to run if it finds no faults.
	Parse(sources []*pb.FlowsSource, origin core.Origin) Parsed
	// Source reads the source of a stored flow.
	Source(source []byte) (*pb.Flow, error)
	// Schedule compiles a schedule that no flow has yet. Its error joins *schedule.Errors, whose fields are paths in s.
	Schedule(s *pb.Schedule, now time.Time) (*schedule.Schedule, error)
	// Diff is the paths of the fields in which two definitions differ.
	Diff(before, after *pb.Flow) []string
}

// Parsed is what flows files hold.
type Parsed struct {
	Written []*pb.Flow // the flows, as they were written
	Flows   []*core.Flow
	Faults  []*pb.Fault
}

// GetFlow shows a flow's definition.
func (s *Service) GetFlow(_ context.Context, r *pb.GetFlowRequest) (*pb.GetFlowResponse, error) {
	scheduler, err := s.attached()
	if err != nil {
		return nil, err
	}
	info, err := scheduler.Status(r.GetFlowId())
	if err != nil {
		return nil, err
	}
	written, err := s.config.Definitions.Source(info.Flow.Source)
	if err != nil {
		return nil, fmt.Errorf("the stored definition of flow %q: %w", info.Flow.ID, err)
	}
	return &pb.GetFlowResponse{Flow: written, Origin: pb.FlowOrigin(info.Flow.Origin), Etag: info.Flow.ETag()}, nil
}

// DeleteFlow removes a flow.
func (s *Service) DeleteFlow(ctx context.Context, r *pb.DeleteFlowRequest) (*pb.DeleteFlowResponse, error) {
	scheduler, err := s.attached()
	if err != nil {
		return nil, err
	}
	revision, err := scheduler.Delete(ctx, r.GetFlowId(), r.GetEtag(), r.GetRequestId())
	if err != nil {
		return nil, err
	}
	return &pb.DeleteFlowResponse{Revision: revision}, nil
}

// ValidateFlows checks flows files. What is wrong with them is its answer, not an error.
func (s *Service) ValidateFlows(_ context.Context, r *pb.ValidateFlowsRequest) (*pb.ValidateFlowsResponse, error) {
	parsed := s.config.Definitions.Parse(r.GetSources(), core.FromAPI)
	out := &pb.ValidateFlowsResponse{Faults: parsed.Faults}
	out.Faults = out.Faults[:fitting(out.Faults, maxPageBytes)]
	for _, f := range parsed.Written {
		out.FlowIds = append(out.FlowIds, f.GetId())
	}
	return out, nil
}

// ApplyFlows makes the definitions that came over the API those in flows files.
func (s *Service) ApplyFlows(ctx context.Context, r *pb.ApplyFlowsRequest) (*pb.ApplyFlowsResponse, error) {
	scheduler, err := s.attached()
	if err != nil {
		return nil, err
	}
	parsed := s.config.Definitions.Parse(r.GetSources(), core.FromAPI)
	if len(parsed.Faults) > 0 {
		return nil, invalidFlows(parsed.Faults)
	}
	if !s.config.AllowExec {
		for _, f := range parsed.Written {
			if path := command(f); path != "" {
				return nil, fmt.Errorf("flow %q runs a command (%s), which flows that come over the API may not: %w; "+
					"put it into a flows file of the daemon, or start schedulerd with --allow-api-exec", f.GetId(), path, errNotAllowed)
			}
		}
	}
	result, err := scheduler.Apply(ctx, core.ApplyRequest{
		Flows:     parsed.Flows,
		Prune:     r.GetPrune(),
		Origin:    core.FromAPI,
		DryRun:    r.GetDryRun(),
		ETag:      r.GetEtag(),
		RequestID: r.GetRequestId(),
	})
	if broken := (*resource.Error)(nil); errors.As(err, &broken) {
		return nil, invalid("sources", "%v; nothing was applied", err)
	}
	if err != nil {
		return nil, err
	}
	out := &pb.ApplyFlowsResponse{Etag: result.ETag, Revision: result.Revision}
	for _, c := range result.Changes {
		change := &pb.DefinitionChange{FlowId: c.FlowID, Type: pb.DefinitionChangeType(c.Type)}
		if c.Type == core.Modified {
			if change.Fields, err = s.diff(c.Old, c.New); err != nil {
				return nil, err
			}
		}
		out.Changes = append(out.Changes, change)
	}
	return out, nil
}

func (s *Service) diff(before, after *core.Flow) ([]string, error) {
	a, err := s.config.Definitions.Source(before.Source)
	if err != nil {
		return nil, err
	}
	b, err := s.config.Definitions.Source(after.Source)
	if err != nil {
		return nil, err
	}
	return s.config.Definitions.Diff(a, b), nil
}

// invalidFlows is the faults of flows files as an error.
func invalidFlows(faults []*pb.Fault) error {
	out := make(invalidRequest, len(faults))
	for i, f := range faults {
		field, place := f.GetField(), f.GetSource()
		if f.GetLine() > 0 {
			place = fmt.Sprintf("%s:%d:%d", place, f.GetLine(), f.GetColumn())
		}
		out[i] = violation(field, place+": "+f.GetMessage())
	}
	return out
}

// command is the path of a command that a flow runs on the daemon's machine; empty if there is none.
func command(f *pb.Flow) (path string) {
	// The error is only ever protorange.Terminate, which Range does not return.
	_ = protorange.Range(f.ProtoReflect(), func(v protopath.Values) error {
		if message, ok := v.Index(-1).Value.Interface().(protoreflect.Message); ok {
			switch message.Interface().(type) {
			case *pb.ExecTask, *pb.ExecResource:
				path = strings.TrimPrefix(v.Path[1:].String(), ".")
				return protorange.Terminate
			}
		}
		return nil
	})
	return path
}

// Fire times of one Preview.
const (
	defaultPreview = 5
	maxPreview     = 1000
)

// Preview computes fire times.
func (s *Service) Preview(_ context.Context, r *pb.PreviewRequest) (*pb.PreviewResponse, error) {
	from, err := instant("from", r.GetFrom())
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if from.IsZero() {
		from = now
	}
	previewed, err := s.previewed(r, from)
	if err != nil {
		return nil, err
	}
	out := &pb.PreviewResponse{TimeZone: previewed.zone}
	if out.GetTimeZone() == "" {
		out.TimeZone = "UTC"
	}
	if previewed.schedule == nil {
		out.Description, out.Notes = "manual", []string{"never due by itself: it runs when it is triggered"}
		return out, nil
	}
	out.Description, out.Notes = previewed.schedule.Describe(from)
	count := int(min(r.GetCount(), maxPreview))
	if count == 0 {
		count = defaultPreview
	}
	for t := from; len(out.FireTimes) < count; {
		if t = previewed.schedule.Next(t, previewed.anchors); t.IsZero() {
			break
		}
		out.FireTimes = append(out.FireTimes, timestamppb.New(t))
	}
	return out, nil
}

// previewed is a schedule with what its fire times depend on.
type previewed struct {
	schedule *schedule.Schedule // nil: manual
	anchors  schedule.Anchors
	zone     string
}

func (s *Service) previewed(r *pb.PreviewRequest, from time.Time) (previewed, error) {
	unsaved := r.GetSchedule()
	if unsaved != nil {
		compiled, err := s.config.Definitions.Schedule(unsaved, from)
		if err != nil {
			return previewed{}, invalidSchedule(err)
		}
		return previewed{compiled, schedule.Anchors{Start: from}, unsaved.GetTimeZone()}, nil
	}
	scheduler, err := s.attached()
	if err != nil {
		return previewed{}, err
	}
	info, err := scheduler.Status(r.GetFlowId())
	if err != nil {
		return previewed{}, err
	}
	written, err := s.config.Definitions.Source(info.Flow.Source)
	if err != nil {
		return previewed{}, err
	}
	anchors := schedule.Anchors{Start: info.Anchor.Time(), Ended: info.LastFinish.Time()}
	return previewed{info.Flow.Schedule, anchors, written.GetSchedule().GetTimeZone()}, nil
}

// invalidSchedule is what is wrong with the schedule of a request.
func invalidSchedule(err error) error {
	var out invalidRequest
	for _, e := range flatten(err) {
		fault := (*schedule.Error)(nil)
		if !errors.As(e, &fault) {
			return err
		}
		field, text := "schedule", fault.Msg
		if fault.Field != "" {
			field += "." + fault.Field
		}
		if fault.Offset >= 0 {
			text = fmt.Sprintf("column %d: %s", fault.Offset+1, text)
		}
		out = append(out, violation(field, text))
	}
	return out
}

// flatten is the errors that errors.Join put together.
func flatten(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, flatten(e)...)
		}
		return all
	}
	return []error{err}
}

// GetServerInfo tells about the server. It answers, too, before the scheduler has started.
func (s *Service) GetServerInfo(context.Context, *pb.GetServerInfoRequest) (*pb.GetServerInfoResponse, error) {
	out := &pb.GetServerInfoResponse{
		Version:       s.config.Version,
		GoVersion:     runtime.Version(),
		TzdataVersion: tzdataVersion(),
		StartTime:     timestamppb.New(s.start),
		ServerTime:    timestamppb.New(time.Now()),
	}
	scheduler, err := s.attached()
	if err != nil {
		out.NotReadyReason = err.Error()
		return out, nil
	}
	info := scheduler.Info()
	out.InstanceId = info.Instance
	out.Store = info.Store
	out.FlowCount = uint64(info.Flows)
	out.Running = uint32(info.Running)
	out.MaxConcurrentRuns = uint32(info.MaxConcurrentRuns)
	out.Revision = info.Revision
	out.Ready = info.Ready
	out.NotReadyReason = info.NotReady
	out.OldestDue = durationpb.New(info.OldestDue)
	return out, nil
}
