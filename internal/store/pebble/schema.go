package pebble

import (
	"encoding/binary"
	"errors"
	"fmt"

	engine "github.com/cockroachdb/pebble/v2"

	"github.com/schedulerd/schedulerd/internal/core/store"
)

// The keys of this package. Keys of shards begin with shardSpace, its own with "m/".
const (
	schemaKey     = "m/schema"
	instanceKey   = "m/instance"
	epochKey      = "m/epoch" // how often the store was opened
	revisionKey   = "m/revision"
	generationKey = "m/generation/" // and the shard
	shardSpace    = 's'
)

// shardKeySize is what a key in a shard has in front of it.
const shardKeySize = 3

func keyOf(shard store.Shard, key []byte) []byte {
	whole := make([]byte, shardKeySize+len(key))
	putKey(whole, shard, key)
	return whole
}

func putKey(whole []byte, shard store.Shard, key []byte) {
	whole[0] = shardSpace
	binary.BigEndian.PutUint16(whole[1:], uint16(shard))
	copy(whole[shardKeySize:], key)
}

func generationKeyOf(shard store.Shard) []byte {
	return binary.BigEndian.AppendUint16([]byte(generationKey), uint16(shard))
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// migration changes a store from one schema to the next. What it writes to the batch becomes durable together with the new version.
type migration func(db engine.Reader, batch *engine.Batch) error

// migrations[i] leads from schema i+1 to i+2.
var migrations []migration

// meta is what a store knows about itself.
type meta struct {
	schema      uint64
	instance    string
	epoch       uint64
	revision    store.Revision
	generations map[store.Shard]uint64
}

// readMeta reads everything under "m/". A store that was only just created has nothing there.
func readMeta(db engine.Reader) (meta, error) {
	m := meta{generations: map[store.Shard]uint64{}}
	iter, err := db.NewIter(&engine.IterOptions{LowerBound: []byte("m/"), UpperBound: []byte("m0")})
	if err != nil {
		return m, err
	}
	for valid := iter.First(); valid; valid = iter.Next() {
		value, err := iter.ValueAndErr()
		if err != nil {
			return m, errors.Join(err, iter.Close())
		}
		key := string(iter.Key())
		if key == instanceKey {
			m.instance = string(value)
			continue
		}
		if len(value) != 8 {
			return m, errors.Join(fmt.Errorf("%w: %q has %d bytes", store.ErrCorrupt, key, len(value)), iter.Close())
		}
		n := binary.BigEndian.Uint64(value)
		switch key {
		case schemaKey:
			m.schema = n
		case epochKey:
			m.epoch = n
		case revisionKey:
			m.revision = store.Revision(n)
		default:
			if len(key) == len(generationKey)+2 && key[:len(generationKey)] == generationKey {
				m.generations[store.Shard(binary.BigEndian.Uint16([]byte(key[len(generationKey):])))] = n
			}
		}
	}
	return m, iter.Close()
}

// migrate brings a store to the newest schema, step by step, each of them durable. A new store begins there.
func migrate(db *engine.DB, m *meta, steps []migration) error {
	newest := uint64(len(steps) + 1)
	if m.schema == 0 {
		m.schema = newest
		return db.Set([]byte(schemaKey), number(newest), engine.Sync)
	}
	for m.schema < newest {
		batch := db.NewBatch()
		err := steps[m.schema-1](db, batch)
		if err == nil {
			err = batch.Set([]byte(schemaKey), number(m.schema+1), nil)
		}
		if err == nil {
			err = batch.Commit(engine.Sync)
		}
		if err = errors.Join(err, batch.Close()); err != nil {
			return fmt.Errorf("migrate the store from schema %d to %d: %w", m.schema, m.schema+1, err)
		}
		m.schema++
	}
	return nil
}
