package service

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

func changes(n int, kind core.ChangeType) []core.Change {
	out := make([]core.Change, n)
	for i := range out {
		out[i] = core.Change{Type: kind, Info: testInfo(fmt.Sprintf("flow-%05d", i), flow.Idle), Merged: uint32(i % 3)}
	}
	return out
}

func TestWatchStatus(t *testing.T) {
	s, f, _ := newService(t, nil)
	c := client(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	from := resumeToken("instance-1", 17)
	stream, err := c.WatchStatus(ctx, &pb.WatchStatusRequest{
		Filter:      &pb.FlowFilter{FlowIds: []string{"a"}, Labels: map[string]string{"l": "v"}, Statuses: []pb.FlowStatus{pb.FlowStatus_FLOW_STATUS_BACKOFF}},
		ResumeToken: from, MinInterval: durationpb.New(time.Second),
	})
	if err != nil {
		t.Fatal(err)
	}
	left, gone := testInfo("left", flow.Running), testInfo("gone", flow.Idle)
	gone.Deleted = true
	f.batches <- core.Batch{Revision: 20, InitialComplete: true, Changes: []core.Change{
		{Type: core.Updated, Info: f.info, Merged: 2}, {Type: core.Left, Info: left}, {Type: core.Deleted, Info: gone},
	}}
	f.batches <- core.Batch{Revision: 30}
	got, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	want := &pb.WatchStatusResponse{
		Changes: []*pb.FlowChange{
			{Type: pb.FlowChangeType_FLOW_CHANGE_TYPE_UPDATED, Flow: flowInfo(f.info), Merged: 2},
			{Type: pb.FlowChangeType_FLOW_CHANGE_TYPE_LEFT, Flow: flowInfo(left)},
			{Type: pb.FlowChangeType_FLOW_CHANGE_TYPE_DELETED, Flow: &pb.FlowInfo{Id: "gone", Revision: 40}},
		},
		ResumeToken: resumeToken("instance-1", 20), InitialStateComplete: true,
	}
	if !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	asked := []any{"Watch", core.WatchOptions{
		Filter: core.Filter{IDs: []string{"a"}, Labels: map[string]string{"l": "v"}, Statuses: []flow.Status{flow.Backoff}},
		From:   17, Instance: "instance-1", MinInterval: time.Second,
	}}
	if got := f.lastAsked(); !reflect.DeepEqual(got, asked) {
		t.Errorf("asked %v\nwant  %v", got, asked)
	}
	bookmark, err := stream.Recv()
	if err != nil || !proto.Equal(bookmark, &pb.WatchStatusResponse{ResumeToken: resumeToken("instance-1", 30)}) {
		t.Errorf("bookmark %v, %v", bookmark, err)
	}
	if s.Watchers() != 1 {
		t.Errorf("%d watchers", s.Watchers())
	}
	cancel()
	if _, err := stream.Recv(); err == nil {
		t.Error("the stream goes on after its client left")
	}
}

// However large a batch is, its responses are not, and the token of what was not sent yet is not told.
func TestLargeBatches(t *testing.T) {
	for _, c := range []struct {
		name    string
		changes []core.Change
		atLeast int
	}{
		{"many", changes(2500, core.Snapshot), 3},
		{"large", func() []core.Change {
			all := changes(50, core.Updated)
			for _, c := range all {
				c.Info.LastError = strings.Repeat("x", 100<<10)
			}
			return all
		}(), 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, f, _ := newService(t, nil)
			stream, err := client(t, s).WatchStatus(t.Context(), &pb.WatchStatusRequest{})
			if err != nil {
				t.Fatal(err)
			}
			f.batches <- core.Batch{Changes: c.changes, Revision: 50, InitialComplete: true}
			seen, responses := 0, 0
			for complete := false; !complete; responses++ {
				r, err := stream.Recv()
				if err != nil {
					t.Fatal(err)
				}
				if len(r.GetChanges()) > maxPieceChanges || len(r.GetChanges()) > 1 && proto.Size(r) > maxPieceBytes+1000 {
					t.Errorf("a response of %d changes, %d bytes", len(r.GetChanges()), proto.Size(r))
				}
				for _, change := range r.GetChanges() {
					if want := c.changes[seen]; change.GetFlow().GetId() != want.Info.Flow.ID || change.GetMerged() != want.Merged {
						t.Fatalf("change %d is %v", seen, change)
					}
					seen++
				}
				complete = r.GetInitialStateComplete()
				if want := ""; !complete && r.GetResumeToken() != want {
					t.Errorf("token %q in the middle of a batch", r.GetResumeToken())
				}
				if complete && r.GetResumeToken() != resumeToken("instance-1", 50) {
					t.Errorf("token %q at the end of the batch", r.GetResumeToken())
				}
			}
			if seen != len(c.changes) || responses < c.atLeast {
				t.Errorf("%d changes in %d responses", seen, responses)
			}
		})
	}
}

func TestWatchEnds(t *testing.T) {
	t.Run("with the scheduler", func(t *testing.T) {
		s, f, _ := newService(t, nil)
		stream, err := client(t, s).WatchStatus(t.Context(), &pb.WatchStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		f.batches <- core.Batch{Changes: changes(1, core.Updated), Revision: 50, Ending: true}
		r, err := stream.Recv()
		if err != nil || !r.GetEnding() || len(r.GetChanges()) != 1 || r.GetResumeToken() != resumeToken("instance-1", 50) {
			t.Errorf("%v, %v", r, err)
		}
		if _, err := stream.Recv(); tell(err).reason != "STOPPING" {
			t.Error(err)
		}
	})
	t.Run("with the server", func(t *testing.T) {
		s, f, _ := newService(t, nil)
		stream, err := client(t, s).WatchStatus(t.Context(), &pb.WatchStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		f.batches <- core.Batch{Changes: changes(1, core.Updated), Revision: 50}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		s.EndStreams()
		r, err := stream.Recv()
		if err != nil || !r.GetEnding() || r.GetResumeToken() != resumeToken("instance-1", 50) {
			t.Errorf("%v, %v", r, err)
		}
		if _, err := stream.Recv(); tell(err).reason != "STOPPING" {
			t.Error(err)
		}
		if n := s.Watchers(); n != 0 {
			t.Errorf("%d watches left", n)
		}
	})
	t.Run("in the core", func(t *testing.T) {
		s, f, _ := newService(t, nil)
		f.err = core.ErrCompacted
		stream, err := client(t, s).WatchStatus(t.Context(), &pb.WatchStatusRequest{ResumeToken: resumeToken("instance-1", 1)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); tell(err).reason != "COMPACTED" {
			t.Error(err)
		}
	})
}

// Each watch ends by itself between half of the greatest age and all of it, with the token to go on with.
func TestWatchesAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const age = 40 * time.Minute
		s, f, _ := newService(t, func(c *Config) { c.WatchAge = age })
		f.batches <- core.Batch{Revision: 50, InitialComplete: true}
		ages := map[time.Duration]bool{}
		for range 20 {
			began := time.Now()
			stream := newRecorder(t.Context())
			if err := s.WatchStatus(&pb.WatchStatusRequest{ResumeToken: resumeToken("instance-1", 50)}, stream); err != nil {
				t.Fatal(err)
			}
			last := stream.sent[len(stream.sent)-1]
			if !last.GetEnding() || last.GetResumeToken() != resumeToken("instance-1", 50) {
				t.Errorf("last response %v", last)
			}
			lasted := time.Since(began)
			if lasted < age/2 || lasted > age {
				t.Errorf("lasted %v", lasted)
			}
			ages[lasted] = true
		}
		if len(ages) < 15 {
			t.Errorf("20 watches had %d ages", len(ages))
		}
		if s.Watchers() != 0 {
			t.Errorf("%d watches left", s.Watchers())
		}
	})
}

// recorder is a stream that keeps what is sent on it.
type recorder struct {
	grpc.ServerStream
	ctx  context.Context
	mu   sync.Mutex
	sent []*pb.WatchStatusResponse
}

func newRecorder(ctx context.Context) *recorder { return &recorder{ctx: ctx} }

func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Send(m *pb.WatchStatusResponse) error {
	raw, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	got := &pb.WatchStatusResponse{} // as a client gets it
	if err := proto.Unmarshal(raw, got); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, got)
	return nil
}

// A watcher that never reads is held up by flow control: what is sent for it is bounded, and others are not held up.
func TestWatcherThatNeverReads(t *testing.T) {
	s, f, _ := newService(t, nil)
	c := client(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := c.WatchStatus(ctx, &pb.WatchStatusRequest{}); err != nil {
		t.Fatal(err)
	}
	big := changes(1, core.Updated)
	big[0].Info.LastError = strings.Repeat("x", 100<<10)
	// Windows and buffers hold much less than this: the watch must stop asking for more.
	for i := range 100 {
		f.batches <- core.Batch{Changes: big, Revision: uint64(i + 1)}
	}
	for range 100 { // other calls on the same connection go on meanwhile
		if _, err := c.Status(t.Context(), &pb.StatusRequest{FlowId: "backup"}); err != nil {
			t.Fatal(err)
		}
	}
	if left := len(f.batches); left < 50 {
		t.Errorf("%d batches were taken for a watcher that does not read", 100-left)
	}
}

// What is sent from the shared encoding is what the message says.
func TestSharedInfos(t *testing.T) {
	var s shared
	info := testInfo("a", flow.Running)
	info.LastError = "\xff"
	change := core.Change{Type: core.Updated, Info: info}
	first := s.flow(change)
	if s.flow(change) != first {
		t.Error("encoded twice")
	}
	raw, err := proto.Marshal(&pb.FlowChange{Flow: first})
	if err != nil {
		t.Fatal(err)
	}
	var got pb.FlowChange
	if err := proto.Unmarshal(raw, &got); err != nil || !proto.Equal(got.GetFlow(), flowInfo(info)) {
		t.Errorf("%v, %v", got.GetFlow(), err)
	}
	// It forgets: neither the number of changes nor their age makes it grow.
	for _, c := range changes(3*sharedInfos, core.Updated) {
		s.flow(c)
	}
	if n := len(s.young) + len(s.old); n > 2*sharedInfos {
		t.Errorf("holds %d", n)
	}
	if s.flow(change) == first {
		t.Error("still held after others drove it out")
	}
}

// A change is encoded once however many streams watch, at whatever pace.
func TestOneEncodingForAll(t *testing.T) {
	s, _, _ := newService(t, nil)
	all := changes(40, core.Updated)
	for watcher := range 100 {
		r := newRecorder(t.Context())
		for rest, n := all, 1+watcher%5; len(rest) > 0; {
			n := min(n, len(rest))
			batch := core.Batch{Changes: rest[:n], Revision: rest[n-1].Info.Revision}
			if err := s.sendBatch(r, "instance", batch, 0); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		var got []*pb.FlowChange
		for _, m := range r.sent {
			got = append(got, m.GetChanges()...)
		}
		if len(got) != len(all) {
			t.Fatalf("%d changes of %d were sent", len(got), len(all))
		}
		for i, c := range got {
			if !proto.Equal(c.GetFlow(), flowInfo(all[i].Info)) {
				t.Fatalf("change %d is %v", i, c)
			}
		}
	}
	if s.shared.encodings != uint64(len(all)) {
		t.Errorf("%d changes took %d encodings", len(all), s.shared.encodings)
	}
}

func TestSharedInfosTogether(t *testing.T) {
	s, f, _ := newService(t, nil)
	c := client(t, s)
	all := changes(300, core.Updated)
	var wg sync.WaitGroup
	for range 10 {
		stream, err := c.WatchStatus(t.Context(), &pb.WatchStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		f.batches <- core.Batch{Changes: all, Revision: 50, Ending: true}
		wg.Go(func() {
			for {
				r, err := stream.Recv()
				if err != nil {
					if err == io.EOF || tell(err).reason != "STOPPING" {
						t.Error(err)
					}
					return
				}
				for i, change := range r.GetChanges() {
					if !proto.Equal(change.GetFlow(), flowInfo(all[i].Info)) {
						t.Errorf("change %d is %v", i, change)
					}
				}
			}
		})
	}
	wg.Wait()
}
