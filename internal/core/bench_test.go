package core_test

import (
	"context"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/schedule"
	"github.com/schedulerd/schedulerd/internal/core/store"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

func noop(context.Context, *workflow.Invocation) (workflow.Result, error) {
	return workflow.Result{}, nil
}

// BenchmarkFirings measures whole firings, from fire time to the kept run, of flows spread over their interval, in memory.
func BenchmarkFirings(b *testing.B) {
	for _, c := range []struct {
		flows    int
		interval time.Duration
	}{{20_000, time.Second}, {100_000, time.Second}} {
		b.Run(fmt.Sprintf("%d-per-second", c.flows), func(b *testing.B) {
			s := core.New(core.Config{Store: store.NewMemory(), MaxConcurrentRuns: 1 << 20})
			w := task(noop)
			for i := range c.flows {
				id := fmt.Sprintf("flow-%08d", i)
				sched, err := schedule.Compile(schedule.Spec{Every: &schedule.Every{Interval: c.interval, InitialDelay: time.Duration(i) * c.interval / time.Duration(c.flows)}}, schedule.Options{FlowID: id, Now: time.Now()})
				if err != nil {
					b.Fatal(err)
				}
				if err := s.Add(&core.Flow{ID: id, Schedule: sched, Workflow: w, Backoff: flow.DefaultPolicy}); err != nil {
					b.Fatal(err)
				}
			}
			r, err := s.Start(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			defer r.Stop(context.Background(), 0)
			runtime.GC()
			time.Sleep(time.Second)
			count := func() (runs uint64) {
				infos, _, _ := r.List(core.ListOptions{Limit: c.flows})
				for _, info := range infos {
					runs += info.RunCount
				}
				return runs
			}
			var memory, after runtime.MemStats
			runtime.ReadMemStats(&memory)
			before, cpu := count(), cpuTime()
			b.ResetTimer()
			time.Sleep(3 * time.Second)
			b.StopTimer()
			used := cpuTime() - cpu
			runtime.ReadMemStats(&after)
			runs := count() - before
			b.ReportMetric(float64(after.Mallocs-memory.Mallocs)/float64(runs), "allocs/firing")
			b.ReportMetric(float64(after.TotalAlloc-memory.TotalAlloc)/float64(runs), "B/firing")
			b.ReportMetric(float64(used.Nanoseconds())/float64(runs), "cpu-ns/firing")
			b.ReportMetric(float64(runs)/3/float64(c.flows)*100, "%delivered")
		})
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
