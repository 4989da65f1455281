package pebble

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"

	"github.com/schedulerd/schedulerd/internal/core/store"
)

// disk is the content of a directory.
type disk map[string][]byte

func readDisk(t *testing.T, fsys vfs.FS, dir string) disk {
	t.Helper()
	names, err := fsys.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	d := disk{}
	for _, name := range names {
		file, err := fsys.Open(fsys.PathJoin(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(file)
		if err := errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
		d[name] = content
	}
	return d
}

func (d disk) write(t *testing.T, fsys vfs.FS, dir string) {
	t.Helper()
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range d {
		file, err := fsys.Create(fsys.PathJoin(dir, name), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		_, err = file.Write(slices.Clone(content))
		if err := errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// What has happened to a store is either found and named, or does not matter. It never opens with less in it, and an Open that fails
// deletes nothing.
func TestDamage(t *testing.T) {
	h, later := newHistory(7), newHistory(7)
	older, killed, closed, groups := damageStates(t, h)
	rng := rand.New(rand.NewPCG(7, 7))
	found, harmless := 0, 0
	try := func(t *testing.T, what string, damaged disk) {
		t.Helper()
		fsys := vfs.NewMem()
		damaged.write(t, fsys, "/data")
		err := func() error {
			s, err := Open(small(Options{Dir: "/data", FS: fsys}))
			if err != nil {
				after := readDisk(t, fsys, "/data")
				for name, content := range damaged {
					if name != lockName && !bytes.Equal(after[name], content) {
						t.Errorf("%s: an Open that failed changed %s", what, name)
					}
				}
				return err
			}
			n, err := h.check(s)
			if err == nil && n != groups {
				t.Errorf("%s: the store opened with revision %d, want %d", what, n, groups)
			} else if err == nil {
				// It must go on to work, too: what the damage did may show only when tables are merged.
				err = later.append(s, func(n int) bool { return n < groups+100 })
				if err == nil {
					_, err = later.check(s)
				}
			}
			_ = s.Close()
			return err
		}()
		switch {
		case err == nil:
			harmless++
		case !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrSchema):
			t.Errorf("%s: %v, want ErrCorrupt", what, err)
		case !strings.Contains(err.Error(), "/data"):
			t.Errorf("%s: %v does not say where", what, err)
		default:
			found++
		}
	}
	for _, state := range []struct {
		name string
		disk disk
	}{{"killed", killed}, {"closed", closed}} {
		t.Run(state.name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			names := slices.Sorted(maps.Keys(state.disk))
			for _, name := range names {
				content := state.disk[name]
				changed := func(what string, content []byte) {
					damaged := maps.Clone(state.disk)
					if damaged[name] = content; content == nil {
						delete(damaged, name)
					}
					try(t, state.name+": "+name+" "+what, damaged)
				}
				changed("deleted", nil)
				if len(content) == 0 {
					continue
				}
				changed("emptied", []byte{})
				for range 2 {
					n := rng.IntN(len(content))
					changed(fmt.Sprintf("cut at %d of %d", n, len(content)), content[:n])
				}
				if n := len(bytes.TrimRight(content, "\x00")); n > 20 {
					changed("cut by a few bytes", content[:n-1-rng.IntN(20)])
				}
				for range 6 {
					n := rng.IntN(len(content))
					flipped := slices.Clone(content)
					flipped[n] ^= 1 << rng.IntN(8)
					changed(fmt.Sprintf("flipped at %d of %d", n, len(content)), flipped)
				}
				if old, ok := older[name]; ok && !bytes.Equal(old, content) {
					changed("put back from an older copy", old)
				}
			}
			// Everything but the mark put back; all logs lost; all tables lost.
			back := maps.Clone(older)
			back[markName] = state.disk[markName]
			try(t, "all but the mark put back", back)
			for _, kind := range []string{".log", ".sst", "MANIFEST-", "marker.", "OPTIONS-"} {
				less := maps.Clone(state.disk)
				maps.DeleteFunc(less, func(name string, _ []byte) bool { return strings.Contains(name, kind) })
				try(t, "all "+kind+" deleted", less)
			}
			only := disk{markName: state.disk[markName]}
			try(t, "all but the mark deleted", only)
		})
	}
	t.Logf("%d kinds of damage found, %d did not matter", found, harmless)
	if found < 100 {
		t.Errorf("only %d found", found)
	}
}

// damageStates writes a history and returns the directory as it was after 300 groups, as a kill would have left it, and after Close.
func damageStates(t *testing.T, h *history) (older, killed, closed disk, groups int) {
	t.Helper()
	fsys := vfs.NewCrashableMem()
	now := func() disk { // at one moment
		return readDisk(t, fsys.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))}), "/data")
	}
	gate := &tableGate{open: make(chan struct{})}
	o := small(Options{Dir: "/data", FS: errorfs.Wrap(fsys, gate)})
	s := mustOpen(t, o)
	h.grow(t, s, 300)
	mustClose(t, s)
	older = now()
	s = mustOpen(t, o)
	h.grow(t, s, 500)
	// The kill comes when the engine is two logs behind with its tables: it will have to read three.
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	gate.close()
	log, full := s.guard.currentLog(), 0
	err := h.append(s, func(n int) bool {
		groups = n
		if now := s.guard.currentLog(); now != log {
			log = now
			full++
		}
		return full < 2
	})
	if err != nil {
		t.Fatal(err)
	}
	killed = now()
	gate.fail(nil)
	mustClose(t, s)
	return older, killed, now(), groups
}

func (g *guard) currentLog() string {
	g.logs.Lock()
	defer g.logs.Unlock()
	return g.logs.current.name
}

// A directory in which something else is, or a part of a store, is not taken for a new store.
func TestForeignDirectory(t *testing.T) {
	h := newHistory(1)
	fsys := vfs.NewMem()
	s := mustOpen(t, small(Options{Dir: "/data", FS: fsys}))
	h.grow(t, s, 500)
	mustClose(t, s)
	whole := readDisk(t, fsys, "/data")
	for _, test := range []struct {
		name    string
		content disk
		want    string
	}{
		{"a home directory", disk{".bashrc": nil, "notes.txt": []byte("x"), "a": nil, "b": nil}, "4 others (.bashrc, a, b, ...)"},
		{"one file", disk{"flows.yaml": []byte("x")}, "1 others (flows.yaml)"},
		{"a store without its mark", without(whole, markName), markName},
		{"a mark of something else", disk{markName: []byte("hello")}, markName},
		{"a mark without a store", disk{markName: whole[markName]}, "does not exist"},
		{"an empty mark", with(whole, markName, []byte{}), markName},
	} {
		t.Run(test.name, func(t *testing.T) {
			fsys := vfs.NewMem()
			test.content.write(t, fsys, "/data")
			for _, readOnly := range []bool{false, true} {
				s, err := Open(Options{Dir: "/data", FS: fsys, ReadOnly: readOnly})
				if err == nil {
					_ = s.Close()
				}
				if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "/data") {
					t.Errorf("Open: %v, want ErrCorrupt with %q", err, test.want)
				}
			}
			after := without(readDisk(t, fsys, "/data"), lockName)
			if before := without(test.content, lockName); !maps.EqualFunc(after, before, bytes.Equal) {
				t.Errorf("Open changed the directory: %v, was %v", slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)))
			}
		})
	}
}

func without(d disk, name string) disk {
	d = maps.Clone(d)
	delete(d, name)
	return d
}

func with(d disk, name string, content []byte) disk {
	d = maps.Clone(d)
	d[name] = content
	return d
}

// What an operating system or a killed creation leaves does not keep a store from being made.
func TestAlmostEmptyDirectory(t *testing.T) {
	fsys := vfs.NewMem()
	if err := fsys.MkdirAll("/data/lost+found", 0o700); err != nil {
		t.Fatal(err)
	}
	disk{lockName: nil, markName + temporary: []byte("half")}.write(t, fsys, "/data")
	s := mustOpen(t, Options{Dir: "/data", FS: fsys})
	newHistory(1).grow(t, s, 1)
	mustClose(t, s)
	mustClose(t, mustOpen(t, Options{Dir: "/data", FS: fsys}))
}

// A table that is damaged while the store is open ends it, with the name of the table, as soon as it is read.
func TestDamageWhileOpen(t *testing.T) {
	dir := t.TempDir()
	h := newHistory(1)
	s := mustOpen(t, small(Options{Dir: dir}))
	h.grow(t, s, 2000)
	mustClose(t, s)
	s = mustOpen(t, small(Options{Dir: dir}))
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var tables []string
	for _, name := range names {
		if strings.HasSuffix(name.Name(), ".sst") {
			tables = append(tables, name.Name())
			overwrite(t, dir+"/"+name.Name())
		}
	}
	if len(tables) == 0 {
		t.Fatal("the store has no tables")
	}
	_, err = h.check(s)
	if !errors.Is(err, store.ErrCorrupt) || !slices.ContainsFunc(tables, func(name string) bool { return strings.Contains(err.Error(), name) }) {
		t.Errorf("reading: %v, want ErrCorrupt and one of %q", err, tables)
	}
	if err := h.append(s, func(int) bool { return true }); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("committing: %v, want ErrCorrupt", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// overwrite changes a file in place, but for its end, as a failing disk would.
func overwrite(t *testing.T, name string) {
	t.Helper()
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	info, err := file.Stat()
	if err == nil {
		_, err = file.WriteAt(bytes.Repeat([]byte{0x5a}, int(info.Size()/2)), 0)
	}
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}
