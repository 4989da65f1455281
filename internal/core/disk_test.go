package core_test

import (
	"context"
	"testing"
	"time"

	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/store"
	"github.com/schedulerd/schedulerd/internal/core/store/storetest"
)

// slowDisk is a durable store whose commits take a while.
func slowDisk(t *testing.T, commit time.Duration) store.Store {
	t.Helper()
	d := storetest.NewDisk(1)
	d.Inject(func() storetest.Fault { return storetest.Fault{Delay: commit} })
	return opened(t, d)
}

func opened(t *testing.T, d *storetest.Disk) store.Store {
	t.Helper()
	s, err := d.Open()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// crash ends a scheduler as a power cut does: what is not synced may be lost, and nothing that it still does reaches the disk. What
// is left of it in memory is cleared away.
func crash(t *testing.T, d *storetest.Disk, r *core.Running) {
	t.Helper()
	d.Crash()
	if _, err := r.Stop(context.Background(), 0); err != nil {
		t.Error(err)
	}
}
