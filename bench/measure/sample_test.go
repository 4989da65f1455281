package measure

import (
	"math"
	"testing"
	"time"
)

func TestBuckets(t *testing.T) {
	for v := uint64(0); v < 1<<20; v = v + 1 + v/97 {
		b := bucketOf(v)
		if low, next := lowerBound(b), lowerBound(b+1); v < low || v >= next {
			t.Fatalf("%d is in bucket %d, from %d to %d", v, b, low, next)
		}
	}
}

func TestQuantiles(t *testing.T) {
	var l Latencies
	if !math.IsNaN(l.Quantile(.5)) {
		t.Error("a median of nothing")
	}
	for i := range 1000 {
		l.Add(time.Duration(i+1) * time.Microsecond)
	}
	for q, want := range map[float64]float64{.5: 500e3, .99: 990e3, 1: 1000e3} {
		if got := l.Quantile(q); math.Abs(got-want)/want > 1.0/subBuckets {
			t.Errorf("quantile %v is %v, not %v", q, got, want)
		}
	}
	l.Reset()
	if l.Count() != 0 {
		t.Error("something is left")
	}
}

func TestLoopCountsAllocations(t *testing.T) {
	var keep []byte
	s := Loop(time.Millisecond, func() { keep = make([]byte, 4096) })
	if s["allocs"] < 1 || s["allocs"] > 1.5 || s["bytes"] < 4096 || len(keep) == 0 {
		t.Errorf("%v", s)
	}
}
