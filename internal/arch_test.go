// Package internal_test holds the rules of docs/architecture.md that an import
// can break. Test files may import what they like.
package internal_test

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/schedulerd/schedulerd/"

// arrows says which of the module's own packages each part may import, beside
// itself and what is below it. Names are path prefixes; the longest that fits a
// package is its part.
var arrows = map[string][]string{
	"cmd/schedulerd":    {"internal/server"},
	"cmd/schedctl":      {"internal/schedctl"},
	"internal/server":   {"internal/service", "internal/core", "internal/definition", "internal/fault", "internal/task", "internal/store", "internal/manifest", "internal/runlog", "internal/worker", "gen/go", "web"},
	"internal/service":  {"internal/core", "internal/definition", "internal/fault", "internal/manifest", "internal/runlog", "gen/go/schedulerd/v1"},
	"internal/runlog":   {"internal/core"},
	"internal/task":     {"internal/core", "internal/expr", "internal/fault", "internal/worker", "gen/go/schedulerd/v1"},
	"internal/worker":   {"internal/core/workflow", "gen/go/schedulerd/v1"},
	"internal/store":    {"internal/core/store", "gen/go/schedulerd/store"},
	"internal/manifest": {"internal/core", "internal/definition", "internal/fault", "gen/go/schedulerd/v1"},
	"internal/schedctl": {"internal/core/schedule", "internal/manifest", "gen/go/schedulerd/v1"},

	"internal/definition": {"internal/core", "internal/expr", "internal/fault", "internal/task", "gen/go/schedulerd/v1"},
	"internal/expr":       {"internal/core/workflow", "internal/fault"},
	"internal/fault":      {},

	// The core depends on nothing around it, and its pure parts on nothing at all.
	"internal/core":          {"gen/go/schedulerd/store"},
	"internal/core/schedule": {},
	"internal/core/flow":     {"internal/core/schedule"},

	"gen/go": {},
	"sdk/go": {"gen/go/schedulerd/v1"},
	"web":    {},
}

// The parts of the tree that hold no packages other packages build on.
var outside = []string{"examples", "test"}

// keptOut lists what must not be among the dependencies of a part, however indirect.
var keptOut = map[string][]string{
	"internal/core": {
		"google.golang.org/grpc",
		"github.com/cockroachdb/pebble",
		"go.etcd.io/etcd",
		module + "gen/go/schedulerd/v1",
	},
	"internal/schedctl": {"github.com/cockroachdb/pebble", "go.etcd.io/etcd"},
}

// onlyIn lists the libraries that may be imported in a few places only.
var onlyIn = map[string][]string{
	"github.com/gorhill/cronexpr":   {"internal/core/schedule"},
	"github.com/cockroachdb/pebble": {"internal/store/pebble"},
	"go.etcd.io/etcd":               {"internal/store/etcd"},
	"github.com/spf13/cobra":        {"cmd", "internal/schedctl"},
	"buf.build/go/protoyaml":        {"internal/manifest"},
	"go.yaml.in/yaml":               {"internal/manifest", "internal/schedctl"},
	"gopkg.in/yaml.v3":              {},
	"sigs.k8s.io/yaml":              {},
}

// functional lists the parts that take time, chance and the outside world as
// arguments, and the packages that would bring them in by the back door.
var (
	functional = []string{"internal/core/flow", "internal/core/schedule"}
	impure     = []string{"os", "net", "log", "sync", "math/rand", "crypto/rand"}

	// What schedule may import all the same: sync guards tables that are worked out
	// once and never change, os reads which release of the zone database is in use.
	tolerated = map[string][]string{"internal/core/schedule": {"os", "sync"}}
)

func TestArchitecture(t *testing.T) {
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		part, known := partOf(name)
		if !known {
			if !withinAny(name, outside) {
				t.Errorf("%s belongs to no part: add it to the table of arrows", name)
			}
			continue
		}
		for _, imported := range p.Imports {
			if own, ok := strings.CutPrefix(imported, module); ok {
				if !within(own, part) && !withinAny(own, arrows[part]) {
					t.Errorf("%s imports %s: %s may import %v", name, own, part, arrows[part])
				}
			}
			for library, places := range onlyIn {
				if within(imported, library) && !withinAny(name, places) {
					t.Errorf("%s imports %s, which only %v may", name, imported, places)
				}
			}
			if withinAny(name, functional) && withinAny(imported, impure) && !slices.Contains(tolerated[name], imported) {
				t.Errorf("%s imports %s: it is a pure function of its arguments", name, imported)
			}
		}
		for place, libraries := range keptOut {
			if !within(name, place) {
				continue
			}
			for _, library := range libraries {
				if slices.ContainsFunc(p.Deps, func(d string) bool { return within(d, library) }) {
					t.Errorf("%s depends on %s, which %s must not", name, library, place)
				}
			}
		}
	}
}

type goPackage struct {
	ImportPath string
	Imports    []string // direct, without those of tests
	Deps       []string // all, without those of tests
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	visitSources(t)
	// -e: a package that does not compile still tells its imports.
	list := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,Deps", "./...")
	list.Dir = ".."
	out, err := list.Output()
	if err != nil {
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	var packages []goPackage
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := decoder.Decode(&p); err == io.EOF {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		if p.ImportPath != module+"internal" { // this test
			packages = append(packages, p)
		}
	}
}

// visitSources looks at every Go file, because go test remembers a result until
// what the test itself looked at changes, and it is a child process that reads them.
func visitSources(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("..", func(file string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && (name == ".git" || name == "bin" || name == "data" || name == "node_modules"):
			return fs.SkipDir
		case strings.HasSuffix(name, ".go"):
			_, err = os.Stat(file)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// partOf finds the part with the longest name around a package.
func partOf(name string) (string, bool) {
	for ; name != "."; name = path.Dir(name) {
		if _, ok := arrows[name]; ok {
			return name, true
		}
	}
	return "", false
}

// within says whether a package is dir or below it. Major versions count as below.
func within(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, dir+"/")
}

func withinAny(name string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return within(name, dir) })
}
