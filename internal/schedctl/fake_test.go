package schedctl

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

// fake is a small scheduler: it keeps flows, runs and watchers, and refuses what the real one refuses.
// Its state outlives the server in front of it, as a daemon's store does.
type fake struct {
	pb.UnimplementedSchedulerServiceServer

	mu          sync.Mutex
	changed     chan struct{} // closed and replaced at each change
	instance    string
	revision    uint64
	oldest      uint64 // revision before which changes are no longer held
	changes     []*pb.FlowChange
	flows       map[string]*pb.FlowInfo
	definitions map[string]*pb.Flow
	runs        map[string]*pb.Run
	logs        map[string][]*pb.LogLine
	requests    map[string]*pb.Run // by request id
	calls       []incoming         // what came, in order
	faults      []*pb.Fault
	archive     [][]byte

	// fail holds errors to answer the next calls of a method with.
	fail map[string][]error
	// drain ends all streams when it is closed, as a server does that stops.
	drain chan struct{}
}

type incoming struct {
	method   string
	request  proto.Message
	metadata metadata.MD
}

func newFake(flows ...*pb.FlowInfo) *fake {
	f := &fake{
		changed:     make(chan struct{}),
		instance:    "one",
		flows:       map[string]*pb.FlowInfo{},
		definitions: map[string]*pb.Flow{},
		runs:        map[string]*pb.Run{},
		logs:        map[string][]*pb.LogLine{},
		requests:    map[string]*pb.Run{},
		fail:        map[string][]error{},
		drain:       make(chan struct{}),
	}
	for _, flow := range flows {
		f.set(flow)
	}
	return f
}

// refusal is an error as the server makes them.
func refusal(code codes.Code, reason, message string, details map[string]string, more ...protoadapt.MessageV1) error {
	all := append([]protoadapt.MessageV1{&errdetails.ErrorInfo{Domain: "schedulerd", Reason: reason, Metadata: details}}, more...)
	st, err := status.New(code, message).WithDetails(all...)
	if err != nil {
		panic(err)
	}
	return st.Err()
}

// set makes a flow's state be what is given, in a new revision.
func (f *fake) set(flow *pb.FlowInfo) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commit(flow)
}

func (f *fake) commit(flow *pb.FlowInfo) {
	f.revision++
	flow = proto.CloneOf(flow)
	flow.Revision = f.revision
	f.flows[flow.GetId()] = flow
	f.changes = append(f.changes, &pb.FlowChange{Type: pb.FlowChangeType_FLOW_CHANGE_TYPE_UPDATED, Flow: flow})
	f.notify()
}

func (f *fake) notify() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fake) remove(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revision++
	delete(f.flows, id)
	f.changes = append(f.changes, &pb.FlowChange{
		Type: pb.FlowChangeType_FLOW_CHANGE_TYPE_DELETED, Flow: &pb.FlowInfo{Id: id, Revision: f.revision},
	})
	f.notify()
}

// compact forgets the changes so far, so that older tokens are refused.
func (f *fake) compact() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.oldest = f.revision
	f.changes = nil
}

// setRun makes a run be what is given, and tells whoever watches it.
func (f *fake) setRun(run *pb.Run) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runs[run.GetId()] = proto.CloneOf(run)
	f.notify()
}

// received is the requests of one method so far.
func (f *fake) received(method string) []incoming {
	f.mu.Lock()
	defer f.mu.Unlock()
	var calls []incoming
	for _, c := range f.calls {
		if c.method == method {
			calls = append(calls, c)
		}
	}
	return calls
}

// enter notes a call and gives the error that it is to fail with.
func (f *fake) enter(ctx context.Context, method string, request proto.Message) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	md, _ := metadata.FromIncomingContext(ctx)
	f.calls = append(f.calls, incoming{method, proto.Clone(request), md})
	if errs := f.fail[method]; len(errs) > 0 {
		f.fail[method] = errs[1:]
		return errs[0]
	}
	return nil
}

// flow gives a flow, locked; the caller unlocks.
func (f *fake) find(id string) (*pb.FlowInfo, error) {
	if flow := f.flows[id]; flow != nil {
		return flow, nil
	}
	return nil, refusal(codes.NotFound, "FLOW_NOT_FOUND", "no flow "+id, map[string]string{"flow": id})
}

func (f *fake) Status(ctx context.Context, r *pb.StatusRequest) (*pb.StatusResponse, error) {
	if err := f.enter(ctx, "Status", r); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	flow, err := f.find(r.GetFlowId())
	return &pb.StatusResponse{Flow: flow}, err
}

func (f *fake) List(ctx context.Context, r *pb.ListRequest) (*pb.ListResponse, error) {
	if err := f.enter(ctx, "List", r); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*pb.FlowInfo
	for _, id := range slices.Sorted(maps.Keys(f.flows)) {
		if matches(r.GetFilter(), f.flows[id]) {
			all = append(all, f.flows[id])
		}
	}
	page, next, err := cutPage(all, r.GetPageSize(), r.GetPageToken())
	return &pb.ListResponse{Flows: page, NextPageToken: next, Revision: f.revision}, err
}

func cutPage[T any](all []T, size int32, token string) (page []T, next string, err error) {
	from := 0
	if token != "" {
		if from, err = strconv.Atoi(token); err != nil {
			return nil, "", status.Error(codes.InvalidArgument, "page_token: not one of ours")
		}
	}
	to := min(from+int(cmp.Or(size, 100)), len(all))
	if to < len(all) {
		next = strconv.Itoa(to)
	}
	return all[from:to], next, nil
}

func matches(filter *pb.FlowFilter, flow *pb.FlowInfo) bool {
	if ids := filter.GetFlowIds(); len(ids) > 0 && !slices.Contains(ids, flow.GetId()) {
		return false
	}
	if statuses := filter.GetStatuses(); len(statuses) > 0 && !slices.Contains(statuses, flow.GetStatus()) {
		return false
	}
	for key, value := range filter.GetLabels() {
		has, ok := flow.GetLabels()[key]
		if !ok || value != "" && has != value {
			return false
		}
	}
	return true
}

func (f *fake) Trigger(ctx context.Context, r *pb.TriggerRequest) (*pb.TriggerResponse, error) {
	if err := f.enter(ctx, "Trigger", r); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if run := f.requests[r.GetRequestId()]; run != nil {
		return &pb.TriggerResponse{Run: run, Revision: f.revision}, nil
	}
	flow, err := f.find(r.GetFlowId())
	if err != nil {
		return nil, err
	}
	about := map[string]string{"flow": flow.GetId()}
	switch flow.GetStatus() {
	case pb.FlowStatus_FLOW_STATUS_RUNNING:
		about["run"] = flow.GetCurrentRun().GetRunId()
		return nil, refusal(codes.FailedPrecondition, "FLOW_RUNNING", "the flow is running", about)
	case pb.FlowStatus_FLOW_STATUS_TRIPPED:
		about["streak"] = strconv.Itoa(int(flow.GetFailureStreak()))
		return nil, refusal(codes.FailedPrecondition, "FLOW_TRIPPED", "the flow has tripped", about)
	}
	flow = proto.CloneOf(flow)
	flow.RunCount++
	flow.Status = pb.FlowStatus_FLOW_STATUS_RUNNING
	run := &pb.Run{
		Id: fmt.Sprintf("%s@%d", flow.GetId(), flow.GetRunCount()), FlowId: flow.GetId(), Number: flow.GetRunCount(),
		Cause: pb.RunCause_RUN_CAUSE_TRIGGER, StartTime: timestamppb.Now(), Params: r.GetParams(),
	}
	flow.CurrentRun = &pb.CurrentRun{RunId: run.GetId()}
	f.commit(flow)
	f.runs[run.GetId()] = run
	f.requests[r.GetRequestId()] = run
	return &pb.TriggerResponse{Run: run, Revision: f.revision}, nil
}

// change applies a command to a flow.
func (f *fake) change(id string, edit func(*pb.FlowInfo)) (*pb.FlowInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	flow, err := f.find(id)
	if err != nil {
		return nil, err
	}
	flow = proto.CloneOf(flow)
	edit(flow)
	f.commit(flow)
	return f.flows[id], nil
}

func (f *fake) ResetFlow(ctx context.Context, r *pb.ResetFlowRequest) (*pb.ResetFlowResponse, error) {
	if err := f.enter(ctx, "ResetFlow", r); err != nil {
		return nil, err
	}
	flow, err := f.change(r.GetFlowId(), func(flow *pb.FlowInfo) {
		flow.Status, flow.FailureStreak, flow.LastError, flow.NextEligible = pb.FlowStatus_FLOW_STATUS_IDLE, 0, "", nil
	})
	return &pb.ResetFlowResponse{Flow: flow}, err
}

func (f *fake) PauseFlow(ctx context.Context, r *pb.PauseFlowRequest) (*pb.PauseFlowResponse, error) {
	if err := f.enter(ctx, "PauseFlow", r); err != nil {
		return nil, err
	}
	flow, err := f.change(r.GetFlowId(), func(flow *pb.FlowInfo) { flow.Paused = true })
	return &pb.PauseFlowResponse{Flow: flow}, err
}

func (f *fake) ResumeFlow(ctx context.Context, r *pb.ResumeFlowRequest) (*pb.ResumeFlowResponse, error) {
	if err := f.enter(ctx, "ResumeFlow", r); err != nil {
		return nil, err
	}
	flow, err := f.change(r.GetFlowId(), func(flow *pb.FlowInfo) { flow.Paused = false })
	return &pb.ResumeFlowResponse{Flow: flow}, err
}

func (f *fake) CancelFlow(ctx context.Context, r *pb.CancelFlowRequest) (*pb.CancelFlowResponse, error) {
	if err := f.enter(ctx, "CancelFlow", r); err != nil {
		return nil, err
	}
	cancelled := ""
	flow, err := f.change(r.GetFlowId(), func(flow *pb.FlowInfo) {
		if run := flow.GetCurrentRun(); run != nil && cmp.Or(r.GetRunId(), run.GetRunId()) == run.GetRunId() {
			run.Cancelling = true
			cancelled = run.GetRunId()
		}
	})
	return &pb.CancelFlowResponse{Flow: flow, RunId: cancelled}, err
}

func (f *fake) ListRuns(ctx context.Context, r *pb.ListRunsRequest) (*pb.ListRunsResponse, error) {
	if err := f.enter(ctx, "ListRuns", r); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.find(r.GetFlowId()); err != nil {
		return nil, err
	}
	var all []*pb.Run
	for _, run := range f.runs {
		if run.GetFlowId() == r.GetFlowId() && (len(r.GetOutcomes()) == 0 || slices.Contains(r.GetOutcomes(), run.GetOutcome())) {
			basic := proto.CloneOf(run)
			basic.Events, basic.Result = nil, nil
			all = append(all, basic)
		}
	}
	slices.SortFunc(all, func(a, b *pb.Run) int { return cmp.Compare(b.GetNumber(), a.GetNumber()) })
	page, next, err := cutPage(all, r.GetPageSize(), r.GetPageToken())
	return &pb.ListRunsResponse{Runs: page, NextPageToken: next}, err
}

func (f *fake) findRun(id string) (*pb.Run, error) {
	if run := f.runs[id]; run != nil {
		return run, nil
	}
	flow, _, _ := strings.Cut(id, "@")
	return nil, refusal(codes.NotFound, "RUN_NOT_FOUND", "no run "+id, map[string]string{"run": id, "flow": flow})
}

func (f *fake) GetRun(ctx context.Context, r *pb.GetRunRequest) (*pb.GetRunResponse, error) {
	if err := f.enter(ctx, "GetRun", r); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	run, err := f.findRun(r.GetRunId())
	return &pb.GetRunResponse{Run: run}, err
}

func (f *fake) GetFlow(ctx context.Context, r *pb.GetFlowRequest) (*pb.GetFlowResponse, error) {
	if err := f.enter(ctx, "GetFlow", r); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	definition := f.definitions[r.GetFlowId()]
	if definition == nil {
		_, err := f.find(r.GetFlowId())
		return nil, err
	}
	return &pb.GetFlowResponse{Flow: definition, Origin: pb.FlowOrigin_FLOW_ORIGIN_API, Etag: "e1"}, nil
}

func (f *fake) DeleteFlow(ctx context.Context, r *pb.DeleteFlowRequest) (*pb.DeleteFlowResponse, error) {
	if err := f.enter(ctx, "DeleteFlow", r); err != nil {
		return nil, err
	}
	if _, err := f.change(r.GetFlowId(), func(*pb.FlowInfo) {}); err != nil {
		return nil, err
	}
	f.remove(r.GetFlowId())
	return &pb.DeleteFlowResponse{Revision: f.revision}, nil
}

func (f *fake) ValidateFlows(ctx context.Context, r *pb.ValidateFlowsRequest) (*pb.ValidateFlowsResponse, error) {
	if err := f.enter(ctx, "ValidateFlows", r); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return &pb.ValidateFlowsResponse{Faults: f.faults, FlowIds: []string{"backup"}}, nil
}

func (f *fake) ApplyFlows(ctx context.Context, r *pb.ApplyFlowsRequest) (*pb.ApplyFlowsResponse, error) {
	if err := f.enter(ctx, "ApplyFlows", r); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.faults) > 0 {
		return nil, refusal(codes.InvalidArgument, "INVALID", "the files have faults", nil)
	}
	if r.GetEtag() != "" && r.GetEtag() != "e1" {
		return nil, refusal(codes.Aborted, "CONFLICT", "the definitions have changed since the plan", nil)
	}
	changes := []*pb.DefinitionChange{
		{FlowId: "backup", Type: pb.DefinitionChangeType_DEFINITION_CHANGE_TYPE_CHANGED, Fields: []string{"schedule.cron", "timeout"}},
		{FlowId: "export", Type: pb.DefinitionChangeType_DEFINITION_CHANGE_TYPE_ADDED},
		{FlowId: "health", Type: pb.DefinitionChangeType_DEFINITION_CHANGE_TYPE_UNCHANGED},
	}
	if r.GetPrune() {
		changes = append(changes, &pb.DefinitionChange{FlowId: "old", Type: pb.DefinitionChangeType_DEFINITION_CHANGE_TYPE_REMOVED})
	}
	return &pb.ApplyFlowsResponse{Changes: changes, Etag: "e1", Revision: f.revision}, nil
}

func (f *fake) Preview(ctx context.Context, r *pb.PreviewRequest) (*pb.PreviewResponse, error) {
	if err := f.enter(ctx, "Preview", r); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.find(r.GetFlowId()); err != nil {
		return nil, err
	}
	response := &pb.PreviewResponse{Description: "every 30s", TimeZone: "UTC"}
	for i := range r.GetCount() {
		response.FireTimes = append(response.FireTimes, timestamppb.New(r.GetFrom().AsTime().Add(time.Duration(i+1)*30*time.Second)))
	}
	return response, nil
}

func (f *fake) GetServerInfo(ctx context.Context, r *pb.GetServerInfoRequest) (*pb.GetServerInfoResponse, error) {
	if err := f.enter(ctx, "GetServerInfo", r); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return &pb.GetServerInfoResponse{
		Version: "v1.0.0", GoVersion: "go1.26", TzdataVersion: "2026c", StartTime: timestamppb.New(noon.Add(-time.Hour)),
		InstanceId: f.instance, Store: "pebble", FlowCount: uint64(len(f.flows)), Running: 1, MaxConcurrentRuns: 1000,
		Revision: f.revision, Ready: true, ServerTime: timestamppb.New(noon.Add(42 * time.Second)),
	}, nil
}

func (f *fake) Stop(ctx context.Context, r *pb.StopRequest) (*pb.StopResponse, error) {
	if err := f.enter(ctx, "Stop", r); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	response := &pb.StopResponse{Duration: durationpb.New(1500 * time.Millisecond)}
	for _, flow := range f.flows {
		if run := flow.GetCurrentRun(); run != nil {
			response.CancelledRuns = append(response.CancelledRuns, run.GetRunId())
			if run.GetCancelling() { // it was told before, and did not listen
				response.UnfinishedRuns = append(response.UnfinishedRuns, run.GetRunId())
			}
		}
	}
	return response, nil
}

// WatchStatus gives tokens "instance/revision".
func (f *fake) WatchStatus(r *pb.WatchStatusRequest, stream grpc.ServerStreamingServer[pb.WatchStatusResponse]) error {
	if err := f.enter(stream.Context(), "WatchStatus", r); err != nil {
		return err
	}
	f.mu.Lock()
	token := func() string { return fmt.Sprintf("%s/%d", f.instance, f.revision) }
	var at uint64
	first := &pb.WatchStatusResponse{}
	if r.GetResumeToken() == "" {
		for _, id := range slices.Sorted(maps.Keys(f.flows)) {
			if flow := f.flows[id]; matches(r.GetFilter(), flow) {
				first.Changes = append(first.Changes, &pb.FlowChange{Type: pb.FlowChangeType_FLOW_CHANGE_TYPE_SNAPSHOT, Flow: flow})
			}
		}
		at = f.revision
	} else {
		instance, revision, _ := strings.Cut(r.GetResumeToken(), "/")
		at, _ = strconv.ParseUint(revision, 10, 64)
		switch {
		case instance != f.instance:
			f.mu.Unlock()
			return refusal(codes.InvalidArgument, "INVALID", "resume_token: from another instance", nil)
		case at < f.oldest:
			f.mu.Unlock()
			return refusal(codes.OutOfRange, "COMPACTED", "resume_token: too old; list again", nil)
		}
	}
	first.InitialStateComplete = true
	first.ResumeToken = fmt.Sprintf("%s/%d", f.instance, at)
	f.mu.Unlock()
	if err := stream.Send(first); err != nil {
		return err
	}
	for {
		f.mu.Lock()
		response := &pb.WatchStatusResponse{}
		for _, change := range f.changes {
			if change.GetFlow().GetRevision() > at && (change.GetType() == pb.FlowChangeType_FLOW_CHANGE_TYPE_DELETED || matches(r.GetFilter(), change.GetFlow())) {
				response.Changes = append(response.Changes, change)
			}
		}
		at = f.revision
		response.ResumeToken = token()
		changed, drain := f.changed, f.drain
		f.mu.Unlock()
		if len(response.GetChanges()) > 0 {
			if err := stream.Send(response); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-drain:
			if err := stream.Send(&pb.WatchStatusResponse{ResumeToken: response.GetResumeToken(), Ending: true}); err != nil {
				return err
			}
			return refusal(codes.Unavailable, "STOPPING", "the scheduler is stopping", nil)
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (f *fake) WatchRun(r *pb.WatchRunRequest, stream grpc.ServerStreamingServer[pb.WatchRunResponse]) error {
	if err := f.enter(stream.Context(), "WatchRun", r); err != nil {
		return err
	}
	for sent, first := 0, true; ; first = false {
		f.mu.Lock()
		run, err := f.findRun(r.GetRunId())
		changed, drain := f.changed, f.drain
		f.mu.Unlock()
		if err != nil {
			return err
		}
		basic := proto.CloneOf(run)
		basic.Events, basic.Result = nil, nil
		response := &pb.WatchRunResponse{Events: run.GetEvents()[sent:]}
		sent = len(run.GetEvents())
		if first || run.GetEndTime() != nil {
			response.Run = basic
		}
		if len(response.GetEvents()) > 0 || response.GetRun() != nil {
			if err := stream.Send(response); err != nil {
				return err
			}
		}
		if run.GetEndTime() != nil {
			return nil
		}
		select {
		case <-changed:
		case <-drain:
			return refusal(codes.Unavailable, "STOPPING", "the scheduler is stopping", nil)
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (f *fake) addLog(run string, lines ...*pb.LogLine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.logs[run] = append(f.logs[run], lines...)
	f.notify()
}

func (f *fake) TailLogs(r *pb.TailLogsRequest, stream grpc.ServerStreamingServer[pb.TailLogsResponse]) error {
	if err := f.enter(stream.Context(), "TailLogs", r); err != nil {
		return err
	}
	for sent := 0; ; {
		f.mu.Lock()
		run, err := f.findRun(r.GetRunId())
		lines := f.logs[r.GetRunId()][sent:]
		changed, drain := f.changed, f.drain
		f.mu.Unlock()
		if err != nil {
			return err
		}
		sent += len(lines)
		for _, line := range lines {
			if err := stream.Send(&pb.TailLogsResponse{Lines: []*pb.LogLine{line}}); err != nil {
				return err
			}
		}
		if !r.GetFollow() || run.GetEndTime() != nil {
			return nil
		}
		select {
		case <-changed:
		case <-drain:
			return refusal(codes.Unavailable, "STOPPING", "the scheduler is stopping", nil)
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (f *fake) Backup(r *pb.BackupRequest, stream grpc.ServerStreamingServer[pb.BackupResponse]) error {
	for _, piece := range f.archive {
		if err := stream.Send(&pb.BackupResponse{Data: piece}); err != nil {
			return err
		}
	}
	return f.enter(stream.Context(), "Backup", r)
}

// network is where a server may listen or not: connections go to the one that does now.
type network struct {
	up       sync.Mutex
	listener *bufconn.Listener
	server   *grpc.Server
}

// serve lets a server answer until stop.
func (n *network) serve(service pb.SchedulerServiceServer, options ...grpc.ServerOption) {
	listener, server := bufconn.Listen(1<<16), grpc.NewServer(options...)
	pb.RegisterSchedulerServiceServer(server, service)
	n.up.Lock()
	n.listener, n.server = listener, server
	n.up.Unlock()
	go server.Serve(listener)
}

// stop ends the server at once: connections break, and new ones are refused.
func (n *network) stop() {
	n.up.Lock()
	server := n.server
	n.listener, n.server = nil, nil
	n.up.Unlock()
	if server != nil {
		server.Stop()
	}
}

func (n *network) dial(target string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient(target, append(options, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		n.up.Lock()
		listener := n.listener
		n.up.Unlock()
		if listener == nil {
			return nil, errors.New("connection refused")
		}
		return listener.DialContext(ctx)
	}))...)
}

// rig is a fake with a server in front and the command line on the other side.
type rig struct {
	*fake
	network
	env map[string]string
	in  string
	now func() time.Time

	resizing sync.Mutex
	// The size of the terminal; there is none if it is zero.
	width, height int
}

func (r *rig) resize(width, height int) {
	r.resizing.Lock()
	defer r.resizing.Unlock()
	r.width, r.height = width, height
}

func (r *rig) window() (int, int, bool) {
	r.resizing.Lock()
	defer r.resizing.Unlock()
	return r.width, r.height, r.width > 0
}

// noon is the time in tests that show times.
var noon = time.Date(2027, time.January, 15, 12, 0, 0, 0, time.FixedZone("CET", 3600))

func newRig(t *testing.T, flows ...*pb.FlowInfo) *rig {
	t.Helper()
	r := &rig{fake: newFake(flows...), env: map[string]string{}, now: func() time.Time { return noon }}
	r.serve(r.fake)
	t.Cleanup(r.stop)
	return r
}

// result is what a command did.
type result struct {
	code     int
	out, err string
}

func (r *rig) run(args ...string) result { return r.runContext(context.Background(), args...) }

func (r *rig) runContext(ctx context.Context, args ...string) result {
	var out, err syncBuffer
	code := Run(ctx, r.environment(&out, &err, args))
	return result{code, out.String(), err.String()}
}

func (r *rig) environment(out, err *syncBuffer, args []string) Env {
	return Env{
		Args:    args,
		In:      strings.NewReader(r.in),
		Out:     out,
		Err:     err,
		Getenv:  func(name string) string { return r.env[name] },
		Now:     r.now,
		Window:  r.window,
		Dial:    r.dial,
		Version: "v0.0.0",
	}
}

// start runs a command in the background. It is read while it runs, and waited for with done.
func (r *rig) start(ctx context.Context, args ...string) *background {
	b := &background{finished: make(chan int, 1)}
	go func() { b.finished <- Run(ctx, r.environment(&b.out, &b.err, args)) }()
	return b
}

type background struct {
	out, err syncBuffer
	finished chan int
}

func (b *background) done() result { return result{<-b.finished, b.out.String(), b.err.String()} }

// syncBuffer is a buffer that is written and read at once.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
