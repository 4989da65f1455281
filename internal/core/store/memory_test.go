package store_test

import (
	"fmt"
	"testing"

	"github.com/schedulerd/schedulerd/internal/core/store"
	"github.com/schedulerd/schedulerd/internal/core/store/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Open {
		return func() (store.Store, error) { return store.NewMemory(), nil }
	})
}

func TestPrefixEnd(t *testing.T) {
	for _, test := range []struct{ prefix, want string }{
		{"", ""},
		{"a", "b"},
		{"ab", "ac"},
		{"a\xff", "b"},
		{"a\xff\xff", "b"},
		{"\x00", "\x01"},
		{"\xfe\xff", "\xff"},
		{"\xff", ""},
		{"\xff\xff", ""},
	} {
		prefix := []byte(test.prefix)
		got := store.PrefixEnd(prefix)
		if string(got) != test.want || (got == nil) != (test.want == "") || string(prefix) != test.prefix {
			t.Errorf("PrefixEnd(%q) = %q, want %q", test.prefix, got, test.want)
		}
	}
}

func BenchmarkMemory(b *testing.B) {
	s := store.NewMemory()
	defer s.Close()
	session, err := s.Join(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	const shards, flows, group = 64, 100_000, 300
	all := make([]store.Shard, shards)
	for i := range all {
		all[i] = store.Shard(i)
	}
	if _, err := session.Acquire(b.Context(), all); err != nil {
		b.Fatal(err)
	}
	keys := make([][]byte, flows)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "state/flow-%08d", i)
	}
	value := make([]byte, 200)
	changes := make([]store.Change, group)
	b.ReportAllocs()
	n := 0
	for i := 0; b.Loop(); i++ {
		for c := range changes {
			n += 7919
			changes[c] = store.Change{Shard: store.Shard(n % shards), Key: keys[n%flows], Value: value}
		}
		if _, err := session.Commit(b.Context(), store.Group{Seq: uint64(i + 1), Changes: changes}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*group)/b.Elapsed().Seconds(), "changes/s")
}
