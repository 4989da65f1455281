package pebble

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/schedulerd/schedulerd/internal/core/store"
)

// guard is the filesystem as the engine sees it. It watches the files of one directory.
//
// While the store is being opened it keeps what the engine wants to remove, so that a store found damaged is left as it was.
//
// The first write that fails trips it. From then on nothing is written to the directory, and the engine is told that all went well: it
// could only panic. Tables are different once the store serves: a table that seemed written would be read again, so whoever writes one
// waits until the store is closed. The engine does that in the background; an error would make it try again without end.
type guard struct {
	vfs.FS
	dir string

	tripped chan struct{} // closed by trip, after onTrip
	closing chan struct{} // closed by release

	mu       sync.Mutex
	err      error // why it tripped
	opening  bool
	removals []string    // while opening
	manifest piece       // while opening, the newest that was synced
	onTrip   func(error) // nil while opening

	logs struct {
		sync.Mutex
		current *guardedFile // the one that is written
		full    []piece      // those before it, until they are removed
	}
	notes notes // nil while opening
}

// notes are told what must be in the directory.
type notes interface {
	listed(manifest piece) error
	logged(logs []piece) error
}

const (
	tableSuffix    = ".sst"
	logSuffix      = ".log"
	manifestPrefix = "MANIFEST-"
)

func newGuard(inner vfs.FS, dir string) *guard {
	return &guard{FS: inner, dir: dir, opening: true, tripped: make(chan struct{}), closing: make(chan struct{})}
}

// trip ends all writing. The first reason counts.
func (g *guard) trip(reason error) {
	g.mu.Lock()
	first, onTrip := g.err == nil, g.onTrip
	if first {
		g.err = reason
	}
	g.mu.Unlock()
	if !first {
		return
	}
	if onTrip != nil {
		onTrip(reason)
	}
	close(g.tripped)
}

// failure is why the guard tripped, or nil.
func (g *guard) failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// serve ends the opening: the store is whole, so what was to be removed is. It returns the failure if it comes too late. From then on
// notes are told what must be there, and onTrip is called once, when the guard trips. They must not call the engine; both may be nil.
func (g *guard) serve(notes notes, onTrip func(error)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return g.err
	}
	if notes != nil {
		// The engine has read all logs and written tables of them.
		if err := errors.Join(notes.listed(g.manifest), notes.logged(nil)); err != nil {
			return writeError(g.dir, "write", markName, err)
		}
	}
	for _, name := range g.removals {
		// What stays is removed the next time.
		_ = g.FS.Remove(name)
	}
	g.removals, g.opening, g.notes, g.onTrip = nil, false, notes, onTrip
	return nil
}

// noted returns the notes; nil while opening.
func (g *guard) noted() notes {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.notes
}

// syncedManifest notes how much of the manifest is on the disk.
func (g *guard) syncedManifest(m piece) error {
	g.mu.Lock()
	if g.opening && m.isAfter(g.manifest) {
		g.manifest = m
	}
	notes := g.notes
	g.mu.Unlock()
	if notes == nil {
		return nil
	}
	return notes.listed(m)
}

// beganLog notes that the log before this one is full. The engine has synced it.
func (g *guard) beganLog(next *guardedFile) error {
	g.logs.Lock()
	defer g.logs.Unlock()
	before := g.logs.current
	g.logs.current = next
	notes := g.noted()
	if before == nil || notes == nil {
		return nil
	}
	g.logs.full = append(g.logs.full, piece{g.PathBase(before.name), before.written.Load()})
	return notes.logged(g.logs.full)
}

// removesLog notes that a log need not be there any more.
func (g *guard) removesLog(name string) error {
	g.logs.Lock()
	defer g.logs.Unlock()
	before := len(g.logs.full)
	g.logs.full = slices.DeleteFunc(g.logs.full, func(log piece) bool { return log.name == g.PathBase(name) })
	notes := g.noted()
	if len(g.logs.full) == before || notes == nil {
		return nil
	}
	return notes.logged(g.logs.full)
}

// release lets everybody go on who waits because the guard tripped.
func (g *guard) release() { close(g.closing) }

// guards says whether a file is the store's. What is written for a backup, beside or below it, is not.
func (g *guard) guards(name string) bool {
	return name == g.dir || g.FS.PathDir(name) == g.dir && !strings.HasPrefix(g.FS.PathBase(name), backupPrefix)
}

// attempt changes the file name by calling do, unless the guard has tripped; if do fails, it trips.
func (g *guard) attempt(op, name string, do func() error) error {
	if !g.guards(name) {
		return do()
	}
	if g.failure() == nil {
		err := do()
		if err == nil {
			return nil
		}
		g.trip(writeError(g.dir, op, name, err))
	}
	if strings.HasSuffix(name, tableSuffix) && !g.isOpening() {
		<-g.closing
	}
	return nil
}

func (g *guard) isOpening() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.opening
}

// writeError says which file could not be written.
func writeError(dir, op, name string, err error) error {
	var path *fs.PathError
	var link *os.LinkError
	if errors.As(err, &path) || errors.As(err, &link) {
		return fmt.Errorf("%s: %w: %w", dir, store.ErrIO, err) // has the name
	}
	return fmt.Errorf("%s: %w: %s %s: %w", dir, store.ErrIO, op, name, err)
}

func (g *guard) open(op, name string, do func() (vfs.File, error)) (vfs.File, error) {
	if !g.guards(name) {
		return do()
	}
	g.keep(name)
	opened := &guardedFile{File: nowhere{name}, guard: g, name: name}
	return opened, g.attempt(op, name, func() error {
		file, err := do()
		if err != nil {
			return err
		}
		opened.File = file
		if strings.HasSuffix(name, logSuffix) {
			return g.beganLog(opened)
		}
		return nil
	})
}

// keep takes back the removal of a file whose name is used again.
func (g *guard) keep(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.removals = slices.DeleteFunc(g.removals, func(other string) bool { return other == name })
}

func (g *guard) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return g.open("create", name, func() (vfs.File, error) { return g.FS.Create(name, category) })
}

func (g *guard) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return g.open("open", name, func() (vfs.File, error) { return g.FS.OpenReadWrite(name, category, opts...) })
}

func (g *guard) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return g.open("reuse", newname, func() (vfs.File, error) {
		if err := g.removesLog(oldname); err != nil {
			return nil, err
		}
		return g.FS.ReuseForWrite(oldname, newname, category)
	})
}

// OpenDir opens a directory for syncing, which is writing.
func (g *guard) OpenDir(name string) (vfs.File, error) {
	dir, err := g.FS.OpenDir(name)
	if err != nil || !g.guards(name) {
		return dir, err
	}
	return &guardedFile{File: dir, guard: g, name: name}, nil
}

func (g *guard) Link(oldname, newname string) error {
	return g.attempt("link", newname, func() error { return g.FS.Link(oldname, newname) })
}

func (g *guard) Rename(oldname, newname string) error {
	g.keep(newname)
	return g.attempt("rename", newname, func() error { return g.FS.Rename(oldname, newname) })
}

// Remove may fail: the engine tries again when it is opened next.
func (g *guard) Remove(name string) error {
	if !g.guards(name) {
		return g.FS.Remove(name)
	}
	g.mu.Lock()
	opening := g.opening
	if opening {
		g.removals = append(g.removals, name)
	}
	g.mu.Unlock()
	if opening || g.failure() != nil {
		return nil
	}
	if err := g.removesLog(name); err != nil {
		g.trip(writeError(g.dir, "write", markName, err))
		return nil
	}
	return g.FS.Remove(name)
}

// MkdirAll makes directories for the owner only: stores and backups hold what flows are run with.
func (g *guard) MkdirAll(dir string, _ os.FileMode) error { return g.FS.MkdirAll(dir, 0o700) }

// Lock does nothing: Open has locked the directory.
func (g *guard) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// GetDiskUsage may fail: it is asked for warnings only.
func (g *guard) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	usage, err := g.FS.GetDiskUsage(path)
	if err != nil {
		return usage, vfs.ErrUnsupported
	}
	return usage, nil
}

func (g *guard) Unwrap() vfs.FS { return g.FS }

// guardedFile is a file of the guarded directory, open for writing.
type guardedFile struct {
	vfs.File
	guard   *guard
	name    string
	written atomic.Int64
}

func (f *guardedFile) Write(p []byte) (int, error) {
	f.written.Add(int64(len(p)))
	return len(p), f.guard.attempt("write", f.name, func() error { return whole(len(p))(f.File.Write(p)) })
}

func (f *guardedFile) WriteAt(p []byte, offset int64) (int, error) {
	return len(p), f.guard.attempt("write", f.name, func() error { return whole(len(p))(f.File.WriteAt(p, offset)) })
}

func whole(want int) func(int, error) error {
	return func(n int, err error) error {
		if err == nil && n < want {
			return io.ErrShortWrite
		}
		return err
	}
}

func (f *guardedFile) Sync() error {
	return f.guard.attempt("sync", f.name, func() error {
		synced := piece{f.guard.PathBase(f.name), f.written.Load()}
		err := f.File.Sync()
		if err == nil && strings.HasPrefix(synced.name, manifestPrefix) {
			err = f.guard.syncedManifest(synced)
		}
		return err
	})
}

func (f *guardedFile) SyncData() error {
	return f.guard.attempt("sync", f.name, f.File.SyncData)
}

func (f *guardedFile) SyncTo(length int64) (full bool, err error) {
	err = f.guard.attempt("sync", f.name, func() (err error) {
		full, err = f.File.SyncTo(length)
		return err
	})
	return full, err
}

func (f *guardedFile) Close() error {
	err := f.File.Close()
	if err == nil {
		return nil
	}
	return f.guard.attempt("close", f.name, func() error { return err })
}

// nowhere is a file that should have been opened after the guard tripped.
type nowhere struct{ name string }

func (nowhere) Close() error                           { return nil }
func (nowhere) Read([]byte) (int, error)               { return 0, io.EOF }
func (nowhere) ReadAt([]byte, int64) (int, error)      { return 0, io.EOF }
func (nowhere) Write(p []byte) (int, error)            { return len(p), nil }
func (nowhere) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (nowhere) Preallocate(int64, int64) error         { return nil }
func (nowhere) Sync() error                            { return nil }
func (nowhere) SyncTo(int64) (bool, error)             { return false, nil }
func (nowhere) SyncData() error                        { return nil }
func (nowhere) Prefetch(int64, int64) error            { return nil }
func (nowhere) Fd() uintptr                            { return vfs.InvalidFd }
func (n nowhere) Stat() (vfs.FileInfo, error)          { return nothing(n), nil }

// nothing describes an empty file.
type nothing struct{ name string }

func (n nothing) Name() string         { return n.name }
func (nothing) Size() int64            { return 0 }
func (nothing) Mode() os.FileMode      { return 0o600 }
func (nothing) ModTime() time.Time     { return time.Time{} }
func (nothing) IsDir() bool            { return false }
func (nothing) Sys() any               { return nil }
func (nothing) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }
