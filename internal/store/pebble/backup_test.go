package pebble

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/schedulerd/schedulerd/internal/core/store"
)

// Backups are taken while commits go on. Each holds the groups up to one of them, at least those acknowledged before.
func TestBackupWhileRunning(t *testing.T) {
	disk := vfs.NewMem()
	s := mustOpen(t, small(Options{Dir: "/data", FS: disk}))
	var mu sync.Mutex
	acknowledged, stop := 0, false
	var committing sync.WaitGroup
	committing.Go(func() {
		err := newHistory(3).append(s, func(n int) bool {
			mu.Lock()
			defer mu.Unlock()
			acknowledged = n
			return !stop || n < 1500
		})
		if err != nil {
			t.Error(err)
		}
	})
	h := newHistory(3)
	for range 10 {
		mu.Lock()
		least := acknowledged
		mu.Unlock()
		var archive bytes.Buffer
		if err := s.WriteBackup(ctx, &archive); err != nil {
			t.Fatal(err)
		}
		restored := vfs.NewMem()
		o := small(Options{Dir: "/a/b", FS: restored})
		if err := Restore(&archive, o); err != nil {
			t.Fatal(err)
		}
		copied := mustOpen(t, o)
		n, err := h.check(copied)
		if err != nil || n < least {
			t.Fatalf("the backup holds %d groups, %v; %d had been acknowledged when it began", n, err, least)
		}
		h.grow(t, copied, 10)
		mustClose(t, copied)
	}
	mu.Lock()
	stop = true
	mu.Unlock()
	committing.Wait()
	if _, err := h.check(s); err != nil {
		t.Error(err)
	}
	if names := leftovers(t, disk); len(names) > 0 {
		t.Errorf("backups left %q", names)
	}
}

func leftovers(t *testing.T, fsys vfs.FS) []string {
	t.Helper()
	names, err := fsys.List("/data")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, backupPrefix) })
}

// A restored store is another one: it may go another way than the one that was backed up, and its tokens come after all of that one.
func TestRestoredStoreIsAnother(t *testing.T) {
	o := Options{Dir: "/data", FS: vfs.NewMem()}
	s := mustOpen(t, o)
	h := newHistory(1)
	h.grow(t, s, 10)
	archive := backup(t, s)
	instance := s.Instance()
	mustClose(t, s)
	for range 3 {
		s = mustOpen(t, o)
		h.grow(t, s, 1)
		mustClose(t, s)
	}
	if err := Restore(bytes.NewReader(archive), Options{Dir: "/restored", FS: o.FS}); err != nil {
		t.Fatal(err)
	}
	restored := mustOpen(t, Options{Dir: "/restored", FS: o.FS})
	if restored.Instance() == instance || restored.Instance() == "" {
		t.Errorf("the restored store has instance %q, the other one %q", restored.Instance(), instance)
	}
	session, err := restored.Join(ctx)
	if err != nil {
		t.Fatal(err)
	}
	owned, err := session.Acquire(ctx, []store.Shard{1})
	if err != nil || owned[0].Generation <= 4 {
		t.Errorf("generation %v, %v after a restore; 4 had been given out", owned, err)
	}
	if got := restored.Info(); got.Revision != 10 {
		t.Errorf("revision %d, want 10", got.Revision)
	}
	mustClose(t, restored)
	mustClose(t, mustOpen(t, Options{Dir: "/restored", FS: o.FS}))
}

func TestCheckpoint(t *testing.T) {
	fsys := vfs.NewMem()
	s := mustOpen(t, small(Options{Dir: "/data", FS: fsys}))
	h := newHistory(1)
	h.grow(t, s, 300)
	if err := s.Checkpoint(ctx, "/backups/monday"); err != nil {
		t.Fatal(err)
	}
	if err := s.Checkpoint(ctx, "/backups/monday"); err == nil {
		t.Error("a checkpoint into a directory that is there")
	}
	h.grow(t, s, 300)
	inspected := mustOpen(t, small(Options{Dir: "/backups/monday", FS: fsys, ReadOnly: true}))
	if n, err := h.check(inspected); n != 300 || err != nil {
		t.Errorf("the checkpoint holds %d groups, %v", n, err)
	}
	if inspected.Instance() != s.Instance() {
		t.Errorf("the checkpoint has instance %q, want %q", inspected.Instance(), s.Instance())
	}
	mustClose(t, inspected)
	mustClose(t, s)
	if err := s.Checkpoint(ctx, "/backups/tuesday"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a checkpoint of a closed store: %v", err)
	}
}

// A full disk or a slow reader that goes away is the backup's trouble, not the store's.
func TestBackupFails(t *testing.T) {
	disk := vfs.NewMem()
	full := &trouble{err: syscall.ENOSPC, suffix: backupPrefix, after: -1}
	s := mustOpen(t, small(Options{Dir: "/data", FS: errorfs.Wrap(disk, full)}))
	h := newHistory(1)
	h.grow(t, s, 300)
	for after := range 30 {
		full.set(after)
		err := s.WriteBackup(ctx, io.Discard)
		full.set(-1)
		if err != nil && !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("a backup on a full disk: %v", err)
		}
	}
	if full.hits == 0 {
		t.Error("no backup met the full disk")
	}
	gone := errors.New("the reader is gone")
	if err := s.WriteBackup(ctx, &limitedWriter{1000, gone}); !errors.Is(err, gone) {
		t.Errorf("a backup to nobody: %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.WriteBackup(cancelled, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("a backup that is cancelled: %v", err)
	}
	h.grow(t, s, 100)
	if _, err := h.check(s); err != nil || s.Err() != nil {
		t.Errorf("the store after failed backups: %v, %v", err, s.Err())
	}
	mustClose(t, s)
	// What a killed backup leaves goes away.
	if err := disk.MkdirAll("/data/"+backupPrefix+"x/y", 0o700); err != nil {
		t.Fatal(err)
	}
	mustClose(t, mustOpen(t, small(Options{Dir: "/data", FS: disk})))
	if names := leftovers(t, disk); len(names) > 0 {
		t.Errorf("backups left %q", names)
	}
}

type limitedWriter struct {
	left int
	err  error
}

func (w *limitedWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, w.err
	}
	return len(p), nil
}

func backup(t *testing.T, s *Store) []byte {
	t.Helper()
	var archive bytes.Buffer
	if err := s.WriteBackup(ctx, &archive); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

// A backup that is not whole is refused, wherever it is cut or changed, and leaves nothing behind that would stop the next try.
func TestDamagedBackup(t *testing.T) {
	s := mustOpen(t, small(Options{Dir: "/data", FS: vfs.NewMem()}))
	h := newHistory(1)
	h.grow(t, s, 500)
	archive := backup(t, s)
	rng := rand.New(rand.NewPCG(1, 1))
	fsys := vfs.NewMem()
	o := small(Options{Dir: "/restored", FS: fsys})
	refused := func(what string, damaged []byte) {
		t.Helper()
		err := Restore(bytes.NewReader(damaged), o)
		if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "backup") {
			t.Errorf("%s: %v, want ErrCorrupt", what, err)
		}
		if names, err := foreign(fsys, "/restored"); err != nil || len(names) > 0 {
			t.Errorf("%s: left %q, %v", what, names, err)
		}
	}
	for range 40 {
		n := rng.IntN(len(archive) - 2*512)
		refused("cut", archive[:n])
		refused("cut between entries", archive[:n/512*512])
	}
	for range 100 {
		n := rng.IntN(len(archive) - 3*512)
		damaged := slices.Clone(archive)
		damaged[n] ^= 1 << rng.IntN(8)
		// A bit in the padding of an entry or in a header's time does not matter.
		if err := Restore(bytes.NewReader(damaged), Options{Dir: "/probe", FS: vfs.NewMem()}); err != nil {
			refused("flipped", damaged)
		}
	}
	refused("empty", nil)
	refused("text", []byte(strings.Repeat("not a backup\n", 1000)))
	for name, entries := range map[string][]tar.Header{
		"a path out of the directory": {{Name: "../x", Typeflag: tar.TypeReg}},
		"a link":                      {{Name: "x", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}},
		"a directory":                 {{Name: "x/", Typeflag: tar.TypeDir}},
		"a lock":                      {{Name: lockName, Typeflag: tar.TypeReg}},
		"nothing but contents":        {{Name: contentsName, Typeflag: tar.TypeReg}},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, header := range entries {
			if err := w.WriteHeader(&header); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		refused(name, b.Bytes())
	}
	if err := Restore(bytes.NewReader(archive), o); err != nil {
		t.Errorf("the whole backup: %v", err)
	}
	if err := Restore(bytes.NewReader(archive), o); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("into a store: %v", err)
	}
}

// A restore that is killed leaves no store that would open with less in it.
func TestRestoreIsKilled(t *testing.T) {
	s := mustOpen(t, small(Options{Dir: "/data", FS: vfs.NewMem()}))
	h := newHistory(1)
	h.grow(t, s, 200)
	archive := backup(t, s)
	rng := rand.New(rand.NewPCG(1, 1))
	whole := 0
	for range 10 {
		power := &powerLoss{disk: vfs.NewCrashableMem(), every: 10, rng: rng}
		if err := Restore(bytes.NewReader(archive), small(Options{Dir: "/restored", FS: errorfs.Wrap(power.disk, power)})); err != nil {
			t.Fatal(err)
		}
		power.left = append(power.left, remains{disk: power.disk.CrashClone(vfs.CrashCloneCfg{})})
		for _, r := range power.left {
			left, err := foreign(r.disk, "/restored")
			if err != nil || len(left) == 0 {
				continue // not even begun
			}
			s, err := Open(small(Options{Dir: "/restored", FS: r.disk}))
			if err != nil {
				if !errors.Is(err, store.ErrCorrupt) {
					t.Errorf("a restore that was killed: %v, want ErrCorrupt", err)
				}
				continue
			}
			whole++
			if n, err := h.check(s); err != nil || n != 200 {
				t.Errorf("a restore that was killed left %d groups, %v, of 200", n, err)
			}
			mustClose(t, s)
		}
	}
	if whole < 10 {
		t.Errorf("%d restores were whole, all 10 came to their end", whole)
	}
}

func TestMetaSurvivesBackup(t *testing.T) {
	o := Options{Dir: "/data", FS: vfs.NewMem()}
	s := mustOpen(t, o)
	newHistory(1).grow(t, s, 5)
	archive := backup(t, s)
	before := s.Info()
	mustClose(t, s)
	if err := Restore(bytes.NewReader(archive), Options{Dir: "/restored", FS: o.FS}); err != nil {
		t.Fatal(err)
	}
	after := mustOpen(t, Options{Dir: "/restored", FS: o.FS}).Info()
	if after.Schema != before.Schema || after.Revision != before.Revision || after.Epoch != before.Epoch+1 {
		t.Errorf("restored %+v of %+v", after, before)
	}
	if shards := slices.Sorted(maps.Keys(after.Generations)); !slices.Equal(shards, []store.Shard{0, 1, 2}) {
		t.Errorf("generations of shards %v", shards)
	}
}
