package service

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/definition"
	"github.com/schedulerd/schedulerd/internal/task/tasktest"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func source(lines ...string) []*pb.FlowsSource {
	return []*pb.FlowsSource{{Name: "flows.yaml", Content: strings.Join(lines, "\n") + "\n"}}
}

var hello = source(
	"flows:",
	"  - id: hello",
	"    schedule: {every: {interval: 5s}}",
	"    task: {log: {message: hello}}",
)

// stored is a flow as the core has it.
func stored(t *testing.T, f *pb.Flow) *core.Definition {
	t.Helper()
	compiled, faults := definition.New(tasktest.Registry()).CompileFlow(f, definition.Options{AllowExec: true, Origin: core.FromAPI})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return core.Define(compiled)
}

func logs(message string) *pb.Flow_Task {
	return &pb.Flow_Task{Task: &pb.Task{Kind: &pb.Task_Log{Log: &pb.LogTask{Message: message}}}}
}

func TestValidateFlows(t *testing.T) {
	s, _, _ := newService(t, nil)
	c := client(t, s)
	good, err := c.ValidateFlows(t.Context(), &pb.ValidateFlowsRequest{Sources: hello})
	if err != nil || len(good.GetFaults()) != 0 || !slices.Equal(good.GetFlowIds(), []string{"hello"}) {
		t.Errorf("%v, %v", good, err)
	}
	for _, bad := range []struct {
		name   string
		source []*pb.FlowsSource
		line   uint32
		text   string
	}{
		{"unknown field", source("flows:", "  - id: a", "    taks: {}"), 3, "taks"},
		{"wrong type", source("flows:", "  - id: 5", "    task: {log: {message: x}}", "    labels: 7"), 4, ""},
		{"a slash in the id", source("flows:", "  - id: a/b", "    task: {log: {message: x}}"), 2, ""},
		{"zero interval", source("flows:", "  - id: a", "    schedule: {every: {interval: 0s}}", "    task: {log: {message: x}}"), 3, ""},
		{"no such zone", source("flows:", "  - id: a", "    schedule: {cron: '0 3 * * *', time_zone: Mars/Base}", "    task: {log: {message: x}}"), 3, "Mars/Base"},
		{"bad cron", source("flows:", "  - id: a", "    schedule: {cron: '61 * * * *'}", "    task: {log: {message: x}}"), 3, ""},
		{"not YAML", source("flows: ["), 1, ""},
		{"unknown target", source(
			"flows:", "  - id: a", "    workflow:", "      initial: one", "      states:", "        one: {task: {log: {message: x}}, next: two}",
			"      exits: {done: {}}",
		), 6, "two"},
	} {
		got, err := c.ValidateFlows(t.Context(), &pb.ValidateFlowsRequest{Sources: bad.source})
		if err != nil || len(got.GetFaults()) == 0 {
			t.Errorf("%s: %v, %v", bad.name, got, err)
			continue
		}
		f := got.GetFaults()[0]
		if f.GetSource() != "flows.yaml" || f.GetLine() != bad.line || f.GetColumn() == 0 || !strings.Contains(f.GetMessage()+f.GetField(), bad.text) {
			t.Errorf("%s: %v", bad.name, f)
		}
	}
}

func TestApplyFlows(t *testing.T) {
	s, f, _ := newService(t, nil)
	c := client(t, s)
	got, err := c.ApplyFlows(t.Context(), &pb.ApplyFlowsRequest{Sources: hello, Prune: true, DryRun: true, Etag: "e", RequestId: someUUID})
	want := &pb.ApplyFlowsResponse{
		Changes: []*pb.DefinitionChange{{FlowId: "hello", Type: pb.DefinitionChangeType_DEFINITION_CHANGE_TYPE_ADDED}},
		Etag:    "etag-2", Revision: 43,
	}
	if err != nil || !proto.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	asked := f.lastAsked()[1].(core.ApplyRequest)
	if len(asked.Flows) != 1 || asked.Flows[0].ID != "hello" || asked.Flows[0].Origin != core.FromAPI {
		t.Errorf("applied %v", asked.Flows)
	}
	asked.Flows = nil
	if want := (core.ApplyRequest{Prune: true, DryRun: true, ETag: "e", RequestID: someUUID, Origin: core.FromAPI}); !reflect.DeepEqual(asked, want) {
		t.Errorf("asked %+v", asked)
	}
}

func TestApplyFlowsTellsWhatChanges(t *testing.T) {
	before := stored(t, &pb.Flow{Id: "a", Description: "old", Work: logs("x")})
	after := stored(t, &pb.Flow{Id: "a", Description: "new", Work: logs("y")})
	got, err := changedFields(core.DefinitionChange{Old: before, New: after})
	if err != nil || !slices.Equal(got, []string{"description", "task.log.message"}) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestApplyFlowsRefuses(t *testing.T) {
	exec := source("flows:", "  - id: a", "    task: {exec: {command: [rm, -rf, /]}}")
	nested := source(
		"flows:", "  - id: a", "    workflow:", "      initial: one", "      states:", "        one:", "          next: done",
		"          split: {join: {all: {}}, branches: [{name: x, task: {exec: {shell: 'true'}}}]}", "      exits: {done: {}}",
	)
	setup := source("flows:", "  - id: a", "    task: {log: {message: x}}", "    resources: [{name: r, exec: {setup: ['true']}}]")
	shared := source("flows:", "  - id: a", "    task: {log: {message: x}}", "resources:", "  - {name: r, store: {}}")
	for _, bad := range []struct {
		name   string
		source []*pb.FlowsSource
		allow  bool
		err    error // of the core
		code   codes.Code
		reason string
		text   string // "": it is applied
	}{
		{"wrong", source("flows:", "  - id: a/b", "    task: {log: {message: x}}"), false, nil, codes.InvalidArgument, "INVALID", "flows.yaml:2:"},
		{"a command", exec, false, nil, codes.PermissionDenied, "NOT_ALLOWED", "task.exec), which"},
		{"a command inside", nested, false, nil, codes.PermissionDenied, "NOT_ALLOWED", `workflow.states["one"].split.branches[0].task.exec`},
		{"a command at setup", setup, false, nil, codes.PermissionDenied, "NOT_ALLOWED", "--allow-api-exec"},
		{"an allowed command", exec, true, nil, codes.OK, "", ""},
		{"a shared resource", shared, true, nil, codes.InvalidArgument, "INVALID", "flows.yaml:5:"},
		{"a changed plan", hello, false, core.ErrConflict, codes.Aborted, "CONFLICT", ""},
		{
			"a setup that fails", setup, true, &core.FlowError{Flow: "a", Err: &resource.Error{Name: "r", Op: "setup", Err: errors.New("no disk")}},
			codes.InvalidArgument, "INVALID", "no disk",
		},
	} {
		s, f, _ := newService(t, func(c *Config) { c.AllowExec = bad.allow })
		c := client(t, s)
		if bad.err != nil { // the core knows no flow of these ids before it is asked to apply
			f.apply = bad.err
		}
		_, err := c.ApplyFlows(t.Context(), &pb.ApplyFlowsRequest{Sources: bad.source})
		if got := tell(err); got.code != bad.code || got.reason != bad.reason || !strings.Contains(got.message, bad.text) {
			t.Errorf("%s: %+v", bad.name, got)
		}
	}
}

func TestGetFlow(t *testing.T) {
	s, f, _ := newService(t, nil)
	written := &pb.Flow{Id: "backup", Description: "Makes a copy", Work: logs("hello")}
	f.info.Flow = stored(t, written)
	got, err := client(t, s).GetFlow(t.Context(), &pb.GetFlowRequest{FlowId: "backup"})
	want := &pb.GetFlowResponse{Flow: written, Origin: pb.FlowOrigin_FLOW_ORIGIN_API, Etag: f.info.Flow.ETag()}
	if err != nil || !proto.Equal(got, want) || got.GetEtag() == "" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestPreview(t *testing.T) {
	s, f, _ := newService(t, nil)
	c := client(t, s)
	day := func(hour, minute int) *timestamppb.Timestamp {
		return timestamppb.New(time.Date(2027, 3, 1, hour, minute, 0, 0, time.UTC))
	}
	every := &pb.Schedule{Kind: &pb.Schedule_Every{Every: &pb.EverySchedule{Interval: durationpb.New(time.Hour)}}}
	f.info.Flow = stored(t, &pb.Flow{Id: "backup", Schedule: every, Work: logs("x")})
	f.info.Anchor = 0
	for _, p := range []struct {
		name    string
		request *pb.PreviewRequest
		times   []*timestamppb.Timestamp
		zone    string
		note    string
	}{
		{
			"a stored flow",
			&pb.PreviewRequest{Of: &pb.PreviewRequest_FlowId{FlowId: "backup"}, From: day(9, 30), Count: 2},
			[]*timestamppb.Timestamp{day(10, 0), day(11, 0)},
			"UTC", "",
		},
		{
			"an unsaved interval counts from the instant asked about",
			&pb.PreviewRequest{Of: &pb.PreviewRequest_Schedule{Schedule: every}, From: day(9, 30), Count: 1},
			[]*timestamppb.Timestamp{day(10, 30)},
			"UTC", "",
		},
		{
			"a zone",
			&pb.PreviewRequest{Of: &pb.PreviewRequest_Schedule{Schedule: &pb.Schedule{
				Kind: &pb.Schedule_Cron{Cron: "0 12 * * *"}, TimeZone: "Europe/Berlin",
			}}, From: day(0, 0), Count: 1},
			[]*timestamppb.Timestamp{day(11, 0)},
			"Europe/Berlin", "",
		},
		{
			"a time that has passed",
			&pb.PreviewRequest{Of: &pb.PreviewRequest_Schedule{Schedule: &pb.Schedule{Kind: &pb.Schedule_Once{Once: &pb.OnceSchedule{At: "2027-02-01T00:00:00Z"}}}}, From: day(0, 0)},
			nil, "UTC", "never fires again",
		},
		{
			"manual",
			&pb.PreviewRequest{Of: &pb.PreviewRequest_Schedule{Schedule: &pb.Schedule{Kind: &pb.Schedule_Manual{Manual: &pb.ManualSchedule{}}}}, From: day(0, 0)},
			nil, "UTC", "",
		},
		{
			"spread by id",
			&pb.PreviewRequest{Of: &pb.PreviewRequest_Schedule{Schedule: &pb.Schedule{Kind: &pb.Schedule_Cron{Cron: "H H * * *"}}}, From: day(0, 0), Count: 0},
			make([]*timestamppb.Timestamp, 5), "UTC", "H and splay",
		},
		{
			"many",
			&pb.PreviewRequest{Of: &pb.PreviewRequest_Schedule{Schedule: every}, From: day(0, 0), Count: 1 << 30},
			make([]*timestamppb.Timestamp, 1000), "UTC", "",
		},
	} {
		got, err := c.Preview(t.Context(), p.request)
		if err != nil {
			t.Errorf("%s: %v", p.name, err)
			continue
		}
		if got.GetDescription() == "" || got.GetTimeZone() != p.zone || !strings.Contains(strings.Join(got.GetNotes(), "\n"), p.note) {
			t.Errorf("%s: %v", p.name, got)
		}
		same := len(got.GetFireTimes()) == len(p.times)
		for i, at := range p.times {
			same = same && (at == nil || proto.Equal(at, got.GetFireTimes()[i]))
		}
		if !same {
			t.Errorf("%s: %v", p.name, got.GetFireTimes())
		}
	}
	f.info.Flow = stored(t, &pb.Flow{Id: "backup", Work: logs("x")})
	got, err := c.Preview(t.Context(), &pb.PreviewRequest{Of: &pb.PreviewRequest_FlowId{FlowId: "backup"}})
	if err != nil || got.GetDescription() != "manual" || len(got.GetFireTimes()) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestPreviewRefuses(t *testing.T) {
	s, _, _ := newService(t, nil)
	c := client(t, s)
	for field, request := range map[string]*pb.PreviewRequest{
		"schedule.cron":      {Of: &pb.PreviewRequest_Schedule{Schedule: &pb.Schedule{Kind: &pb.Schedule_Cron{Cron: "61 * * * *"}}}},
		"schedule.time_zone": {Of: &pb.PreviewRequest_Schedule{Schedule: &pb.Schedule{Kind: &pb.Schedule_Cron{Cron: "1 * * * *"}, TimeZone: "Mars/Base"}}},
		"from":               {Of: &pb.PreviewRequest_FlowId{FlowId: "backup"}, From: &timestamppb.Timestamp{Nanos: -1}},
		"schedule.every.interval": {Of: &pb.PreviewRequest_Schedule{Schedule: &pb.Schedule{
			Kind: &pb.Schedule_Every{Every: &pb.EverySchedule{Interval: durationpb.New(0)}},
		}}},
	} {
		_, err := c.Preview(t.Context(), request)
		if got := tell(err); got.code != codes.InvalidArgument || !slices.Contains(got.fields, field) {
			t.Errorf("%s: %+v", field, got)
		}
	}
	_, err := c.Preview(t.Context(), &pb.PreviewRequest{Of: &pb.PreviewRequest_FlowId{FlowId: "nobody"}})
	if got := tell(err); got.reason != "FLOW_NOT_FOUND" {
		t.Errorf("%+v", got)
	}
}
