package pebble

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/schedulerd/schedulerd/internal/core/store"
)

// checkFiles looks for what the mark says must be there. The engine takes logs that are missing for logs it has removed, and a record in
// the manifest that it cannot read for its end, which leaves out tables.
func checkFiles(fsys vfs.FS, dir string, names []string, m *mark) error {
	for _, log := range m.logs {
		name := fsys.PathJoin(dir, log.name)
		if info, err := fsys.Stat(name); err != nil {
			return err
		} else if info.Size() < log.size {
			return fmt.Errorf("%w: %s has %d bytes, %d were written", store.ErrCorrupt, name, info.Size(), log.size)
		}
	}
	if m.manifest.name == "" || markerValue(names, "manifest") != m.manifest.name {
		// The mark was written before this manifest came into force.
		return nil
	}
	return checkManifest(fsys, fsys.PathJoin(dir, m.manifest.name), m.manifest.size)
}

func checkManifest(fsys vfs.FS, name string, size int64) error {
	file, err := fsys.Open(name)
	if err != nil {
		return err
	}
	end, err := lastRecord(io.LimitReader(file, size))
	if err == nil && end < size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		err = fmt.Errorf("%w: %s: it can be read up to byte %d of %d: %w", store.ErrCorrupt, name, end, size, err)
	}
	return errors.Join(err, file.Close())
}

// lastRecord returns the offset at which the last good record ends.
func lastRecord(r io.Reader) (int64, error) {
	records := record.NewReader(r, 0)
	for end := int64(0); ; end = records.Offset() {
		one, err := records.Next()
		if err == nil {
			_, err = io.Copy(io.Discard, one)
		}
		if errors.Is(err, io.EOF) {
			return end, nil
		} else if err != nil {
			return end, err
		}
	}
}

// markerValue is what the engine's marker with a name says: the engine writes it as the name of an empty file,
// marker.<name>.<number>.<value>, of which the highest number counts.
func markerValue(names []string, name string) string {
	newest, value := uint64(0), ""
	for _, file := range names {
		rest, ok := strings.CutPrefix(file, "marker."+name+".")
		if !ok {
			continue
		}
		number, v, _ := strings.Cut(rest, ".")
		if n, err := strconv.ParseUint(number, 10, 64); err == nil && n >= newest {
			newest, value = n, v
		}
	}
	return value
}
