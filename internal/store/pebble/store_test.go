package pebble

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

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
