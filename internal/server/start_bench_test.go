package server

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/store"
	"github.com/schedulerd/schedulerd/internal/definition"
	"github.com/schedulerd/schedulerd/internal/store/pebble"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

// BenchmarkStart measures how long a daemon takes to be ready with flows that came over the API, and what it keeps in memory of each, next
// to a bare reading of its store. FLOWS sets their numbers: FLOWS=100000,1000000 go test -bench=Start -benchtime=1x.
func BenchmarkStart(b *testing.B) {
	sizes := os.Getenv("FLOWS")
	if sizes == "" {
		sizes = "10000"
	}
	for _, text := range strings.Split(sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(text, func(b *testing.B) {
			dir := b.TempDir()
			fillDataDir(b, dir, n)
			b.Run("scan", func(b *testing.B) {
				for b.Loop() {
					scanDataDir(b, dir)
				}
				b.ReportMetric(float64(diskBytes(b, dir))/float64(n), "diskB/flow")
			})
			b.Run("clean", func(b *testing.B) { benchmarkStart(b, dir, n, nil) })
			b.Run("killed", func(b *testing.B) { benchmarkStart(b, dir, n, func() { killedDaemon(b, dir) }) })
		})
	}
}

func benchOptions(dir string) Options {
	o := Defaults()
	o.Version, o.Listen, o.AdminListen, o.DataDir = "bench", "127.0.0.1:0", "", dir
	return o
}

func benchmarkStart(b *testing.B, dir string, n int, before func()) {
	for b.Loop() {
		b.StopTimer()
		if before != nil {
			before()
		}
		held := heap()
		b.StartTimer()
		s, err := Start(b.Context(), benchOptions(dir))
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if flows := s.running.Info().Flows; flows != n {
			b.Fatalf("%d flows are there", flows)
		}
		b.ReportMetric(float64(heap()-held)/float64(n), "B/flow")
		if err := s.Stop(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// fillDataDir makes a data directory with flows of four shapes that differ in id, params and a label, due once in the next hour.
func fillDataDir(b *testing.B, dir string, n int) {
	b.Helper()
	disk, err := pebble.Open(pebble.Options{Dir: filepath.Join(dir, "store")})
	if err != nil {
		b.Fatal(err)
	}
	compiler := definition.New(benchOptions(dir).kinds("", nil, nil))
	r, err := core.New(core.Config{Store: disk, Describe: definition.Describe, Basis: ""}).Start(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	const step = 10_000
	for first := 0; first < n; first += step {
		var flows []*core.Flow
		for i := first; i < min(first+step, n); i++ {
			f, faults := compiler.CompileFlow(benchFlow(i), definition.Options{Now: time.Now(), Origin: core.FromAPI})
			if err := faults.Err(); err != nil {
				b.Fatal(err)
			}
			flows = append(flows, f)
		}
		if _, err := r.Apply(b.Context(), core.ApplyRequest{Flows: flows, Origin: core.FromAPI}); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := r.Stop(b.Context(), 0); err != nil {
		b.Fatal(err)
	}
	if err := disk.Close(); err != nil {
		b.Fatal(err)
	}
}

func benchFlow(i int) *pb.Flow {
	message := []string{"hello ${ params.customer }", "bye ${ params.customer }", "${ params.customer } again", "report of ${ params.customer }"}[i%4]
	return &pb.Flow{
		Id:       fmt.Sprintf("customer-%07d-report", i),
		Labels:   map[string]string{"customer": strconv.Itoa(i)},
		Schedule: &pb.Schedule{Kind: &pb.Schedule_Every{Every: &pb.EverySchedule{Interval: durationpb.New(24 * time.Hour), InitialDelay: durationpb.New(time.Hour)}}},
		Params:   map[string]*structpb.Value{"customer": structpb.NewStringValue(fmt.Sprintf("customer %d", i))},
		Work:     &pb.Flow_Task{Task: &pb.Task{Kind: &pb.Task_Log{Log: &pb.LogTask{Message: message}}}},
	}
}

func scanDataDir(b *testing.B, dir string) {
	disk, err := pebble.Open(pebble.Options{Dir: filepath.Join(dir, "store"), ReadOnly: true})
	if err != nil {
		b.Fatal(err)
	}
	for shard := range store.Shard(core.Shards) {
		if err := disk.Scan(b.Context(), shard, nil, false, func(_, _ []byte) bool { return true }); err != nil {
			b.Fatal(err)
		}
	}
	if err := disk.Close(); err != nil {
		b.Fatal(err)
	}
}

// diskBytes is the size of all files below dir.
func diskBytes(b *testing.B, dir string) (size int64) {
	b.Helper()
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		size += info.Size()
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return size
}

// killVariable makes the test binary a daemon that kills itself: see TestMain.
const killVariable = "SCHEDULERD_TEST_KILLED"

// killedDaemon runs a daemon on dir in another process, until it is killed with runs on their way.
func killedDaemon(b *testing.B, dir string) {
	b.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), killVariable+"="+dir)
	out, err := command.CombinedOutput()
	if command.ProcessState == nil || command.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		b.Fatalf("%v\n%s", err, out)
	}
}

// runUntilKilled runs a daemon on dir, starts some runs, and kills the process.
func runUntilKilled(dir string) error {
	s, err := Start(context.Background(), benchOptions(dir))
	if err != nil {
		return err
	}
	for i := range 100 {
		if _, _, err := s.running.Trigger(context.Background(), core.TriggerRequest{FlowID: benchFlow(i).Id}); err != nil {
			return err
		}
	}
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}
