package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unsafe"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/store/v1"
	"github.com/schedulerd/schedulerd/internal/core/store"
)

// group is the changes of one commit with what happens once they are durable. A group gathers while the one before is on its way
// to the disk, so one flow waits for one fsync and ten thousand share it.
type group struct {
	changes  []store.Change
	entries  []*entry   // whose state goes into the group: once each, however often it changed
	infos    []*Info    // their states when the group was sealed
	requests []*request // whose answers go into the group
	after    []func()   // answers, starts, checkpoints, in order
	buffer   []byte     // holds most keys and values, since the store keeps none of them
}

func (g *group) empty() bool { return len(g.changes) == 0 && len(g.entries) == 0 && len(g.after) == 0 }

// maxKept is how many bytes an array may have to be used again.
const maxKept = 4 << 20

// key is key in the group's buffer.
func (g *group) key(kind, id string) []byte {
	from := len(g.buffer)
	g.buffer = append(append(g.buffer, kind...), id...)
	return slices.Clip(g.buffer[from:])
}

// record is marshal in the group's buffer.
func (g *group) record(m proto.Message) []byte {
	from := len(g.buffer)
	g.buffer = appendRecord(g.buffer, m)
	return slices.Clip(g.buffer[from:])
}

// reset empties the group, to gather another one. Its arrays are used again unless they have grown out of proportion.
func (g *group) reset() {
	*g = group{changes: emptied(g.changes), entries: emptied(g.entries), infos: emptied(g.infos), after: emptied(g.after), buffer: emptied(g.buffer)}
}

func emptied[T any](list []T) []T {
	var item T
	if cap(list)*int(unsafe.Sizeof(item)) > maxKept {
		return nil
	}
	clear(list)
	return list[:0]
}

// seal freezes the states that the group carries, and records them if the store is durable.
func (g *group) seal(revision uint64, durable bool) {
	for _, en := range g.entries {
		g.infos = append(g.infos, en.info(revision))
	}
	if !durable {
		return // nobody would read the records
	}
	g.changes = slices.Grow(g.changes, len(g.entries)+len(g.requests))
	record := new(storev1.StateRecord)
	for _, en := range g.entries {
		en.fill(record, revision)
		g.changes = append(g.changes, store.Change{Shard: en.shard, Key: g.key(stateKey, en.id), Value: g.record(record)})
	}
	for _, r := range g.requests {
		g.changes = append(g.changes, store.Change{Shard: r.shard(), Key: key(requestKey, r.id), Value: marshal(r.recordAt(revision))})
	}
}

// committer writes groups, one at a time. A commit whose outcome is unknown or that failed is repeated with the same number until the
// store takes it: the engine's memory is ahead of the store by that group and by nothing that anybody was told.
type committer struct {
	session store.Session
	seq     uint64

	mu      sync.Mutex
	failing error         // of the last try, nil when all is well
	failed  chan struct{} // closed when failing begins
}

func newCommitter(session store.Session) *committer {
	return &committer{session: session, failed: make(chan struct{})}
}

// Retry delays of a failed commit.
const (
	firstCommitRetry = 50 * time.Millisecond
	lastCommitRetry  = 2 * time.Second
)

// commit returns when the group is durable, or with an error when the session has ended: whether the group is durable then shows at
// the next start.
func (c *committer) commit(ctx context.Context, g *group) error {
	if len(g.changes) == 0 && len(g.entries) == 0 {
		return nil
	}
	c.seq++
	for delay := firstCommitRetry; ; delay = min(2*delay, lastCommitRetry) {
		_, err := c.session.Commit(ctx, store.Group{Seq: c.seq, Changes: g.changes})
		c.report(err)
		if !errors.Is(err, store.ErrUnknown) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(delay):
		}
	}
}

func (c *committer) report(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil && c.failing == nil:
		close(c.failed)
	case err == nil && c.failing != nil:
		c.failed = make(chan struct{})
	}
	c.failing = err
}

// trouble is a channel that is closed while the store fails, and a function that tells why.
func (c *committer) trouble() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

func (c *committer) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failing == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrStore, c.failing)
}
