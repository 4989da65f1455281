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
	"github.com/schedulerd/schedulerd/internal/definition"
	"github.com/schedulerd/schedulerd/internal/fault"
	"github.com/schedulerd/schedulerd/internal/manifest"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

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
	written, err := definition.Source(info.Flow)
	if err != nil {
		return nil, err
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
	scheduler, err := s.attached()
	if err != nil {
		return nil, err
	}
	set, _, problems := s.check(scheduler, r.GetSources())
	faults := faults(problems)
	out := &pb.ValidateFlowsResponse{Faults: faults[:fitting(faults, maxPageBytes)]}
	for _, f := range set.File.GetFlows() {
		out.FlowIds = append(out.FlowIds, f.GetId())
	}
	return out, nil
}

// check compiles flows files as they would be applied.
func (s *Service) check(scheduler Scheduler, sources []*pb.FlowsSource) (*manifest.Set, *definition.Set, manifest.Problems) {
	texts := make([]manifest.Source, len(sources))
	for i, source := range sources {
		texts[i] = manifest.Source{Name: source.GetName(), Content: []byte(source.GetContent())}
		if source.GetName() == "" {
			texts[i].Name = fmt.Sprintf("sources[%d]", i)
		}
	}
	return manifest.Check(texts, s.config.Compiler, definition.Options{
		Now:    time.Now(),
		Exists: func(id string) bool { _, err := scheduler.Status(id); return err == nil },
		Calls: func(id string) ([]string, bool) {
			info, err := scheduler.Status(id)
			if err != nil {
				return nil, false
			}
			calls, err := info.Flow.Calls()
			return calls, err == nil
		},
		Shared:    s.config.SharedKinds,
		AllowExec: true, // ApplyFlows refuses by itself, with another code
		Origin:    core.FromAPI,
	})
}

// ApplyFlows makes the definitions that came over the API those in flows files.
func (s *Service) ApplyFlows(ctx context.Context, r *pb.ApplyFlowsRequest) (*pb.ApplyFlowsResponse, error) {
	scheduler, err := s.attached()
	if err != nil {
		return nil, err
	}
	set, compiled, problems := s.check(scheduler, r.GetSources())
	for i := range set.File.GetResources() {
		problems = append(problems, set.Locate(fault.List{{
			Field: fault.Index("resources", i), Offset: -1,
			Message: "shared resources are set up when the daemon starts: declare them in its flows files, or inside the flow",
		}})...)
	}
	if len(problems) > 0 {
		return nil, invalidFlows(problems)
	}
	if !s.config.AllowExec {
		for _, f := range set.File.GetFlows() {
			if path := command(f); path != "" {
				return nil, fmt.Errorf("flow %q runs a command (%s), which flows that come over the API may not: %w; "+
					"put it into a flows file of the daemon, or start schedulerd with --allow-api-exec", f.GetId(), path, errNotAllowed)
			}
		}
	}
	result, err := scheduler.Apply(ctx, core.ApplyRequest{
		Flows:     compiled.Flows,
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
			if change.Fields, err = changedFields(c); err != nil {
				return nil, err
			}
		}
		out.Changes = append(out.Changes, change)
	}
	return out, nil
}

func changedFields(c core.DefinitionChange) ([]string, error) {
	before, err := definition.Source(c.Old)
	if err != nil {
		return nil, err
	}
	after, err := definition.Source(c.New)
	if err != nil {
		return nil, err
	}
	return definition.Diff(before, after), nil
}

// invalidFlows is what is wrong with flows files as an error.
func invalidFlows(problems manifest.Problems) error {
	out := make(invalidRequest, len(problems))
	for i, f := range faults(problems) {
		place := f.GetSource()
		if f.GetLine() > 0 {
			place = fmt.Sprintf("%s:%d:%d", place, f.GetLine(), f.GetColumn())
		}
		out[i] = violation(f.GetField(), place+": "+f.GetMessage())
	}
	return out
}

func faults(problems manifest.Problems) []*pb.Fault {
	out := make([]*pb.Fault, len(problems))
	for i, p := range problems {
		out[i] = &pb.Fault{
			Source:  text(p.Source),
			Line:    uint32(p.Line),
			Column:  uint32(p.Column),
			Field:   text(p.Field),
			Message: text(p.Message),
		}
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
	if previewed.ofFlow {
		out.Notes = append(out.Notes, "H and splay give each flow fire times of its own; these are an example")
	}
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
	ofFlow   bool // a flow with this schedule has other fire times, as its id says
}

func (s *Service) previewed(r *pb.PreviewRequest, from time.Time) (previewed, error) {
	unsaved := r.GetSchedule()
	if unsaved != nil {
		// No instant is given: what lies in the past has no fire times, which is an answer too.
		compiled, faults := definition.CompileSchedule(unsaved, "preview", time.Time{})
		if len(faults) > 0 {
			return previewed{}, invalidRequest(violations("schedule", faults))
		}
		return previewed{compiled, schedule.Anchors{Start: from}, unsaved.GetTimeZone(), definition.DependsOnFlow(unsaved)}, nil
	}
	scheduler, err := s.attached()
	if err != nil {
		return previewed{}, err
	}
	info, err := scheduler.Status(r.GetFlowId())
	if err != nil {
		return previewed{}, err
	}
	written, err := definition.Source(info.Flow)
	if err != nil {
		return previewed{}, err
	}
	anchors := schedule.Anchors{Start: info.Anchor.Time(), Ended: info.LastFinish.Time()}
	compiled, err := info.Flow.Schedule()
	if err != nil {
		return previewed{}, err
	}
	return previewed{compiled, anchors, written.GetSchedule().GetTimeZone(), false}, nil
}

// GetServerInfo tells about the server. It answers, too, before the scheduler has started.
func (s *Service) GetServerInfo(context.Context, *pb.GetServerInfoRequest) (*pb.GetServerInfoResponse, error) {
	out := &pb.GetServerInfoResponse{
		Version:       s.config.Version,
		GoVersion:     runtime.Version(),
		TzdataVersion: schedule.TZDataVersion(),
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
