package manifest

import (
	"fmt"
	"iter"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/definition"
	"github.com/schedulerd/schedulerd/internal/fault"
)

// Set is what sources came to: all their flows and resources together, each with where it was written.
type Set struct {
	File *schedulerdv1.FlowsFile

	documents []*document
	flows     []origin // of each flow of File
	resources []origin
}

// origin is where an entry of a merged list came from.
type origin struct {
	document *document
	index    int // in its list there
}

// Parse reads sources. Those parts that can be read are in the Set, also if there are problems.
func Parse(sources []Source) (*Set, Problems) {
	set := &Set{File: &schedulerdv1.FlowsFile{}}
	var problems Problems
	for d, file := range parsed(sources) {
		set.documents = append(set.documents, d)
		problems = append(problems, d.problems...)
		for i, f := range file.GetFlows() {
			set.File.Flows = append(set.File.Flows, f)
			set.flows = append(set.flows, origin{d, i})
		}
		for i, r := range file.GetResources() {
			set.File.Resources = append(set.File.Resources, r)
			set.resources = append(set.resources, origin{d, i})
		}
	}
	return set, problems.told(set.order())
}

// parsed reads sources, some at a time, and gives them in their order.
func parsed(sources []Source) iter.Seq2[*document, *schedulerdv1.FlowsFile] {
	documents, files := make([]*document, len(sources)), make([]*schedulerdv1.FlowsFile, len(sources))
	var readers sync.WaitGroup
	var next atomic.Int64
	for range min(runtime.GOMAXPROCS(0), len(sources)) {
		readers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(sources)); i = next.Add(1) - 1 {
				documents[i], files[i] = parse(sources[i])
			}
		})
	}
	readers.Wait()
	return func(yield func(*document, *schedulerdv1.FlowsFile) bool) {
		for i, d := range documents {
			if !yield(d, files[i]) {
				return
			}
		}
	}
}

// Check reads sources and compiles them together. If there are problems, the other results must not be used.
func Check(sources []Source, compiler *definition.Compiler, o definition.Options) (*Set, *definition.Set, Problems) {
	set, problems := Parse(sources)
	compiled, faults := compiler.Compile(set.File, o)
	problems = append(problems, set.locate(faults)...)
	return set, compiled, problems.told(set.order())
}

func (s *Set) order() map[string]int {
	order := map[string]int{}
	for i, d := range s.documents {
		order[d.name] = i
	}
	return order
}

// Locate finds where the faults of File were written.
func (s *Set) Locate(faults fault.List) Problems {
	return s.locate(faults).told(s.order())
}

func (s *Set) locate(faults fault.List) Problems {
	var problems Problems
	for _, f := range faults {
		if len(problems) > maxProblems {
			break
		}
		d, field := s.home(f.Field)
		if d == nil {
			problems = append(problems, Problem{Source: s.names(), Field: f.Field, Message: f.Message})
			continue
		}
		at := d.find(field, f.Name)
		if d.partly || d.follows(field, at) {
			continue
		}
		line, column := d.place(at, f.Offset)
		message := f.Message
		if f.Other != "" {
			message += "; the other one is at " + s.placeOf(f.Other)
		}
		problems = append(problems, d.problem(line, column, field, message))
	}
	return problems
}

// home translates a path of the merged file into one of the document it was written in.
func (s *Set) home(path string) (*document, string) {
	steps := fault.Split(path)
	if len(steps) < 2 {
		return nil, ""
	}
	list, i := steps[0].Field, steps[1].Index
	origins := s.flows
	if list == "resources" {
		origins = s.resources
	}
	if i < 0 || i >= len(origins) {
		return nil, ""
	}
	rest := strings.TrimPrefix(path, fault.Index(list, i))
	return origins[i].document, fault.Index(list, origins[i].index) + rest
}

func (s *Set) placeOf(path string) string {
	d, field := s.home(path)
	if d == nil {
		return path
	}
	line, column := d.place(d.find(field, false), -1)
	return fmt.Sprintf("%s:%d:%d", d.name, line, column)
}

func (s *Set) names() string {
	names := make([]string, len(s.documents))
	for i, d := range s.documents {
		names[i] = d.name
	}
	return strings.Join(names, ", ")
}
