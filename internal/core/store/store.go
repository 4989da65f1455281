// Package store is what the engine needs of storage: an ordered map of bytes in shards, written in atomic, durable groups by
// sessions that can be fenced.
//
// Keys and values are the engine's business. An engine process joins the store and gets a Session, acquires shards, loads what they
// hold and from then on commits groups of changes. What a session committed is durable when Commit returns; once another session
// took over a shard, every commit of the first that touches it fails with ErrFenced, whatever that session believes.
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
// most once, so a commit whose outcome is unknown can be repeated.
type Group struct {
	Seq     uint64
	Changes []Change
}

// Errors of a store. They are wrapped with the place and the cause.
var (
	ErrFenced  = errors.New("another session has taken over")
	ErrLocked  = errors.New("the store is in use by another process")
	ErrCorrupt = errors.New("the store is damaged")
	ErrSchema  = errors.New("the store was written by a newer version")
	ErrClosed  = errors.New("the store is closed")
)

// Store keeps shards.
type Store interface {
	// Name is the engine's name: "memory", "pebble".
	Name() string
	// Instance identifies the store's content. It is made once, when the store is created.
	Instance() string
	// Durable reports whether what was committed survives the process.
	Durable() bool
	// Join begins a session.
	Join(ctx context.Context) (Session, error)
	// Get reads one key; nil if there is none.
	Get(ctx context.Context, shard Shard, key []byte) ([]byte, error)
	// Scan calls fn for the keys of a shard that begin with prefix, in order, until fn returns false.
	// Key and value are valid during the call only.
	Scan(ctx context.Context, shard Shard, prefix []byte, reverse bool, fn func(key, value []byte) bool) error
	// Close releases the store. Sessions end.
	Close() error
}

// Session is a process's right to write.
type Session interface {
	// Acquire takes over shards that no live session owns; the others are left out of the answer.
	Acquire(ctx context.Context, shards []Shard) ([]Owned, error)
	// Release gives shards back.
	Release(ctx context.Context, shards []Shard) error
	// Commit makes a group durable. It is called by one goroutine at a time.
	Commit(ctx context.Context, g Group) (Revision, error)
	// Revision is the newest commit that the store knows.
	Revision() Revision
	// Done is closed when the session has ended or was fenced. Nothing may be dispatched after that.
	Done() <-chan struct{}
	// Close ends the session and releases its shards.
	Close(ctx context.Context) error
}
