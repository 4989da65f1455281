// Bench measures schedulerd next to floors and peers, and writes what it found to results/ and RESULTS.md.
//
//	go -C bench run . [-quick] [-only 3,4] [-json DIR]
//
// Each question is a file of this package; package measure is the harness. Every contender runs in a process of its own, in rounds
// that are interleaved. Package schedule holds the benchmarks of next fire times, which question 10 runs.
package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/schedulerd/schedulerd/bench/measure"
)

// question is one thing to measure.
type question struct {
	number int
	name   string // of its file in results/
	title  string
	run    func(*session) error
}

var questions = []question{
	{1, "rpcs", "Calls: Status, and Triggers that are refused, accepted, durable", rpcs},
	{2, "list", "List by pages while updates go on", listing},
	{3, "due", "Due times: flows that become due while many others wait, each with a run that does nothing, in memory", due},
	{4, "herd", "Herd: all flows due in one instant", herd},
	{5, "memory", "Memory of flows that wait, and of collecting the garbage around them", memory},
	{6, "durable", "Durable firings", durable},
	{7, "restart", "Restart to ready", restart},
	{8, "watch", "WatchStatus: one change to many streams", watching},
	{9, "workflow", "Running a workflow of tasks that do nothing", workflows},
	{10, "next", "Next fire times and parsing", next},
	{11, "idle", "An idle daemon, and one that works for long", idle},
}

// session is a question being answered.
type session struct {
	quick  bool
	rounds int
	soak   time.Duration // how long question 11 works; 0: a minute
	result measure.Result
}

// pick is the value for a full run, or for a quick one.
func pick[T any](s *session, full, quick T) T {
	if s.quick {
		return quick
	}
	return full
}

// compare measures contenders and adds the table.
func (s *session) compare(table measure.Table, contenders ...measure.Contender) *measure.Table {
	table.Rows = measure.Rounds(s.rounds, contenders, func(what string) {
		fmt.Fprintf(os.Stderr, "%s  %d %s: %s\n", time.Now().Format(time.TimeOnly), s.result.Number, table.Title, what)
	})
	s.result.Tables = append(s.result.Tables, table)
	return &table
}

// atMost and atLeast add goals; one whose value could not be measured is left out, as the table shows why.
func (s *session) atMost(text string, value, bound float64) {
	s.goal(measure.Goal{Text: text, Value: value, Bound: bound})
}

func (s *session) atLeast(text string, value, bound float64) {
	s.goal(measure.Goal{Text: text, Value: value, Bound: bound, Least: true})
}

func (s *session) goal(g measure.Goal) {
	if !math.IsNaN(g.Value) && !math.IsInf(g.Value, 0) {
		s.result.Goals = append(s.result.Goals, g)
	}
}

func main() {
	measure.IfChild()
	quick := flag.Bool("quick", false, "few short rounds: a smoke test of the benchmarks")
	only := flag.String("only", "", "numbers of questions, with commas between; empty: all")
	results := flag.String("json", "results", "folder of the results, one file a question")
	report := flag.String("report", "RESULTS.md", "file of the report over all results in the folder")
	soak := flag.Duration("soak", 0, "how long question 11 works; 0: a minute, or seconds with -quick")
	flag.Parse()
	if err := run(*quick, *only, *results, *report, *soak); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(quick bool, only, results, report string, soak time.Duration) error {
	if err := os.MkdirAll(results, 0o755); err != nil {
		return err
	}
	var numbers []int
	for _, text := range strings.FieldsFunc(only, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(text)
		if err != nil || !slices.ContainsFunc(questions, func(q question) bool { return q.number == n }) {
			return fmt.Errorf("-only: there is no question %q", text)
		}
		numbers = append(numbers, n)
	}
	for _, q := range questions {
		if len(numbers) > 0 && !slices.Contains(numbers, q.number) {
			continue
		}
		s := &session{quick: quick, rounds: 5, soak: soak}
		if quick {
			s.rounds = 1
		}
		s.result = measure.Result{Number: q.number, Name: q.name, Title: q.title, Quick: quick, Machine: machine(), Date: time.Now().UTC().Format(time.DateOnly)}
		if err := q.run(s); err != nil {
			return fmt.Errorf("question %d: %w", q.number, err)
		}
		if err := s.result.Save(results); err != nil {
			return err
		}
		fmt.Println(s.result.Markdown())
	}
	return write(results, report)
}

// machine is where and with what was measured.
func machine() string {
	model := "unknown processor"
	data, _ := os.ReadFile("/proc/cpuinfo") // not there: unknown
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	return fmt.Sprintf("%d × %s, %s/%s, %s", measure.Cores(), model, runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// compared are the modules whose versions matter to the figures.
var compared = []string{
	"connectrpc.com/connect", "github.com/cockroachdb/pebble/v2", "github.com/go-co-op/gocron/v2", "github.com/netresearch/go-cron",
	"github.com/reugn/go-quartz", "github.com/robfig/cron/v3", "google.golang.org/grpc", "google.golang.org/protobuf",
}

// write makes the report from all results there are.
func write(results, report string) error {
	all, err := measure.Load(results)
	if err != nil {
		return err
	}
	var out strings.Builder
	out.WriteString("# Results\n\nWritten by `go -C bench run .`; do not edit. What it means is in [docs/performance.md](../docs/performance.md).\n\n" +
		"Cells are medians of interleaved rounds, with the least and the greatest; *ratio* is to the first row; *others* is how many cores neighbours used " +
		"meanwhile. Rounds in which that was more than half a core are left out as long as three others remain.\n\nVersions:")
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if slices.Contains(compared, d.Path) {
				fmt.Fprintf(&out, " %s %s;", filepath.Base(strings.TrimSuffix(strings.TrimSuffix(d.Path, "/v2"), "/v3")), d.Version)
			}
		}
	}
	out.WriteString(" go-etcd-cron and cano are left out: the one is not to be had from the module proxy, the other is Rust.\n\n")
	for _, q := range questions {
		if r := all[q.number]; r != nil {
			out.WriteString(r.Markdown() + "\n")
		}
	}
	return os.WriteFile(report, []byte(strings.TrimSpace(out.String())+"\n"), 0o644)
}
