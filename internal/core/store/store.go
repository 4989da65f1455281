package store

import (
	"context"
	"errors"
)

// Revision numbers commits. It only ever grows.
type Revision uint64

// Shard is a part of the key space that one session owns at a time.
type Shard uint16

// Owned is a shard a session owns. Generation grows by one at each change of owner.
type Owned struct {
	Shard      Shard
	Generation uint64
}

// Change sets or deletes one key of a shard.
type Change struct {
	Shard Shard
	Key   []byte
	Value []byte // nil deletes
}

// Group is changes that become durable together or not at all. Seq is 1, 2, 3 ... in each session: a repeated Seq is applied at
// most once, so a commit whose outcome is unknown can be repeated. Of several changes to one key the last counts.
type Group struct {
	Seq     uint64
	Changes []Change
}

// Errors of a store. They are wrapped with the place and the cause.
var (
	ErrFenced   = errors.New("another session has taken over")
	ErrLocked   = errors.New("the store is in use by another process")
	ErrCorrupt  = errors.New("the store is damaged")
	ErrSchema   = errors.New("the store was written by a newer version")
	ErrClosed   = errors.New("the store is closed")
	ErrReadOnly = errors.New("the store is open for reading only")
	// ErrIO is a full disk, a failed write, a lost network: the store accepts nothing more until it is opened again.
	ErrIO = errors.New("the store cannot write")
	// ErrUnknown asks for the same group again.
	ErrUnknown = errors.New("the outcome of the commit is unknown")
	// ErrSequence is a Seq that is neither the last one nor the next. Nothing was applied.
	ErrSequence = errors.New("the group is out of sequence")
	// ErrTooLarge is a group beyond what the store takes at once. Nothing was applied.
	ErrTooLarge = errors.New("the group is too large")
)

// Store keeps shards. Its methods may be called concurrently.
type Store interface {
	// Name is the engine's name: "memory", "pebble".
	Name() string
	// Instance identifies the store's content. It is made once, when the store is created, and anew when a backup is restored.
	Instance() string
	// Durable reports whether what was committed survives the process. If not, the engine commits only what it reads again itself, which is
	// kept runs: a scheduler that is started on the store later begins anew.
	Durable() bool
	// Join begins a session.
	Join(ctx context.Context) (Session, error)
	// Get reads one key; nil if there is none. The value is the caller's.
	Get(ctx context.Context, shard Shard, key []byte) ([]byte, error)
	// Scan calls fn for the keys of a shard that begin with prefix, in order, until fn returns false.
	// Key and value are valid during the call only, and must not be changed.
	Scan(ctx context.Context, shard Shard, prefix []byte, reverse bool, fn func(key, value []byte) bool) error
	// Close releases the store. Sessions end. It waits for the commit and the scans under way, so no fn may call it.
	Close() error
}

// Session is a process's right to write.
type Session interface {
	// Acquire takes over shards that no live session owns; the others are left out of the answer.
	Acquire(ctx context.Context, shards []Shard) ([]Owned, error)
	// Release gives shards back.
	Release(ctx context.Context, shards []Shard) error
	// Commit makes a group durable. It is called by one goroutine at a time. The store does not keep the group's slices.
	Commit(ctx context.Context, g Group) (Revision, error)
	// Revision is the newest commit that the store knows.
	Revision() Revision
	// Done is closed when the session has ended or was fenced. Nothing may be dispatched after that.
	Done() <-chan struct{}
	// Err is nil until Done is closed, and then says why: ErrFenced, ErrIO, ErrCorrupt, or ErrClosed if somebody asked for it.
	Err() error
	// Close ends the session and releases its shards.
	Close(ctx context.Context) error
}

// PrefixEnd returns the first key after all keys that begin with prefix; nil if there is none, because prefix is empty or all 0xff.
func PrefixEnd(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			end := append([]byte(nil), prefix[:i+1]...)
			end[i]++
			return end
		}
	}
	return nil
}
