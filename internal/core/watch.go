package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/flow"
)

// bookmarkEvery is how long a watch may be silent: proxies cut streams that carry nothing for a minute or so.
const bookmarkEvery = 20 * time.Second

// maxBatch bounds the changes of one batch.
const maxBatch = 1000

// ErrWatchEnded is what Next answers after the scheduler stopped.
var ErrWatchEnded = errors.New("the watch has ended since the scheduler stopped")

// Watch shows the states of flows as they change. It promises:
//
//   - Ordered: revisions grow, once the initial state is complete.
//   - Unique: no change comes twice, but after a resumption in the middle of a commit that was too large for one batch.
//   - Reliable: the newest state of every matching flow arrives; older ones may be merged into it, and are counted, but for those
//     that came while the watch was broken off or more than a ring behind.
//   - Resumable: from the revision of any batch.
//   - Bookmarked: Next returns at least every 20 s.
//   - Filtered: a flow that leaves the filter is announced; after a resumption perhaps one that was not in it.
//
// It is for one goroutine.
type Watch struct {
	engine   *engine
	filter   *filter
	interval time.Duration

	position uint64              // in the hub's ring
	revision uint64              // all changes up to here were shown
	resumed  bool                // no initial state is wanted
	initial  bool                // the initial state was shown
	shown    map[*entry]struct{} // flows that match, as the watcher knows; nil without a filter
	ahead    map[*entry]uint64   // revisions shown in a sweep that the ring will bring again
	furthest uint64              // the greatest of them
	merged   map[*entry]uint32   // changes left out because a newer one follows
	pending  []Change            // not yet returned, in order
	target   uint64              // revision reached once pending is returned
	items    []ringItem
	last     time.Time
	ending   bool
	bookmark *time.Timer
}

// Watch begins a watch.
func (r *Running) Watch(o WatchOptions) (*Watch, error) {
	e := r.engine
	w := &Watch{engine: e, filter: newFilter(o.Filter), interval: o.MinInterval, revision: o.From, bookmark: time.NewTimer(bookmarkEvery)}
	w.bookmark.Stop() // it runs while Next waits
	if !w.filter.all {
		w.shown = map[*entry]struct{}{}
	}
	next, revision := e.hub.position()
	if o.From != 0 {
		if o.Instance != "" && o.Instance != e.instance {
			return nil, fmt.Errorf("%w: the token is of another scheduler", ErrInvalid)
		}
		if o.From > revision {
			return nil, fmt.Errorf("%w: the token is of a later time than this scheduler's", ErrInvalid)
		}
		if o.From < e.horizon.Load() {
			return nil, ErrCompacted
		}
		w.resumed = true
	}
	w.position = next
	w.target = revision
	w.sweep(revision)
	return w, nil
}

// Next waits for changes, or for the time of a bookmark.
func (w *Watch) Next(ctx context.Context) (Batch, error) {
	if w.ending {
		return Batch{}, ErrWatchEnded
	}
	w.bookmark.Reset(bookmarkEvery)
	defer w.bookmark.Stop()
	if err := w.pace(ctx); err != nil {
		return Batch{}, err
	}
	for {
		if len(w.pending) > 0 || !w.initial {
			return w.batch(), nil
		}
		r := w.engine.hub.since(w.position, w.items)
		w.items = r.items
		switch {
		case r.lost:
			w.position, w.target = r.next, r.revision
			w.sweep(r.revision)
			continue
		case r.next != w.position:
			w.position, w.target = r.next, r.revision
			w.collect(r.items)
			if len(w.pending) == 0 {
				w.revision = w.target
			}
			continue
		}
		w.revision = max(w.revision, r.revision)
		if r.ended {
			w.ending = true
			return Batch{Revision: w.revision, Ending: true}, nil
		}
		select {
		case <-r.grown:
			if err := w.pace(ctx); err != nil {
				return Batch{}, err
			}
		case <-w.bookmark.C:
			w.last = time.Now()
			return Batch{Revision: w.revision}, nil
		case <-ctx.Done():
			return Batch{}, ctx.Err()
		}
	}
}

// pace keeps the least time between two batches, so that changes merge meanwhile.
func (w *Watch) pace(ctx context.Context) error {
	wait := w.interval - time.Since(w.last)
	if w.interval == 0 || w.last.IsZero() || wait <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// batch takes the next changes off pending.
func (w *Watch) batch() Batch {
	n := min(len(w.pending), maxBatch)
	b := Batch{Changes: w.pending[:n:n]}
	w.pending = w.pending[n:]
	if len(w.pending) == 0 {
		w.pending = nil
		if !w.initial {
			w.initial, b.InitialComplete = true, true
		}
		w.revision = w.target
	} else if w.initial {
		w.revision = w.pending[0].Info.Revision - 1 // its commit may have changes on both sides of the cut
	}
	b.Revision = w.revision
	w.last = time.Now()
	return b
}

// sweep collects the states of all flows: those that changed after the watch's revision, as of the given one at least.
func (w *Watch) sweep(revision uint64) {
	after := w.revision
	kind := Snapshot
	if w.resumed || w.initial {
		kind = Updated
	}
	w.engine.index.each(func(en *entry) bool {
		info := en.published.Load()
		if info == nil || info.Revision <= after && kind == Updated {
			if info != nil && w.shown != nil && !info.Deleted && w.filter.matches(info) {
				w.shown[en] = struct{}{} // shown before the watch was broken off
			}
			return true
		}
		if info.Revision > revision {
			// Committed during the sweep: the ring will bring it. In the order of revisions it has to wait for that.
			if kind == Updated {
				if w.mayKnow(info) {
					w.shown[en] = struct{}{}
				}
				return true
			}
			if w.ahead == nil {
				w.ahead = map[*entry]uint64{}
			}
			w.ahead[en] = info.Revision
			w.furthest = max(w.furthest, info.Revision)
		}
		w.show(en, info, kind)
		return true
	})
	slices.SortStableFunc(w.pending, func(a, b Change) int { return cmp.Compare(a.Info.Revision, b.Info.Revision) })
}

// collect turns ring items into changes: the newest of each flow, older ones merged into it.
func (w *Watch) collect(items []ringItem) {
	for _, item := range items {
		info := item.entry.published.Load()
		switch {
		case item.revision <= w.revision, item.revision <= w.ahead[item.entry]:
			// The initial state, or a sweep, had it.
		case info.Revision != item.revision:
			if w.merged == nil {
				w.merged = map[*entry]uint32{}
			}
			w.merged[item.entry]++ // the newer one follows, here or in the next reading
		default:
			w.show(item.entry, info, Updated)
		}
	}
	if w.target >= w.furthest {
		w.ahead = nil
	}
}

// mayKnow reports whether a watcher that resumes may have been shown a flow that has changed since, as one that matches.
func (w *Watch) mayKnow(info *Info) bool {
	return w.shown != nil && w.resumed && !w.initial && w.filter.named(info)
}

// show adds a change to pending as the filter wants it.
func (w *Watch) show(en *entry, info *Info, kind ChangeType) {
	merged := w.merged[en]
	delete(w.merged, en)
	matches := !info.Deleted && w.filter.matches(info)
	if w.shown != nil {
		_, before := w.shown[en]
		switch {
		case matches:
			w.shown[en] = struct{}{}
		case before || w.mayKnow(info):
			delete(w.shown, en)
		default:
			return
		}
	}
	switch {
	case matches:
	case kind == Snapshot:
		return
	case info.Deleted:
		kind = Deleted
	default:
		kind = Left
	}
	w.pending = append(w.pending, Change{Type: kind, Info: info, Merged: merged})
}

// filter is a Filter ready for use.
type filter struct {
	all      bool
	ids      map[string]struct{}
	labels   map[string]string
	statuses []flow.Status
}

func newFilter(f Filter) *filter {
	out := &filter{labels: f.Labels, statuses: f.Statuses, all: len(f.IDs)+len(f.Labels)+len(f.Statuses) == 0}
	if len(f.IDs) > 0 {
		out.ids = make(map[string]struct{}, len(f.IDs))
		for _, id := range f.IDs {
			out.ids[id] = struct{}{}
		}
	}
	return out
}

func (f *filter) matches(info *Info) bool {
	if f.all {
		return true
	}
	if !f.named(info) {
		return false
	}
	if len(f.statuses) > 0 && !slices.Contains(f.statuses, info.Status) {
		return false
	}
	if len(f.labels) == 0 {
		return true
	}
	labels := info.Flow.Labels()
	for k, v := range f.labels {
		if have, ok := labels[k]; !ok || v != "" && have != v {
			return false
		}
	}
	return true
}

// named reports whether the flow is among those asked for by id.
func (f *filter) named(info *Info) bool {
	_, ok := f.ids[info.Flow.ID]
	return ok || f.ids == nil
}
