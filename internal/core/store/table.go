package store

import (
	"bytes"
	"context"
	"sync"

	"github.com/RaduBerinde/btreemap"
)

// degree makes a node of the tree hold up to 63 keys, some 3 KB of pointers.
const degree = 32

// Table is the content of a store in memory: a tree a shard, copied on write, so that a Scan keeps its view without stopping writers.
// The zero value is empty and ready.
type Table struct {
	mu     sync.RWMutex
	shards map[Shard]*btreemap.BTreeMap[[]byte, []byte]
}

// Apply makes changes, all of them visible at once. It copies keys and values.
func (t *Table) Apply(changes []Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, change := range changes {
		tree := t.shards[change.Shard]
		if change.Value == nil {
			if tree != nil {
				tree.Delete(change.Key)
			}
			continue
		}
		if tree == nil {
			if t.shards == nil {
				t.shards = map[Shard]*btreemap.BTreeMap[[]byte, []byte]{}
			}
			tree = btreemap.New[[]byte, []byte](degree, bytes.Compare)
			t.shards[change.Shard] = tree
		}
		// Key and value share one allocation.
		n := len(change.Key)
		both := make([]byte, n+len(change.Value))
		copy(both, change.Key)
		copy(both[n:], change.Value)
		tree.ReplaceOrInsert(both[:n:n], both[n:])
	}
}

// Get reads one key; nil if there is none.
func (t *Table) Get(shard Shard, key []byte) []byte {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if tree := t.shards[shard]; tree != nil {
		if _, value, ok := tree.Get(key); ok {
			return append([]byte{}, value...)
		}
	}
	return nil
}

// Scan is Store.Scan.
func (t *Table) Scan(ctx context.Context, shard Shard, prefix []byte, reverse bool, fn func(key, value []byte) bool) error {
	tree := t.view(shard)
	if tree == nil {
		return ctx.Err()
	}
	entries := tree.Ascend(btreemap.GE(prefix), below(prefix))
	if reverse {
		entries = tree.Descend(below(prefix), btreemap.GE(prefix))
	}
	n := 0
	for key, value := range entries {
		if n%1024 == 0 && ctx.Err() != nil {
			break
		}
		n++
		if !fn(key, value) {
			return nil
		}
	}
	return ctx.Err()
}

func (t *Table) view(shard Shard) *btreemap.BTreeMap[[]byte, []byte] {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tree := t.shards[shard]; tree != nil {
		return tree.Clone()
	}
	return nil
}

func below(prefix []byte) btreemap.UpperBound[[]byte] {
	if end := PrefixEnd(prefix); end != nil {
		return btreemap.LT(end)
	}
	return btreemap.Max[[]byte]()
}
