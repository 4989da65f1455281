package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	bare "github.com/cockroachdb/pebble/v2"
	"golang.org/x/sys/unix"

	"github.com/schedulerd/schedulerd/bench/measure"
	"github.com/schedulerd/schedulerd/internal/store/pebble"
)

// durableLoad is firings of which the start, the end and the run are kept on disk.
type durableLoad struct {
	Engine string // "schedulerd", "bare Pebble" or "append and fdatasync"
	Flows  int
	Rate   int // firings a second
	For    time.Duration
}

// What is written for a firing by the floors: the size of schedulerd's records, and how many firings share a commit when there are more
// than can be kept up with.
const (
	stateBytes, runBytes = 120, 200
	largestCommit        = 2000
)

var runDurable = measure.Program("durable", func(l durableLoad, _ *measure.Talk) (measure.Sample, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	switch l.Engine {
	case "schedulerd":
		return l.engine(filepath.Join(dir, "store"))
	case "bare Pebble":
		db, err := bare.Open(dir, barePebble())
		if err != nil {
			return nil, err
		}
		defer db.Close()
		return l.floor(func(first, n int) error {
			batch := db.NewBatch()
			defer batch.Close()
			var state [stateBytes]byte
			var run [runBytes]byte
			for i := first; i < first+n; i++ {
				flow := binary.BigEndian.AppendUint64([]byte("state/"), uint64(i*7919%l.Flows))
				kept := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64([]byte("kept/"), uint64(i*7919%l.Flows)), uint64(i))
				if err := errors.Join(batch.Set(flow, state[:], nil), batch.Set(flow, state[:], nil), batch.Set(kept, run[:], nil)); err != nil {
					return err
				}
			}
			return batch.Commit(bare.Sync)
		})
	case "append and fdatasync":
		f, err := os.Create(filepath.Join(dir, "log"))
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return l.floor(func(_, n int) error {
			if _, err := f.Write(make([]byte, n*(2*stateBytes+runBytes))); err != nil {
				return err
			}
			return unix.Fdatasync(int(f.Fd()))
		})
	}
	return nil, fmt.Errorf("there is no engine %q", l.Engine)
})

// barePebble are the engine's options that matter to speed, as schedulerd sets them.
func barePebble() *bare.Options {
	o := &bare.Options{
		MemTableSize: pebble.DefaultMemtableBytes, MemTableStopWritesThreshold: 4, LBaseMaxBytes: 256 << 20, L0StopWritesThreshold: 64,
		CacheSize: pebble.DefaultCacheBytes, FormatMajorVersion: bare.FormatNewest, Logger: silent{},
	}
	o.ApplyCompressionSettings(func() bare.DBCompressionSettings { return bare.DBCompressionNone })
	return o
}

type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

// engine runs the firings.
func (l durableLoad) engine(dir string) (measure.Sample, error) {
	s, err := pebble.Open(pebble.Options{Dir: dir})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	e := newOurs(s)
	var late measure.Latencies
	load := dueLoad{Flows: l.Flows, Period: time.Duration(l.Flows) * time.Second / time.Duration(l.Rate)}
	lead := time.Second + time.Duration(l.Flows)*10*time.Microsecond // the start writes all definitions
	for n := range l.Flows {
		due := load.when(n)
		due.phase += lead
		if err := e.add(n, due, func(fire time.Time) { late.Add(time.Since(fire)) }); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	if err := e.start(); err != nil {
		return nil, err
	}
	defer e.stop()
	time.Sleep(time.Until(began.Add(lead + time.Second)))
	late.Reset()
	before := measure.Used()
	time.Sleep(l.For)
	used, elapsed := measure.Used().Since(before)
	return l.sample(&late, used, elapsed), nil
}

func (l durableLoad) sample(late *measure.Latencies, used measure.Usage, elapsed time.Duration) measure.Sample {
	fired := float64(late.Count())
	s := measure.Sample{"rate": fired / elapsed.Seconds(), "delivered": fired / elapsed.Seconds() / float64(l.Rate), "cores": used.CPU.Seconds() / elapsed.Seconds()}
	late.Milliseconds(s)
	if fired > 0 {
		used.PerOp(s, fired)
	}
	return s
}

// floor commits what is due, again and again. Lateness is from the due time to the end of the commit: in schedulerd a run starts then.
func (l durableLoad) floor(commit func(first, n int) error) (measure.Sample, error) {
	var late measure.Latencies
	before := measure.Used()
	done := 0
	for began := time.Now(); time.Since(began) < l.For; {
		n := min(int(time.Since(began).Seconds()*float64(l.Rate))-done, largestCommit)
		if n <= 0 {
			time.Sleep(time.Millisecond)
			continue
		}
		if err := commit(done, n); err != nil {
			return nil, err
		}
		for i := done; i < done+n; i++ {
			late.Add(time.Since(began) - time.Duration(i)*time.Second/time.Duration(l.Rate))
		}
		done += n
	}
	used, elapsed := measure.Used().Since(before)
	return l.sample(&late, used, elapsed), nil
}

func durable(s *session) error {
	s.result.Notes = "A firing's start, its end and the kept run, each durable before anything is told of it. Lateness is from the fire time to the task, which begins when the start " +
		"is durable. The floors write records of the same sizes in one commit for all that is due. At 60k/s more is asked than can be done."
	length := pick(s, 5*time.Second, 2*time.Second)
	for _, flows := range pick(s, []int{1000, 100_000, 1_000_000}, []int{10_000}) {
		for _, rate := range pick(s, []int{5000, 20_000, 60_000}, []int{5000, 20_000}) {
			if flows > 100_000 && rate != 20_000 {
				continue // half a minute to set up
			}
			name := fmt.Sprintf("%s flows, %s firings/s", count(flows), count(rate))
			var contenders []measure.Contender
			for _, e := range []string{"schedulerd", "bare Pebble", "append and fdatasync"} {
				contenders = append(contenders, measure.Alone(e, runDurable(durableLoad{e, flows, rate, length})))
			}
			rounds := s.rounds
			s.rounds = min(rounds, 3)
			t := s.compare(measure.Table{Title: name, Columns: []measure.Column{
				{Key: "rate", Title: "firings/s"},
				{Key: "cpu_ns", Title: "CPU µs/firing", Scale: 1e-3},
				{Key: "p50_ms", Title: "late p50 ms"},
				{Key: "p99_ms", Title: "p99 ms"},
				{Key: "max_ms", Title: "max ms"},
				{Key: "allocs", Title: "allocs"},
				{Key: "cores", Title: "cores"},
			}, Ratio: "cpu_ns"}, contenders...)
			s.rounds = rounds
			if rate == 20_000 {
				s.atLeast(name+": held", t.Value("schedulerd", "rate"), 19_900)
				s.atMost(name+": p99 lateness, ms", t.Value("schedulerd", "p99_ms"), 50)
				s.atMost(name+": CPU µs a firing", t.Value("schedulerd", "cpu_ns")/1e3, 40)
			}
		}
	}
	return nil
}
