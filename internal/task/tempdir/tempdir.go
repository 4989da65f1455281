// Package tempdir is the resource kind of a fresh directory that lives as long as the scheduler.
package tempdir

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/task"
)

// ResourceKind makes a directory at setup, in the system's directory for temporary files, and removes it at teardown.
var ResourceKind = task.ResourceKind{Field: "temp_dir", New: newResource}

// Dir is a directory that only the daemon's user can read.
type Dir struct {
	prefix string
	path   string
}

func newResource(r *schedulerdv1.Resource, _ *task.Env) (resource.Resource, error) {
	prefix := r.GetTempDir().GetPrefix()
	if prefix == "" {
		prefix = "schedulerd-"
	}
	return &Dir{prefix: prefix}, nil
}

// Setup makes the directory, with mode 0700.
func (d *Dir) Setup(context.Context) (err error) {
	d.path, err = os.MkdirTemp("", d.prefix+"*")
	return err
}

// Teardown removes the directory and what is in it.
func (d *Dir) Teardown(ctx context.Context) error {
	err := os.RemoveAll(d.path)
	if err == nil {
		return nil
	}
	// What programs leave may be directories that even their owner cannot write to, such as Go's module cache.
	_ = filepath.WalkDir(d.path, func(path string, entry fs.DirEntry, _ error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if entry != nil && entry.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	if err := os.RemoveAll(d.path); err != nil {
		return fmt.Errorf("the temporary directory %s was not removed: %w", d.path, err)
	}
	return nil
}

// Path is where it is. It is empty before Setup.
func (d *Dir) Path() string { return d.path }

// Describe is what expressions see of the resource.
func (d *Dir) Describe() map[string]any { return map[string]any{"path": d.path} }
