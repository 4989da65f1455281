package schedctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

func flow(id string, status pb.FlowStatus) *pb.FlowInfo { return &pb.FlowInfo{Id: id, Status: status} }

const (
	idle      = pb.FlowStatus_FLOW_STATUS_IDLE
	running   = pb.FlowStatus_FLOW_STATUS_RUNNING
	completed = pb.FlowStatus_FLOW_STATUS_COMPLETED
	tripped   = pb.FlowStatus_FLOW_STATUS_TRIPPED
)

// watched runs a StatusWatch against a fake on virtual time and notes what it tells.
type watched struct {
	*rig
	mirror mirror
	log    []string // "backup RUNNING", "backup gone", "lost: …"
	fresh  int      // streams that began from nothing
	ended  chan error
	cancel context.CancelFunc
}

func watchFake(t *testing.T, r *rig) *watched {
	t.Helper()
	w := &watched{rig: r, ended: make(chan error, 1)}
	conn, err := (&connection{server: defaultServer}).dial(r.environment(&syncBuffer{}, &syncBuffer{}, nil))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w.cancel = cancel
	watch := StatusWatch{
		Client: pb.NewSchedulerServiceClient(conn),
		Lost:   func(err error, _ time.Duration) { w.log = append(w.log, "lost: "+status.Code(err).String()) },
	}
	go func() {
		defer conn.Close()
		w.ended <- watch.Run(ctx, func(response *pb.WatchStatusResponse, fresh bool) error {
			if fresh {
				w.fresh++
			}
			for _, change := range w.mirror.apply(response, fresh) {
				if change.flow == nil {
					w.log = append(w.log, change.id+" gone")
				} else {
					w.log = append(w.log, change.id+" "+short(change.flow.GetStatus()))
				}
			}
			return nil
		})
	}()
	synctest.Wait()
	return w
}

// settle lets time pass, and everything happen that comes of it.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *watched) stop(t *testing.T) {
	t.Helper()
	w.cancel()
	if err := <-w.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("watch ended with %v", err)
	}
	w.rig.stop()
}

func (w *watched) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	if !slices.Equal(w.log, want) {
		t.Errorf("got:  %s\nwant: %s", strings.Join(w.log, ", "), strings.Join(want, ", "))
	}
}

func TestWatchResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchFake(t, newRig(t, flow("a", idle), flow("b", idle)))
		w.set(flow("a", running))
		w.want(t, "a IDLE", "b IDLE", "a RUNNING")

		w.rig.stop()
		synctest.Wait()
		w.set(flow("a", completed)) // happens while nobody listens
		w.remove("b")
		w.serve(w.fake)
		settle(10 * time.Second)
		if w.fresh != 1 {
			t.Errorf("%d streams began from nothing, want 1: the others resume", w.fresh)
		}
		for _, call := range w.received("WatchStatus")[1:] {
			if token := call.request.(*pb.WatchStatusRequest).GetResumeToken(); token != "one/3" {
				t.Errorf("resumed with token %q, want the last one seen, one/3", token)
			}
		}
		lost := slices.Index(w.log, "lost: Unavailable")
		w.log = slices.DeleteFunc(w.log, func(line string) bool { return line == "lost: Unavailable" })
		w.want(t, "a IDLE", "b IDLE", "a RUNNING", "a COMPLETED", "b gone")
		if lost != 3 {
			t.Errorf("the loss was told at %d, want after the third line", lost)
		}
		w.stop(t)
	})
}

func TestWatchDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchFake(t, newRig(t, flow("a", idle)))
		drain := w.drain
		w.mu.Lock()
		w.drain = make(chan struct{})
		w.mu.Unlock()
		close(drain) // the server says goodbye, and goes on
		synctest.Wait()
		w.set(flow("a", running))
		settle(time.Second)
		w.want(t, "a IDLE", "lost: Unavailable", "a RUNNING")
		if w.fresh != 1 {
			t.Errorf("%d streams began from nothing, want 1", w.fresh)
		}
		w.stop(t)
	})
}

func TestWatchStartsOver(t *testing.T) {
	tests := []struct {
		name string
		lose func(*rig)
		lost string
	}{
		{"token too old", func(r *rig) { r.compact() }, "lost: OutOfRange"},
		{"another store", func(r *rig) { r.instance = "two" }, "lost: InvalidArgument"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := watchFake(t, newRig(t, flow("a", idle), flow("b", idle), flow("c", idle)))
				w.rig.stop()
				synctest.Wait()
				w.set(flow("a", running))
				w.remove("b")
				test.lose(w.rig)
				w.serve(w.fake)
				settle(10 * time.Second)
				if !slices.Contains(w.log, test.lost) {
					t.Errorf("no %q in %q", test.lost, w.log)
				}
				w.log = slices.DeleteFunc(w.log, func(line string) bool { return strings.HasPrefix(line, "lost") })
				// What is as it was is not told again; what is no longer there is.
				w.want(t, "a IDLE", "b IDLE", "c IDLE", "a RUNNING", "b gone")
				if w.fresh != 2 {
					t.Errorf("%d streams began from nothing, want 2", w.fresh)
				}
				w.stop(t)
			})
		})
	}
}

func TestWatchGivesUp(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want codes.Code
	}{
		{"never reached", nil, codes.Unavailable},
		{"refused", status.Error(codes.PermissionDenied, "no"), codes.PermissionDenied},
		{"bad filter", refusal(codes.InvalidArgument, "INVALID", "no", nil), codes.InvalidArgument},
		{"too old without a token", refusal(codes.OutOfRange, "COMPACTED", "no", nil), codes.OutOfRange},
		{"defect", refusal(codes.Internal, "INTERNAL", "no", nil), codes.Internal},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				if test.err == nil {
					r.stop()
				} else {
					r.fail["WatchStatus"] = []error{test.err}
				}
				w := watchFake(t, r)
				if err := <-w.ended; status.Code(err) != test.want {
					t.Errorf("ended with %v, want %v", err, test.want)
				}
				r.stop()
			})
		})
	}
}

// A stream that is open but dead, as behind a proxy whose server is gone, is left after a while.
func TestWatchLeavesSilentStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchFake(t, newRig(t, flow("a", idle)))
		settle(watchSilence + 2*time.Second)
		if n := len(w.received("WatchStatus")); n != 2 {
			t.Errorf("%d streams after %s without a word, want 2", n, watchSilence)
		}
		w.want(t, "a IDLE", "lost: Unknown")
		w.stop(t)
	})
}

// A server that answers each try at once must not be asked without a pause.
func TestWatchPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, flow("a", idle))
		w := watchFake(t, r)
		r.mu.Lock()
		for range 10_000 {
			r.fail["WatchStatus"] = append(r.fail["WatchStatus"], status.Error(codes.Unavailable, "try again"))
		}
		r.mu.Unlock()
		r.stop()
		r.serve(r.fake)
		settle(time.Minute)
		if n := len(w.received("WatchStatus")); n < 12 || n > 40 {
			t.Errorf("%d tries in a minute, want about one in 2.5 to 5 seconds", n)
		}
		r.mu.Lock()
		r.fail["WatchStatus"] = nil
		r.mu.Unlock()
		settle(resumeMost)
		w.set(flow("a", running))
		synctest.Wait()
		if last := w.log[len(w.log)-1]; last != "a RUNNING" {
			t.Errorf("last told: %q", last)
		}
		w.stop(t)
	})
}

func TestResumable(t *testing.T) {
	cut := status.Error(codes.Internal, "stream terminated by RST_STREAM with error code: INTERNAL_ERROR")
	tests := []struct {
		err      error
		received bool
		want     bool
	}{
		{status.Error(codes.Unavailable, ""), false, true},
		{status.Error(codes.ResourceExhausted, ""), false, true},
		{cut, true, true},
		{cut, false, false},
		{refusal(codes.Internal, "INTERNAL", "defect", nil), true, false},
		{status.Error(codes.NotFound, ""), true, false},
		{errSilence, false, true},
		{errors.New("no status at all"), true, false},
	}
	for _, test := range tests {
		if got := resumable(test.err, test.received); got != test.want {
			t.Errorf("resumable(%v, %v) = %v", test.err, test.received, got)
		}
	}
}

func TestPause(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		failures := rapid.IntRange(0, 1000).Draw(t, "failures")
		d := pause(failures)
		most := min(resumeFirst<<min(failures, 10), resumeMost)
		if d < most/2 || d > most {
			t.Fatalf("pause(%d) = %s, want within half of %s", failures, d, most)
		}
	})
}

func TestRetryDelay(t *testing.T) {
	wait := func(d time.Duration) error {
		return refusal(codes.Unavailable, "NOT_READY", "loading", nil, &errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
	}
	for d, want := range map[time.Duration]time.Duration{3 * time.Second: 3 * time.Second, time.Hour: time.Minute} {
		if got := retryDelay(wait(d)); got != want {
			t.Errorf("asked to wait %s, waits %s", d, got)
		}
	}
	if got := retryDelay(errors.New("x")); got != 0 {
		t.Errorf("waits %s for no reason", got)
	}
}

// TestMirror applies random histories with breaks in them: in the end the mirror has the newest
// state of each flow, and the changes it told, applied one by one, lead there too.
func TestMirror(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		server := map[string]*pb.FlowInfo{}
		var m mirror
		told := map[string]*pb.FlowInfo{}
		take := func(response *pb.WatchStatusResponse, fresh bool) {
			for _, change := range m.apply(response, fresh) {
				if change.flow == nil {
					if told[change.id] == nil {
						t.Fatalf("%s left without ever having been there", change.id)
					}
					delete(told, change.id)
				} else {
					told[change.id] = change.flow
				}
			}
		}
		id := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		snapshot := func() {
			response := &pb.WatchStatusResponse{InitialStateComplete: true}
			for _, flow := range server {
				response.Changes = append(response.Changes, &pb.FlowChange{Type: pb.FlowChangeType_FLOW_CHANGE_TYPE_SNAPSHOT, Flow: flow})
			}
			take(response, true)
		}
		snapshot()
		for i := range rapid.IntRange(0, 30).Draw(t, "steps") {
			id := id.Draw(t, "id")
			change := &pb.FlowChange{Type: pb.FlowChangeType_FLOW_CHANGE_TYPE_UPDATED, Flow: &pb.FlowInfo{Id: id, Revision: uint64(i + 1)}}
			if rapid.Bool().Draw(t, "delete") {
				change.Type = pb.FlowChangeType_FLOW_CHANGE_TYPE_DELETED
				delete(server, id)
			} else {
				server[id] = change.Flow
			}
			if rapid.Bool().Draw(t, "seen") { // else it falls into a break
				take(&pb.WatchStatusResponse{Changes: []*pb.FlowChange{change}}, false)
			} else {
				snapshot()
			}
		}
		if fmt.Sprint(m.flows) != fmt.Sprint(server) || fmt.Sprint(told) != fmt.Sprint(server) {
			t.Fatalf("mirror %v, told %v, server %v", m.flows, told, server)
		}
	})
}

func TestWorthALine(t *testing.T) {
	before := sampleFlows()[0]
	tests := []struct {
		name string
		edit func(*pb.FlowInfo)
		want bool
	}{
		{"nothing", func(*pb.FlowInfo) {}, false},
		{"next fire time", func(f *pb.FlowInfo) { f.NextFire = at(time.Hour) }, false},
		{"skipped fire times", func(f *pb.FlowInfo) { f.Skipped = []*pb.SkipCount{{Count: 1}}; f.Revision++ }, false},
		{"status", func(f *pb.FlowInfo) { f.Status = tripped }, true},
		{"state of the run", func(f *pb.FlowInfo) { f.CurrentRun.State = "upload" }, true},
		{"paused", func(f *pb.FlowInfo) { f.Paused = true }, true},
	}
	for _, test := range tests {
		after := sampleFlows()[0]
		test.edit(after)
		if got := (flowChange{before: before, flow: after}).worthALine(); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
	if !(flowChange{flow: before}).worthALine() || !(flowChange{before: before}).worthALine() {
		t.Error("coming and going are worth a line")
	}
}

func TestMirrorTop(t *testing.T) {
	var m mirror
	var changes []*pb.FlowChange
	for i := range 100 {
		changes = append(changes, &pb.FlowChange{Flow: &pb.FlowInfo{
			Id: fmt.Sprintf("flow-%02d", i), Status: idle, LastRun: at(time.Duration(i) * time.Second),
		}})
	}
	changes[7].Flow.Status = tripped
	changes[50].Flow.Status = running
	m.apply(&pb.WatchStatusResponse{Changes: changes, InitialStateComplete: true}, true)
	var ids []string
	for _, flow := range m.top(4) {
		ids = append(ids, flow.GetId())
	}
	// The two that want attention and the two that ran last, in order of id.
	if got := strings.Join(ids, " "); got != "flow-07 flow-50 flow-98 flow-99" {
		t.Errorf("top: %s", got)
	}
	if n := len(m.top(1000)); n != 100 {
		t.Errorf("top of more than there are: %d", n)
	}
	if n := len(m.top(0)); n != 0 {
		t.Errorf("top of none: %d", n)
	}
}

func TestFollowRunOverRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, flow("backup", running))
		run := sampleRun()
		events := run.Events
		run.EndTime, run.Events = nil, events[:3]
		r.setRun(run)
		conn, err := (&connection{server: defaultServer}).dial(r.environment(&syncBuffer{}, &syncBuffer{}, nil))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var got []*pb.RunEvent
		ended := make(chan *pb.Run, 1)
		go func() {
			watch := RunWatch{Client: pb.NewSchedulerServiceClient(conn), RunID: "backup@11"}
			run, err := watch.Run(t.Context(), func(response *pb.WatchRunResponse) error {
				got = append(got, response.GetEvents()...)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			ended <- run
		}()
		synctest.Wait()

		r.stop()
		// The crash takes one event that was shown, and the oldest ones are no longer kept.
		run.Events = events[1:2]
		r.setRun(run)
		r.serve(r.fake)
		settle(10 * time.Second)
		run.Events = events[1:]
		run.EndTime = sampleRun().GetEndTime()
		r.setRun(run)
		if end := <-ended; end.GetOutcome() != pb.Outcome_OUTCOME_SUCCEEDED {
			t.Errorf("ended %v", end)
		}
		if len(got) != len(events) {
			t.Errorf("%d events were told, want %d, each once", len(got), len(events))
		}
		r.stop()
	})
}

func TestServiceConfigNamesEveryCallThatMayBeRepeated(t *testing.T) {
	methods := pb.File_schedulerd_v1_scheduler_service_proto.Services().Get(0).Methods()
	for i := range methods.Len() {
		method := methods.Get(i)
		repeatable := !method.IsStreamingServer() && method.Name() != "Stop" // Stop has no request_id
		named := strings.Count(serviceConfig, fmt.Sprintf("%q}", method.Name()))
		if repeatable && named != 1 || !repeatable && named != 0 {
			t.Errorf("%s is named %d times", method.Name(), named)
		}
		if repeatable && method.Options() != nil {
			read := strings.Contains(fmt.Sprint(method.Options()), "NO_SIDE_EFFECTS")
			if hasID := method.Input().Fields().ByName("request_id") != nil; !read && !hasID {
				t.Errorf("%s changes something and carries no request_id", method.Name())
			}
		}
	}
	if strings.Count(serviceConfig, `"method"`) != methods.Len()-5 {
		t.Error("the service config names a method that does not exist")
	}
}
