package measure

import (
	"math"
	"math/bits"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// Sample is what one program measured in one round, by name of the column.
type Sample map[string]float64

// Usage is what the process has used so far.
type Usage struct {
	Wall     time.Time
	CPU      time.Duration // user and system, of all threads
	Mallocs  uint64
	Bytes    uint64 // allocated, freed since or not
	Switches int64  // times a thread went to sleep of its own accord
}

// Used reads the counters. It stops the world for some microseconds.
func Used() Usage {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	u := syscallUsage(syscall.RUSAGE_SELF)
	u.Wall, u.Mallocs, u.Bytes = time.Now(), memory.Mallocs, memory.TotalAlloc
	return u
}

func syscallUsage(who int) Usage {
	var r syscall.Rusage
	_ = syscall.Getrusage(who, &r) // cannot fail with these arguments
	return Usage{CPU: time.Duration(r.Utime.Nano() + r.Stime.Nano()), Switches: r.Nvcsw}
}

// Since is what was used from before on; Wall is then the time since, as a time after the zero one.
func (u Usage) Since(before Usage) (used Usage, elapsed time.Duration) {
	return Usage{
		CPU: u.CPU - before.CPU, Mallocs: u.Mallocs - before.Mallocs, Bytes: u.Bytes - before.Bytes, Switches: u.Switches - before.Switches,
	}, u.Wall.Sub(before.Wall)
}

// PerOp adds to s what an operation cost: "cpu_ns", "allocs" and "bytes".
func (u Usage) PerOp(s Sample, ops float64) {
	s["cpu_ns"] = float64(u.CPU.Nanoseconds()) / ops
	s["allocs"] = float64(u.Mallocs) / ops
	s["bytes"] = float64(u.Bytes) / ops
}

// Loop measures what f costs, over about the given time: "cpu_ns", "allocs" and "bytes" an operation.
func Loop(atLeast time.Duration, f func()) Sample {
	f()
	n := 1
	for {
		before := Used()
		for range n {
			f()
		}
		used, elapsed := Used().Since(before)
		if elapsed >= atLeast {
			s := Sample{}
			used.PerOp(s, float64(n))
			return s
		}
		grow := 100.0
		if elapsed > 0 {
			grow = 1.2 * float64(atLeast) / float64(elapsed)
		}
		n = int(float64(n)*min(grow, 100)) + 1
	}
}

// subBuckets is how many buckets a power of two has: quantiles are exact to 3 %.
const subBuckets = 32

// Latencies counts durations in buckets that grow. It is safe for concurrent use, and Add is a few nanoseconds.
type Latencies struct {
	buckets [64 * subBuckets]atomic.Uint64
	most    atomic.Int64
}

// Add counts one; a negative one counts as none.
func (l *Latencies) Add(d time.Duration) {
	d = max(d, 0)
	l.buckets[bucketOf(uint64(d))].Add(1)
	for {
		most := l.most.Load()
		if int64(d) <= most || l.most.CompareAndSwap(most, int64(d)) {
			return
		}
	}
}

func bucketOf(v uint64) int {
	if v < subBuckets {
		return int(v)
	}
	shift := bits.Len64(v) - bits.Len64(subBuckets-1) - 1
	return shift*subBuckets + int(v>>shift)
}

// lowerBound is the least value of a bucket.
func lowerBound(bucket int) uint64 {
	if bucket < 2*subBuckets {
		return uint64(bucket)
	}
	shift := bucket/subBuckets - 1
	return uint64(bucket-shift*subBuckets) << shift
}

// Count is how many were counted.
func (l *Latencies) Count() (n uint64) {
	for i := range l.buckets {
		n += l.buckets[i].Load()
	}
	return n
}

// Quantile is the duration that a share q of those counted did not exceed; NaN if there are none.
func (l *Latencies) Quantile(q float64) float64 {
	rank := uint64(math.Ceil(q * float64(l.Count())))
	if rank == 0 {
		return math.NaN()
	}
	var seen uint64
	for i := range l.buckets {
		if seen += l.buckets[i].Load(); seen >= rank {
			return float64(lowerBound(i+1) - 1)
		}
	}
	return float64(l.most.Load())
}

// Reset forgets all.
func (l *Latencies) Reset() {
	for i := range l.buckets {
		l.buckets[i].Store(0)
	}
	l.most.Store(0)
}

// Milliseconds adds to s "p50_ms", "p99_ms" and "max_ms", if there were any.
func (l *Latencies) Milliseconds(s Sample) {
	if l.Count() == 0 {
		return
	}
	s["p50_ms"], s["p99_ms"], s["max_ms"] = l.Quantile(.5)/1e6, l.Quantile(.99)/1e6, float64(l.most.Load())/1e6
}

// Heap is what lives on the heap and on stacks after a full collection, and how long that took.
func Heap() (bytes float64, gc time.Duration) {
	runtime.GC()
	began := time.Now()
	runtime.GC()
	gc = time.Since(began)
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return float64(memory.HeapAlloc + memory.StackInuse), gc
}
