package pebble

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/schedulerd/schedulerd/internal/core/store"
)

// A firing writes three records: the flow's state at the start of the run and at its end, and the kept run in the flow's ring.
const (
	stateSize  = 200
	runSize    = 150
	ringSize   = 20
	loadShards = 64
)

// load is flows that fire in random order.
type load struct {
	rng     *rand.Rand
	flows   int
	runs    []uint8 // place in each ring
	changes []store.Change
	state   []byte
	run     []byte
}

func newLoad(flows int) *load {
	l := &load{rng: rand.New(rand.NewPCG(1, 1)), flows: flows, runs: make([]uint8, flows), state: make([]byte, stateSize), run: make([]byte, runSize)}
	for _, value := range [][]byte{l.state, l.run} {
		for i := range value {
			value[i] = byte(l.rng.Uint32())
		}
	}
	return l
}

func (l *load) stateOf(flow int) store.Change {
	return store.Change{Shard: store.Shard(flow % loadShards), Key: fmt.Appendf(nil, "s/flow-%08d", flow), Value: l.state}
}

// fire adds the records of some firings to the changes.
func (l *load) fire(firings int) []store.Change {
	l.changes = l.changes[:0]
	for range firings {
		flow := l.rng.IntN(l.flows)
		l.runs[flow] = (l.runs[flow] + 1) % ringSize
		binary.BigEndian.PutUint64(l.state, l.rng.Uint64())
		state := l.stateOf(flow)
		run := store.Change{Shard: state.Shard, Key: fmt.Appendf(nil, "r/flow-%08d/%02d", flow, l.runs[flow]), Value: l.run}
		l.changes = append(l.changes, state, run, state)
	}
	return l.changes
}

func bytesOf(changes []store.Change) int {
	n := 0
	for _, c := range changes {
		n += len(c.Key) + len(c.Value)
	}
	return n
}

// filled opens a store with flows in it.
func filled(b *testing.B, dir string, l *load) (*Store, *numbered) {
	b.Helper()
	s := mustOpen(b, Options{Dir: dir})
	session, err := s.Join(ctx)
	if err != nil {
		b.Fatal(err)
	}
	shards := make([]store.Shard, loadShards)
	for i := range shards {
		shards[i] = store.Shard(i)
	}
	if _, err := session.Acquire(ctx, shards); err != nil {
		b.Fatal(err)
	}
	seq := uint64(0)
	for flow := 0; flow < l.flows; {
		var changes []store.Change
		for ; flow < l.flows && len(changes) < 10_000; flow++ {
			changes = append(changes, l.stateOf(flow))
		}
		seq++
		if _, err := session.Commit(ctx, store.Group{Seq: seq, Changes: changes}); err != nil {
			b.Fatal(err)
		}
	}
	return s, &numbered{session, seq}
}

// numbered is a session that numbers groups by itself.
type numbered struct {
	store.Session
	seq uint64
}

func (n *numbered) commit(b *testing.B, changes []store.Change) {
	n.seq++
	if _, err := n.Commit(ctx, store.Group{Seq: n.seq, Changes: changes}); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkCommit commits groups as fast as it can, each next to the same bytes appended to a file and synced: the floor of this disk.
func BenchmarkCommit(b *testing.B) {
	const flows = 100_000
	for _, firings := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("firings=%d/floor", firings), func(b *testing.B) {
			l := newLoad(flows)
			file, err := os.Create(filepath.Join(b.TempDir(), "floor"))
			if err != nil {
				b.Fatal(err)
			}
			defer file.Close()
			buffer := make([]byte, bytesOf(l.fire(firings)))
			for b.Loop() {
				if _, err := file.Write(buffer); err != nil {
					b.Fatal(err)
				}
				if err := unix.Fdatasync(int(file.Fd())); err != nil {
					b.Fatal(err)
				}
			}
			report(b, firings, 0)
		})
		b.Run(fmt.Sprintf("firings=%d/store", firings), func(b *testing.B) {
			l := newLoad(flows)
			_, session := filled(b, b.TempDir(), l)
			cpu := cpuTime()
			for b.Loop() {
				session.commit(b, l.fire(firings))
			}
			report(b, firings, cpuTime()-cpu)
		})
	}
}

func report(b *testing.B, firings int, cpu time.Duration) {
	b.ReportMetric(float64(b.N*firings)/b.Elapsed().Seconds(), "firings/s")
	if cpu > 0 {
		b.ReportMetric(cpu.Seconds()*1e6/float64(b.N*firings), "cpu-µs/firing")
	}
}

// BenchmarkPaced commits what comes in at a steady rate, all that has come in while the last group was on its way, as the engine does.
func BenchmarkPaced(b *testing.B) {
	for _, test := range []struct{ flows, rate int }{{100_000, 5_000}, {100_000, 20_000}, {1_000_000, 20_000}} {
		b.Run(fmt.Sprintf("flows=%d/rate=%d", test.flows, test.rate), func(b *testing.B) {
			l := newLoad(test.flows)
			s, session := filled(b, b.TempDir(), l)
			var latencies []time.Duration
			cpu, begin := cpuTime(), time.Now()
			for done := 0; done < b.N; {
				due := min(b.N, int(time.Since(begin).Seconds()*float64(test.rate))) - done
				if due <= 0 {
					time.Sleep(200 * time.Microsecond)
					continue
				}
				due = min(due, 2000)
				changes := l.fire(due)
				start := time.Now()
				session.commit(b, changes)
				latencies = append(latencies, time.Since(start))
				done += due
			}
			elapsed := time.Since(begin)
			slices.Sort(latencies)
			b.ReportMetric(float64(b.N)/elapsed.Seconds(), "firings/s")
			b.ReportMetric((cpuTime()-cpu).Seconds()/elapsed.Seconds(), "cores")
			for _, p := range []int{50, 99, 100} {
				at := latencies[min(len(latencies)-1, len(latencies)*p/100)]
				b.ReportMetric(float64(at.Microseconds())/1000, fmt.Sprintf("p%d-ms", p))
			}
			b.ReportMetric(float64(s.Metrics().DiskBytes)/float64(test.flows), "disk-B/flow")
		})
	}
}

// BenchmarkLoad opens a store and reads all states, as the engine does when it starts.
func BenchmarkLoad(b *testing.B) {
	for _, flows := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("flows=%d", flows), func(b *testing.B) {
			dir := b.TempDir()
			s, _ := filled(b, dir, newLoad(flows))
			mustClose(b, s)
			var opening time.Duration
			for b.Loop() {
				begin := time.Now()
				s := mustOpen(b, Options{Dir: dir})
				opening += time.Since(begin)
				n := 0
				for shard := range store.Shard(loadShards) {
					err := s.Scan(ctx, shard, []byte("s/"), false, func(_, _ []byte) bool {
						n++
						return true
					})
					if err != nil {
						b.Fatal(err)
					}
				}
				if n != flows {
					b.Fatalf("%d states, want %d", n, flows)
				}
				mustClose(b, s)
			}
			b.ReportMetric(opening.Seconds()*1000/float64(b.N), "open-ms")
			b.ReportMetric(float64(b.N*flows)/b.Elapsed().Seconds(), "records/s")
			var memory runtime.MemStats
			runtime.ReadMemStats(&memory)
			b.ReportMetric(float64(memory.HeapInuse)/(1<<20), "heap-MiB")
		})
	}
}

func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
