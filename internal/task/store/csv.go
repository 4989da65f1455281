package store

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ExportCSV writes a list of objects, one in a row, to a file below dir, which is there either whole or not at all. Without
// columns, those are the fields of the first object. It gives the number of rows below the header.
//
// Texts are written as they are, also those that a spreadsheet takes for a formula ("=1+1").
func (s *Store) ExportCSV(ctx context.Context, key, dir, file string, columns []string) (rows int, err error) {
	list, err := s.entries(key)
	if err != nil {
		return 0, err
	}
	objects := make([]map[string]any, len(list))
	for i, entry := range list {
		object, isObject := entry.(map[string]any)
		if !isObject {
			return 0, fmt.Errorf("%w: entry %d of key %q is %s, and a row is made from an object", ErrType, i, key, typeName(entry))
		}
		objects[i] = object
	}
	if len(columns) == 0 && len(objects) > 0 {
		columns = slices.Sorted(maps.Keys(objects[0]))
	}
	return len(objects), replace(dir, file, func(w io.Writer) error { return writeCSV(ctx, w, columns, objects) })
}

func writeCSV(ctx context.Context, w io.Writer, columns []string, objects []map[string]any) error {
	table := csv.NewWriter(w)
	if len(columns) > 0 {
		_ = table.Write(columns) // it keeps its errors for the end
	}
	row := make([]string, len(columns))
	for _, object := range objects {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for i, column := range columns {
			row[i] = cell(object[column])
		}
		_ = table.Write(row)
	}
	table.Flush()
	return table.Error()
}

// cell is a value as text: texts as they are, null as nothing, the rest as JSON.
func cell(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v) // a stored value is JSON-like
	return strings.TrimSuffix(text.String(), "\n")
}

// replace writes a file below dir under another name, and then gives it its name. No path and no link leads out of dir.
func replace(dir, file string, write func(io.Writer) error) (err error) {
	if !filepath.IsLocal(file) {
		return fmt.Errorf("%w: %q; give a path relative to that directory", ErrOutside, file)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	temporary := filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+"."+rand.Text()+".part")
	f, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = root.Remove(temporary)
		}
	}()
	buffered := bufio.NewWriterSize(f, 64<<10)
	err = write(buffered)
	if err == nil {
		err = errors.Join(buffered.Flush(), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return root.Rename(temporary, file)
}
