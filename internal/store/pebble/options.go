package pebble

import (
	"log/slog"

	engine "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Options say how to open a store. Dir is required.
type Options struct {
	// Dir is the directory, made with mode 0700 if it is not there. Nothing else may be in it.
	Dir string
	// CacheBytes bounds the cache of blocks read from tables. Default 128 MiB.
	CacheBytes int64
	// MemtableBytes is the size at which what was written is sorted into a table. Up to four of them are in memory. Default 64 MiB.
	MemtableBytes int64
	// ReadOnly opens an existing store without changing it: no session can be joined. The store must not be open elsewhere.
	ReadOnly bool
	// Logger gets warnings, and at debug level what the engine does. Default: none.
	Logger *slog.Logger
	// FS is the filesystem. Default: the system's. Tests use others.
	FS vfs.FS

	migrations []migration // default: migrations
}

// Defaults, measured with a million flows at 20 000 runs a second: larger memtables write less and cost memory, larger caches only pay
// when more is read than the engine reads.
const (
	DefaultCacheBytes    = 128 << 20
	DefaultMemtableBytes = 64 << 20
)

const maxMemtables = 4

func (o Options) withDefaults() Options {
	if o.CacheBytes <= 0 {
		o.CacheBytes = DefaultCacheBytes
	}
	if o.MemtableBytes <= 0 {
		o.MemtableBytes = DefaultMemtableBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.migrations == nil {
		o.migrations = migrations
	}
	return o
}

func (o Options) engine(g *guard, watch *watcher) *engine.Options {
	listener := watch.listener()
	options := &engine.Options{
		FS:                          g,
		ReadOnly:                    o.ReadOnly,
		CacheSize:                   o.CacheBytes,
		MemTableSize:                uint64(o.MemtableBytes),
		MemTableStopWritesThreshold: maxMemtables,
		LBaseMaxBytes:               256 << 20,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       64,
		MaxManifestFileSize:         16 << 20, // it is read twice when the store is opened
		FormatMajorVersion:          engine.FormatNewest,
		Logger:                      watch,
		EventListener:               &listener,
	}
	// Compression would cost a quarter of the throughput, and the ring of kept runs bounds what there is to compress.
	options.ApplyCompressionSettings(func() engine.DBCompressionSettings { return engine.DBCompressionNone })
	for i := range options.Levels {
		options.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	return options
}
