package storetest

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/store"
)

func TestDisk(t *testing.T) {
	Run(t, func(*testing.T) Open { return NewDisk(1).Open })
}

func TestDiskIsLocked(t *testing.T) {
	d := NewDisk(1)
	s := opened(t, d.Open)
	if _, err := d.Open(); !errors.Is(err, store.ErrLocked) {
		t.Errorf("a second Open: %v, want ErrLocked", err)
	}
	reopened(t, s, d.Open)
}

// A commit is repeated until its outcome is known; whatever happened to its first tries, it counts once.
func TestDiskUnknownOutcome(t *testing.T) {
	for name, faults := range map[string][]Fault{
		"lost":                           {{Lost: true}, {}},
		"dropped":                        {{Dropped: true}, {}},
		"lost twice":                     {{Lost: true}, {Lost: true}, {}},
		"drop, lose":                     {{Dropped: true}, {Lost: true}, {}},
		"lose, then drop the repetition": {{Lost: true}, {Dropped: true}},
	} {
		t.Run(name, func(t *testing.T) {
			d := NewDisk(1)
			s, w := begin(t, d.Open, 3)
			first := w.commit(t, set(3, "k", "1"))
			tries := 0
			d.Inject(func() Fault {
				tries++
				return faults[tries-1]
			})
			g := store.Group{Seq: 2, Changes: []store.Change{set(3, "k", "2")}}
			var revision store.Revision
			for {
				var err error
				if revision, err = w.session.Commit(t.Context(), g); err == nil {
					break
				} else if !errors.Is(err, store.ErrUnknown) {
					t.Fatal(err)
				}
			}
			if tries != len(faults) || revision != first+1 || w.session.Revision() != revision {
				t.Errorf("revision %d after %d tries, want %d after %d", revision, tries, first+1, len(faults))
			}
			if got, want := content(t, s, 3), map[string]string{"k": "2"}; !equal(got, want) {
				t.Errorf("content %q, want %q", got, want)
			}
		})
	}
}

func TestDiskBroken(t *testing.T) {
	kept := 0
	for seed := range uint64(20) {
		d := NewDisk(seed)
		s, w := begin(t, d.Open, 3)
		w.commit(t, set(3, "k", "1"))
		d.Inject(func() Fault { return Fault{Broken: true} })
		for range 2 {
			w.refused(t, store.ErrIO, store.Group{Seq: 2, Changes: []store.Change{set(3, "k", "2")}})
		}
		<-w.session.Done()
		if err := w.session.Err(); !errors.Is(err, store.ErrIO) {
			t.Errorf("Err = %v, want ErrIO", err)
		}
		if _, err := s.Join(t.Context()); !errors.Is(err, store.ErrIO) {
			t.Errorf("Join = %v, want ErrIO", err)
		}
		if got := content(t, s, 3)["k"]; got != "1" {
			t.Errorf("readers see %q that was not synced", got)
		}
		d.Inject(nil)
		s = reopened(t, s, d.Open)
		if content(t, s, 3)["k"] == "2" {
			kept++
		}
	}
	if kept == 0 || kept == 20 {
		t.Errorf("the group was kept in %d of 20 runs, want some", kept)
	}
}

// A crash while a commit is on its way to the disk: the commit fails, nobody saw its group, and it is kept or not.
func TestDiskCrash(t *testing.T) {
	kept := 0
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			d := NewDisk(seed)
			s, w := begin(t, d.Open, 3)
			w.commit(t, set(3, "k", "1"), set(3, "other", "1"))
			d.Inject(func() Fault { return Fault{Delay: time.Hour} })
			failed := make(chan error, 1)
			go func() {
				_, err := w.session.Commit(t.Context(), store.Group{Seq: 2, Changes: []store.Change{set(3, "k", "2"), set(3, "other", "2")}})
				failed <- err
			}()
			time.Sleep(30 * time.Minute)
			if got := content(t, s, 3)["k"]; got != "1" {
				t.Errorf("readers see %q that is not synced", got)
			}
			d.Crash()
			if err := <-failed; !errors.Is(err, store.ErrClosed) {
				t.Errorf("the commit under way: %v, want ErrClosed", err)
			}
			<-w.session.Done()
			if _, err := s.Get(t.Context(), 3, []byte("k")); !errors.Is(err, store.ErrClosed) {
				t.Errorf("a read by the dead process: %v, want ErrClosed", err)
			}
			d.Inject(nil)
			revision := w.session.Revision()
			next, heir := begin(t, d.Open, 3)
			got := content(t, next, 3)
			if !equal(got, map[string]string{"k": "1", "other": "1"}) && !equal(got, map[string]string{"k": "2", "other": "2"}) {
				t.Errorf("the crash left %q: half a group", got)
			}
			if got["k"] == "2" {
				kept++
			}
			if again := heir.commit(t, set(3, "k", "3")); again <= revision {
				t.Errorf("revision %d after %d", again, revision)
			}
			if g := d.Generations()[3]; g != 2 {
				t.Errorf("generation %d, want 2", g)
			}
			// The dead process changes nothing any more, not even by closing.
			w.refused(t, store.ErrClosed, store.Group{Seq: 2})
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			heir.commit(t, set(3, "k", "4"))
		})
	}
	if kept == 0 || kept == 20 {
		t.Errorf("the group was kept in %d of 20 crashes, want some", kept)
	}
}

// A takeover waits for the commit under way, also on virtual time.
func TestDiskTakeoverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDisk(1)
		s, w := begin(t, d.Open, 3)
		d.Inject(func() Fault { return Fault{Delay: time.Minute} })
		done := make(chan error, 1)
		go func() {
			_, err := w.session.Commit(t.Context(), store.Group{Seq: 1, Changes: []store.Change{set(3, "k", "1")}})
			done <- err
		}()
		synctest.Wait()
		w.session.(Expirer).Expire()
		heir := joined(t, s)
		start := time.Now()
		heir.acquire(t, 3)
		if waited := time.Since(start); waited != time.Minute {
			t.Errorf("the takeover waited %v, the commit took a minute", waited)
		}
		if got := content(t, s, 3)["k"]; got != "1" {
			t.Errorf("the heir sees %q, the zombie's last commit was 1", got)
		}
		if err := <-done; err != nil {
			t.Errorf("the commit that was under way: %v", err)
		}
	})
}
