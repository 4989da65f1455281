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

// checkManifest reads the manifest that is in force as far as the mark says it was synced. The engine takes a record in it that it cannot
// read for the end, which may leave out tables.
func checkManifest(fsys vfs.FS, dir string, names []string, synced manifest) error {
	if synced.name == "" || markerValue(names, "manifest") != synced.name {
		// The mark was not written yet, as by a power loss or in a backup, or it was before the manifest came into force.
		return nil
	}
	name := fsys.PathJoin(dir, synced.name)
	file, err := fsys.Open(name)
	if err != nil {
		return err
	}
	end, err := lastRecord(io.LimitReader(file, synced.size))
	if err == nil && end < synced.size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		err = fmt.Errorf("%w: %s: it can be read up to byte %d of %d: %w", store.ErrCorrupt, name, end, synced.size, err)
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
