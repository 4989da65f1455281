package store

import (
	"context"
	"encoding/csv"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestExportCSV(t *testing.T) {
	object := func(pairs ...any) any {
		o := map[string]any{}
		for i := 0; i < len(pairs); i += 2 {
			o[pairs[i].(string)] = pairs[i+1]
		}
		return o
	}
	for name, test := range map[string]struct {
		list    []any
		columns []string
		want    string
		rows    int
	}{
		"empty":               {[]any{}, nil, "", 0},
		"empty with a header": {[]any{}, []string{"b", "a"}, "b,a\n", 0},
		"sorted columns":      {[]any{object("b", 1.0, "a", "x"), object("a", "y", "c", "not in the first")}, nil, "a,b\nx,1\ny,\n", 2},
		"chosen columns":      {[]any{object("b", 1.0, "a", "x")}, []string{"b", "missing", "a"}, "b,missing,a\n1,,x\n", 1},
		"types": {
			[]any{object("a", nil, "b", true, "c", 1e6, "d", 0.1, "e", 1e21, "f", []any{1.0, "<&>"}, "g", object("k", nil))},
			nil,
			"a,b,c,d,e,f,g\n,true,1000000,0.1,1e+21,\"[1,\"\"<&>\"\"]\",\"{\"\"k\"\":null}\"\n", 1,
		},
		"quoting":       {[]any{object("a,b", "x\"y", "c", "two\nlines", "d", " blank")}, nil, "\"a,b\",c,d\n\"x\"\"y\",\"two\nlines\",\" blank\"\n", 1},
		"formulas stay": {[]any{object("a", "=1+1", "b", "@x")}, nil, "a,b\n=1+1,@x\n", 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := ready(t, 0, map[string]any{"list": test.list})
			rows, err := s.ExportCSV(t.Context(), "list", dir, "out/of/here.csv", test.columns)
			if err != nil || rows != test.rows {
				t.Errorf("got %d rows, %v; want %d", rows, err, test.rows)
			}
			got, err := os.ReadFile(filepath.Join(dir, "out/of/here.csv"))
			if err != nil || string(got) != test.want {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
			if files, _ := os.ReadDir(filepath.Join(dir, "out/of")); len(files) != 1 {
				t.Errorf("left behind: %v", files)
			}
		})
	}
}

// What is written can be read again, whatever is in it.
func TestCSVRoundTrip(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.StringMatching("[a,;\"'\n\\t= é]{0,6}"), 1, 10).Draw(t, "texts")
		var list []any
		var want [][]string
		want = append(want, []string{"n", "text"})
		for _, text := range texts {
			list = append(list, map[string]any{"n": 1.0, "text": text})
			want = append(want, []string{"1", text})
		}
		s := ready(t, 0, map[string]any{"list": list})
		if _, err := s.ExportCSV(context.Background(), "list", dir, "a.csv", nil); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "a.csv"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
	})
}

func TestExportCSVRefused(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	for _, err := range []error{
		os.WriteFile(filepath.Join(dir, "kept.csv"), []byte("kept"), 0o644),
		os.Mkdir(filepath.Join(dir, "folder"), 0o755),
		os.Symlink(outside, filepath.Join(dir, "link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s := ready(t, 0, map[string]any{"rows": []any{map[string]any{"a": 1.0}}, "mixed": []any{map[string]any{}, "text"}, "n": 1.0})
	done, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx             context.Context
		key, file, want string
		is              error
	}{
		"no such key":  {t.Context(), "nope", "kept.csv", `there is no such key: "nope"`, ErrMissing},
		"no list":      {t.Context(), "n", "kept.csv", `the value is of another type: key "n" holds a number, not a list`, ErrType},
		"no object":    {t.Context(), "mixed", "kept.csv", `the value is of another type: entry 1 of key "mixed" is a text, and a row is made from an object`, ErrType},
		"absolute":     {t.Context(), "rows", filepath.Join(outside, "x.csv"), "the file is not below the daemon's directory: ", ErrOutside},
		"upwards":      {t.Context(), "rows", "a/../../x.csv", "the file is not below the daemon's directory: ", ErrOutside},
		"no name":      {t.Context(), "rows", "", "the file is not below the daemon's directory: ", ErrOutside},
		"through link": {t.Context(), "rows", "link/x.csv", "", nil},
		"a folder":     {t.Context(), "rows", "folder", "", nil},
		"below a file": {t.Context(), "rows", "kept.csv/x.csv", "", nil},
		"cancelled":    {done, "rows", "kept.csv", "", context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.ExportCSV(test.ctx, test.key, dir, test.file, nil)
			if err == nil || !strings.HasPrefix(err.Error(), test.want) || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("got %v, want %s…", err, test.want)
			}
		})
	}
	if text, err := os.ReadFile(filepath.Join(dir, "kept.csv")); err != nil || string(text) != "kept" {
		t.Errorf("the file that was there is now %q, %v", text, err)
	}
	count := 0
	_ = filepath.WalkDir(dir, func(string, fs.DirEntry, error) error { count++; return nil })
	if files, _ := os.ReadDir(outside); len(files) > 0 || count != 4 {
		t.Errorf("written outside: %v; %d entries inside", files, count)
	}
	if _, err := s.ExportCSV(t.Context(), "rows", "/no/such/dir", "x.csv", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a folder that is missing: %v", err)
	}
}
