package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/schedulerd/schedulerd/bench/measure"
	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/store"
	"github.com/schedulerd/schedulerd/internal/store/pebble"
)

// kept is a data directory with flows.
type kept struct {
	Dir   string
	Flows int
}

// fill makes one, and gives each flow's state a change or two.
var fill = measure.Program("fill", func(k kept, _ *measure.Talk) (measure.Sample, error) {
	s, err := daemon(k.Dir)
	if err != nil {
		return nil, err
	}
	if err := apply(s.Addr().String(), k.Flows, daily, flowID); err != nil {
		return nil, err
	}
	return measure.Sample{}, s.Stop(context.Background())
})

// begin measures from nothing to a daemon that answers.
var begin = measure.Program("begin", func(k kept, _ *measure.Talk) (measure.Sample, error) {
	before := measure.Used()
	s, err := daemon(k.Dir)
	if err != nil {
		return nil, err
	}
	used, elapsed := measure.Used().Since(before)
	client, conn, err := dial(s.Addr().String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := client.Status(context.Background(), &pb.StatusRequest{FlowId: flowID(k.Flows - 1)}); err != nil {
		return nil, err
	}
	return measure.Sample{"ms": float64(elapsed.Microseconds()) / 1e3, "cpu_ms": float64(used.CPU.Microseconds()) / 1e3}, s.Stop(context.Background())
})

// scan measures reading all that the store holds.
var scan = measure.Program("scan", func(k kept, _ *measure.Talk) (measure.Sample, error) {
	before := measure.Used()
	s, err := pebble.Open(pebble.Options{Dir: filepath.Join(k.Dir, "store")})
	if err != nil {
		return nil, err
	}
	records := 0
	for shard := range store.Shard(64) {
		if err := s.Scan(context.Background(), shard, nil, false, func(_, _ []byte) bool { records++; return true }); err != nil {
			return nil, err
		}
	}
	used, elapsed := measure.Used().Since(before)
	if records < 2*k.Flows {
		return nil, fmt.Errorf("%d records of %d flows", records, k.Flows)
	}
	return measure.Sample{"ms": float64(elapsed.Microseconds()) / 1e3, "cpu_ms": float64(used.CPU.Microseconds()) / 1e3}, s.Close()
})

// work changes the states of some flows until it is killed.
var work = measure.Program("work", func(k kept, talk *measure.Talk) (measure.Sample, error) {
	s, err := daemon(k.Dir)
	if err != nil {
		return nil, err
	}
	client, conn, err := dial(s.Addr().String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	for n := 0; ; n++ {
		id := flowID(n * 7919 % k.Flows)
		if _, err := client.Trigger(context.Background(), &pb.TriggerRequest{FlowId: id}); err != nil && n < 1000 {
			return nil, err
		}
		if n == 1000 {
			if err := talk.Say("busy"); err != nil {
				return nil, err
			}
		}
	}
})

// killed leaves a data directory as kill -9 does.
func killed(k kept) error {
	p, err := work(k).Start()
	if err != nil {
		return err
	}
	line, err := p.Hear()
	if err == nil && line != "busy" {
		err = errors.New(line)
	}
	return errors.Join(err, p.Kill())
}

func restart(s *session) error {
	s.result.Notes = "From the start of the process's own work to an API that answers and flows that are dispatched, with flows that came over the API. The floor opens the store and reads " +
		"every record. After kill −9, a log of recent changes is read again by both."
	for _, flows := range pick(s, []int{100_000, 1_000_000}, []int{20_000}) {
		dir, err := os.MkdirTemp("", "bench")
		if err != nil {
			return err
		}
		k := kept{dir, flows}
		_, err = fill(k).Within(15 * time.Minute).Run()
		if err == nil {
			s.restarts(k)
		}
		if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) restarts(k kept) {
	columns := []measure.Column{{Key: "ms", Title: "ms"}, {Key: "cpu_ms", Title: "CPU ms"}}
	rounds := s.rounds
	s.rounds = min(rounds, pick(s, 3, 1))
	defer func() { s.rounds = rounds }()
	for _, how := range []string{"after a stop", "after kill −9"} {
		prepared := func(c measure.Child) func() (measure.Sample, error) {
			return func() (measure.Sample, error) {
				if how != "after a stop" {
					if err := killed(k); err != nil {
						return nil, err
					}
				}
				return c.Within(10 * time.Minute).Run()
			}
		}
		name := fmt.Sprintf("%s flows, %s", count(k.Flows), how)
		t := s.compare(measure.Table{Title: name, Columns: columns, Ratio: "ms"},
			measure.Contender{Name: "scan", Run: prepared(scan(k))}, measure.Contender{Name: "schedulerd", Run: prepared(begin(k))})
		s.atMost(name+": ready ÷ scan", t.Value("schedulerd", "ms")/t.Value("scan", "ms"), 1.5)
	}
}
