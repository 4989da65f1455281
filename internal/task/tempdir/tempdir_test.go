package tempdir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/schedulerd/schedulerd/internal/task/kindtest"
)

func dir(t *testing.T, definition string) *Dir {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	built, err := kindtest.CompileResource(t, ResourceKind, kindtest.Config(), definition)
	if err != nil {
		t.Fatal(err)
	}
	d := built.(*Dir)
	if err := d.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestLife(t *testing.T) {
	for definition, prefix := range map[string]string{
		`{"temp_dir": {}}`:                    "schedulerd-",
		`{"temp_dir": {"prefix": "exports"}}`: "exports",
	} {
		d := dir(t, definition)
		info, err := os.Stat(d.Path())
		if err != nil || info.Mode() != os.ModeDir|0o700 || !strings.HasPrefix(filepath.Base(d.Path()), prefix) || !filepath.IsAbs(d.Path()) {
			t.Errorf("%s is %v, %v", d.Path(), info.Mode(), err)
		}
		if got := d.Describe()["path"]; got != d.Path() {
			t.Errorf("described as %v", got)
		}
		if err := os.WriteFile(filepath.Join(d.Path(), "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := d.Teardown(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(d.Path()); err == nil {
			t.Error("it is still there")
		}
	}
}

func TestTeardownOfReadOnlyFolders(t *testing.T) {
	d := dir(t, `{"temp_dir": {}}`)
	outside := t.TempDir()
	if err := os.Chmod(outside, 0o555); err != nil {
		t.Fatal(err)
	}
	inner := filepath.Join(d.Path(), "a", "b")
	for _, err := range []error{
		os.MkdirAll(inner, 0o700), os.WriteFile(filepath.Join(inner, "file"), nil, 0o400),
		os.Symlink(outside, filepath.Join(d.Path(), "link")),
		os.Chmod(inner, 0o555), os.Chmod(filepath.Dir(inner), 0o000),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Teardown(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(d.Path()); err == nil {
		t.Error("it is still there")
	}
	if info, err := os.Stat(outside); err != nil || info.Mode().Perm() != 0o555 {
		t.Errorf("what a link points to was touched: %v, %v", info.Mode(), err)
	}
}

func TestSetupFails(t *testing.T) {
	d := &Dir{prefix: "x"}
	t.Setenv("TMPDIR", "/no/such/dir")
	if err := d.Setup(t.Context()); err == nil {
		t.Error("no error")
	}
}
