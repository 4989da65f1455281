package pebble

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"strconv"
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
	manifest piece          // of the engine's list of tables, what was synced; may be unknown
	logs     []piece        // full logs that were not removed yet, beside the one that is written
	change   uint64         // counts what logs was before
	opener   string         // the process that opened the store last, for those that find it locked

	mu   sync.Mutex
	file vfs.File // nil unless open for writing
	next [3]int64 // slots to be written: revision, manifest, logs
}

// piece is the beginning of a file, that must be there.
type piece struct {
	name string
	size int64
}

// The file has slots, each in a disk sector of its own, so that each is written whole or not at all. Of all but the last there are two,
// written in turn, so that one of them always counts.
const (
	slotSize     = 512
	revisionSlot = 0
	manifestSlot = 1
	logsSlot     = 2
	openerSlot   = 3
	slots        = 2*openerSlot + 1
)

const (
	markHead       = "schedulerd-store %d %s "
	revisionLayout = "revision %020d"
	manifestLayout = "manifest %s %020d"
	logsLayout     = "logs %020d%s"
	markVersion    = 1
	maxLogs        = 12 // as many as fit; the engine has five or six
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
		var texts [openerSlot]string
		for slot := range texts {
			var err error
			if texts[slot], err = m.parseSlot(content, 2*int64(slot)+turn); err != nil {
				return nil, err
			}
		}
		var revision store.Revision
		if _, err := fmt.Sscanf(texts[revisionSlot], revisionLayout, &revision); err == nil && (!found || revision > m.revision) {
			found = true
			m.revision, m.next[revisionSlot] = revision, 1-turn
		}
		var list piece
		if _, err := fmt.Sscanf(texts[manifestSlot], manifestLayout, &list.name, &list.size); err == nil && list.isAfter(m.manifest) {
			m.manifest, m.next[manifestSlot] = list, 1-turn
		}
		if change, logs, ok := parseLogs(texts[logsSlot]); ok && change > m.change {
			m.change, m.logs, m.next[logsSlot] = change, logs, 1-turn
		}
	}
	if !found {
		return nil, fmt.Errorf("%w: it cannot be read", store.ErrCorrupt)
	}
	m.opener = slotText(content, 2*openerSlot)
	return m, nil
}

func parseLogs(text string) (change uint64, logs []piece, ok bool) {
	words := strings.Fields(text)
	if len(words) < 2 || words[0] != "logs" || len(words)%2 != 0 {
		return 0, nil, false
	}
	change, err := strconv.ParseUint(words[1], 10, 64)
	for i := 2; i < len(words) && err == nil; i += 2 {
		log := piece{name: words[i]}
		log.size, err = strconv.ParseInt(words[i+1], 10, 64)
		logs = append(logs, log)
	}
	return change, logs, err == nil
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
func (p piece) isAfter(other piece) bool {
	switch {
	case p.name == other.name:
		return p.size > other.size
	case len(p.name) == len(other.name):
		return p.name > other.name
	}
	return len(p.name) > len(other.name)
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
	m.next[revisionSlot] = 1
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
	if _, err := file.WriteAt(pad(fmt.Sprintf("pid %d on %s", os.Getpid(), host)), 2*openerSlot*slotSize); err != nil {
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
	return m.write(revisionSlot, revisionLayout, revision)
}

// listed notes that the engine has synced its manifest. This is rare, and made durable: the engine goes on to remove what an older
// manifest does not miss.
func (m *mark) listed(synced piece) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !synced.isAfter(m.manifest) {
		return nil
	}
	m.manifest = synced
	return errors.Join(m.write(manifestSlot, manifestLayout, synced.name, synced.size), m.file.Sync())
}

// logged notes which full logs there are. This is rare too, and must be durable before one of them is removed.
func (m *mark) logged(logs []piece) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.logs = logs[max(0, len(logs)-maxLogs):]
	m.change++
	text := ""
	for _, log := range m.logs {
		text += fmt.Sprintf(" %s %d", log.name, log.size)
	}
	return errors.Join(m.write(logsSlot, logsLayout, m.change, text), m.file.Sync())
}

func (m *mark) write(slot int64, layout string, args ...any) error {
	_, err := m.file.WriteAt(m.slot(layout, args...), (2*slot+m.next[slot])*slotSize)
	m.next[slot] = 1 - m.next[slot]
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
