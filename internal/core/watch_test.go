package core_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/simtest"
	"github.com/schedulerd/schedulerd/internal/core/store"
	"github.com/schedulerd/schedulerd/internal/core/store/storetest"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

// watchers follow a scheduler in every way there is: at once or slowly, whole or filtered, in one go or broken off again and again.
func watchers(rng *rand.Rand, ids []string) []*simtest.Stream {
	var all []*simtest.Stream
	for _, filter := range simtest.Filters(ids) {
		for i := range 3 {
			o := core.WatchOptions{Filter: filter}
			if i == 2 {
				o.MinInterval = time.Duration(rng.IntN(int(time.Second)))
			}
			all = append(all, &simtest.Stream{Name: fmt.Sprint("watcher ", i), Options: o})
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
	truth := simtest.NewTruth()
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
	const flows = 12
	var ids []string
	for i := range flows {
		ids = append(ids, fmt.Sprintf("f%02d", i))
	}
	all := watchers(rng, ids)
	for n := range lives {
		disk := truth.Record(opened(t, d))
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
				if err := s.Follow(ctx, r, pause, func() bool { return i%3 == 1 && random(3) == 0 }); err != nil {
					t.Errorf("%s: %v", s.Name, err)
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
		s.Keeps(t, truth)
		changes += s.Changes()
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
		truth := simtest.NewTruth()
		var flows []*core.Flow
		for i := range 8 {
			flows = append(flows, &core.Flow{ID: fmt.Sprintf("f%02d", i), Workflow: task(lasting(time.Minute)), KeepRuns: -1})
		}
		r := start(t, core.Config{Store: truth.Record(store.NewMemory())}, flows...)
		slow := &simtest.Stream{Name: "slow", Overrun: true}
		filtered := &simtest.Stream{Name: "slow and filtered", Overrun: true, Options: core.WatchOptions{Filter: core.Filter{Statuses: []flow.Status{flow.Completed, flow.Idle}}}}
		var following sync.WaitGroup
		for _, s := range []*simtest.Stream{slow, filtered} {
			following.Go(func() {
				if err := s.Follow(t.Context(), r, func() time.Duration { return 1500 * time.Millisecond }, func() bool { return false }); err != nil {
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
		slow.Keeps(t, truth)
		filtered.Keeps(t, truth)
		if n := truth.Len(); n < 1<<16 {
			t.Errorf("%d changes were committed, too few for the ring to run over", n)
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
	truth := simtest.NewTruth()
	var runs atomic.Int64
	s := core.New(core.Config{Store: truth.Record(store.NewMemory())})
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
	var all []*simtest.Stream
	for range 4 {
		following.Go(func() {
			for time.Now().Before(end) {
				s := &simtest.Stream{Name: "watcher", Overrun: true}
				n := 0
				if err := s.Follow(t.Context(), r, func() time.Duration { return 0 }, func() bool { n++; return n%7 == 0 && time.Now().Before(end) }); err != nil {
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
		s.Keeps(t, truth)
	}
	if runs.Load() < 50 || len(all) < 4 {
		t.Errorf("%d runs, %d streams", runs.Load(), len(all))
	}
}
