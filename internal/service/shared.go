package service

import (
	"slices"
	"sync"
	"sync/atomic"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"google.golang.org/protobuf/proto"
)

// sharedInfos is how many states a generation of shared holds: enough that streams that send the same change within a
// fraction of a second of each other find it, few enough not to matter.
const sharedInfos = 4096

// shared keeps the states that watchers are sending, each translated and encoded once for all of them. What was not asked for
// while sharedInfos others came is forgotten. It also keeps the last whole response: streams that keep up get the same one.
type shared struct {
	mu         sync.Mutex
	young, old map[*core.Info]*pb.FlowInfo
	encodings  uint64 // of states, so far
	last       atomic.Pointer[sharedResponse]
}

type sharedResponse struct {
	batch   core.Batch
	message *pb.WatchStatusResponse
}

// response is the one that a batch was sent in, if another stream has sent the same one last.
func (s *shared) response(batch core.Batch) *pb.WatchStatusResponse {
	last := s.last.Load()
	if last == nil || last.batch.Revision != batch.Revision || last.batch.InitialComplete != batch.InitialComplete ||
		last.batch.Ending != batch.Ending || !slices.Equal(last.batch.Changes, batch.Changes) {
		return nil
	}
	return last.message
}

// sent keeps a response that has all of a batch, and gives what to send in its place.
func (s *shared) sent(batch core.Batch, response *pb.WatchStatusResponse) *pb.WatchStatusResponse {
	if len(batch.Changes) == 0 || batch.Changes[0].Type == core.Snapshot {
		return response
	}
	response = encoded(response)
	s.last.Store(&sharedResponse{batch, response})
	return response
}

// flow is the state of a change.
func (s *shared) flow(c core.Change) *pb.FlowInfo {
	// Present states are read by one watcher at a time and would only drive out the changes.
	if c.Type == core.Snapshot {
		return flowInfo(c.Info)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if out, ok := s.young[c.Info]; ok {
		return out
	}
	out, ok := s.old[c.Info]
	if !ok {
		out = encoded(flowInfo(c.Info))
		s.encodings++
	}
	if len(s.young) >= sharedInfos {
		s.young, s.old = nil, s.young
	}
	if s.young == nil {
		s.young = make(map[*core.Info]*pb.FlowInfo)
	}
	s.young[c.Info] = out
	return out
}

// encoded is a message that is m once it was sent: it holds m's bytes in the place of unknown fields, which any codec copies
// out as they are. Sending it costs a copy instead of an encoding.
func encoded[M proto.Message](m M) M {
	raw, err := proto.Marshal(m)
	if err != nil {
		return m // and the same error where it is sent
	}
	out := m.ProtoReflect().New()
	out.SetUnknown(raw)
	return out.Interface().(M)
}
