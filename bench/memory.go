package main

import (
	"fmt"
	"time"

	"github.com/schedulerd/schedulerd/bench/measure"
)

type memoryLoad struct {
	Engine string
	Flows  int
}

var runMemory = measure.Program("memory", func(l memoryLoad, _ *measure.Talk) (measure.Sample, error) {
	if l.Engine == "schedulerd" {
		return daemonMemory(l.Flows)
	}
	before, _ := measure.Heap()
	e := engines[l.Engine]()
	nothing := func(time.Time) {}
	for n := range l.Flows {
		due := when{phase: time.Hour, period: time.Hour}
		if l.Engine != "goroutine and timer" && l.Engine != "schedulerd, in Go" {
			due = when{cron: fmt.Sprintf("%d %d 3 * * *", n%60, n/60%60)}
		}
		if err := e.add(n, due, nothing); err != nil {
			return nil, err
		}
	}
	if err := e.start(); err != nil {
		return nil, err
	}
	defer e.stop()
	return grown(before, l.Flows), nil
})

// daemonMemory is what flows take in a daemon, where they come as text.
func daemonMemory(flows int) (measure.Sample, error) {
	s, err := daemon("")
	if err != nil {
		return nil, err
	}
	// What is made once, by the first flows.
	if err := apply(s.Addr().String(), 1000, daily, func(n int) string { return fmt.Sprint("first-", n) }); err != nil {
		return nil, err
	}
	before, _ := measure.Heap()
	if err := apply(s.Addr().String(), flows, daily, flowID); err != nil {
		return nil, err
	}
	return grown(before, flows), nil
}

func grown(before float64, flows int) measure.Sample {
	time.Sleep(200 * time.Millisecond) // what the start left
	after, gc := measure.Heap()
	return measure.Sample{"bytes": (after - before) / float64(flows), "gc_ms": float64(gc.Microseconds()) / 1e3}
}

func memory(s *session) error {
	s.result.Notes = "Heap and stacks after a full collection, by flow, all in: definition, schedule, state and the indices. The flows of *schedulerd* come to a daemon " +
		"over the API, as text, and have one task; those of *schedulerd, in Go* are values of Go types that share nothing. Runs that are kept come on top: " +
		"see docs/performance.md."
	for _, flows := range pick(s, []int{100_000, 1_000_000}, []int{100_000}) {
		name := fmt.Sprintf("%s flows that wait", count(flows))
		var contenders []measure.Contender
		for _, e := range []string{"schedulerd", "schedulerd, in Go", "robfig/cron", "netresearch/go-cron", "gocron", "goroutine and timer"} {
			if flows > 100_000 && (e == "gocron" || e == "goroutine and timer") {
				continue // flat in n, and slow to set up
			}
			contenders = append(contenders, measure.Alone(e, runMemory(memoryLoad{e, flows}).Within(5*time.Minute)))
		}
		rounds := s.rounds
		s.rounds = min(rounds, pick(s, 3, 1)) // bytes are exact
		t := s.compare(measure.Table{Title: name, Columns: []measure.Column{
			{Key: "bytes", Title: "bytes/flow"}, {Key: "gc_ms", Title: "full collection ms"},
		}, Ratio: "bytes"}, contenders...)
		s.rounds = rounds
		s.goal(measure.Goal{Text: name + ": bytes a flow", Value: t.Value("schedulerd", "bytes"), Bound: 512, Exact: true})
		s.atMost(name+": full collection, ms", t.Value("schedulerd", "gc_ms"), 100)
	}
	return nil
}
