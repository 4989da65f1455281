package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is a line of `go test -json`, see `go doc test2json` and `go help buildjson`.
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64 // seconds
	Output  string
}

// id names what an event is about: a test, a package, or a build.
type id struct{ pkg, test string }

func (i id) String() string { return strings.TrimSpace(i.pkg + " " + i.test) }

type report struct {
	out     io.Writer
	output  map[id][]string // what the unfinished ones printed
	running map[id]bool
	// Only leaves are counted: a test with subtests says no more than they do.
	parents                 map[id]bool
	passed, failed, skipped []id
	brokenPackages          []id // no failed test says why: build errors, a panic in TestMain, a timeout
	packages                int
}

func newReport(out io.Writer) *report {
	return &report{out: out, output: map[id][]string{}, running: map[id]bool{}, parents: map[id]bool{}}
}

// read consumes events until the end of in. Lines that are not JSON, such as
// what the go command itself prints, are passed on.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) == nil {
				r.add(e)
			} else {
				fmt.Fprint(r.out, line)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) add(e event) {
	at := id{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "run":
		r.running[at] = true
		for i := range e.Test {
			if e.Test[i] == '/' {
				r.parents[id{e.Package, e.Test[:i]}] = true
			}
		}
	case "output":
		r.output[at] = append(r.output[at], e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(e)
		} else {
			r.endTest(e.Action, at)
		}
	}
}

func (r *report) endTest(action string, at id) {
	delete(r.running, at)
	if action != "pass" {
		r.print(at)
	}
	delete(r.output, at)
	if r.parents[at] && (action == "pass" || r.childFailed(at)) {
		return
	}
	switch action {
	case "pass":
		r.passed = append(r.passed, at)
	case "skip":
		r.skipped = append(r.skipped, at)
	case "fail":
		r.failed = append(r.failed, at)
	}
}

func (r *report) childFailed(at id) bool {
	return slices.ContainsFunc(r.failed, func(f id) bool {
		return f.pkg == at.pkg && strings.HasPrefix(f.test, at.test+"/")
	})
}

func (r *report) endPackage(e event) {
	at := id{pkg: e.Package}
	if e.Action == "skip" { // no test files
		delete(r.output, at)
		return
	}
	r.packages++
	if e.Action == "fail" {
		for test := range r.running { // a panic or a timeout ends tests without a verdict
			if test.pkg == e.Package {
				r.endTest("fail", test)
			}
		}
		if !slices.ContainsFunc(r.failed, func(f id) bool { return f.pkg == e.Package }) {
			r.print(at)
			r.brokenPackages = append(r.brokenPackages, at)
		}
	}
	delete(r.output, at)
	fmt.Fprintf(r.out, "%-4s  %s  %.1fs\n", strings.Replace(e.Action, "pass", "ok", 1), e.Package, e.Elapsed)
}

func (r *report) print(at id) {
	for _, line := range r.output[at] {
		fmt.Fprint(r.out, line)
	}
}

// close prints the counts and says whether everything ran and passed.
func (r *report) close() bool {
	for test := range r.running {
		r.endTest("fail", test)
	}
	list := func(what string, ids []id) {
		for _, at := range ids {
			fmt.Fprintf(r.out, "%s: %s\n", what, at)
		}
	}
	fmt.Fprintln(r.out)
	list("broken", r.brokenPackages)
	list("failed", r.failed)
	list("skipped", r.skipped)
	if r.packages == 0 {
		fmt.Fprintln(r.out, "no package was tested")
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", len(r.passed), len(r.failed)+len(r.brokenPackages), len(r.skipped))
	return r.packages > 0 && len(r.failed)+len(r.brokenPackages)+len(r.skipped) == 0
}
