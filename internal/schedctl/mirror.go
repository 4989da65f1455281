package schedctl

import (
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

// mirror is the states of flows as a watch tells them.
type mirror struct {
	flows map[string]*pb.FlowInfo
	// stale are the flows known from before a fresh start that have not been told again.
	stale map[string]bool
	// complete is set once the initial state has been told.
	complete bool
}

// flowChange is a change of the mirror.
type flowChange struct {
	id     string
	before *pb.FlowInfo // nil: it is new here
	flow   *pb.FlowInfo // nil: it left
	left   pb.FlowChangeType
	merged uint32
}

// worthALine says whether more has changed than what the clock and the counters of skipped fire times change by themselves.
func (c flowChange) worthALine() bool {
	if c.before == nil || c.flow == nil {
		return true
	}
	before, after := proto.CloneOf(c.before), proto.CloneOf(c.flow)
	for _, flow := range []*pb.FlowInfo{before, after} {
		flow.NextFire, flow.Skipped, flow.Revision = nil, nil, 0
	}
	return !proto.Equal(before, after)
}

// apply takes one response of a watch and returns what changed by it, in its order.
func (m *mirror) apply(response *pb.WatchStatusResponse, fresh bool) []flowChange {
	if m.flows == nil {
		m.flows = map[string]*pb.FlowInfo{}
	}
	if fresh {
		m.stale = map[string]bool{}
		for id := range m.flows {
			m.stale[id] = true
		}
	}
	var changes []flowChange
	leave := func(id string, how pb.FlowChangeType) {
		if _, known := m.flows[id]; known {
			delete(m.flows, id)
			changes = append(changes, flowChange{id: id, left: how})
		}
	}
	for _, change := range response.GetChanges() {
		flow := change.GetFlow()
		id := flow.GetId()
		delete(m.stale, id)
		switch change.GetType() {
		case pb.FlowChangeType_FLOW_CHANGE_TYPE_LEFT, pb.FlowChangeType_FLOW_CHANGE_TYPE_DELETED:
			leave(id, change.GetType())
		default:
			// A snapshot after a fresh start repeats what is known.
			if before := m.flows[id]; !proto.Equal(before, flow) {
				m.flows[id] = flow
				changes = append(changes, flowChange{id: id, before: before, flow: flow, merged: change.GetMerged()})
			}
		}
	}
	if response.GetInitialStateComplete() {
		for _, id := range slices.Sorted(maps.Keys(m.stale)) {
			leave(id, pb.FlowChangeType_FLOW_CHANGE_TYPE_DELETED)
		}
		m.stale, m.complete = nil, true
	}
	return changes
}

// counts is the number of flows in each status.
func (m *mirror) counts() map[pb.FlowStatus]int {
	counts := map[pb.FlowStatus]int{}
	for _, flow := range m.flows {
		counts[flow.GetStatus()]++
	}
	return counts
}

// top is at most n flows, in order of id. Where there are more, those that want attention are chosen:
// tripped, in backoff and running ones, then those that ran last.
func (m *mirror) top(n int) []*pb.FlowInfo {
	var chosen []*pb.FlowInfo // by attention
	for _, flow := range m.flows {
		at, _ := slices.BinarySearchFunc(chosen, flow, byAttention)
		if at < n {
			chosen = slices.Insert(chosen, at, flow)
			chosen = chosen[:min(n, len(chosen))]
		}
	}
	slices.SortFunc(chosen, func(a, b *pb.FlowInfo) int { return strings.Compare(a.GetId(), b.GetId()) })
	return chosen
}

func byAttention(a, b *pb.FlowInfo) int {
	if order := attention(b) - attention(a); order != 0 {
		return order
	}
	if order := b.GetLastRun().AsTime().Compare(a.GetLastRun().AsTime()); order != 0 {
		return order
	}
	return strings.Compare(a.GetId(), b.GetId())
}

func attention(flow *pb.FlowInfo) int {
	switch flow.GetStatus() {
	case pb.FlowStatus_FLOW_STATUS_TRIPPED:
		return 3
	case pb.FlowStatus_FLOW_STATUS_BACKOFF:
		return 2
	case pb.FlowStatus_FLOW_STATUS_RUNNING:
		return 1
	}
	return 0
}
