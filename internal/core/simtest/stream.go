package simtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
)

// Stream is what one client got from a watch, over all the times it was broken off and resumed.
type Stream struct {
	Name    string
	Options core.WatchOptions
	Overrun bool // it may have been so slow that the ring ran over
	batches []timedBatch
}

type timedBatch struct {
	core.Batch
	asked, came time.Time
	resumed     bool // the first after a resumption
}

// Follow reads a watch as a client does, after each pause, until the scheduler ends it or ctx does. It breaks off and resumes when
// broken says so.
func (s *Stream) Follow(ctx context.Context, r *core.Running, pause func() time.Duration, broken func() bool) error {
	w, err := s.watch(r)
	if err != nil {
		return err
	}
	resumed := s.last() != 0
	for {
		if wait(ctx, pause()) != nil {
			return nil
		}
		asked := time.Now()
		b, err := w.Next(ctx)
		switch {
		case errors.Is(err, core.ErrWatchEnded) || ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		s.batches = append(s.batches, timedBatch{b, asked, time.Now(), resumed})
		resumed = false
		if b.Ending {
			return nil
		}
		if broken() {
			if w, err = s.watch(r); err != nil {
				return err
			}
			resumed = s.last() != 0
		}
	}
}

func (s *Stream) watch(r *core.Running) (*core.Watch, error) {
	o := s.Options
	if o.From = s.last(); o.From == 0 {
		s.batches = nil // broken off before the initial state was complete: the client begins anew
	} else {
		o.Instance = r.Info().Instance
	}
	return r.Watch(o)
}

func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// last is the token to resume from.
func (s *Stream) last() uint64 {
	if len(s.batches) == 0 {
		return 0
	}
	return s.batches[len(s.batches)-1].Revision
}

// Changes is how many changes it was shown.
func (s *Stream) Changes() int {
	n := 0
	for _, b := range s.batches {
		n += len(b.Changes)
	}
	return n
}

// Keeps checks the promises of watches on a stream that was followed to the end.
func (s *Stream) Keeps(t *testing.T, truth *Truth) {
	t.Helper()
	truth.mu.Lock()
	defer truth.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(promises)) {
		if err := promises[name](s, truth.flows); err != nil {
			t.Errorf("%s %+v: not %s: %v", s.Name, s.Options.Filter, name, err)
		}
	}
}

// promises are what a watch promises, each as a check of a recorded stream against what was committed.
var promises = map[string]func(s *Stream, truth map[string][]Committed) error{
	"Ordered":    ordered,
	"Unique":     unique,
	"Reliable":   reliable,
	"True":       truthful,
	"Bookmarked": bookmarked,
	"Filtered":   filtered,
}

// ordered: revisions and tokens grow, and nothing up to a token comes after it.
func ordered(s *Stream, _ map[string][]Committed) error {
	var token, newest uint64
	complete := false
	for i, b := range s.batches {
		if b.resumed {
			newest = 0
		}
		if b.Revision < token {
			return fmt.Errorf("batch %d has token %d after %d", i, b.Revision, token)
		}
		for _, c := range b.Changes {
			if !complete {
				continue
			}
			if c.Info.Revision < newest || c.Info.Revision <= token {
				return fmt.Errorf("batch %d: revision %d of %s after %d with token %d", i, c.Info.Revision, c.Info.Flow.ID, newest, token)
			}
			newest = c.Info.Revision
		}
		token = b.Revision
		complete = complete || b.InitialComplete
	}
	return nil
}

// unique: no change comes twice between two resumptions. That none comes again after its token is part of ordered.
func unique(s *Stream, _ map[string][]Committed) error {
	type change struct {
		flow     string
		revision uint64
	}
	seen := map[change]bool{}
	for i, b := range s.batches {
		if b.resumed {
			clear(seen)
		}
		for _, c := range b.Changes {
			k := change{c.Info.Flow.ID, c.Info.Revision}
			if seen[k] {
				return fmt.Errorf("batch %d brings %v again", i, k)
			}
			seen[k] = true
		}
	}
	return nil
}

// reliable: the newest state of every matching flow has arrived, and a client that follows the changes knows of no other. Events say
// how many older ones were merged into them, as long as the watch was not broken off.
func reliable(s *Stream, truth map[string][]Committed) error {
	view, shown, merged := map[string]uint64{}, map[string][]uint64{}, map[string]uint32{}
	resumed := false
	for _, b := range s.batches {
		resumed = resumed || b.resumed
		for _, c := range b.Changes {
			id := c.Info.Flow.ID
			view[id] = c.Info.Revision
			if c.Type == core.Left || c.Type == core.Deleted {
				delete(view, id)
			}
			shown[id] = append(shown[id], c.Info.Revision)
			merged[id] += c.Merged
		}
	}
	f := s.Options.Filter
	whole := len(f.IDs)+len(f.Labels)+len(f.Statuses) == 0
	for id, states := range truth {
		last := states[len(states)-1]
		matches := !last.Deleted && named(f, id) && (len(f.Statuses) == 0 || slices.Contains(f.Statuses, last.Status))
		switch {
		case len(f.Labels) > 0: // what the flow's labels were is not on record
		case matches && view[id] != last.Revision:
			return fmt.Errorf("%s: the newest revision is %d, shown %d", id, last.Revision, view[id])
		case !matches && view[id] != 0:
			return fmt.Errorf("%s does not match any more since revision %d, and is shown at %d", id, last.Revision, view[id])
		}
		if !whole || s.Overrun || resumed || len(shown[id]) == 0 {
			continue
		}
		committed := 0
		for _, c := range states {
			if c.Revision > shown[id][0] {
				committed++
			}
		}
		if got := len(shown[id]) - 1 + int(merged[id]); got != committed {
			return fmt.Errorf("%s: %d changes shown or merged of %d after the first", id, got, committed)
		}
	}
	return nil
}

// truthful: what is shown was committed.
func truthful(s *Stream, truth map[string][]Committed) error {
	for i, b := range s.batches {
		for _, c := range b.Changes {
			states := truth[c.Info.Flow.ID]
			at, ok := slices.BinarySearchFunc(states, c.Info.Revision, func(t Committed, r uint64) int { return int(int64(t.Revision - r)) })
			if !ok || states[at].Status != c.Info.Status || states[at].Deleted != c.Info.Deleted {
				return fmt.Errorf("batch %d shows %s as %v at %d, which was never committed", i, c.Info.Flow.ID, c.Info.Status, c.Info.Revision)
			}
		}
	}
	return nil
}

// bookmarked: a client that asks has an answer within 20 seconds.
func bookmarked(s *Stream, _ map[string][]Committed) error {
	for i, b := range s.batches {
		if silent := b.came.Sub(b.asked); silent > 20*time.Second {
			return fmt.Errorf("batch %d took %v", i, silent)
		}
	}
	return nil
}

// filtered: what is shown matches, and what is said to have left does not.
func filtered(s *Stream, _ map[string][]Committed) error {
	in := map[string]bool{}
	for i, b := range s.batches {
		for _, c := range b.Changes {
			id := c.Info.Flow.ID
			switch matches := matches(s.Options.Filter, c.Info); c.Type {
			case core.Snapshot, core.Updated:
				if !matches {
					return fmt.Errorf("batch %d shows %s, which does not match", i, id)
				}
				if c.Type == core.Snapshot && in[id] {
					return fmt.Errorf("batch %d shows a snapshot of %s, which is known", i, id)
				}
				in[id] = true
			case core.Left, core.Deleted:
				if matches || (c.Type == core.Deleted) != c.Info.Deleted {
					return fmt.Errorf("batch %d says of %s that it left", i, id)
				}
				delete(in, id)
			default:
				return fmt.Errorf("batch %d: change of type %d", i, c.Type)
			}
		}
	}
	return nil
}

func named(f core.Filter, id string) bool { return len(f.IDs) == 0 || slices.Contains(f.IDs, id) }

func matches(f core.Filter, info *core.Info) bool {
	for k, v := range f.Labels {
		if have, ok := info.Flow.Labels()[k]; !ok || v != "" && have != v {
			return false
		}
	}
	return !info.Deleted && named(f, info.Flow.ID) && (len(f.Statuses) == 0 || slices.Contains(f.Statuses, info.Status))
}

// Filters are filters of every kind, for flows with a label "team" whose ids are known.
func Filters(ids []string) []core.Filter {
	return []core.Filter{
		{},
		{IDs: append([]string{"nothing"}, ids[:len(ids)/3+1]...)},
		{Labels: map[string]string{"team": "red"}},
		{Labels: map[string]string{"team": ""}},
		{Statuses: []flow.Status{flow.Running}},
		{Statuses: []flow.Status{flow.Backoff, flow.Tripped, flow.Idle}, IDs: ids[:len(ids)/2+1]},
	}
}
