package storetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/schedulerd/schedulerd/internal/core/store"
)

// model is what a store with two sessions should hold and allow, as plainly as possible.
type model struct {
	values     map[store.Shard]map[string]string
	owner      map[store.Shard]*writer
	generation map[store.Shard]uint64
	revision   store.Revision
}

// testModel does random things to the store and to the model, and compares after each.
func testModel(t *testing.T, open Open) {
	s := opened(t, open)
	defer func() { _ = s.Close() }()
	m := &model{
		values:     map[store.Shard]map[string]string{},
		owner:      map[store.Shard]*writer{},
		generation: map[store.Shard]uint64{},
	}
	writers := []*writer{joined(t, s), joined(t, s)}
	ctx := context.Background()
	shard := rapid.Uint16Range(0, 3)
	key := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 'a', 'b', 0xff}), 0, 3)

	// The store goes on from one run of the property to the next: opening one for each would be slow where it is on a disk.
	rapid.Check(t, func(rt *rapid.T) {
		rt.Repeat(map[string]func(*rapid.T){
			"": func(rt *rapid.T) {
				for shard := range store.Shard(4) {
					m.compare(rt, s, shard, nil, false)
				}
			},
			"acquire": func(rt *rapid.T) {
				w := rapid.SampledFrom(writers).Draw(rt, "writer")
				var shards []store.Shard
				var want []store.Owned
				for _, n := range rapid.SliceOfNDistinct(shard, 0, 4, rapid.ID).Draw(rt, "shards") {
					n := store.Shard(n)
					shards = append(shards, n)
					if m.owner[n] == nil {
						m.owner[n] = w
						m.generation[n]++
					}
					if m.owner[n] == w {
						want = append(want, store.Owned{Shard: n, Generation: m.generation[n]})
					}
				}
				got, err := w.session.Acquire(ctx, shards)
				if err != nil || !slices.Equal(got, want) {
					rt.Fatalf("acquired %v, %v, want %v", got, err, want)
				}
			},
			"release": func(rt *rapid.T) {
				w := rapid.SampledFrom(writers).Draw(rt, "writer")
				n := store.Shard(shard.Draw(rt, "shard"))
				if err := w.session.Release(ctx, []store.Shard{n}); err != nil {
					rt.Fatal(err)
				}
				if m.owner[n] == w {
					delete(m.owner, n)
				}
			},
			"replace": func(rt *rapid.T) {
				i := rapid.IntRange(0, 1).Draw(rt, "writer")
				old := writers[i]
				if rapid.Bool().Draw(rt, "expire") {
					old.session.(Expirer).Expire()
				} else if err := old.session.Close(ctx); err != nil {
					rt.Fatal(err)
				}
				for n, owner := range m.owner {
					if owner == old {
						delete(m.owner, n)
					}
				}
				session, err := s.Join(ctx)
				if err != nil {
					rt.Fatal(err)
				}
				writers[i] = &writer{session: session}
			},
			"commit": func(rt *rapid.T) {
				w := rapid.SampledFrom(writers).Draw(rt, "writer")
				var changes []store.Change
				allowed := true
				for range rapid.IntRange(0, 5).Draw(rt, "changes") {
					c := store.Change{Shard: store.Shard(shard.Draw(rt, "shard")), Key: key.Draw(rt, "key")}
					if rapid.IntRange(0, 3).Draw(rt, "set") > 0 {
						c.Value = rapid.SliceOfN(rapid.Byte(), 0, 10).Draw(rt, "value")
					}
					changes = append(changes, c)
					allowed = allowed && m.owner[c.Shard] == w
				}
				g := store.Group{Seq: w.seq + 1, Changes: changes}
				revision, err := w.session.Commit(ctx, g)
				if !allowed {
					if !errors.Is(err, store.ErrFenced) {
						rt.Fatalf("commit to a shard of another: %d, %v", revision, err)
					}
					return
				}
				if err != nil || revision <= m.revision {
					rt.Fatalf("commit: %d, %v after %d", revision, err, m.revision)
				}
				w.seq++
				m.revision = revision
				for _, c := range changes {
					if c.Value == nil {
						delete(m.values[c.Shard], string(c.Key))
						continue
					}
					if m.values[c.Shard] == nil {
						m.values[c.Shard] = map[string]string{}
					}
					m.values[c.Shard][string(c.Key)] = string(c.Value)
				}
				if rapid.Bool().Draw(rt, "repeat") {
					if again, err := w.session.Commit(ctx, g); err != nil || again != revision {
						rt.Fatalf("the same Seq again: %d, %v, want %d", again, err, revision)
					}
				}
			},
			"scan": func(rt *rapid.T) {
				m.compare(rt, s, store.Shard(shard.Draw(rt, "shard")), key.Draw(rt, "prefix"), rapid.Bool().Draw(rt, "reverse"))
			},
			"get": func(rt *rapid.T) {
				n, key := store.Shard(shard.Draw(rt, "shard")), key.Draw(rt, "key")
				want, ok := m.values[n][string(key)]
				got, err := s.Get(ctx, n, key)
				if err != nil || (got != nil) != ok || string(got) != want {
					rt.Fatalf("Get(%d, %q) = %q, %v, want %q, %v", n, key, got, err, want, ok)
				}
			},
		})
		if s.Durable() {
			if err := s.Close(); err != nil {
				rt.Fatal(err)
			}
			next, err := open()
			if err != nil {
				rt.Fatal(err)
			}
			s = next
			clear(m.owner)
			for i := range writers {
				session, err := s.Join(ctx)
				if err != nil {
					rt.Fatal(err)
				}
				writers[i] = &writer{session: session}
			}
		}
	})
}

func (m *model) compare(rt *rapid.T, s store.Store, shard store.Shard, prefix []byte, reverse bool) {
	var want []string
	for key := range m.values[shard] {
		if bytes.HasPrefix([]byte(key), prefix) {
			want = append(want, key)
		}
	}
	slices.Sort(want)
	if reverse {
		slices.Reverse(want)
	}
	i := 0
	err := s.Scan(context.Background(), shard, prefix, reverse, func(key, value []byte) bool {
		if i >= len(want) || string(key) != want[i] || string(value) != m.values[shard][want[i]] {
			rt.Fatalf("shard %d, prefix %q, reverse %v: entry %d is %q = %q, want %q", shard, prefix, reverse, i, key, value, want)
		}
		i++
		return true
	})
	if err != nil || i != len(want) {
		rt.Fatalf("shard %d, prefix %q, reverse %v: %d entries, %v, want %q", shard, prefix, reverse, i, err, want)
	}
}
