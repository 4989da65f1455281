package simtest

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/store/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/store"
)

// Truth is what was committed of each flow, in order, as the store saw it.
type Truth struct {
	mu    sync.Mutex
	flows map[string][]Committed
}

// Committed is a flow's state as a commit left it, as far as watchers are concerned.
type Committed struct {
	Revision uint64
	Status   flow.Status
	Deleted  bool
}

// NewTruth returns an empty one.
func NewTruth() *Truth { return &Truth{flows: map[string][]Committed{}} }

// Record makes a store tell the truth all its commits. A commit that became durable though its answer was lost in a crash is learnt of
// now that the store is opened again.
func (t *Truth) Record(s store.Store) store.Store {
	t.mu.Lock()
	defer t.mu.Unlock()
	for shard := range store.Shard(core.Shards) {
		err := s.Scan(context.Background(), shard, []byte(stateKey), false, func(key, value []byte) bool {
			var state storev1.StateRecord
			if err := proto.Unmarshal(value, &state); err != nil {
				panic(err)
			}
			id := string(key[len(stateKey):])
			if known := t.flows[id]; len(known) == 0 || known[len(known)-1].Revision < state.Revision {
				t.add(id, &state)
			}
			return true
		})
		if err != nil {
			panic(err)
		}
	}
	return observed{s, t.commit}
}

// Len is the number of states committed.
func (t *Truth) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, states := range t.flows {
		n += len(states)
	}
	return n
}

func (t *Truth) commit(revision store.Revision, changes []store.Change) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range changes {
		id, ok := strings.CutPrefix(string(c.Key), stateKey)
		if !ok || c.Value == nil {
			continue
		}
		var state storev1.StateRecord
		if err := proto.Unmarshal(c.Value, &state); err != nil {
			return err
		}
		if state.Revision != uint64(revision) {
			return fmt.Errorf("flow %s says revision %d in commit %d", id, state.Revision, revision)
		}
		t.add(id, &state)
	}
	return nil
}

func (t *Truth) add(id string, state *storev1.StateRecord) {
	t.flows[id] = append(t.flows[id], Committed{state.Revision, flow.Status(state.Status), state.Deleted})
}

// Keys begin with the kind of their record.
const (
	definitionKey = "d/"
	stateKey      = "s/"
	openRunKey    = "o/"
	historyKey    = "h/"
	requestKey    = "q/"
	pinnedKey     = "p/"
)

// observed is a store whose commits are told as soon as they are durable, before the engine learns of it.
type observed struct {
	store.Store
	committed func(store.Revision, []store.Change) error
}

// Durable is true: the engine tells a store that ends with the process less.
func (o observed) Durable() bool { return true }

func (o observed) Join(ctx context.Context) (store.Session, error) {
	s, err := o.Store.Join(ctx)
	return observedSession{s, o.committed}, err
}

type observedSession struct {
	store.Session
	committed func(store.Revision, []store.Change) error
}

func (s observedSession) Commit(ctx context.Context, g store.Group) (store.Revision, error) {
	revision, err := s.Session.Commit(ctx, g)
	if err == nil {
		err = s.committed(revision, g.Changes)
	}
	return revision, err
}
