package pebble

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/schedulerd/schedulerd/internal/core/store"
)

// A directory that may not be written to. Root may write anywhere, so the thread of this test takes the rights of nobody on files.
func TestNoPermission(t *testing.T) {
	dir := t.TempDir()
	mustClose(t, mustOpen(t, Options{Dir: filepath.Join(dir, "store")}))
	for _, name := range []string{"store", "."} {
		if err := os.Chmod(filepath.Join(dir, name), 0o555); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		_ = os.Chmod(dir, 0o700)
		_ = os.Chmod(filepath.Join(dir, "store"), 0o700)
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	previous, err := unix.SetfsuidRetUid(65534)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = unix.SetfsuidRetUid(previous) }()

	for _, name := range []string{"store", "new", "new/deep"} {
		for _, readOnly := range []bool{false, true} {
			s, err := Open(Options{Dir: filepath.Join(dir, name), ReadOnly: readOnly})
			if err == nil {
				_ = s.Close()
			}
			if !errors.Is(err, store.ErrIO) || !errors.Is(err, fs.ErrPermission) && (!readOnly || !errors.Is(err, fs.ErrNotExist)) {
				t.Errorf("Open of %s (read-only %v): %v, want ErrIO and permission denied", name, readOnly, err)
			}
		}
	}
}
