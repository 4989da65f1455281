package core_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/schedulerd/schedulerd/internal/core"
)

// maxFiringAllocations is what a whole firing may allocate, from the fire time to the kept run, of a state machine with one task that
// does nothing. It is 16 without the race detector; the rest is for what that and the runtime add.
const maxFiringAllocations = 20

func TestFiringAllocations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const flows, seconds = 500, 20
		var all []*core.Flow
		for i := range flows {
			all = append(all, &core.Flow{ID: fmt.Sprintf("f%03d", i), Schedule: every(t, time.Second), Workflow: task(noop)})
		}
		r := start(t, core.Config{}, all...)
		sleep(2500 * time.Millisecond) // arrays and workers have grown
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		runs := status(t, r, "f000").RunCount
		sleep(seconds * time.Second)
		runtime.ReadMemStats(&after)
		if got := status(t, r, "f000").RunCount - runs; got != seconds {
			t.Fatalf("%d runs in %d seconds", got, seconds)
		}
		if each := float64(after.Mallocs-before.Mallocs) / (flows * seconds); each > maxFiringAllocations {
			t.Errorf("%.1f allocations a firing, at most %d", each, maxFiringAllocations)
		}
	})
}
