package pebble

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	engine "github.com/cockroachdb/pebble/v2"

	"github.com/schedulerd/schedulerd/internal/core/store"
)

// explain gives an error of the engine its kind and its place. A file that is missing or makes no sense is damage; what else the
// operating system says is trouble with the disk.
func explain(dir string, err error) error {
	switch {
	case err == nil || isExplained(err):
		return err
	case engine.IsCorruptionError(err):
		if info := engine.ExtractDataCorruptionInfo(err); info != nil {
			return fmt.Errorf("%w: %s: %w", store.ErrCorrupt, info.Path, err)
		}
	case isFromSystem(err):
		return fmt.Errorf("%s: %w: %w", dir, store.ErrIO, err)
	}
	return fmt.Errorf("%s: %w: %w", dir, store.ErrCorrupt, err)
}

func isExplained(err error) bool {
	for _, kind := range []error{store.ErrIO, store.ErrCorrupt, store.ErrClosed, store.ErrLocked, store.ErrSchema, store.ErrReadOnly} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

func isFromSystem(err error) bool {
	var path *fs.PathError
	var number syscall.Errno
	return (errors.As(err, &path) || errors.As(err, &number)) && !errors.Is(err, fs.ErrNotExist)
}
