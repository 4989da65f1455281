package simtest

import (
	"flag"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "simulate this seed only")
	seedsFlag = flag.Uint64("seeds", 120, "simulate so many seeds: more than two thousand crashes and a hundred years")
	stepsFlag = flag.Int("steps", 150, "steps of each simulation")
)

// budgetVariable is how long the simulation goes on, such as 10m. It then begins at a random seed.
const budgetVariable = "SCHEDULERD_SIMULATE"

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

func TestSimulation(t *testing.T) {
	if *seedFlag != 0 {
		synctest.Test(t, func(t *testing.T) { t.Log(Simulate(t, *seedFlag, *stepsFlag)) })
		return
	}
	first := uint64(1)
	more := func(seed uint64) bool { return seed < first+*seedsFlag }
	if set := os.Getenv(budgetVariable); set != "" {
		budget, err := time.ParseDuration(set)
		if err != nil {
			t.Fatalf("%s: %v", budgetVariable, err)
		}
		first = 1 + rand.Uint64N(1<<32)
		end := time.Now().Add(budget)
		more = func(uint64) bool { return time.Now().Before(end) }
	}
	t.Logf("seeds from %d on", first)
	var next atomic.Uint64
	next.Store(first)
	var mu sync.Mutex
	var total Stats
	t.Run("seeds", func(t *testing.T) {
		for worker := range 2 {
			t.Run(strconv.Itoa(worker), func(t *testing.T) {
				t.Parallel()
				for !t.Failed() {
					seed := next.Add(1) - 1
					if !more(seed) {
						return
					}
					synctest.Test(t, func(t *testing.T) {
						stats := Simulate(t, seed, *stepsFlag)
						mu.Lock()
						defer mu.Unlock()
						total.Add(stats)
					})
				}
			})
		}
	})
	t.Log(total)
}
