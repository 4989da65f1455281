package pebble

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/schedulerd/schedulerd/internal/core/store"
)

// markName is the file that says which store a directory holds and how much was committed to it.
const markName = "COMMITTED"

// The mark has three slots, each in a disk sector of its own, so that each is written whole or not at all. Revisions alternate between
// the first two; the third names the process that opened the store last, for those that find it locked.
const (
	slotSize   = 512
	openerSlot = 2
)

const markLayout = "schedulerd-store %d %s %020d"

// mark is what COMMITTED says, open for writing.
type mark struct {
	instance string
	revision store.Revision
	opener   string

	file vfs.File
	slot int64
}

// findMark reads the mark of a directory; nil if there is none.
func findMark(fsys vfs.FS, dir string) (*mark, error) {
	name := fsys.PathJoin(dir, markName)
	file, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrIO, err)
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, 8*slotSize))
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", name, store.ErrIO, err)
	}
	m, err := parseMark(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

func parseMark(content []byte) (*mark, error) {
	var m *mark
	for slot := range openerSlot {
		line := slotText(content, slot)
		text, sum, _ := cutLast(line, " ")
		if sum != checksum(text) {
			continue
		}
		version, found := 0, mark{slot: int64(slot)}
		if _, err := fmt.Sscanf(text, markLayout, &version, &found.instance, &found.revision); err != nil {
			continue
		}
		if version != 1 {
			return nil, fmt.Errorf("%w: it is of version %d", store.ErrSchema, version)
		}
		if m == nil || found.revision > m.revision {
			m = &found
		}
	}
	if m == nil {
		return nil, fmt.Errorf("%w: it cannot be read", store.ErrCorrupt)
	}
	m.opener = slotText(content, openerSlot)
	return m, nil
}

func slotText(content []byte, slot int) string {
	if len(content) < (slot+1)*slotSize {
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

// markSlot is the text of a slot, padded so that the file reads well on a terminal.
func markSlot(text string) []byte {
	slot := make([]byte, slotSize)
	for i := copy(slot[:slotSize-1], text); i < slotSize; i++ {
		slot[i] = ' '
	}
	slot[slotSize-1] = '\n'
	return slot
}

func (m *mark) text(revision store.Revision) []byte {
	text := fmt.Sprintf(markLayout, 1, m.instance, revision)
	return markSlot(text + " " + checksum(text))
}

// create puts the mark into a directory, whole or not at all.
func (m *mark) create(fsys vfs.FS, dir string) error {
	name := fsys.PathJoin(dir, markName)
	err := func() error {
		file, err := fsys.Create(name+temporary, vfs.WriteCategoryUnspecified)
		if err != nil {
			return err
		}
		content := append(append(m.text(m.revision), m.text(m.revision)...), markSlot("")...)
		_, err = file.Write(content)
		if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
			return err
		}
		if err := fsys.Rename(name+temporary, name); err != nil {
			return err
		}
		return syncDir(fsys, dir)
	}()
	if err != nil {
		return writeError(dir, "create", name, err)
	}
	return nil
}

// open makes the mark ready for advance, and tells others who has the store open.
func (m *mark) open(fsys vfs.FS, dir string) error {
	name := fsys.PathJoin(dir, markName)
	file, err := fsys.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return writeError(dir, "open", name, err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	if _, err := file.WriteAt(markSlot(fmt.Sprintf("pid %d on %s", os.Getpid(), host)), openerSlot*slotSize); err != nil {
		return errors.Join(writeError(dir, "write", name, err), file.Close())
	}
	m.file = file
	return nil
}

// advance notes that a revision is committed. The kernel writes it to the disk when it likes.
func (m *mark) advance(revision store.Revision) error {
	m.slot = 1 - m.slot
	m.revision = revision
	_, err := m.file.WriteAt(m.text(revision), m.slot*slotSize)
	return err
}

func (m *mark) close() error { return errors.Join(m.file.Sync(), m.file.Close()) }

func syncDir(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
