package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/schedulerd/schedulerd/bench/measure"
	"github.com/schedulerd/schedulerd/internal/store/pebble"
)

type idleLoad struct {
	Flows int
	For   time.Duration
}

var runIdle = measure.Program("idle", func(l idleLoad, _ *measure.Talk) (measure.Sample, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	// The flows come from a file, as they do to most daemons that idle; a server that got them over the API would still hold what
	// their text took.
	if l.Flows > 0 {
		if _, err := fill(kept{dir, l.Flows}).Run(); err != nil {
			return nil, err
		}
	}
	if _, err := daemon(dir); err != nil {
		return nil, err
	}
	time.Sleep(3 * time.Second)
	before := measure.Used()
	time.Sleep(l.For)
	used, elapsed := measure.Used().Since(before)
	rss, err := resident()
	return measure.Sample{
		"rss_mb": rss / 1e6, "cpu_ms": float64(used.CPU.Microseconds()) / 1e3 / elapsed.Seconds(), "switches": float64(used.Switches) / elapsed.Seconds(),
	}, err
})

// resident is the memory of this process, by /proc/self/status (https://man7.org/linux/man-pages/man5/proc_pid_status.5.html).
func resident() (float64, error) {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := bytes.Cut(data, []byte("VmRSS:"))
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return 0, fmt.Errorf("no VmRSS in /proc/self/status")
	}
	kib, err := strconv.ParseFloat(string(fields[0]), 64)
	return kib * 1024, err
}

type soakLoad struct {
	Rate int
	For  time.Duration
}

// runSoak fires for a long time and compares the state after a tenth of it with the one at the end.
var runSoak = measure.Program("soak", func(l soakLoad, _ *measure.Talk) (measure.Sample, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	s, err := pebble.Open(pebble.Options{Dir: filepath.Join(dir, "store")})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	e := newOurs(s)
	const flows = 10_000
	var late measure.Latencies
	load := dueLoad{Flows: flows, Period: time.Duration(flows) * time.Second / time.Duration(l.Rate)}
	for n := range flows {
		if err := e.add(n, load.when(n), func(fire time.Time) { late.Add(time.Since(fire)) }); err != nil {
			return nil, err
		}
	}
	if err := e.start(); err != nil {
		return nil, err
	}
	defer e.stop()
	out := measure.Sample{}
	note := func(when string, over time.Duration) error {
		late.Reset()
		before := measure.Used()
		time.Sleep(over)
		used, elapsed := measure.Used().Since(before)
		rss, err := resident()
		if err != nil {
			return err
		}
		disk, err := size(dir)
		out["rss_mb_"+when], out["disk_mb_"+when] = rss/1e6, disk/1e6
		out["p99_ms_"+when], out["rate_"+when] = late.Quantile(.99)/1e6, float64(late.Count())/elapsed.Seconds()
		out["cores_"+when] = used.CPU.Seconds() / elapsed.Seconds()
		return err
	}
	// Every flow has all its runs kept by the time of the first look, if that is 40 s or more from the start.
	if err := note("early", l.For/4); err != nil {
		return nil, err
	}
	time.Sleep(l.For / 2)
	return out, note("late", l.For/4)
})

// size is the bytes of the files of a folder. Files that go meanwhile do not count.
func size(dir string) (total float64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			total += float64(info.Size())
		}
		return nil
	})
	return total, err
}

func idle(s *session) error {
	s.result.Notes = "A daemon with a data directory and no due work, three seconds after its start: the figures are by second. Then firings that are all durable, at a steady rate for a while (-soak): " +
		"the first quarter of it next to the last."
	length := pick(s, 5*time.Second, 2*time.Second)
	var contenders []measure.Contender
	for _, flows := range pick(s, []int{0, 100_000}, []int{0, 10_000}) {
		contenders = append(contenders, measure.Alone(count(flows)+" flows", runIdle(idleLoad{flows, length})))
	}
	rounds := s.rounds
	s.rounds = min(rounds, pick(s, 3, 1))
	t := s.compare(measure.Table{Title: "An idle daemon", Columns: []measure.Column{
		{Key: "rss_mb", Title: "resident MB"}, {Key: "cpu_ms", Title: "CPU ms/s"}, {Key: "switches", Title: "wake-ups/s"},
	}}, contenders...)
	s.atMost("idle without flows: MB", t.Value("0 flows", "rss_mb"), 30)
	s.rounds = 1
	soak := s.soak
	if soak == 0 {
		soak = pick(s, time.Minute, 8*time.Second)
	}
	var columns []measure.Column
	for _, when := range []string{"early", "late"} {
		for _, c := range [][2]string{{"rate_", "firings/s"}, {"p99_ms_", "late p99 ms"}, {"rss_mb_", "resident MB"}, {"disk_mb_", "disk MB"}, {"cores_", "cores"}} {
			columns = append(columns, measure.Column{Key: c[0] + when, Title: c[1] + ", " + when})
		}
	}
	t = s.compare(measure.Table{Title: fmt.Sprintf("5k durable firings/s over 10k flows for %v", soak), Columns: columns},
		measure.Alone("schedulerd", runSoak(soakLoad{5000, soak}).Within(soak+time.Minute)))
	s.rounds = rounds
	s.atMost("memory at the end ÷ in the first quarter", t.Value("schedulerd", "rss_mb_late")/t.Value("schedulerd", "rss_mb_early"), 1.25)
	return nil
}
