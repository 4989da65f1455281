package store

import (
	"context"
	"crypto/rand"
	"sync/atomic"
)

// Memory is a store that ends with the process.
type Memory struct {
	instance string
	table    Table
	sessions *Sessions
	closed   atomic.Bool
}

// NewMemory returns an empty store.
func NewMemory() *Memory {
	m := &Memory{instance: rand.Text()}
	m.sessions = NewSessions(memoryBackend{&m.table}, 0, nil)
	return m
}

// Name is "memory".
func (m *Memory) Name() string { return "memory" }

// Instance is a new random name.
func (m *Memory) Instance() string { return m.instance }

// Durable is false.
func (m *Memory) Durable() bool { return false }

// Join begins a session.
func (m *Memory) Join(ctx context.Context) (Session, error) { return m.sessions.Join(ctx) }

// Get reads one key.
func (m *Memory) Get(ctx context.Context, shard Shard, key []byte) ([]byte, error) {
	if err := m.readable(ctx); err != nil {
		return nil, err
	}
	return m.table.Get(shard, key), nil
}

// Scan reads the keys with a prefix.
func (m *Memory) Scan(ctx context.Context, shard Shard, prefix []byte, reverse bool, fn func(key, value []byte) bool) error {
	if err := m.readable(ctx); err != nil {
		return err
	}
	return m.table.Scan(ctx, shard, prefix, reverse, fn)
}

func (m *Memory) readable(ctx context.Context) error {
	if m.closed.Load() {
		return ErrClosed
	}
	return ctx.Err()
}

// Close ends all sessions.
func (m *Memory) Close() error {
	m.closed.Store(true)
	m.sessions.End(ErrClosed)
	m.sessions.Drain()
	return nil
}

// memoryBackend needs to remember nothing: Sessions does.
type memoryBackend struct{ table *Table }

func (memoryBackend) Advance(context.Context, []Owned) error { return nil }

func (b memoryBackend) Apply(_ context.Context, _ Revision, changes []Change) error {
	b.table.Apply(changes)
	return nil
}
