package pebble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	engine "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/schedulerd/schedulerd/internal/core/store"
)

// maxGroup bounds one commit: the engine holds it in memory twice.
const maxGroup = 1 << 30

// Store is a store in a directory.
type Store struct {
	dir      string
	fs       vfs.FS
	log      *slog.Logger
	lock     io.Closer
	mark     *mark
	meta     meta // as it was when the store was opened
	guard    *guard
	watch    *watcher
	db       *engine.DB
	sessions *store.Sessions

	writes sync.WaitGroup // of the engine

	mu      sync.Mutex
	closed  bool
	readers sync.WaitGroup
	view    *view // of what is durable
	broken  bool  // the engine panicked: it must not be called any more, not even to close it

	closeOnce sync.Once
	closeErr  error
}

var _ store.Store = (*Store)(nil)

// Name is "pebble".
func (s *Store) Name() string { return "pebble" }

// Instance identifies the content.
func (s *Store) Instance() string { return s.meta.instance }

// Durable is true.
func (s *Store) Durable() bool { return true }

// Join begins a session.
func (s *Store) Join(ctx context.Context) (store.Session, error) { return s.sessions.Join(ctx) }

// Err is why the store accepts nothing more: nil, or an error that is store.ErrIO or store.ErrCorrupt. Reads still work, where they can.
func (s *Store) Err() error { return s.guard.failure() }

// failed is called when the guard trips.
func (s *Store) failed(reason error) {
	s.sessions.End(reason)
	s.log.Error("the store accepts nothing more until it is opened again", "dir", s.dir, "error", reason)
}

// view is the content at a revision that is durable.
type view struct {
	*engine.Snapshot
	users int // under Store.mu; the last one closes it
}

// newView has one user: the store, until there is a newer one.
func newView(db *engine.DB) *view { return &view{db.NewSnapshot(), 1} }

// acquire returns the newest view. It stays as it is until it is released.
func (s *Store) acquire(ctx context.Context) (*view, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, store.ErrClosed
	}
	s.readers.Add(1)
	s.view.users++
	return s.view, nil
}

func (s *Store) release(v *view) {
	s.drop(v)
	s.readers.Done()
}

func (s *Store) drop(v *view) {
	s.mu.Lock()
	v.users--
	last := v.users == 0
	s.mu.Unlock()
	if last {
		_ = v.Close() // cannot fail
	}
}

// Get reads one key.
func (s *Store) Get(ctx context.Context, shard store.Shard, key []byte) ([]byte, error) {
	v, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer s.release(v)
	value, closer, err := v.Get(keyOf(shard, key))
	if errors.Is(err, engine.ErrNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, explain(s.dir, err)
	}
	value = append([]byte{}, value...)
	return value, explain(s.dir, closer.Close())
}

// Scan reads the keys with a prefix.
func (s *Store) Scan(ctx context.Context, shard store.Shard, prefix []byte, reverse bool, fn func(key, value []byte) bool) error {
	v, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer s.release(v)
	lower := keyOf(shard, prefix)
	iter, err := v.NewIterWithContext(ctx, &engine.IterOptions{LowerBound: lower, UpperBound: store.PrefixEnd(lower)})
	if err != nil {
		return explain(s.dir, err)
	}
	first, next := iter.First, iter.Next
	if reverse {
		first, next = iter.Last, iter.Prev
	}
	n := 0
	for valid := first(); valid; valid = next() {
		if n%1024 == 0 && (ctx.Err() != nil || s.isClosed()) {
			break
		}
		n++
		value, err := iter.ValueAndErr()
		if err != nil {
			return explain(s.dir, errors.Join(err, iter.Close()))
		}
		if !fn(iter.Key()[shardKeySize:], value) {
			return explain(s.dir, iter.Close())
		}
	}
	if err := iter.Close(); err != nil {
		return explain(s.dir, err)
	}
	if s.isClosed() {
		return store.ErrClosed
	}
	return ctx.Err()
}

func (s *Store) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Advance is store.Backend's: it makes generations durable.
func (s *Store) Advance(_ context.Context, owned []store.Owned) error {
	return s.write(func(b *engine.Batch) error {
		for _, o := range owned {
			if err := b.Set(generationKeyOf(o.Shard), number(o.Generation), nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// Apply is store.Backend's: it makes a group durable. It does not return before the outcome is known, or the store has failed.
func (s *Store) Apply(_ context.Context, revision store.Revision, changes []store.Change) error {
	size := 0
	for _, c := range changes {
		size += shardKeySize + len(c.Key) + len(c.Value)
	}
	if size > maxGroup {
		return fmt.Errorf("%w: %d bytes, at most %d", store.ErrTooLarge, size, maxGroup)
	}
	err := s.write(func(b *engine.Batch) error {
		for _, c := range changes {
			if err := addChange(b, c); err != nil {
				return err
			}
		}
		return b.Set([]byte(revisionKey), number(uint64(revision)), nil)
	})
	if err != nil {
		return err
	}
	if err := s.mark.commit(revision); err != nil {
		// The group is durable. The store without its mark is not safe any more.
		s.guard.trip(writeError(s.dir, "write", s.fs.PathJoin(s.dir, markName), err))
	}
	s.show()
	return nil
}

func addChange(b *engine.Batch, c store.Change) error {
	n := shardKeySize + len(c.Key)
	if c.Value == nil {
		op := b.DeleteDeferred(n)
		putKey(op.Key, c.Shard, c.Key)
		return op.Finish()
	}
	op := b.SetDeferred(n, len(c.Value))
	putKey(op.Key, c.Shard, c.Key)
	copy(op.Value, c.Value)
	return op.Finish()
}

// show lets readers see what is durable now.
func (s *Store) show() {
	next := newView(s.db)
	s.mu.Lock()
	old := s.view
	s.view = next
	s.mu.Unlock()
	s.drop(old)
}

// write makes a batch durable, all of it or nothing.
func (s *Store) write(fill func(*engine.Batch) error) error {
	if err := s.stopped(); err != nil {
		return err
	}
	batch := s.db.NewBatch()
	if err := fill(batch); err != nil {
		return errors.Join(err, batch.Close())
	}
	done := make(chan error, 1)
	s.writes.Go(func() {
		err := s.commit(batch)
		done <- errors.Join(err, batch.Close())
	})
	select {
	case err := <-done:
		if err != nil {
			s.guard.trip(explain(s.dir, err))
		}
	case <-s.guard.tripped:
		// The engine may be waiting for room that it will not make any more.
	}
	// It believes that all went well, also when nothing was written.
	return s.stopped()
}

// stopped is why nothing is written any more, or nil. When it is told, the sessions have ended.
func (s *Store) stopped() error {
	err := s.guard.failure()
	if err != nil {
		<-s.guard.tripped
	}
	return err
}

// commit gives a batch to the engine. A panic there means that its state is not known any more.
func (s *Store) commit(batch *engine.Batch) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: %w: the engine gave up: %v", s.dir, store.ErrIO, r)
			s.mu.Lock()
			s.broken = true
			s.mu.Unlock()
		}
	}()
	return batch.Commit(engine.Sync)
}

// Close ends all sessions, waits for the commit and the reads under way, and frees the directory.
func (s *Store) Close() error {
	s.closeOnce.Do(func() { s.closeErr = s.close() })
	return s.closeErr
}

func (s *Store) close() error {
	s.sessions.End(store.ErrClosed)
	s.guard.release()
	s.sessions.Drain()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.readers.Wait()
	s.writes.Wait()
	err := errors.Join(s.closeEngine(), s.mark.close())
	if s.guard.failure() != nil {
		err = nil // sessions ended with the cause
	}
	return explain(s.dir, errors.Join(err, s.lock.Close()))
}

func (s *Store) closeEngine() error {
	s.mu.Lock()
	broken := s.broken
	s.mu.Unlock()
	if broken {
		return nil
	}
	if s.view != nil {
		s.drop(s.view)
	}
	return s.db.Close()
}
