package core_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/store"
	"github.com/schedulerd/schedulerd/internal/core/store/storetest"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
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

// book is definitions by their source, for flows that have to be compiled again.
type book struct {
	mu    sync.Mutex
	flows map[string]*core.Flow
}

// enter gives a flow a source of its own.
func (b *book) enter(f core.Flow) *core.Flow {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.flows == nil {
		b.flows = map[string]*core.Flow{}
	}
	if f.Backoff == (flow.Policy{}) {
		f.Backoff = steady
	}
	f.Source = fmt.Appendf(nil, "%s, edition %d", f.ID, len(b.flows))
	b.flows[string(f.Source)] = &f
	return &f
}

func (b *book) compile(source []byte, _ core.Origin) (*core.Flow, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f := b.flows[string(source)]; f != nil {
		return f, nil
	}
	return nil, fmt.Errorf("never heard of %q", source)
}

func (b *book) config(t *testing.T, d *storetest.Disk) core.Config {
	return core.Config{Store: opened(t, d), Compile: b.compile}
}

// logbook is the fire times that runs were started for, and when that was, both since an instant.
type logbook struct {
	diary
	since time.Time
}

// task writes its run into the book and takes d.
func (l *logbook) task(d time.Duration) workflow.TaskFunc {
	return func(ctx context.Context, in *workflow.Invocation) (workflow.Result, error) {
		if in.Cause == flow.ByTrigger.String() {
			l.write("trigger@%v", time.Since(l.since))
		} else {
			l.write("%v@%v", in.FireTime.Sub(l.since.UTC()), time.Since(l.since))
		}
		return lasting(d)(ctx, in)
	}
}
