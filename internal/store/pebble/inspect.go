package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"

	engine "github.com/cockroachdb/pebble/v2"

	"github.com/schedulerd/schedulerd/internal/core/store"
)

// Info is what a store says about itself.
type Info struct {
	Instance    string
	Schema      uint64                 // version of the layout
	Format      uint64                 // version of the engine's files
	Epoch       uint64                 // how often the store was opened for writing
	Revision    store.Revision         // newest commit
	Generations map[store.Shard]uint64 // of each shard that was ever owned, when the store was opened
}

// Info returns what the store says about itself.
func (s *Store) Info() Info {
	return Info{
		Instance:    s.meta.instance,
		Schema:      s.meta.schema,
		Format:      uint64(s.db.FormatMajorVersion()),
		Epoch:       s.meta.epoch,
		Revision:    s.sessions.Revision(),
		Generations: maps.Clone(s.meta.generations),
	}
}

// Shards lists the shards that hold keys, in order.
func (s *Store) Shards(ctx context.Context) ([]store.Shard, error) {
	v, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer s.release(v)
	iter, err := v.NewIterWithContext(ctx, &engine.IterOptions{LowerBound: []byte{shardSpace}, UpperBound: []byte{shardSpace + 1}})
	if err != nil {
		return nil, explain(s.dir, err)
	}
	var shards []store.Shard
	for valid := iter.First(); valid; {
		shard := store.Shard(binary.BigEndian.Uint16(iter.Key()[1:]))
		shards = append(shards, shard)
		if shard == 0xffff {
			break
		}
		valid = iter.SeekGE(keyOf(shard+1, nil))
	}
	if err := iter.Close(); err != nil {
		return nil, explain(s.dir, err)
	}
	return shards, ctx.Err()
}

// Metrics are figures to watch.
type Metrics struct {
	DiskBytes     uint64 // files of the store, also those about to be removed
	LogBytes      uint64 // of them, logs: what would have to be read again after a crash
	Tables        uint64 // number of tables
	DebtBytes     uint64 // what is still to be compacted
	ReadAmp       int    // tables a read has to look into, at most
	MemtableBytes uint64 // memory
	CacheBytes    uint64 // memory
	Stalls        uint64 // how often commits had to wait for the disk
}

// Metrics returns zeros once the store is closed.
func (s *Store) Metrics() Metrics {
	v, err := s.acquire(context.Background())
	if errors.Is(err, store.ErrClosed) {
		return Metrics{}
	}
	defer s.release(v)
	m := s.db.Metrics()
	total := m.Total()
	return Metrics{
		DiskBytes:     m.DiskSpaceUsage(),
		LogBytes:      m.WAL.Size,
		Tables:        uint64(total.TablesCount),
		DebtBytes:     m.Compact.EstimatedDebt,
		ReadAmp:       m.ReadAmp(),
		MemtableBytes: m.MemTable.Size,
		CacheBytes:    uint64(m.BlockCache.Size),
		Stalls:        s.watch.stalls.Load(),
	}
}
