package pebble

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/schedulerd/schedulerd/internal/core/store"
)

// markName is the file that says which store a directory holds and how much was committed to it.
const markName = "COMMITTED"

// mark is what COMMITTED says.
type mark struct {
	instance string
	revision store.Revision // newest acknowledged
	manifest manifest       // as much of it as was synced; may be unknown
	opener   string         // the process that opened the store last, for those that find it locked

	mu   sync.Mutex
	file vfs.File // nil unless open for writing
	next [2]int64 // slots to be written: revision, manifest
}

// manifest is a part of the engine's list of tables: the file, and the bytes at its beginning.
type manifest struct {
	name string
	size int64
}

// The file has slots, each in a disk sector of its own, so that each is written whole or not at all. There are two for the revision and
// two for the manifest, written in turn, so that one of them always counts.
const (
	slotSize      = 512
	revisionSlots = 0
	manifestSlots = 2
	openerSlot    = 4
	slots         = 5
)

const (
	markHead       = "schedulerd-store %d %s "
	revisionLayout = "revision %020d"
	manifestLayout = "manifest %s %020d"
	markVersion    = 1
)

// findMark reads the mark of a directory; nil if there is none.
func findMark(fsys vfs.FS, dir string) (*mark, error) {
	name := fsys.PathJoin(dir, markName)
	file, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrIO, err)
	}
	content, err := io.ReadAll(io.LimitReader(file, slots*slotSize))
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", name, store.ErrIO, err)
	}
	m, err := parseMark(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

func parseMark(content []byte) (*mark, error) {
	m := &mark{}
	found := false
	for turn := range int64(2) {
		var revision store.Revision
		text, err := m.parseSlot(content, revisionSlots+turn)
		if err != nil {
			return nil, err
		}
		if _, err := fmt.Sscanf(text, revisionLayout, &revision); err == nil && (!found || revision > m.revision) {
			found = true
			m.revision, m.next[0] = revision, 1-turn
		}
		var list manifest
		if text, err = m.parseSlot(content, manifestSlots+turn); err != nil {
			return nil, err
		}
		if _, err := fmt.Sscanf(text, manifestLayout, &list.name, &list.size); err == nil && list.isAfter(m.manifest) {
			m.manifest, m.next[1] = list, 1-turn
		}
	}
	if !found {
		return nil, fmt.Errorf("%w: it cannot be read", store.ErrCorrupt)
	}
	m.opener = slotText(content, openerSlot)
	return m, nil
}

// parseSlot returns what a slot says behind its head; nothing if it is not whole.
func (m *mark) parseSlot(content []byte, slot int64) (string, error) {
	text, sum, _ := cutLast(slotText(content, slot), " ")
	if sum != checksum(text) {
		return "", nil
	}
	version, instance := 0, ""
	if _, err := fmt.Sscanf(text, markHead, &version, &instance); err != nil {
		return "", nil
	}
	if version != markVersion {
		return "", fmt.Errorf("%w: it is of version %d, this program knows %d", store.ErrSchema, version, markVersion)
	}
	if m.instance == "" {
		m.instance = instance
	}
	if m.instance != instance {
		return "", fmt.Errorf("%w: it is of two stores, %s and %s", store.ErrCorrupt, m.instance, instance)
	}
	return strings.TrimPrefix(text, fmt.Sprintf(markHead, version, instance)), nil
}

func slotText(content []byte, slot int64) string {
	if int64(len(content)) < (slot+1)*slotSize {
		return ""
	}
	return strings.TrimRight(string(content[slot*slotSize:(slot+1)*slotSize]), " \n")
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func checksum(text string) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(text))) }

// isAfter says whether the engine wrote this later. Names end with numbers that grow.
func (l manifest) isAfter(other manifest) bool {
	switch {
	case l.name == other.name:
		return l.size > other.size
	case len(l.name) == len(other.name):
		return l.name > other.name
	}
	return len(l.name) > len(other.name)
}

func (m *mark) slot(layout string, args ...any) []byte {
	text := fmt.Sprintf(markHead, markVersion, m.instance) + fmt.Sprintf(layout, args...)
	return pad(text + " " + checksum(text))
}

// pad fills a slot so that the file reads well on a terminal.
func pad(text string) []byte {
	slot := make([]byte, slotSize)
	for i := copy(slot[:slotSize-1], text); i < slotSize; i++ {
		slot[i] = ' '
	}
	slot[slotSize-1] = '\n'
	return slot
}

// create puts the mark into a directory, whole or not at all.
func (m *mark) create(fsys vfs.FS, dir string) error {
	name := fsys.PathJoin(dir, markName)
	err := func() error {
		file, err := fsys.Create(name+temporary, vfs.WriteCategoryUnspecified)
		if err != nil {
			return err
		}
		content := m.slot(revisionLayout, m.revision)
		for range slots - 1 {
			content = append(content, pad("")...)
		}
		_, err = file.Write(content)
		if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
			return err
		}
		if err := fsys.Rename(name+temporary, name); err != nil {
			return err
		}
		return syncDir(fsys, dir)
	}()
	m.next[0] = 1
	if err != nil {
		return writeError(dir, "create", name, err)
	}
	return nil
}

// open makes the mark ready to be written, and tells others who has the store open.
func (m *mark) open(fsys vfs.FS, dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := fsys.PathJoin(dir, markName)
	file, err := fsys.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return writeError(dir, "open", name, err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	if _, err := file.WriteAt(pad(fmt.Sprintf("pid %d on %s", os.Getpid(), host)), openerSlot*slotSize); err != nil {
		return errors.Join(writeError(dir, "write", name, err), file.Close())
	}
	m.file = file
	return nil
}

// commit notes that a revision is committed. The kernel writes it to the disk when it likes.
func (m *mark) commit(revision store.Revision) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.revision = revision
	return m.write(revisionSlots, &m.next[0], m.slot(revisionLayout, revision))
}

// list notes that the engine has synced its manifest. It is rare, and made durable: what the engine removes next would not be missed by
// an older manifest.
func (m *mark) list(synced manifest) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !synced.isAfter(m.manifest) {
		return nil
	}
	m.manifest = synced
	if err := m.write(manifestSlots, &m.next[1], m.slot(manifestLayout, synced.name, synced.size)); err != nil {
		return err
	}
	return m.file.Sync()
}

func (m *mark) write(first int64, next *int64, slot []byte) error {
	_, err := m.file.WriteAt(slot, (first+*next)*slotSize)
	*next = 1 - *next
	return err
}

func (m *mark) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file == nil {
		return nil
	}
	return errors.Join(m.file.Sync(), m.file.Close())
}

func syncDir(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
