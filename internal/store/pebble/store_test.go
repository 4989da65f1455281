package pebble

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/schedulerd/schedulerd/internal/core/store"
	"github.com/schedulerd/schedulerd/internal/core/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Open {
		dir := t.TempDir()
		return func() (store.Store, error) { return Open(Options{Dir: dir}) }
	})
}

// Small memtables make the engine write tables and compact them all the time.
func TestStoreInMotion(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Open {
		fs := vfs.NewMem()
		return func() (store.Store, error) {
			return Open(Options{Dir: "/data", FS: fs, MemtableBytes: 64 << 10, CacheBytes: 1 << 20})
		}
	})
}

// What a reader saw is not lost: a group is shown when it is on the disk, not before.
func TestReadersSeeWhatIsDurable(t *testing.T) {
	var armed atomic.Bool
	begun, release := make(chan struct{}), make(chan struct{})
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSyncData && strings.HasSuffix(op.Path, logSuffix) && armed.CompareAndSwap(true, false) {
			close(begun)
			<-release
		}
		return nil
	}))
	s := mustOpen(t, Options{Dir: "/data", FS: fs})
	session, err := s.Join(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.Acquire(ctx, []store.Shard{3}); err != nil {
		t.Fatal(err)
	}
	commit := func(seq uint64, value string) error {
		_, err := session.Commit(ctx, store.Group{Seq: seq, Changes: []store.Change{{Shard: 3, Key: []byte("k"), Value: []byte(value)}}})
		return err
	}
	want := func(want string) {
		t.Helper()
		if got, err := s.Get(ctx, 3, []byte("k")); err != nil || string(got) != want {
			t.Errorf("Get: %q, %v, want %q", got, err, want)
		}
		err := s.Scan(ctx, 3, nil, false, func(_, value []byte) bool {
			if string(value) != want {
				t.Errorf("Scan: %q, want %q", value, want)
			}
			return true
		})
		if err != nil {
			t.Error(err)
		}
	}
	if err := commit(1, "old"); err != nil {
		t.Fatal(err)
	}
	armed.Store(true)
	committed := make(chan error, 1)
	go func() { committed <- commit(2, "new") }()
	<-begun
	want("old")
	close(release)
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
	want("new")
	mustClose(t, s)
}
