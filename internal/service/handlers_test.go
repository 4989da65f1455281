package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/runlog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const someUUID = "0190a8a0-7b8e-7c3d-9f4e-1a2b3c4d5e6f"

// Each unary call reaches the core with what was asked, and the client with what the core says.
func TestCalls(t *testing.T) {
	s, f, _ := newService(t, nil)
	c := client(t, s)
	ctx := t.Context()
	info, run := flowInfo(f.info), basicRun(f.run)
	for _, call := range []struct {
		name string
		do   func() (proto.Message, error)
		want proto.Message
		asks []any
	}{
		{
			"Trigger",
			func() (proto.Message, error) {
				return c.Trigger(ctx, &pb.TriggerRequest{
					FlowId: "backup", RequestId: someUUID, WaitForSlot: true,
					Params: map[string]*structpb.Value{"n": structpb.NewNumberValue(2)},
				})
			},
			&pb.TriggerResponse{Run: run, Revision: 41},
			[]any{"Trigger", core.TriggerRequest{FlowID: "backup", RequestID: someUUID, WaitForSlot: true, Params: map[string]any{"n": 2.0}}},
		},
		{
			"Status",
			func() (proto.Message, error) { return c.Status(ctx, &pb.StatusRequest{FlowId: "backup"}) },
			&pb.StatusResponse{Flow: info, Guards: []*pb.GuardInfo{
				{Resource: "api", Breaker: pb.BreakerState_BREAKER_STATE_OPEN, OpenUntil: &timestamppb.Timestamp{Seconds: 100}, Opened: 2, BreakerRefused: 7},
				{Resource: "db", Tokens: proto.Float64(1.5), Waiting: 3, LimitRefused: 4},
			}},
			[]any{"Status", "backup"},
		},
		{
			"ResetFlow",
			func() (proto.Message, error) {
				return c.ResetFlow(ctx, &pb.ResetFlowRequest{FlowId: "backup", RequestId: someUUID})
			},
			&pb.ResetFlowResponse{Flow: info},
			[]any{"Reset", "backup", someUUID},
		},
		{
			"CancelFlow",
			func() (proto.Message, error) {
				return c.CancelFlow(ctx, &pb.CancelFlowRequest{FlowId: "backup", RunId: "backup@7", RequestId: someUUID})
			},
			&pb.CancelFlowResponse{Flow: info, RunId: "backup@7"},
			[]any{"Cancel", "backup", "backup@7", someUUID},
		},
		{
			"PauseFlow",
			func() (proto.Message, error) {
				return c.PauseFlow(ctx, &pb.PauseFlowRequest{FlowId: "backup", RequestId: someUUID})
			},
			&pb.PauseFlowResponse{Flow: info},
			[]any{"Pause", "backup", someUUID},
		},
		{
			"ResumeFlow",
			func() (proto.Message, error) {
				return c.ResumeFlow(ctx, &pb.ResumeFlowRequest{FlowId: "backup", CatchUp: pb.CatchUpMode_CATCH_UP_MODE_ALL})
			},
			&pb.ResumeFlowResponse{Flow: info},
			[]any{"Resume", "backup", core.CatchUpAll, ""},
		},
		{
			"ListRuns",
			func() (proto.Message, error) {
				return c.ListRuns(ctx, &pb.ListRunsRequest{FlowId: "backup", Outcomes: []pb.Outcome{pb.Outcome_OUTCOME_FAILED}})
			},
			&pb.ListRunsResponse{},
			[]any{"Runs", "backup", core.RunListOptions{Limit: defaultPageSize, Outcomes: []flow.Outcome{flow.Failed}}},
		},
		{
			"GetRun",
			func() (proto.Message, error) { return c.GetRun(ctx, &pb.GetRunRequest{RunId: "backup@7"}) },
			&pb.GetRunResponse{Run: fullRun(f.run)},
			[]any{"Run", "backup@7"},
		},
		{
			"DeleteFlow",
			func() (proto.Message, error) {
				return c.DeleteFlow(ctx, &pb.DeleteFlowRequest{FlowId: "backup", Etag: "e", RequestId: someUUID})
			},
			&pb.DeleteFlowResponse{Revision: 44},
			[]any{"Delete", "backup", "e", someUUID},
		},
	} {
		t.Run(call.name, func(t *testing.T) {
			got, err := call.do()
			if err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(got, call.want) {
				t.Errorf("got  %v\nwant %v", got, call.want)
			}
			if asked := f.lastAsked(); !reflect.DeepEqual(asked, call.asks) {
				t.Errorf("asked %v\nwant  %v", asked, call.asks)
			}
			f.err = &core.FlowError{Err: core.ErrFlowNotFound, Flow: "backup"}
			_, err = call.do()
			f.err = nil
			if got := tell(err); got.code != codes.NotFound || got.reason != "FLOW_NOT_FOUND" {
				t.Errorf("the core's error came as %+v", got)
			}
		})
	}
}

func TestStop(t *testing.T) {
	var asked time.Duration
	s, _, _ := newService(t, func(c *Config) {
		c.Stop = func(_ context.Context, grace time.Duration) (*core.StopResult, error) {
			asked = grace
			return &core.StopResult{
				CancelledRuns: []string{"a@1"}, UnfinishedRuns: []string{"b@2"},
				TeardownErrors: []error{errors.New("no \xff")}, Duration: time.Second,
			}, nil
		}
	})
	c := client(t, s)
	got, err := c.Stop(t.Context(), &pb.StopRequest{})
	want := &pb.StopResponse{
		CancelledRuns: []string{"a@1"}, UnfinishedRuns: []string{"b@2"}, TeardownErrors: []string{"no \uFFFD"}, Duration: durationpb.New(time.Second),
	}
	if err != nil || !proto.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if asked >= 0 {
		t.Errorf("no grace is %v", asked)
	}
	if _, err := c.Stop(t.Context(), &pb.StopRequest{Grace: durationpb.New(0)}); err != nil || asked != 0 {
		t.Errorf("a grace of nothing is %v, %v", asked, err)
	}
}

func TestBeforeTheStart(t *testing.T) {
	s, err := New(Config{Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	c := client(t, s)
	if _, err := c.Status(t.Context(), &pb.StatusRequest{FlowId: "x"}); tell(err).reason != "NOT_READY" || !tell(err).retry {
		t.Error(err)
	}
	stream, err := c.WatchStatus(t.Context(), &pb.WatchStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); tell(err).reason != "NOT_READY" {
		t.Error(err)
	}
	info, err := c.GetServerInfo(t.Context(), &pb.GetServerInfoRequest{})
	if err != nil || info.GetReady() || info.GetNotReadyReason() == "" || info.GetVersion() != "v1" || info.GetTzdataVersion() == "" {
		t.Errorf("%v, %v", info, err)
	}
	s.Attach(newFake())
	info, err = c.GetServerInfo(t.Context(), &pb.GetServerInfoRequest{})
	if err != nil || !info.GetReady() || info.GetInstanceId() != "instance-1" || info.GetRevision() != 42 || info.GetMaxConcurrentRuns() != 1000 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestPages(t *testing.T) {
	s, f, _ := newService(t, nil)
	c := client(t, s)
	for i := range 2500 {
		f.infos = append(f.infos, testInfo(fmt.Sprintf("flow-%04d", i), flow.Idle))
		f.runs = append(f.runs, &core.Run{ID: fmt.Sprintf("backup@%d", 2500-i), FlowID: "backup", Number: uint64(2500 - i)})
	}
	t.Run("flows", func(t *testing.T) {
		for _, size := range []struct{ asked, want int32 }{{0, 100}, {7, 7}, {1000, 1000}, {math.MaxInt32, 1000}} {
			var ids []string
			request := &pb.ListRequest{PageSize: size.asked, View: pb.FlowView_FLOW_VIEW_BASIC, Filter: &pb.FlowFilter{Labels: map[string]string{"a": ""}}}
			for {
				page, err := c.List(t.Context(), request)
				if err != nil {
					t.Fatal(err)
				}
				for _, fl := range page.GetFlows() {
					ids = append(ids, fl.GetId())
				}
				if page.GetNextPageToken() == "" {
					break
				}
				if len(page.GetFlows()) != int(size.want) || page.GetRevision() != 42 {
					t.Fatalf("a page of %d has %d, revision %d", size.asked, len(page.GetFlows()), page.GetRevision())
				}
				request.PageToken = page.GetNextPageToken()
			}
			if len(ids) != 2500 || !slices.IsSorted(ids) || len(slices.Compact(ids)) != 2500 {
				t.Errorf("pages of %d gave %d ids", size.asked, len(ids))
			}
		}
	})
	t.Run("runs", func(t *testing.T) {
		request := &pb.ListRunsRequest{FlowId: "backup", PageSize: 999}
		count := uint64(2500)
		for {
			page, err := c.ListRuns(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			for _, run := range page.GetRuns() {
				if run.GetNumber() != count {
					t.Fatalf("got run %d, want %d", run.GetNumber(), count)
				}
				count--
			}
			if request.PageToken = page.GetNextPageToken(); request.GetPageToken() == "" {
				break
			}
		}
		if count != 0 {
			t.Errorf("%d runs were left out", count)
		}
	})
	t.Run("tokens from elsewhere", func(t *testing.T) {
		page, err := c.List(t.Context(), &pb.ListRequest{PageSize: 1})
		if err != nil {
			t.Fatal(err)
		}
		token := page.GetNextPageToken()
		for name, list := range map[string]func() error{
			"other filter": func() error {
				_, err := c.List(t.Context(), &pb.ListRequest{PageToken: token, Filter: &pb.FlowFilter{FlowIds: []string{"a"}}})
				return err
			},
			"other view": func() error {
				_, err := c.List(t.Context(), &pb.ListRequest{PageToken: token, View: pb.FlowView_FLOW_VIEW_BASIC})
				return err
			},
			"other list": func() error {
				_, err := c.ListRuns(t.Context(), &pb.ListRunsRequest{FlowId: "backup", PageToken: token})
				return err
			},
			"garbage": func() error {
				_, err := c.List(t.Context(), &pb.ListRequest{PageToken: "garbage"})
				return err
			},
			"other server": func() error {
				f.server.Instance = "instance-2"
				defer func() { f.server.Instance = "instance-1" }()
				_, err := c.List(t.Context(), &pb.ListRequest{PageToken: token})
				return err
			},
		} {
			if got := tell(list()); got.code != codes.InvalidArgument || !slices.Equal(got.fields, []string{"page_token"}) {
				t.Errorf("%s: %+v", name, got)
			}
		}
	})
}

// A page ends early rather than grow beyond what clients take.
func TestPagesAreBounded(t *testing.T) {
	s, f, _ := newService(t, nil)
	c := client(t, s)
	for i := range 100 {
		run := &core.Run{ID: fmt.Sprintf("backup@%d", 100-i), FlowID: "backup", Number: uint64(100 - i), Error: strings.Repeat("e", 200<<10)}
		f.runs = append(f.runs, run)
		info := testInfo(fmt.Sprintf("flow-%04d", i), flow.Backoff)
		info.LastError = run.Error
		f.infos = append(f.infos, info)
	}
	runs, flows := 0, 0
	for token := ""; ; {
		page, err := c.ListRuns(t.Context(), &pb.ListRunsRequest{FlowId: "backup", PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		runs += len(page.GetRuns())
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	for token := ""; ; {
		page, err := c.List(t.Context(), &pb.ListRequest{PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		flows += len(page.GetFlows())
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if runs != 100 || flows != 100 {
		t.Errorf("%d runs, %d flows", runs, flows)
	}
}

// What breaks a rule of the contract is refused with the field's path, and never reaches the core.
func TestInvalidRequests(t *testing.T) {
	s, f, _ := newService(t, nil)
	c := client(t, s)
	ctx := t.Context()
	long := strings.Repeat("x", 2000)
	for _, r := range []struct {
		field string
		call  func() error
	}{
		{"flow_id", func() error { _, err := c.Trigger(ctx, &pb.TriggerRequest{}); return err }},
		{"flow_id", func() error { _, err := c.Trigger(ctx, &pb.TriggerRequest{FlowId: long}); return err }},
		{"request_id", func() error { _, err := c.Trigger(ctx, &pb.TriggerRequest{FlowId: "a", RequestId: "1"}); return err }},
		{"params", func() error {
			_, err := c.Trigger(ctx, &pb.TriggerRequest{FlowId: "a", Params: map[string]*structpb.Value{"x": structpb.NewStringValue(strings.Repeat("x", 70000))}})
			return err
		}},
		{"flow_id", func() error { _, err := c.Status(ctx, &pb.StatusRequest{}); return err }},
		{"page_size", func() error { _, err := c.List(ctx, &pb.ListRequest{PageSize: -1}); return err }},
		{"page_token", func() error { _, err := c.List(ctx, &pb.ListRequest{PageToken: long}); return err }},
		{"view", func() error { _, err := c.List(ctx, &pb.ListRequest{View: 99}); return err }},
		{"filter.statuses[1]", func() error {
			_, err := c.List(ctx, &pb.ListRequest{Filter: &pb.FlowFilter{Statuses: []pb.FlowStatus{pb.FlowStatus_FLOW_STATUS_IDLE, 99}}})
			return err
		}},
		{"filter.statuses[0]", func() error {
			_, err := c.List(ctx, &pb.ListRequest{Filter: &pb.FlowFilter{Statuses: []pb.FlowStatus{0}}})
			return err
		}},
		{"filter.flow_ids[0]", func() error {
			_, err := c.List(ctx, &pb.ListRequest{Filter: &pb.FlowFilter{FlowIds: []string{""}}})
			return err
		}},
		{"outcomes[0]", func() error {
			_, err := c.ListRuns(ctx, &pb.ListRunsRequest{FlowId: "a", Outcomes: []pb.Outcome{99}})
			return err
		}},
		{"grace", func() error { _, err := c.Stop(ctx, &pb.StopRequest{Grace: durationpb.New(-1)}); return err }},
		{"grace", func() error {
			_, err := c.Stop(ctx, &pb.StopRequest{Grace: durationpb.New(48 * time.Hour)})
			return err
		}},
		{"catch_up", func() error { _, err := c.ResumeFlow(ctx, &pb.ResumeFlowRequest{FlowId: "a", CatchUp: 99}); return err }},
		{"sources", func() error { _, err := c.ValidateFlows(ctx, &pb.ValidateFlowsRequest{}); return err }},
		{"of", func() error { _, err := c.Preview(ctx, &pb.PreviewRequest{}); return err }},
		{"count", func() error {
			_, err := c.Preview(ctx, &pb.PreviewRequest{Of: &pb.PreviewRequest_FlowId{FlowId: "a"}, Count: -1})
			return err
		}},
		{"min_interval", func() error {
			stream, err := c.WatchStatus(ctx, &pb.WatchStatusRequest{MinInterval: durationpb.New(time.Minute)})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}},
		{"filter.statuses[0]", func() error {
			stream, err := c.WatchStatus(ctx, &pb.WatchStatusRequest{Filter: &pb.FlowFilter{Statuses: []pb.FlowStatus{0}}})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}},
		{"resume_token", func() error {
			stream, err := c.WatchStatus(ctx, &pb.WatchStatusRequest{ResumeToken: "garbage"})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}},
		{"resume_token", func() error {
			stream, err := c.WatchStatus(ctx, &pb.WatchStatusRequest{ResumeToken: resumeToken("instance-2", 7)})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}},
		{"run_id", func() error {
			stream, err := c.WatchRun(ctx, &pb.WatchRunRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}},
	} {
		got := tell(r.call())
		if got.code != codes.InvalidArgument || got.reason != "INVALID" || got.infos != 1 || !slices.Contains(got.fields, r.field) {
			t.Errorf("%s: %+v", r.field, got)
		}
		if asked := f.lastAsked(); asked != nil {
			t.Errorf("%s: the core was asked %v", r.field, asked)
		}
	}
}

func TestPanicsDoNotEscape(t *testing.T) {
	s, f, log := newService(t, nil)
	c := client(t, s)
	f.panics = "a secret"
	check := func(err error) {
		t.Helper()
		if got := tell(err); got.code != codes.Internal || got.reason != "INTERNAL" || strings.Contains(got.message, "secret") {
			t.Errorf("%+v", got)
		}
		if !strings.Contains(log.String(), "a secret") || !strings.Contains(log.String(), "handlers_test") && !strings.Contains(log.String(), "fake_test") {
			t.Errorf("the log lacks cause and stack: %s", log)
		}
	}
	_, err := c.Status(t.Context(), &pb.StatusRequest{FlowId: "x"})
	check(err)
	stream, err := c.WatchStatus(t.Context(), &pb.WatchStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	check(err)
	f.panics = nil
	if _, err := c.Status(t.Context(), &pb.StatusRequest{FlowId: "backup"}); err != nil {
		t.Errorf("after the panic: %v", err)
	}
}

func TestWatchRun(t *testing.T) {
	s, f, _ := newService(t, nil)
	c := client(t, s)
	ended := &core.Run{ID: "backup@7", FlowID: "backup", Number: 7, Outcome: flow.Succeeded, End: at(20)}
	event := workflow.Event{Time: at(11).Time(), Type: workflow.StateEntered, State: "run"}
	large := workflow.Event{Time: at(12).Time(), Type: workflow.AttemptFailed, Err: strings.Repeat("x", maxPieceBytes/2)}
	f.run.End = at(20) // so that the fake's watch ends
	f.events = []runBatch{{nil, f.run}, {[]workflow.Event{event}, nil}, {[]workflow.Event{large, large, large}, nil}, {nil, ended}}
	stream, err := c.WatchRun(t.Context(), &pb.WatchRunRequest{RunId: "backup@7"})
	if err != nil {
		t.Fatal(err)
	}
	var events, responses int
	var last *pb.Run
	for {
		r, err := stream.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		responses++
		events += len(r.GetEvents())
		if r.GetRun() != nil {
			last = r.GetRun()
		}
	}
	if events != 4 || responses != 6 || last.GetOutcome() != pb.Outcome_OUTCOME_SUCCEEDED {
		t.Errorf("%d events in %d responses, last run %v", events, responses, last)
	}

	f.err = &core.FlowError{Err: core.ErrRunNotFound, Run: "x@1"}
	stream, err = c.WatchRun(t.Context(), &pb.WatchRunRequest{RunId: "x@1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); tell(err).reason != "RUN_NOT_FOUND" {
		t.Error(err)
	}
}

// fakeLogs has lines for a run, then waits if it follows.
type fakeLogs []runlog.Line

func (l fakeLogs) Tail(ctx context.Context, _ string, follow bool, tailBytes int64, fn func([]runlog.Line) error) error {
	lines := []runlog.Line(l)
	if len(lines) == 0 {
		return fmt.Errorf("%w: x", runlog.ErrNotFound)
	}
	if tailBytes > 0 {
		lines = lines[len(lines)-1:]
	}
	if err := fn(lines); err != nil || !follow {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func TestTailLogs(t *testing.T) {
	s, _, _ := newService(t, nil)
	stream, err := client(t, s).TailLogs(t.Context(), &pb.TailLogsRequest{RunId: "backup@7"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); tell(err).code != codes.FailedPrecondition || !strings.Contains(tell(err).message, "--data-dir") {
		t.Error(err)
	}

	line := runlog.Line{Time: at(3).Time(), State: "run", Attempt: 2, Stderr: true, Text: strings.Repeat("\xff", 64<<10)}
	s, f, _ := newService(t, func(c *Config) { c.Logs = fakeLogs(slices.Repeat([]runlog.Line{line}, 20)) })
	follower, c := s, client(t, s)
	stream, err = c.TailLogs(t.Context(), &pb.TailLogsRequest{RunId: "backup@7"})
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for {
		r, err := stream.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range r.GetLines() {
			lines++
			if l.GetState() != "run" || l.GetAttempt() != 2 || !l.GetStderr() || l.GetText() != "\uFFFD" || !l.GetTime().AsTime().Equal(line.Time) {
				t.Fatalf("got %v", l)
			}
		}
	}
	if lines != 20 {
		t.Errorf("%d lines", lines)
	}
	if asked := f.lastAsked(); !reflect.DeepEqual(asked, []any{"Run", "backup@7"}) {
		t.Errorf("asked %v", asked)
	}

	s, _, _ = newService(t, func(c *Config) { c.Logs = fakeLogs(nil) })
	silent, err := client(t, s).TailLogs(t.Context(), &pb.TailLogsRequest{RunId: "backup@7"})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := silent.Recv(); err != io.EOF {
		t.Errorf("a run that wrote nothing has %v, %v", r, err)
	}

	// A client that follows is let go when the server drains.
	stream, err = c.TailLogs(t.Context(), &pb.TailLogsRequest{RunId: "backup@7", Follow: true, TailBytes: math.MaxUint64})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := stream.Recv(); err != nil || len(r.GetLines()) != 1 {
		t.Fatal(r, err)
	}
	follower.EndStreams()
	if _, err := stream.Recv(); tell(err).reason != "STOPPING" {
		t.Error(err)
	}
}

type fakeBackup struct {
	size int
	err  error
}

func (b fakeBackup) WriteBackup(ctx context.Context, w io.Writer) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for i := range b.size {
		if _, err := w.Write([]byte{byte(i)}); err != nil {
			return err
		}
	}
	return b.err
}

func TestBackup(t *testing.T) {
	backup := func(s *Service) ([]byte, error) {
		stream, err := client(t, s).Backup(t.Context(), &pb.BackupRequest{})
		if err != nil {
			return nil, err
		}
		var all []byte
		for {
			r, err := stream.Recv()
			if err == io.EOF {
				return all, nil
			}
			if err != nil {
				return all, err
			}
			all = append(all, r.GetData()...)
		}
	}
	s, _, _ := newService(t, nil)
	if _, err := backup(s); tell(err).code != codes.FailedPrecondition || !strings.Contains(tell(err).message, "--data-dir") {
		t.Error(err)
	}
	s, _, _ = newService(t, func(c *Config) { c.Backup = fakeBackup{size: 3*backupPiece + 5} })
	all, err := backup(s)
	if err != nil || len(all) != 3*backupPiece+5 {
		t.Fatalf("%d bytes, %v", len(all), err)
	}
	for i, b := range all {
		if b != byte(i) {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
	s, _, _ = newService(t, func(c *Config) { c.Backup = fakeBackup{size: 5, err: errors.New("disk on fire")} })
	if _, err := backup(s); status.Code(err) != codes.Internal || strings.Contains(err.Error(), "fire") {
		t.Error(err)
	}
	s, _, _ = newService(t, func(c *Config) { c.Backup = fakeBackup{size: 5 * backupPiece} })
	s.EndStreams()
	if _, err := backup(s); tell(err).reason != "STOPPING" {
		t.Error(err)
	}
}
