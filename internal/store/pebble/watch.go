package pebble

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	engine "github.com/cockroachdb/pebble/v2"

	"github.com/schedulerd/schedulerd/internal/core/store"
)

// watcher hears what the engine has to say: it logs, counts, and trips the guard when the engine finds that it cannot go on.
type watcher struct {
	dir    string
	guard  *guard
	log    *slog.Logger
	stalls atomic.Uint64
}

func (w *watcher) Infof(format string, args ...any)  { w.write(slog.LevelDebug, format, args) }
func (w *watcher) Errorf(format string, args ...any) { w.write(slog.LevelWarn, format, args) }

// Fatalf is called by the engine before it would end the process. With its writes going nowhere it may as well return.
func (w *watcher) Fatalf(format string, args ...any) {
	w.write(slog.LevelError, format, args)
	w.guard.trip(fmt.Errorf("%s: %w: %s", w.dir, store.ErrIO, fmt.Sprintf(format, args...)))
}

func (w *watcher) write(level slog.Level, format string, args []any) {
	if w.log.Enabled(context.Background(), level) {
		w.log.Log(context.Background(), level, fmt.Sprintf(format, args...), "dir", w.dir)
	}
}

func (w *watcher) listener() engine.EventListener {
	l := engine.MakeLoggingEventListener(w)
	l.BackgroundError = func(err error) {
		w.Infof("background error: %s", err)
		w.guard.trip(explain(w.dir, err))
	}
	l.DataCorruption = func(info engine.DataCorruptionInfo) {
		w.guard.trip(fmt.Errorf("%s: %w: %s: %w", w.dir, store.ErrCorrupt, info.Path, info.Details))
	}
	l.WriteStallBegin = func(info engine.WriteStallBeginInfo) {
		w.stalls.Add(1)
		w.log.Warn("commits wait for the disk", "dir", w.dir, "reason", info.Reason)
	}
	l.LowDiskSpace = func(info engine.LowDiskSpaceInfo) {
		w.log.Warn("the disk is nearly full", "dir", w.dir, "available", info.AvailBytes, "total", info.TotalBytes)
	}
	return l
}
