package manifest

import (
	"cmp"
	"slices"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/definition"
)

// ChangeType is what happens to a flow.
type ChangeType uint8

// What can happen.
const (
	Added ChangeType = iota + 1
	Changed
	Removed
	Unchanged
)

func (t ChangeType) String() string {
	return [...]string{"", "added", "changed", "removed", "unchanged"}[t]
}

// Change is what happens to one flow.
type Change struct {
	FlowID string
	Type   ChangeType
	Fields []string // paths of the fields that change, if Type is Changed
}

// Plan tells what happens to each flow if new takes the place of old, in order of id.
func Plan(old, new []*schedulerdv1.Flow) []Change {
	before := make(map[string]*schedulerdv1.Flow, len(old))
	for _, f := range old {
		before[f.GetId()] = f
	}
	changes := make([]Change, 0, len(new))
	for _, f := range new {
		change := Change{FlowID: f.GetId(), Type: Added}
		if was := before[f.GetId()]; was != nil {
			change.Type = Unchanged
			if change.Fields = definition.Diff(was, f); len(change.Fields) > 0 {
				change.Type = Changed
			}
			delete(before, f.GetId())
		}
		changes = append(changes, change)
	}
	for id := range before {
		changes = append(changes, Change{FlowID: id, Type: Removed})
	}
	slices.SortFunc(changes, func(a, b Change) int { return cmp.Compare(a.FlowID, b.FlowID) })
	return changes
}
