package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/schedulerd/schedulerd/bench/measure"
)

// herdLoad is jobs that are all due in one instant, once.
type herdLoad struct {
	Engine string
	Flows  int
}

var runHerd = measure.Program("herd", func(l herdLoad, _ *measure.Talk) (measure.Sample, error) {
	e := engines[l.Engine]()
	lead := time.Second + time.Duration(l.Flows)*8*time.Microsecond // for the set-up between start and the instant
	var begun atomic.Int64
	var fire, last atomic.Int64
	ended := make(chan struct{})
	job := func(at time.Time) {
		fire.Store(at.UnixNano())
		if n := begun.Add(1); n == int64(l.Flows) {
			last.Store(time.Now().UnixNano())
			close(ended)
		}
	}
	for n := range l.Flows {
		if err := e.add(n, when{phase: lead, period: time.Hour}, job); err != nil {
			return nil, err
		}
	}
	o, isOurs := e.(*ours)
	if isOurs { // one that the calls of the meantime are about
		if err := e.add(l.Flows, when{phase: time.Hour, period: time.Hour}, func(time.Time) {}); err != nil {
			return nil, err
		}
	}
	if err := e.start(); err != nil {
		return nil, err
	}
	defer e.stop()
	var calls measure.Latencies
	fault := make(chan error, 1)
	if isOurs {
		go func() { fault <- o.callUntil(ended, flowID(l.Flows), &calls) }()
	} else {
		fault <- nil
	}
	before := measure.Used()
	select {
	case <-ended:
	case <-time.After(lead + 30*time.Second):
		return nil, errors.New("they do not all run")
	}
	for isOurs && o.running.Info().Running > 0 {
		time.Sleep(100 * time.Microsecond)
	}
	all := time.Now()
	used, _ := measure.Used().Since(before)
	s := measure.Sample{"last_ms": float64(last.Load()-fire.Load()) / 1e6, "ended_ms": float64(all.UnixNano()-fire.Load()) / 1e6}
	used.PerOp(s, float64(l.Flows))
	err := <-fault
	if isOurs {
		s["call_p99_ms"], s["call_max_ms"] = calls.Quantile(.99)/1e6, calls.Quantile(1)/1e6
	}
	return s, err
})

// callUntil asks for a flow's state and changes it, again and again, every other millisecond.
func (e *ours) callUntil(done <-chan struct{}, id string, took *measure.Latencies) error {
	for {
		select {
		case <-done:
			return nil
		case <-time.After(2 * time.Millisecond):
		}
		began := time.Now()
		if _, err := e.running.Status(id); err != nil {
			return err
		}
		if _, err := e.running.Pause(context.Background(), id, ""); err != nil {
			return err
		}
		if _, err := e.running.Resume(context.Background(), id, 0, ""); err != nil {
			return err
		}
		took.Add(time.Since(began) / 3)
	}
}

func herd(s *session) error {
	s.result.Notes = "From the instant to the start of the last task, and to the end of the last run, which schedulerd has recorded then. Meanwhile a client reads " +
		"a flow's state, pauses it and resumes it, every 2 ms: *call* is the mean of the three."
	for _, flows := range pick(s, []int{100_000, 1_000_000}, []int{100_000}) {
		name := fmt.Sprintf("%s flows due in one instant", count(flows))
		var contenders []measure.Contender
		for _, e := range []string{"schedulerd", "heap and workers", "heap and goroutine"} {
			contenders = append(contenders, measure.Alone(e, runHerd(herdLoad{e, flows})))
		}
		t := s.compare(measure.Table{Title: name, Columns: []measure.Column{
			{Key: "last_ms", Title: "last starts after ms"},
			{Key: "ended_ms", Title: "all ended after ms"},
			{Key: "cpu_ns", Title: "CPU µs/firing", Scale: 1e-3},
			{Key: "call_p99_ms", Title: "call p99 ms"},
			{Key: "call_max_ms", Title: "call max ms"},
		}, Ratio: "last_ms"}, contenders...)
		s.atMost(name+": the last has started after, ms", t.Value("schedulerd", "last_ms"), float64(flows)/1000)
		s.atMost(name+": greatest mean of three calls, ms", t.Value("schedulerd", "call_max_ms"), 20)
	}
	return nil
}
