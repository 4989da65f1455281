package manifest

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/definition"
	"github.com/schedulerd/schedulerd/internal/task/tasktest"
)

var update = flag.Bool("update", false, "write what the tests get as what they want")

var testOptions = definition.Options{
	Now:       time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC),
	AllowExec: true,
	Origin:    core.FromFile,
}

func check(sources ...Source) Problems {
	_, _, problems := Check(sources, definition.New(tasktest.Registry()), testOptions)
	return problems
}

// TestFaults compares what is told about the files in testdata/faults with what is written there, after them. Run it with
// -update to write that, and read it: a person has to be able to repair the file with it.
func TestFaults(t *testing.T) {
	archives, err := filepath.Glob("testdata/faults/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatal(archives, err)
	}
	for _, path := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			input, want, _ := strings.Cut(string(content), wantMark)
			got := check(sourcesIn(input)...).Error() + "\n"
			if *update {
				if err := os.WriteFile(path, []byte(input+wantMark+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != want {
				t.Errorf("got:\n%s", got)
			}
			if jargon := ourWords.FindString(got); jargon != "" {
				t.Errorf("a user does not know what %q is", jargon)
			}
		})
	}
}

const wantMark = "-- want --\n"

// sourcesIn takes apart a text archive: a comment, then files, each after a line with its name.
func sourcesIn(archive string) []Source {
	var sources []Source
	for line := range strings.Lines(archive) {
		if name, ok := strings.CutPrefix(line, "-- "); ok {
			sources = append(sources, Source{Name: strings.TrimSuffix(name, " --\n")})
		} else if len(sources) > 0 {
			last := &sources[len(sources)-1]
			last.Content = append(last.Content, line...)
		}
	}
	return sources
}

// ourWords are words of protobuf, of Go and of CEL that no user has to know.
var ourWords = regexp.MustCompile(`(?i)\bproto|oneof|descriptor|scalar|mapping|sequence|unmarshal|struct\b|int32|float64|map\[|interface|<nil>|_\+_|\bdyn\b|overload|yaml: |regex pattern|enum|nil pointer|panic|UNSPECIFIED`)
