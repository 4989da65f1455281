package pebble

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"

	"github.com/schedulerd/schedulerd/internal/core/store"
)

// trouble makes a disk fail: writes to matching files, from a given one on, until it is over.
type trouble struct {
	err    error
	suffix string // of the files; empty for all
	kinds  []errorfs.OpKind

	mu    sync.Mutex
	after int // writes that still work; negative: the disk is fine
	hits  int
}

func (d *trouble) String() string { return "trouble" }

func (d *trouble) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead || op.Kind == errorfs.OpLock || !strings.Contains(op.Path, d.suffix) {
		return nil
	}
	if d.kinds != nil {
		match := false
		for _, kind := range d.kinds {
			match = match || kind == op.Kind
		}
		if !match {
			return nil
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.after < 0:
		return nil
	case d.after > 0:
		d.after--
		return nil
	}
	d.hits++
	return &os.PathError{Op: "write", Path: op.Path, Err: d.err}
}

func (d *trouble) set(after int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.after = after
}

// A disk that fails at any moment, in any file, ends the store with ErrIO and the cause: no panic, nothing acknowledged is lost, reads go
// on, nothing is accepted. When the disk works again, opening the store again is all it takes.
func TestWritesFail(t *testing.T) {
	for _, test := range []struct {
		name   string
		cause  error
		suffix string
		kinds  []errorfs.OpKind
	}{
		{name: "full disk", cause: syscall.ENOSPC},
		{name: "full disk for logs", cause: syscall.ENOSPC, suffix: ".log"},
		{name: "full disk for tables", cause: syscall.ENOSPC, suffix: ".sst"},
		{name: "full disk for the manifest", cause: syscall.ENOSPC, suffix: "MANIFEST"},
		{name: "full disk for the mark", cause: syscall.ENOSPC, suffix: markName},
		{name: "quota", cause: syscall.EDQUOT},
		{name: "I/O errors", cause: syscall.EIO},
		{name: "I/O errors in syncs", cause: syscall.EIO, kinds: []errorfs.OpKind{errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo}},
		{name: "I/O errors in new files", cause: syscall.EIO, kinds: []errorfs.OpKind{errorfs.OpCreate, errorfs.OpReuseForWrite, errorfs.OpRename}},
		{name: "read-only filesystem", cause: syscall.EROFS},
	} {
		t.Run(test.name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			disk := vfs.NewMem()
			h := newHistory(1)
			rng := rand.New(rand.NewPCG(1, 1))
			acknowledged, failures := 0, 0
			for round := range 20 {
				d := &trouble{err: test.cause, suffix: test.suffix, kinds: test.kinds, after: -1}
				o := small(Options{Dir: "/data", FS: errorfs.Wrap(disk, d)})
				if round%3 == 0 {
					d.set(rng.IntN(10)) // already while it is opened
				}
				s, err := Open(o)
				if err != nil {
					wantTrouble(t, err, test.cause)
					failures++
					continue
				}
				d.set(rng.IntN(200))
				begin := acknowledged
				err = h.append(s, func(n int) bool {
					acknowledged = n
					return n < begin+300
				})
				if err == nil {
					// The disk did not fail, or it does so now.
					if err := s.Close(); err != nil {
						wantTrouble(t, err, test.cause)
					}
					continue
				}
				failures++
				wantTrouble(t, err, test.cause)
				wantTrouble(t, s.Err(), test.cause)
				if _, err := s.Join(ctx); !errors.Is(err, store.ErrIO) {
					t.Fatalf("Join after the failure: %v", err)
				}
				d.set(-1)
				if _, err := s.Join(ctx); !errors.Is(err, store.ErrIO) {
					t.Fatalf("Join when the disk works again: %v", err)
				}
				// Readers see what was acknowledged.
				if value, err := s.Get(ctx, 0, []byte("newest")); acknowledged > 0 && (err != nil || string(value) != strconv.Itoa(acknowledged)) {
					t.Fatalf("Get after the failure: %q, %v, want %d", value, err, acknowledged)
				}
				mustClose(t, s)
				s = mustOpen(t, small(Options{Dir: "/data", FS: disk}))
				n, err := h.check(s)
				if err != nil || n < acknowledged || n > acknowledged+1 {
					t.Fatalf("opened again: %d groups, %v, %d were acknowledged", n, err, acknowledged)
				}
				acknowledged = n
				mustClose(t, s)
			}
			t.Logf("%d failures, %d groups", failures, acknowledged)
			if failures < 5 || acknowledged < 100 {
				t.Errorf("%d failures and %d groups are too few to show anything", failures, acknowledged)
			}
		})
	}
}

func wantTrouble(t *testing.T, err, cause error) {
	t.Helper()
	if !errors.Is(err, store.ErrIO) || !errors.Is(err, cause) || !strings.Contains(err.Error(), "/data") {
		t.Fatalf("got %v, want ErrIO with its cause %v and the place", err, cause)
	}
}

// The engine waits for room in memory because the disk takes no tables. The commit that waits fails, and Close does not hang.
func TestTablesFailWhileACommitWaits(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	disk := vfs.NewMem()
	gate := &tableGate{open: make(chan struct{})}
	waits := make(chan struct{}, 100)
	log := slog.New(onWarning{slog.DiscardHandler, func(message string) {
		if strings.Contains(message, "wait for the disk") {
			waits <- struct{}{}
		}
	}})
	s := mustOpen(t, small(Options{Dir: "/data", FS: errorfs.Wrap(disk, gate), Logger: log}))
	session, err := s.Join(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.Acquire(ctx, []store.Shard{1}); err != nil {
		t.Fatal(err)
	}
	gate.close()
	value := make([]byte, 10_000)
	seq, failed := uint64(0), make(chan error, 1)
	go func() {
		for {
			seq++
			_, err := session.Commit(ctx, store.Group{Seq: seq, Changes: []store.Change{{Shard: 1, Key: fmt.Appendf(nil, "%d", seq), Value: value}}})
			if err != nil {
				failed <- err
				return
			}
		}
	}()
	select {
	case <-waits:
	case err := <-failed:
		t.Fatalf("a commit did not wait: %v", err)
	}
	if s.Metrics().Stalls == 0 {
		t.Error("the wait was not counted")
	}
	gate.fail(syscall.ENOSPC)
	wantTrouble(t, <-failed, syscall.ENOSPC)
	<-session.Done()
	if err := session.Err(); !errors.Is(err, store.ErrIO) {
		t.Errorf("Err of the session: %v, want ErrIO", err)
	}
	mustClose(t, s)
	s = mustOpen(t, Options{Dir: "/data", FS: disk})
	if got := int(s.Info().Revision); got < int(seq-1) || got > int(seq) {
		t.Errorf("revision %d after %d commits", got, seq-1)
	}
	mustClose(t, s)
}

// onWarning calls a function with each warning.
type onWarning struct {
	slog.Handler
	call func(message string)
}

func (h onWarning) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (h onWarning) Handle(_ context.Context, r slog.Record) error {
	h.call(r.Message)
	return nil
}

// tableGate holds up the creation of tables, and then lets it go on or fail.
type tableGate struct {
	mu   sync.Mutex
	open chan struct{}
	shut bool
	err  error
}

func (g *tableGate) String() string { return "gate" }

func (g *tableGate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
}

func (g *tableGate) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
	close(g.open)
}

func (g *tableGate) MaybeError(op errorfs.Op) error {
	if op.Kind != errorfs.OpCreate || !strings.HasSuffix(op.Path, ".sst") {
		return nil
	}
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if !shut {
		return nil
	}
	<-g.open
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// A real disk that is full, as far as that can be had without rights: the kernel refuses to let any file grow beyond a limit.
func TestFileSizeLimit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	c := child(t, "limited", dir)
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := lines[len(lines)-1]
	if !strings.Contains(last, store.ErrIO.Error()) || !strings.Contains(last, dir) || !strings.Contains(last, ".log") {
		t.Errorf("the child ended with %q, want ErrIO and the name of a log", last)
	}
	acknowledged, err := strconv.Atoi(lines[len(lines)-2])
	if err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, small(Options{Dir: dir}))
	h := newHistory(childSeed)
	n, err := h.check(s)
	if err != nil || n < acknowledged || n > acknowledged+1 {
		t.Fatalf("%d groups, %v, %d were acknowledged", n, err, acknowledged)
	}
	h.grow(t, s, 100)
	mustClose(t, s)
	if acknowledged < 100 {
		t.Errorf("only %d groups before the limit", acknowledged)
	}
}

func writeUntilTheLimit(dir string) {
	signal.Ignore(syscall.SIGXFSZ)
	limit := syscall.Rlimit{Cur: 300_000, Max: 300_000}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	s, err := Open(Options{Dir: dir})
	if err == nil {
		err = newHistory(childSeed).append(s, func(n int) bool {
			_, err := fmt.Println(n)
			return err == nil
		})
		err = errors.Join(err, s.Close())
	}
	fmt.Println(strings.ReplaceAll(err.Error(), "\n", "; "))
	os.Exit(0)
}
