package main

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/schedulerd/schedulerd/bench/measure"
)

// next runs the benchmarks of package schedule, which has the engines, and reads what they print.
func next(s *session) error {
	s.result.Notes = "By the benchmarks of bench/schedule, where the engines and the cron texts are."
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "schedule.test")
	if out, err := exec.Command("go", "test", "-c", "-o", program, "./schedule").CombinedOutput(); err != nil {
		return fmt.Errorf("building the benchmarks of next fire times: %w: %s", err, out)
	}
	for _, what := range []string{"Next", "Parse"} {
		contender := measure.Contender{Name: what, Run: func() (measure.Sample, error) {
			command := exec.Command(program, "-test.run=^$", "-test.bench=^Benchmark"+what+"$", "-test.benchmem", "-test.benchtime="+pick(s, "20ms", "5ms"))
			out, err := command.Output()
			if err != nil {
				return nil, fmt.Errorf("%w: %s", err, out)
			}
			sample := measure.Sample{}
			for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
				readBenchmark(lines.Text(), sample)
			}
			return sample, nil
		}}
		rows := measure.Rounds(s.rounds, []measure.Contender{contender}, func(round string) { fmt.Fprintln(os.Stderr, "10", round) })
		if rows[0].Fault != "" {
			return fmt.Errorf("%s: %s", what, rows[0].Fault)
		}
		// One row holds all, by keys such as "each_minute/UTC/robfig|ns/op".
		texts, engines := map[string]bool{}, map[string]bool{}
		for key := range rows[0].Median {
			path, _, _ := strings.Cut(key, "|")
			i := strings.LastIndexByte(path, '/')
			texts[path[:i]], engines[path[i+1:]] = true, true
		}
		order := slices.Sorted(maps.Keys(texts))
		s.result.Tables = append(s.result.Tables, nextTable(what, order, slices.Sorted(maps.Keys(engines)), rows[0]))
		if what == "Next" {
			s.nextGoals(rows[0].Median)
		}
	}
	return nil
}

// nextGoals are about the slowest text.
func (s *session) nextGoals(medians map[string]float64) {
	slowest, allocs := map[bool]float64{}, 0.0
	for key, v := range medians {
		path, unit, _ := strings.Cut(key, "|")
		if !strings.HasSuffix(path, "/schedulerd") {
			continue
		}
		if utc := strings.Contains(path, "/UTC/"); unit == "ns/op" {
			slowest[utc] = max(slowest[utc], v)
		} else if unit == "allocs/op" {
			allocs = max(allocs, v)
		}
	}
	s.atMost("next fire time of the slowest text, UTC: ns", slowest[true], 300)
	s.atMost("next fire time of the slowest text, in a zone with clock changes: ns", slowest[false], 600)
	s.goal(measure.Goal{Text: "allocations for a next fire time", Value: allocs, Exact: true})
}

// readBenchmark takes in a line such as
//
//	BenchmarkNext/each_minute/UTC/robfig-2   123   456 ns/op   0 B/op   0 allocs/op
func readBenchmark(line string, into measure.Sample) {
	fields := strings.Fields(line)
	if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
		return
	}
	_, path, _ := strings.Cut(fields[0], "/")
	if i := strings.LastIndexByte(path, '-'); i > 0 {
		if _, err := strconv.Atoi(path[i+1:]); err == nil {
			path = path[:i]
		}
	}
	for i := 2; i+1 < len(fields); i += 2 {
		if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
			into[path+"|"+fields[i+1]] = v
		}
	}
}

// nextTable has a row for each text and a column for each engine.
func nextTable(what string, titles, engines []string, all measure.Row) measure.Table {
	t := measure.Table{Title: map[string]string{"Next": "Next fire time, ns (wall time)", "Parse": "Parsing, ns (wall time)"}[what]}
	for _, e := range engines {
		t.Columns = append(t.Columns, measure.Column{Key: e, Title: e})
	}
	for _, title := range titles {
		row := measure.Row{
			Name: strings.ReplaceAll(title, "_", " "), Rounds: all.Rounds, Noisy: all.Noisy, Others: all.Others,
			Median: map[string]float64{}, Least: map[string]float64{}, Most: map[string]float64{},
		}
		for _, e := range engines {
			key := title + "/" + e + "|ns/op"
			row.Median[e], row.Least[e], row.Most[e] = all.Median[key], all.Least[key], all.Most[key]
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
