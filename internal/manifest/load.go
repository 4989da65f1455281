package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Limits of flows files.
const (
	MaxFileBytes  = 4 << 20
	MaxFiles      = 1000
	MaxTotalBytes = 64 << 20
)

// Source is the text of a flows file.
type Source struct {
	Name    string // for messages
	Content []byte
}

// extensions are those of flows files in a folder. A file that is named itself may have any.
var extensions = []string{".yaml", ".yml", ".json"}

// Load reads flows files and folders of them, in the order given. Of a folder it takes the files that end in .yaml, .yml or
// .json, by name; hidden ones and folders inside are left out. A file that is reached twice is read once.
//
// The error joins one for each path that cannot be read.
func Load(paths ...string) ([]Source, error) {
	var sources []Source
	var errs []error
	seen := map[string]bool{}
	total := 0
	add := func(path string) {
		if absolute, err := filepath.Abs(path); err == nil {
			if seen[absolute] {
				return
			}
			seen[absolute] = true
		}
		content, err := readFile(path)
		if err != nil {
			errs = append(errs, err)
			return
		}
		total += len(content)
		sources = append(sources, Source{path, content})
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			errs = append(errs, unreadable(path, err))
		case info.IsDir():
			names, err := flowsFilesIn(path)
			if err != nil {
				errs = append(errs, err)
			}
			for _, name := range names {
				add(filepath.Join(path, name))
			}
		default:
			add(path)
		}
		if len(sources) > MaxFiles || total > MaxTotalBytes {
			return nil, fmt.Errorf("%s: more than %d flows files, or %d MiB of them; put flows into fewer files or apply them over the API", path, MaxFiles, MaxTotalBytes>>20)
		}
	}
	return sources, errors.Join(errs...)
}

func flowsFilesIn(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, unreadable(folder, err)
	}
	var names []string
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, ".") && slices.Contains(extensions, strings.ToLower(filepath.Ext(name))) && isFile(folder, e) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: no flows files in this folder; they end in %s", folder, strings.Join(extensions, ", "))
	}
	return names, nil
}

// isFile says whether an entry is a file, or a link to one, as files mounted into containers are.
func isFile(folder string, e fs.DirEntry) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return !e.IsDir()
	}
	info, err := os.Stat(filepath.Join(folder, e.Name()))
	return err != nil || !info.IsDir()
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err != nil {
		return nil, unreadable(path, err)
	}
	return content, nil // Parse tells if it is too long, as of sources from elsewhere
}

func unreadable(path string, err error) error {
	var about *fs.PathError
	if errors.As(err, &about) {
		err = about.Err
	}
	return fmt.Errorf("%s: cannot be read: %w", path, err)
}
