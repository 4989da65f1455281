package pebble

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	engine "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/schedulerd/schedulerd/internal/core/store"
)

func TestDirectoryIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := mustOpen(t, Options{Dir: dir + "/"})
	checkpoint := filepath.Join(t.TempDir(), "checkpoint")
	if err := s.Checkpoint(ctx, checkpoint); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{dir, checkpoint} {
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v, want 0700", dir, info.Mode())
		}
	}
}

func TestNoDirectory(t *testing.T) {
	if _, err := Open(Options{}); err == nil || !strings.Contains(err.Error(), "no directory") {
		t.Errorf("Open without a directory: %v", err)
	}
	if err := Restore(strings.NewReader(""), Options{}); err == nil || !strings.Contains(err.Error(), "no directory") {
		t.Errorf("Restore without a directory: %v", err)
	}
}

// Another process has the store open.
func TestLockedByAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	c := child(t, "write", dir)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for range 3 {
		if !lines.Scan() {
			t.Fatal("the child ended by itself")
		}
	}
	for _, readOnly := range []bool{false, true} {
		_, err := Open(Options{Dir: dir, ReadOnly: readOnly})
		if !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), fmt.Sprintf("pid %d ", c.Process.Pid)) {
			t.Errorf("Open (read-only %v): %v, want ErrLocked with the directory and the pid %d", readOnly, err, c.Process.Pid)
		}
	}
	if err := Restore(strings.NewReader(""), Options{Dir: dir}); !errors.Is(err, store.ErrLocked) {
		t.Errorf("Restore: %v, want ErrLocked", err)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
	}
	_ = c.Wait()
	mustClose(t, mustOpen(t, Options{Dir: dir}))
}

func TestLockedByThisProcess(t *testing.T) {
	for name, o := range map[string]Options{"disk": {Dir: t.TempDir()}, "memory": {Dir: "/data", FS: vfs.NewMem()}} {
		t.Run(name, func(t *testing.T) {
			s := mustOpen(t, o)
			for range 2 {
				_, err := Open(o)
				if !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("pid %d ", os.Getpid())) {
					t.Errorf("a second Open: %v, want ErrLocked", err)
				}
			}
			newHistory(1).grow(t, s, 3)
			mustClose(t, s)
			mustClose(t, mustOpen(t, o))
		})
	}
}

func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	h := newHistory(1)
	s := mustOpen(t, small(Options{Dir: dir}))
	h.grow(t, s, 500)
	mustClose(t, s)
	before := readDisk(t, vfs.Default, dir)

	s = mustOpen(t, small(Options{Dir: dir, ReadOnly: true}))
	if n, err := h.check(s); err != nil || n != 500 {
		t.Errorf("%d groups, %v", n, err)
	}
	if _, err := s.Join(ctx); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("Join: %v, want ErrReadOnly", err)
	}
	mustClose(t, s)
	after := readDisk(t, vfs.Default, dir)
	if len(after) != len(before) {
		t.Errorf("%d files, were %d", len(after), len(before))
	}
	for name, content := range before {
		if string(after[name]) != string(content) {
			t.Errorf("%s has changed", name)
		}
	}

	if _, err := Open(Options{Dir: filepath.Join(dir, "missing"), ReadOnly: true}); !errors.Is(err, store.ErrIO) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open of a directory that is not there: %v", err)
	}
	if _, err := Open(Options{Dir: t.TempDir(), ReadOnly: true}); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("Open of an empty directory: %v", err)
	}
}

// A filesystem that is mounted read-only can be inspected, without the lock that cannot be taken there.
func TestReadOnlyFilesystem(t *testing.T) {
	disk := vfs.NewMem()
	h := newHistory(1)
	s := mustOpen(t, small(Options{Dir: "/data", FS: disk}))
	h.grow(t, s, 100)
	mustClose(t, s)
	mounted := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpFileClose {
			return &os.PathError{Op: "open", Path: op.Path, Err: syscall.EROFS}
		}
		return nil
	}))
	if _, err := Open(Options{Dir: "/data", FS: mounted}); !errors.Is(err, store.ErrIO) || !errors.Is(err, syscall.EROFS) {
		t.Errorf("Open for writing: %v, want ErrIO", err)
	}
	if _, err := Open(Options{Dir: "/other", FS: mounted}); !errors.Is(err, store.ErrIO) || !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), "/other") {
		t.Errorf("creating a store: %v, want ErrIO", err)
	}
	s = mustOpen(t, small(Options{Dir: "/data", FS: mounted, ReadOnly: true}))
	if n, err := h.check(s); err != nil || n != 100 {
		t.Errorf("%d groups, %v", n, err)
	}
	mustClose(t, s)
}

func TestSchema(t *testing.T) {
	disk := vfs.NewMem()
	o := Options{Dir: "/data", FS: disk}
	h := newHistory(1)
	s := mustOpen(t, o)
	h.grow(t, s, 20)
	if got := s.Info().Schema; got != 1 {
		t.Fatalf("a new store has schema %d, want 1", got)
	}
	mustClose(t, s)

	calls := ""
	step := func(name string) migration {
		return func(db engine.Reader, batch *engine.Batch) error {
			calls += name
			value, closer, err := db.Get(keyOf(0, []byte("newest")))
			if err != nil {
				return err
			}
			moved := append([]byte(name+" "), value...)
			return errors.Join(batch.Set(keyOf(0, []byte("newest")), moved, nil), closer.Close())
		}
	}
	broken := errors.New("no room")
	o.migrations = []migration{step("first"), func(engine.Reader, *engine.Batch) error { return broken }}
	for range 2 {
		if _, err := Open(o); !errors.Is(err, broken) || !strings.Contains(err.Error(), "schema 2 to 3") {
			t.Fatalf("a migration that fails: %v", err)
		}
	}
	if calls != "first" {
		t.Errorf("migrations that ran: %q, want the first once", calls)
	}
	o.ReadOnly = true
	if _, err := Open(o); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("an old store opened for reading: %v, want ErrReadOnly", err)
	}
	o.ReadOnly, o.migrations = false, []migration{step("first"), step("second")}
	s = mustOpen(t, o)
	if value, err := s.Get(ctx, 0, []byte("newest")); err != nil || string(value) != "second first 20" || s.Info().Schema != 3 {
		t.Errorf("after both migrations: %q, %v, schema %d", value, err, s.Info().Schema)
	}
	mustClose(t, s)
	mustClose(t, mustOpen(t, o))
	if calls != "firstsecond" {
		t.Errorf("migrations that ran: %q, want each once", calls)
	}

	// To the program without migrations this is a newer store.
	for _, readOnly := range []bool{false, true} {
		_, err := Open(Options{Dir: "/data", FS: disk, ReadOnly: readOnly})
		if !errors.Is(err, store.ErrSchema) || !strings.Contains(err.Error(), "schema 3") || !strings.Contains(err.Error(), "/data") {
			t.Errorf("a newer store (read-only %v): %v, want ErrSchema", readOnly, err)
		}
	}
}

func TestNewerEngine(t *testing.T) {
	fsys := vfs.NewMem()
	s := mustOpen(t, Options{Dir: "/data", FS: fsys})
	newHistory(1).grow(t, s, 1)
	mustClose(t, s)
	marker := fmt.Sprintf("marker.format-version.000099.%03d", engine.FormatNewest+1)
	disk{marker: nil}.write(t, fsys, "/data")
	if _, err := Open(Options{Dir: "/data", FS: fsys}); !errors.Is(err, store.ErrSchema) || !strings.Contains(err.Error(), "/data") {
		t.Errorf("Open: %v, want ErrSchema", err)
	}
}

func TestInfo(t *testing.T) {
	o := Options{Dir: "/data", FS: vfs.NewMem()}
	for epoch := uint64(1); epoch <= 3; epoch++ {
		s := mustOpen(t, o)
		session, err := s.Join(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := session.Acquire(ctx, []store.Shard{0, 7, 0xffff}); err != nil {
			t.Fatal(err)
		}
		changes := []store.Change{{Shard: 7, Key: []byte("k"), Value: []byte("v")}, {Shard: 0xffff, Value: []byte("v")}, {Shard: 0, Key: []byte("k")}}
		if _, err := session.Commit(ctx, store.Group{Seq: 1, Changes: changes}); err != nil {
			t.Fatal(err)
		}
		info := s.Info()
		if info.Epoch != epoch || info.Revision != store.Revision(epoch) || info.Instance != s.Instance() || info.Schema != 1 || info.Format == 0 {
			t.Errorf("epoch %d: %+v", epoch, info)
		}
		if epoch > 1 && (len(info.Generations) != 3 || info.Generations[7] != epoch-1) {
			t.Errorf("epoch %d: generations %v", epoch, info.Generations)
		}
		if shards, err := s.Shards(ctx); err != nil || fmt.Sprint(shards) != "[7 65535]" {
			t.Errorf("shards %v, %v, want 7 and 65535", shards, err)
		}
		if m := s.Metrics(); m.DiskBytes == 0 || m.MemtableBytes == 0 {
			t.Errorf("metrics %+v", m)
		}
		mustClose(t, s)
		if m := s.Metrics(); m != (Metrics{}) {
			t.Errorf("metrics of a closed store %+v", m)
		}
		if _, err := s.Shards(ctx); !errors.Is(err, store.ErrClosed) {
			t.Errorf("shards of a closed store: %v", err)
		}
	}
}

// The mark is read by people too.
func TestMark(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, Options{Dir: dir})
	newHistory(1).grow(t, s, 12)
	content, err := os.ReadFile(filepath.Join(dir, markName))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(content), "\n")
	want := fmt.Sprintf("schedulerd-store 1 %s revision 00000000000000000012 ", s.Instance())
	if len(lines) != slots+1 || !strings.HasPrefix(lines[0], want) && !strings.HasPrefix(lines[1], want) || !strings.HasPrefix(lines[6], "pid ") {
		t.Errorf("the mark is %q, want %q in it", lines, want)
	}
	if want := fmt.Sprintf("schedulerd-store 1 %s manifest MANIFEST-", s.Instance()); !strings.HasPrefix(lines[2]+lines[3], want) {
		t.Errorf("the mark is %q, want %q in it", lines, want)
	}
	if len(content) != slots*slotSize {
		t.Errorf("the mark has %d bytes", len(content))
	}
}

func FuzzMark(f *testing.F) {
	m := mark{instance: "INSTANCE"}
	good := append(m.slot(revisionLayout, 41), m.slot(revisionLayout, 42)...)
	good = append(append(good, m.slot(manifestLayout, "MANIFEST-000001", 7)...), pad("")...)
	good = append(append(good, m.slot(logsLayout, 3, " 000007.log 123 000012.log 7")...), pad("")...)
	good = append(good, pad("pid 1 on host")...)
	f.Add(good)
	f.Add(good[:600])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, content []byte) {
		m, err := parseMark(content)
		switch {
		case err != nil:
			if !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrSchema) {
				t.Errorf("%v has no kind", err)
			}
		case m.instance == "":
			t.Error("no instance")
		}
	})
}
