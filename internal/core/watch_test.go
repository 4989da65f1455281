package core_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"

	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/store/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/store"
	"github.com/schedulerd/schedulerd/internal/core/store/storetest"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

// truth is what was committed of each flow, in order, as the store saw it.
type truth struct {
	mu    sync.Mutex
	flows map[string][]committedState
}

type committedState struct {
	revision uint64
	status   flow.Status
	deleted  bool
}

// recording is a store that writes down the truth.
type recording struct {
	store.Store
	truth *truth
}

func (r recording) Join(ctx context.Context) (store.Session, error) {
	s, err := r.Store.Join(ctx)
	return recordingSession{s, r.truth}, err
}

type recordingSession struct {
	store.Session
	truth *truth
}

func (s recordingSession) Commit(ctx context.Context, g store.Group) (store.Revision, error) {
	revision, err := s.Session.Commit(ctx, g)
	if err != nil {
		return revision, err
	}
	s.truth.mu.Lock()
	defer s.truth.mu.Unlock()
	for _, c := range g.Changes {
		id, ok := strings.CutPrefix(string(c.Key), "s/")
		if !ok || c.Value == nil {
			continue
		}
		var state storev1.StateRecord
		if err := proto.Unmarshal(c.Value, &state); err != nil {
			return revision, err
		}
		if state.Revision != uint64(revision) {
			return revision, fmt.Errorf("flow %s says revision %d in commit %d", id, state.Revision, revision)
		}
		s.truth.flows[id] = append(s.truth.flows[id], committedState{uint64(revision), flow.Status(state.Status), state.Deleted})
	}
	return revision, nil
}

// stream is what one client got from a watch, over all the times it was broken off and resumed.
type stream struct {
	name    string
	options core.WatchOptions
	batches []timedBatch
	overrun bool // it may have been so slow that the ring ran over
}

type timedBatch struct {
	core.Batch
	asked, came time.Time
	resumed     bool // the first after a resumption
}

// follow reads a watch as a client does, a batch each time pause allows, until the scheduler ends it or ctx does; it breaks off and
// resumes when broken says so.
func (s *stream) follow(ctx context.Context, r *core.Running, pause func() time.Duration, broken func() bool) error {
	o := s.options
	if last := s.last(); last != 0 {
		o.From, o.Instance = last, r.Info().Instance
	}
	w, err := r.Watch(o)
	if err != nil {
		return err
	}
	resumed := o.From != 0
	for {
		if p := pause(); p > 0 {
			time.Sleep(p)
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
			if o.From, o.Instance = s.last(), r.Info().Instance; o.From == 0 {
				s.batches = nil // broken off before the initial state was complete: the client begins anew
			}
			if w, err = r.Watch(o); err != nil {
				return err
			}
			resumed = o.From != 0
		}
	}
}

func (s *stream) resumed() bool {
	return slices.ContainsFunc(s.batches, func(b timedBatch) bool { return b.resumed })
}

// last is the token to resume from.
func (s *stream) last() uint64 {
	if len(s.batches) == 0 {
		return 0
	}
	return s.batches[len(s.batches)-1].Revision
}

// promises are what a watch promises, each as a check of a recorded stream against what was committed.
var promises = map[string]func(s *stream, truth map[string][]committedState) error{
	"Ordered": func(s *stream, _ map[string][]committedState) error {
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
			if b.InitialComplete {
				if complete && !b.resumed {
					return fmt.Errorf("batch %d completes the initial state again", i)
				}
				complete = true
			}
		}
		return nil
	},
	"Unique": func(s *stream, _ map[string][]committedState) error {
		seen := map[string]bool{}
		for i, b := range s.batches {
			if b.resumed { // that nothing up to the token comes again is part of Ordered
				clear(seen)
			}
			for _, c := range b.Changes {
				k := fmt.Sprint(c.Info.Flow.ID, "@", c.Info.Revision)
				if seen[k] {
					return fmt.Errorf("batch %d brings %s again", i, k)
				}
				seen[k] = true
			}
		}
		return nil
	},
	// The newest state of every matching flow arrives, and the events say how many older ones were merged into it.
	"Reliable": func(s *stream, truth map[string][]committedState) error {
		view, shown := map[string]uint64{}, map[string][]uint64{}
		merged := map[string]uint32{}
		for _, b := range s.batches {
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
		whole := len(s.options.Filter.IDs)+len(s.options.Filter.Labels)+len(s.options.Filter.Statuses) == 0
		for id, states := range truth {
			last := states[len(states)-1]
			matches := !last.deleted && (len(s.options.Filter.IDs) == 0 || slices.Contains(s.options.Filter.IDs, id)) &&
				(len(s.options.Filter.Statuses) == 0 || slices.Contains(s.options.Filter.Statuses, last.status))
			if matches && (whole || len(s.options.Filter.Labels) == 0) && view[id] != last.revision {
				return fmt.Errorf("%s: the newest revision is %d, shown %d", id, last.revision, view[id])
			}
			if !matches && view[id] != 0 {
				return fmt.Errorf("%s does not match any more since revision %d, and is shown at %d", id, last.revision, view[id])
			}
			if !whole || s.overrun || s.resumed() || len(shown[id]) == 0 {
				continue
			}
			committed := 0
			for _, c := range states {
				if c.revision > shown[id][0] {
					committed++
				}
			}
			if got := len(shown[id]) - 1 + int(merged[id]); got != committed {
				return fmt.Errorf("%s: %d changes shown or merged of %d after the first", id, got, committed)
			}
		}
		return nil
	},
	// What is shown was committed.
	"True": func(s *stream, truth map[string][]committedState) error {
		for i, b := range s.batches {
			for _, c := range b.Changes {
				at := slices.IndexFunc(truth[c.Info.Flow.ID], func(t committedState) bool { return t.revision == c.Info.Revision })
				if at < 0 || truth[c.Info.Flow.ID][at].status != c.Info.Status || truth[c.Info.Flow.ID][at].deleted != c.Info.Deleted {
					return fmt.Errorf("batch %d shows %s as %v at %d, which was never committed", i, c.Info.Flow.ID, c.Info.Status, c.Info.Revision)
				}
			}
		}
		return nil
	},
	"Bookmarked": func(s *stream, _ map[string][]committedState) error {
		for i, b := range s.batches {
			if silent := b.came.Sub(b.asked); silent > 20*time.Second {
				return fmt.Errorf("batch %d took %v", i, silent)
			}
		}
		return nil
	},
	"Filtered": func(s *stream, _ map[string][]committedState) error {
		in := map[string]bool{}
		for i, b := range s.batches {
			for _, c := range b.Changes {
				id, f := c.Info.Flow.ID, s.options.Filter
				matches := !c.Info.Deleted && (len(f.IDs) == 0 || slices.Contains(f.IDs, id)) && (len(f.Statuses) == 0 || slices.Contains(f.Statuses, c.Info.Status))
				for k, v := range f.Labels {
					have, ok := c.Info.Flow.Labels[k]
					matches = matches && ok && (v == "" || have == v)
				}
				switch c.Type {
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
	},
}

// keep checks the promises. If nothing else went wrong, the last token covers all that was committed.
func (s *stream) keep(t *testing.T, truth *truth) {
	t.Helper()
	truth.mu.Lock()
	defer truth.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(promises)) {
		if err := promises[name](s, truth.flows); err != nil {
			t.Errorf("%s: not %s: %v", s.name, name, err)
		}
	}
}

// watchers follow a scheduler in every way there is: at once or slowly, whole or filtered, in one go or broken off again and again.
func watchers(rng *rand.Rand) []*stream {
	var all []*stream
	for _, filter := range []core.Filter{
		{},
		{IDs: []string{"f00", "f01", "f02", "nothing"}},
		{Labels: map[string]string{"team": "red"}},
		{Labels: map[string]string{"team": ""}},
		{Statuses: []flow.Status{flow.Running}},
		{Statuses: []flow.Status{flow.Backoff, flow.Tripped, flow.Idle}, IDs: []string{"f00", "f03", "f04", "f05"}},
	} {
		for i := range 3 {
			o := core.WatchOptions{Filter: filter}
			if i == 2 {
				o.MinInterval = time.Duration(rng.IntN(int(time.Second)))
			}
			all = append(all, &stream{name: fmt.Sprintf("watcher %d %+v", i, filter), options: o})
		}
	}
	return all
}

// Watchers of all kinds follow flows that run, fail, are paused, deleted and defined anew, over restarts and crashes, and the promises
// hold for what each of them was shown.
func TestWatchPromises(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if seed%4 == 0 {
					watchUnderLoad(t, seed, 1, time.Minute)
				} else {
					watchUnderLoad(t, seed, 3, 20*time.Second)
				}
			})
		})
	}
}

func watchUnderLoad(t *testing.T, seed uint64, lives int, life time.Duration) {
	rng := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	random := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(n)
	}
	truth := &truth{flows: map[string][]committedState{}}
	d := storetest.NewDisk(seed)
	d.Inject(func() storetest.Fault {
		if random(20) == 0 {
			return storetest.Fault{Dropped: random(2) == 0, Lost: true}
		}
		return storetest.Fault{Delay: time.Duration(random(int(20 * time.Millisecond)))}
	})
	work := func(ctx context.Context, in *workflow.Invocation) (workflow.Result, error) {
		if err := lastingErr(ctx, time.Duration(random(int(100*time.Millisecond)))); err != nil {
			return workflow.Result{}, err
		}
		if random(3) == 0 {
			return workflow.Result{}, errors.New("boom")
		}
		return workflow.Result{}, nil
	}
	policy := flow.Policy{Initial: 200 * time.Millisecond, Multiplier: 2, MaxDelay: time.Second, TripAfter: 3}
	teams := []map[string]string{nil, {"team": "red"}, {"team": "blue"}}
	made := 0
	flowOf := func(i int) *core.Flow {
		made++
		return &core.Flow{
			ID: fmt.Sprintf("f%02d", i), Schedule: every(t, time.Duration(50+random(500))*time.Millisecond), Workflow: task(work), Backoff: policy,
			Labels: teams[random(3)], Origin: core.FromAPI, Source: fmt.Append(nil, i, " ", made),
		}
	}
	defined := map[string]*core.Flow{} // by source
	compile := func(source []byte, _ core.Origin) (*core.Flow, error) {
		mu.Lock()
		defer mu.Unlock()
		if f := defined[string(source)]; f != nil {
			return f, nil
		}
		return nil, errors.New("never seen")
	}
	define := func(i int) *core.Flow {
		f := flowOf(i)
		mu.Lock()
		defer mu.Unlock()
		defined[string(f.Source)] = f
		return f
	}
	all := watchers(rng)
	const flows = 12
	for n := range lives {
		disk := recording{opened(t, d), truth}
		r, err := core.New(core.Config{Store: disk, Compile: compile}).Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			var first []*core.Flow
			for i := range flows {
				first = append(first, define(i))
			}
			if _, err := r.Apply(t.Context(), core.ApplyRequest{Flows: first, Origin: core.FromAPI}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var following sync.WaitGroup
		for i, s := range all {
			following.Go(func() {
				pause := func() time.Duration {
					if i%3 == 0 {
						return 0
					}
					return time.Duration(random(int(2 * time.Second)))
				}
				if err := s.follow(ctx, r, pause, func() bool { return i%3 == 1 && random(3) == 0 }); err != nil {
					t.Errorf("%s: %v", s.name, err)
				}
			})
		}
		for end := time.Now().Add(life); time.Now().Before(end); time.Sleep(time.Duration(random(int(100 * time.Millisecond)))) {
			i := random(flows)
			id := fmt.Sprintf("f%02d", i)
			switch random(8) {
			case 0:
				r.Trigger(t.Context(), core.TriggerRequest{FlowID: id})
			case 1, 2:
				r.Reset(t.Context(), id, "")
			case 3:
				r.Pause(t.Context(), id, "")
			case 4:
				r.Resume(t.Context(), id, 0, "")
			case 5:
				r.Cancel(t.Context(), id, "", "")
			case 6:
				r.Delete(t.Context(), id, "", "")
			case 7:
				r.Apply(t.Context(), core.ApplyRequest{Flows: []*core.Flow{define(i)}, Origin: core.FromAPI})
			}
		}
		last := n == lives-1
		if n%2 == 0 && !last {
			crash(t, d, r)
			cancel()
		} else {
			if last { // silence, so that everybody gets everything
				for i := range flows {
					r.Pause(t.Context(), fmt.Sprintf("f%02d", i), "")
				}
				time.Sleep(25 * time.Second)
			}
			stop(t, r)
			disk.Close()
		}
		following.Wait()
		cancel()
	}
	changes := 0
	for _, s := range all {
		s.keep(t, truth)
		for _, b := range s.batches {
			changes += len(b.Changes)
		}
	}
	if changes < 1000 {
		t.Errorf("the watchers were shown %d changes in all", changes)
	}
}

func lastingErr(ctx context.Context, d time.Duration) error {
	_, err := lasting(d)(ctx, nil)
	return err
}

// A watcher that is so slow that the ring runs over gets the newest states all the same.
func TestWatchRingOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		truth := &truth{flows: map[string][]committedState{}}
		var flows []*core.Flow
		for i := range 8 {
			flows = append(flows, &core.Flow{ID: fmt.Sprintf("f%02d", i), Workflow: task(lasting(time.Minute)), KeepRuns: -1})
		}
		r := start(t, core.Config{Store: recording{store.NewMemory(), truth}}, flows...)
		slow := &stream{name: "slow", overrun: true}
		filtered := &stream{name: "slow and filtered", overrun: true, options: core.WatchOptions{Filter: core.Filter{Statuses: []flow.Status{flow.Completed, flow.Idle}}}}
		var following sync.WaitGroup
		for _, s := range []*stream{slow, filtered} {
			following.Go(func() {
				if err := s.follow(t.Context(), r, func() time.Duration { return 1500 * time.Millisecond }, func() bool { return false }); err != nil {
					t.Error(err)
				}
			})
		}
		sleep(time.Second)
		for i := range 1<<16 + 100 {
			if _, err := r.Reset(t.Context(), fmt.Sprintf("f%02d", i%8), ""); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "f03"}); err != nil {
			t.Fatal(err)
		}
		sleep(time.Minute)
		stop(t, r)
		following.Wait()
		slow.keep(t, truth)
		filtered.keep(t, truth)
		committed := 0
		for _, states := range truth.flows {
			committed += len(states)
		}
		if committed < 1<<16 {
			t.Errorf("%d changes were committed, too few for the ring to run over", committed)
		}
	})
}

// The changes of one commit may be more than one batch takes. Whoever breaks off between two such batches still gets the rest.
func TestWatchResumesInTheMiddleOfACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 2500
		var flows []*core.Flow
		schedule := every(t, time.Hour)
		for i := range n {
			flows = append(flows, &core.Flow{ID: fmt.Sprintf("f%04d", i), Schedule: schedule, Workflow: task(lasting(time.Minute))})
		}
		r := start(t, core.Config{Store: slowDisk(t, time.Second), MaxConcurrentRuns: n}, flows...)
		sleep(30 * time.Minute)
		w, err := r.Watch(core.WatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for {
			if b, err := w.Next(t.Context()); err != nil {
				t.Fatal(err)
			} else if b.InitialComplete {
				break
			}
		}
		sleep(30*time.Minute + 10*time.Second) // all run
		seen := map[string]bool{}
		for batches := 1; len(seen) < n; batches++ {
			b, err := w.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(b.Changes) == 0 {
				break
			}
			for _, c := range b.Changes {
				seen[c.Info.Flow.ID] = true
			}
			if batches == 2 {
				if w, err = r.Watch(core.WatchOptions{From: b.Revision}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(seen) != n {
			t.Errorf("%d of %d changes came", len(seen), n)
		}
	})
}

func TestWatchTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, core.Config{}, &core.Flow{ID: "f", Workflow: task(failing)})
		info := r.Info()
		for name, test := range map[string]struct {
			options core.WatchOptions
			want    error
		}{
			"present":            {core.WatchOptions{From: info.Revision, Instance: info.Instance}, nil},
			"without instance":   {core.WatchOptions{From: info.Revision}, nil},
			"of another store":   {core.WatchOptions{From: info.Revision, Instance: "other"}, core.ErrInvalid},
			"of the future":      {core.WatchOptions{From: info.Revision + 1, Instance: info.Instance}, core.ErrInvalid},
			"none, other's name": {core.WatchOptions{Instance: "other"}, nil},
		} {
			if _, err := r.Watch(test.options); !errors.Is(err, test.want) {
				t.Errorf("a token %s: %v, want %v", name, err, test.want)
			}
		}
	})
}

// Next gives up when its context ends, also while it paces itself.
func TestWatchNextEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, core.Config{}, &core.Flow{ID: "f", Schedule: every(t, time.Second), Workflow: task(lasting(0))})
		w, err := r.Watch(core.WatchOptions{MinInterval: time.Hour + 500*time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := w.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Next: %v", err)
		}
		began := time.Now()
		b, err := w.Next(t.Context())
		if err != nil || len(b.Changes) != 1 || b.Changes[0].Merged < 1000 {
			t.Errorf("after an hour of pace: %+v, %v", b, err)
		}
		if took := time.Since(began); took != 59*time.Minute+500*time.Millisecond {
			t.Errorf("the second batch came after %v", took)
		}
	})
}

// On real time, with commits and watchers truly at once.
func TestWatchPromisesUnderRealLoad(t *testing.T) {
	truth := &truth{flows: map[string][]committedState{}}
	var runs atomic.Int64
	s := core.New(core.Config{Store: recording{store.NewMemory(), truth}})
	for i := range 8 {
		if err := s.Add(&core.Flow{ID: fmt.Sprintf("f%02d", i), Workflow: task(counting(&runs)), Backoff: steady, KeepRuns: -1}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := s.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var triggering, following sync.WaitGroup
	end := time.Now().Add(time.Second)
	for i := range 8 {
		triggering.Go(func() {
			for time.Now().Before(end) {
				r.Trigger(t.Context(), core.TriggerRequest{FlowID: fmt.Sprintf("f%02d", i)})
				runtime.Gosched()
			}
		})
	}
	var mu sync.Mutex
	var all []*stream
	for range 4 {
		following.Go(func() {
			for time.Now().Before(end) {
				s := &stream{name: "watcher", overrun: true}
				n := 0
				if err := s.follow(t.Context(), r, func() time.Duration { return 0 }, func() bool { n++; return n%7 == 0 && time.Now().Before(end) }); err != nil {
					t.Error(err)
				}
				mu.Lock()
				all = append(all, s)
				mu.Unlock()
			}
		})
	}
	triggering.Wait()
	stop(t, r)
	following.Wait()
	for _, s := range all {
		s.keep(t, truth)
	}
	if runs.Load() < 1000 || len(all) < 4 {
		t.Errorf("%d runs, %d streams", runs.Load(), len(all))
	}
}
