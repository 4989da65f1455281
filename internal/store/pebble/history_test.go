package pebble

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/schedulerd/schedulerd/internal/core/store"
)

// history is an endless sequence of groups that its seed determines. So what a store should hold at revision n can be computed, whoever
// wrote it: group n makes revision n.
type history struct {
	seed    uint64
	applied int
	content map[string]string // after the applied groups; keys have their shard in front
}

const historyShards = 3

func newHistory(seed uint64) *history { return &history{seed: seed, content: map[string]string{}} }

// group is what an engine commits: states that are written over and over, entries of a ring, and keys that come and go.
func (h *history) group(n int) []store.Change {
	rng := rand.New(rand.NewPCG(h.seed, uint64(n)))
	changes := []store.Change{{Key: []byte("newest"), Value: fmt.Appendf(nil, "%d", n)}}
	for range rng.IntN(8) {
		c := store.Change{Shard: store.Shard(rng.IntN(historyShards))}
		flow := rng.IntN(200)
		switch rng.IntN(4) {
		case 0:
			c.Key = fmt.Appendf(nil, "ring/%d/%d", flow, n%5)
		case 1:
			c.Key = fmt.Appendf(nil, "run/%d", flow%10)
		default:
			c.Key = fmt.Appendf(nil, "state/%d", flow)
		}
		if rng.IntN(4) > 0 {
			c.Value = fmt.Appendf(nil, "%d %d %0*d", n, flow, rng.IntN(300), n)
			if rng.IntN(100) == 0 {
				c.Value = append(c.Value, make([]byte, 20_000)...)
			}
		}
		changes = append(changes, c)
	}
	return changes
}

// at is the content after n groups. It is quick when n grows from call to call.
func (h *history) at(n int) map[string]string {
	if n < h.applied {
		h.applied = 0
		clear(h.content)
	}
	for ; h.applied < n; h.applied++ {
		for _, c := range h.group(h.applied + 1) {
			key := fmt.Sprintf("%d/%s", c.Shard, c.Key)
			if c.Value == nil {
				delete(h.content, key)
			} else {
				h.content[key] = string(c.Value)
			}
		}
	}
	return h.content
}

// check compares a store with its history and returns its revision.
func (h *history) check(s *Store) (int, error) {
	n := int(s.Info().Revision)
	got := map[string]string{}
	for shard := range store.Shard(historyShards) {
		err := s.Scan(ctx, shard, nil, false, func(key, value []byte) bool {
			got[fmt.Sprintf("%d/%s", shard, key)] = string(value)
			return true
		})
		if err != nil {
			return n, err
		}
	}
	if want := h.at(n); !maps.Equal(got, want) {
		return n, fmt.Errorf("revision %d has %d keys that are not what it should hold (%d keys): newest is %q",
			n, len(got), len(want), got["0/newest"])
	}
	return n, nil
}

// append commits the groups that come next and says so with acknowledged, until that returns false.
func (h *history) append(s *Store, acknowledged func(n int) bool) error {
	session, err := s.Join(ctx)
	if err != nil {
		return err
	}
	owned, err := session.Acquire(ctx, []store.Shard{0, 1, 2})
	if err != nil {
		return err
	}
	if len(owned) != historyShards {
		return fmt.Errorf("acquired %v", owned)
	}
	for seq := uint64(1); ; seq++ {
		n := int(session.Revision()) + 1
		revision, err := session.Commit(ctx, store.Group{Seq: seq, Changes: h.group(n)})
		if err != nil {
			return errors.Join(err, session.Close(ctx))
		}
		if int(revision) != n {
			return fmt.Errorf("group %d made revision %d", n, revision)
		}
		if !acknowledged(n) {
			return session.Close(ctx)
		}
	}
}

// grow commits some more groups.
func (h *history) grow(t testing.TB, s *Store, groups int) {
	t.Helper()
	err := h.append(s, func(int) bool {
		groups--
		return groups > 0
	})
	if err != nil {
		t.Fatal(err)
	}
}

// small makes the engine write tables and compact them after few groups.
func small(o Options) Options {
	o.MemtableBytes, o.CacheBytes = 64<<10, 1<<20
	return o
}

func mustOpen(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func mustClose(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
