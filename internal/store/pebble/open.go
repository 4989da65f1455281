package pebble

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	engine "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/schedulerd/schedulerd/internal/core/store"
)

const (
	lockName     = "LOCK"
	temporary    = ".new"    // ends the name of a file of this package that is being written
	backupPrefix = "backup-" // begins the name of a directory for a backup under way
)

// Open opens the store in a directory, and creates it if the directory is empty or not there.
//
// Errors: store.ErrLocked if a process has it open, store.ErrCorrupt if it is damaged or the directory is not a store, store.ErrSchema
// if a newer version wrote it, store.ErrIO if the directory cannot be read or written.
func Open(o Options) (*Store, error) {
	o = o.withDefaults()
	if o.Dir == "" {
		return nil, errors.New("open a store: no directory given")
	}
	o.Dir = filepath.Clean(o.Dir)
	s, err := open(o)
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	return s, nil
}

func open(o Options) (_ *Store, err error) {
	if !o.ReadOnly {
		if err := makeDir(o.FS, o.Dir); err != nil {
			return nil, err
		}
	}
	lock, err := lockDir(o)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: o.Dir, fs: o.FS, log: o.Logger, lock: lock}
	defer func() {
		if err != nil {
			err = errors.Join(err, lock.Close())
		}
	}()
	if s.mark, err = identify(o); err != nil {
		return nil, explain(o.Dir, err)
	}
	s.guard = newGuard(o.FS, o.Dir)
	s.watch = &watcher{dir: o.Dir, guard: s.guard, log: o.Logger}
	options := o.engine(s.guard, s.watch)
	// Revision 0 is a store whose creation may not have come to its end.
	options.ErrorIfNotExists = o.ReadOnly || s.mark.revision > 0
	if s.db, err = openEngine(o.Dir, options); err != nil {
		return nil, explain(o.Dir, errors.Join(s.guard.failure(), err))
	}
	if err := s.begin(o); err != nil {
		err = explain(o.Dir, err)
		// What is closed now must not write to a store that may be damaged. How it closes says nothing more.
		s.guard.trip(err)
		s.guard.release()
		s.writes.Wait()
		_ = errors.Join(s.closeEngine(), s.mark.close())
		return nil, err
	}
	return s, nil
}

// makeDir makes a directory and those above it, so that a power loss does not undo it.
func makeDir(fsys vfs.FS, dir string) error {
	if _, err := fsys.Stat(dir); err == nil {
		return nil
	}
	parent := fsys.PathDir(dir)
	if parent != dir {
		if err := makeDir(fsys, parent); err != nil {
			return err
		}
	}
	if err := errors.Join(fsys.MkdirAll(dir, 0o700), syncDir(fsys, parent)); err != nil {
		return writeError(dir, "create", dir, err)
	}
	return nil
}

// lockDir makes sure that nobody else has the store open.
func lockDir(o Options) (io.Closer, error) {
	if _, err := o.FS.Stat(o.Dir); err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrIO, err)
	}
	lock, err := o.FS.Lock(o.FS.PathJoin(o.Dir, lockName))
	var path *fs.PathError
	switch {
	case err == nil:
		return lock, nil
	case o.ReadOnly && errors.Is(err, syscall.EROFS):
		// Nobody can write here.
		return io.NopCloser(nil), nil
	case errors.As(err, &path):
		return nil, fmt.Errorf("%s: %w: %w", o.Dir, store.ErrIO, err)
	}
	by := ""
	if mark, err := findMark(o.FS, o.Dir); err == nil && mark != nil && mark.opener != "" {
		by = " (" + mark.opener + ")"
	}
	return nil, fmt.Errorf("%s: %w%s: stop it, or use another directory", o.Dir, store.ErrLocked, by)
}

// identify finds out which store the directory holds, and makes the beginning of a new one if it is empty.
func identify(o Options) (*mark, error) {
	names, err := o.FS.List(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrIO, err)
	}
	if n, err := strconv.ParseUint(markerValue(names, "format-version"), 10, 64); err == nil && n > uint64(engine.FormatNewest) {
		return nil, fmt.Errorf("%s: %w: its files have version %d, this program knows %d", o.Dir, store.ErrSchema, n, engine.FormatNewest)
	}
	m, err := findMark(o.FS, o.Dir)
	if err != nil {
		return nil, err
	}
	if m != nil {
		return m, checkFiles(o.FS, o.Dir, names, m)
	}
	names, err = foreign(o.FS, o.Dir)
	if err != nil {
		return nil, err
	}
	if len(names) > 0 {
		return nil, fmt.Errorf("%s: %w: there is no file %s, but %d others (%s): it is not a store, or not a whole one; use an empty directory, or restore a backup",
			o.Dir, store.ErrCorrupt, markName, len(names), firstOf(names))
	}
	if o.ReadOnly {
		return nil, fmt.Errorf("%s: %w: the directory is empty", o.Dir, store.ErrCorrupt)
	}
	m = &mark{instance: rand.Text()}
	return m, m.create(o.FS, o.Dir)
}

// foreign lists what must not be in a directory that a store is made in.
func foreign(fsys vfs.FS, dir string) ([]string, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrIO, err)
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return name == lockName || name == markName+temporary || name == "lost+found"
	})
	slices.Sort(names)
	return names, nil
}

func firstOf(names []string) string {
	if len(names) > 3 {
		return strings.Join(names[:3], ", ") + ", ..."
	}
	return strings.Join(names, ", ")
}

// openEngine opens the engine's database. On damage that its checksums do not cover the engine may panic.
func openEngine(dir string, options *engine.Options) (db *engine.DB, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: %w: %v", dir, store.ErrCorrupt, r)
		}
	}()
	return engine.Open(dir, options)
}

// begin takes over an opened database: it checks that all of it is there, and only then changes anything.
func (s *Store) begin(o Options) error {
	if err := s.guard.failure(); err != nil {
		return err
	}
	m, err := readMeta(s.db)
	if err != nil {
		return err
	}
	newest := uint64(len(o.migrations) + 1)
	switch {
	case m.schema > newest:
		return fmt.Errorf("%s: %w: it has schema %d, this program knows %d", s.dir, store.ErrSchema, m.schema, newest)
	case m.schema < newest && m.schema > 0 && o.ReadOnly:
		return fmt.Errorf("%s: %w: it has the older schema %d; open it once for writing", s.dir, store.ErrReadOnly, m.schema)
	case m.revision < s.mark.revision:
		return fmt.Errorf("%s: %w: revision %d was committed, but the files hold only %d: one of the logs (*.log) or the MANIFEST was cut short, removed or put back; restore a backup",
			s.dir, store.ErrCorrupt, s.mark.revision, m.revision)
	case m.instance != "" && m.instance != s.mark.instance, m.instance == "" && (s.mark.revision > 0 || o.ReadOnly):
		return fmt.Errorf("%s: %w: %s is of store %s, the other files are of %q", s.dir, store.ErrCorrupt, markName, s.mark.instance, m.instance)
	}
	s.meta = m
	if o.ReadOnly {
		s.view = newView(s.db)
		s.sessions = store.NewSessions(nil, m.revision, m.generations)
		s.sessions.End(fmt.Errorf("%s: %w", s.dir, store.ErrReadOnly))
		return nil
	}
	s.sessions = store.NewSessions(s, m.revision, m.generations)
	if err := s.mark.open(o.FS, o.Dir); err != nil {
		return err
	}
	if err := s.guard.serve(s.mark, s.failed); err != nil {
		return err
	}
	if err := s.removeBackups(); err != nil {
		return err
	}
	if err := migrate(s.db, &s.meta, o.migrations); err != nil {
		return err
	}
	s.meta.instance = s.mark.instance
	s.meta.epoch++
	if err := s.write(func(b *engine.Batch) error {
		return errors.Join(
			b.Set([]byte(instanceKey), []byte(s.meta.instance), nil),
			b.Set([]byte(epochKey), number(s.meta.epoch), nil),
		)
	}); err != nil {
		return err
	}
	s.view = newView(s.db)
	return nil
}

// removeBackups removes what backups left behind that a crash cut off.
func (s *Store) removeBackups() error {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return fmt.Errorf("%w: %w", store.ErrIO, err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, backupPrefix) {
			if err := s.fs.RemoveAll(s.fs.PathJoin(s.dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("%s: %w: %w", s.dir, store.ErrIO, err)
			}
		}
	}
	return nil
}
