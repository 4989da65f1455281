package pebble

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	engine "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/schedulerd/schedulerd/internal/core/store"
)

// Checkpoint copies the store, as it is at one moment, to a directory that must not exist. It can be opened like any store; but open it
// only to read, or there are two stores that claim to be one: Restore makes another one. On the same filesystem tables are linked, not
// copied. Commits go on meanwhile.
func (s *Store) Checkpoint(ctx context.Context, dir string) error {
	v, err := s.acquire(ctx) // keeps the store open
	if err != nil {
		return err
	}
	defer s.release(v)
	if err := s.guard.failure(); err != nil {
		return err
	}
	if _, err := s.fs.Stat(dir); err == nil {
		return fmt.Errorf("checkpoint: %s is there already", dir)
	}
	m := &mark{instance: s.meta.instance, revision: s.sessions.Revision()}
	err = s.engineCheckpoint(dir)
	if err == nil {
		err = m.create(s.fs, dir)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("checkpoint: %w", err), s.fs.RemoveAll(dir))
	}
	return nil
}

// engineCheckpoint copies the engine's files. The engine panics when it cannot sync the directory; that only concerns the copy.
func (s *Store) engineCheckpoint(dir string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", store.ErrIO, r)
			if cause, ok := r.(error); ok {
				err = fmt.Errorf("%w: %w", store.ErrIO, cause)
			}
		}
	}()
	return s.db.Checkpoint(dir)
}

// contentsName is the last file of a backup: what must be in it.
const contentsName = "BACKUP"

// contents tells a whole backup from a part of one.
type contents struct {
	Version  int            `json:"version"` // 1
	Instance string         `json:"instance"`
	Revision store.Revision `json:"revision"`
	Files    []contentsFile `json:"files"`
}

type contentsFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// WriteBackup writes the store, as it is at one moment, to w: a tar archive of its files and their checksums. Commits go on meanwhile.
// It needs room in the store's directory for a copy of the log, some 70 MB.
func (s *Store) WriteBackup(ctx context.Context, w io.Writer) (err error) {
	dir := s.fs.PathJoin(s.dir, backupPrefix+rand.Text())
	if err := s.Checkpoint(ctx, dir); err != nil {
		return fmt.Errorf("back up the store: %w", err)
	}
	defer func() { err = errors.Join(err, s.fs.RemoveAll(dir)) }()
	if err := writeArchive(ctx, s.fs, dir, w); err != nil {
		return fmt.Errorf("back up the store: %w", err)
	}
	return nil
}

func writeArchive(ctx context.Context, fsys vfs.FS, dir string, w io.Writer) error {
	m, err := findMark(fsys, dir)
	if err != nil {
		return err
	}
	names, err := fsys.List(dir)
	if err != nil {
		return err
	}
	slices.Sort(names)
	archive := tar.NewWriter(w)
	list := contents{Version: 1, Instance: m.instance, Revision: m.revision}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		file, err := writeEntry(archive, fsys, dir, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		list.Files = append(list.Files, file)
	}
	text, err := json.MarshalIndent(list, "", "\t")
	if err != nil {
		return err
	}
	if err := archive.WriteHeader(entry(contentsName, int64(len(text)))); err != nil {
		return err
	}
	if _, err := archive.Write(text); err != nil {
		return err
	}
	return archive.Close()
}

func entry(name string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600}
}

func writeEntry(archive *tar.Writer, fsys vfs.FS, dir, name string) (contentsFile, error) {
	file, err := fsys.Open(fsys.PathJoin(dir, name))
	if err != nil {
		return contentsFile{}, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return contentsFile{}, err
	}
	if err := archive.WriteHeader(entry(name, info.Size())); err != nil {
		return contentsFile{}, err
	}
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(archive, sum), file); err != nil {
		return contentsFile{}, err
	}
	return contentsFile{name, info.Size(), hex.EncodeToString(sum.Sum(nil))}, nil
}

// generationLeap is added to generations when a backup is restored: more changes of owners than there may have been since. So tokens
// given out after a restore are above all given out before.
const generationLeap = 1 << 20

// Restore makes a store from what WriteBackup wrote, in o.Dir, which must be empty or not there. The store is another one than the one
// that was backed up, with an instance of its own, since the two may differ from then on.
//
// A backup that is cut short or damaged gives store.ErrCorrupt, and the directory is empty again. What a Restore leaves that was killed
// is not a store: Open refuses it.
func Restore(archive io.Reader, o Options) error {
	o = o.withDefaults()
	if o.Dir == "" {
		return errors.New("restore a store: no directory given")
	}
	o.Dir = filepath.Clean(o.Dir)
	if err := restore(archive, o); err != nil {
		return fmt.Errorf("restore a store: %w", err)
	}
	return nil
}

func restore(archive io.Reader, o Options) (err error) {
	if err := makeDir(o.FS, o.Dir); err != nil {
		return err
	}
	lock, err := lockDir(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	names, err := foreign(o.FS, o.Dir)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("%s is not empty: it holds %s", o.Dir, firstOf(names))
	}
	defer func() {
		if err != nil {
			clearDir(o.FS, o.Dir)
		}
	}()
	list, err := unpack(archive, o.FS, o.Dir)
	if err != nil {
		return err
	}
	// COMMITTED makes a store of the files, so it comes last.
	m := &mark{instance: rand.Text()}
	if m.revision, err = adopt(o, m.instance, list); err != nil {
		return err
	}
	return m.create(o.FS, o.Dir)
}

// clearDir removes what restoring left in a directory that was empty.
func clearDir(fsys vfs.FS, dir string) {
	names, err := foreign(fsys, dir)
	if err != nil {
		return
	}
	for _, name := range names {
		_ = fsys.Remove(fsys.PathJoin(dir, name)) // Open refuses what stays
	}
}

// unpack writes the files of a backup, without its mark, and checks that they are what they were.
func unpack(archive io.Reader, fsys vfs.FS, dir string) (contents, error) {
	damaged := func(format string, args ...any) error {
		return fmt.Errorf("the backup: %w: %w", store.ErrCorrupt, fmt.Errorf(format, args...))
	}
	var list contents
	var unpacked []contentsFile
	for files := tar.NewReader(archive); ; {
		header, err := files.Next()
		if err == io.EOF {
			return list, damaged("it is not a backup, or it ends early: there is no %s in it", contentsName)
		} else if err != nil {
			return list, damaged("after %d files: %w", len(unpacked), err)
		}
		if header.Typeflag != tar.TypeReg || !isPlainName(header.Name) {
			return list, damaged("it holds %q, which is no file of a store", header.Name)
		}
		if header.Name == contentsName {
			if err := json.NewDecoder(io.LimitReader(files, 1<<28)).Decode(&list); err != nil {
				return list, damaged("%s: %w", contentsName, err)
			}
			if list.Version != 1 {
				return list, fmt.Errorf("the backup: %w: it has version %d", store.ErrSchema, list.Version)
			}
			break
		}
		file, err := unpackFile(files, fsys, dir, header)
		if err != nil {
			return list, err
		}
		unpacked = append(unpacked, file)
	}
	if len(unpacked) != len(list.Files) {
		return list, damaged("it holds %d files of %d", len(unpacked), len(list.Files))
	}
	for i, want := range list.Files {
		if unpacked[i] != want {
			return list, damaged("its file %s is not what it was (or is %s)", want.Name, unpacked[i].Name)
		}
	}
	if err := syncDir(fsys, dir); err != nil {
		return list, writeError(dir, "sync", dir, err)
	}
	return list, nil
}

func isPlainName(name string) bool {
	return name != "" && len(name) <= 255 && name[0] != '.' && !strings.ContainsAny(name, "/\\\x00") && name != lockName
}

func unpackFile(files *tar.Reader, fsys vfs.FS, dir string, header *tar.Header) (contentsFile, error) {
	var target io.Writer = io.Discard
	var file vfs.File
	name := fsys.PathJoin(dir, header.Name)
	if header.Name != markName {
		var err error
		if file, err = fsys.Create(name, vfs.WriteCategoryUnspecified); err != nil {
			return contentsFile{}, writeError(dir, "create", name, err)
		}
		target = file
	}
	sum := sha256.New()
	written := &writeWatch{Writer: target}
	_, err := io.Copy(io.MultiWriter(sum, written), files)
	switch {
	case written.err != nil:
		err = writeError(dir, "write", name, written.err)
	case err != nil:
		err = fmt.Errorf("the backup: %w: %s: %w", store.ErrCorrupt, header.Name, err)
	}
	if file != nil {
		if syncErr := errors.Join(file.Sync(), file.Close()); err == nil && syncErr != nil {
			err = writeError(dir, "sync", name, syncErr)
		}
	}
	return contentsFile{header.Name, header.Size, hex.EncodeToString(sum.Sum(nil))}, err
}

// writeWatch tells an error of the target from one of the source.
type writeWatch struct {
	io.Writer
	err error
}

func (w *writeWatch) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.err = err
	return n, err
}

// adopt makes the unpacked files a store of their own.
func adopt(o Options, instance string, list contents) (_ store.Revision, err error) {
	g := newGuard(o.FS, o.Dir)
	options := o.engine(g, &watcher{dir: o.Dir, guard: g, log: o.Logger})
	options.ErrorIfNotExists = true
	db, err := openEngine(o.Dir, options)
	if err != nil {
		return 0, explain(o.Dir, errors.Join(g.failure(), err))
	}
	m, err := readMeta(db)
	switch newest := uint64(len(o.migrations) + 1); {
	case err != nil:
	case m.schema > newest:
		err = fmt.Errorf("the backup: %w: it has schema %d, this program knows %d", store.ErrSchema, m.schema, newest)
	case m.revision < list.Revision || m.instance != list.Instance:
		err = fmt.Errorf("the backup: %w: it holds revision %d of %q, it should be %d of %q", store.ErrCorrupt, m.revision, m.instance, list.Revision, list.Instance)
	default:
		err = g.serve(nil, nil)
	}
	if err == nil {
		batch := db.NewBatch()
		err = batch.Set([]byte(instanceKey), []byte(instance), nil)
		for shard, generation := range m.generations {
			err = errors.Join(err, batch.Set(generationKeyOf(shard), number(generation+generationLeap), nil))
		}
		if err == nil {
			err = batch.Commit(engine.Sync)
		}
		err = errors.Join(err, batch.Close())
	}
	g.release()
	err = errors.Join(err, db.Close())
	return m.revision, explain(o.Dir, errors.Join(g.failure(), err))
}
