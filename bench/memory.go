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
	before, _ := measure.Heap()
	e := engines[l.Engine]()
	nothing := func(time.Time) {}
	for n := range l.Flows {
		due := when{phase: time.Hour, period: time.Hour}
		if l.Engine != "schedulerd" && l.Engine != "goroutine and timer" {
			due = when{cron: fmt.Sprintf("%d %d 3 * * *", n%60, n/60%60)}
		}
		if err := e.add(n, due, nothing); err != nil {
			return nil, err
		}
	}
	if err := e.start(); err != nil {
		return nil, err
	}
	time.Sleep(200 * time.Millisecond) // what the start left
	after, gc := measure.Heap()
	e.stop()
	return measure.Sample{"bytes": (after - before) / float64(l.Flows), "gc_ms": float64(gc.Microseconds()) / 1e3}, nil
})

func memory(s *session) error {
	s.result.Notes = "Heap and stacks after a full collection, by flow, all in: definition, schedule, state, the state's record in the store in memory, and the indices. " +
		"Runs that were kept come on top: see docs/performance.md."
	for _, flows := range pick(s, []int{100_000, 1_000_000}, []int{100_000}) {
		name := fmt.Sprintf("%s flows that wait", count(flows))
		var contenders []measure.Contender
		for _, e := range []string{"schedulerd", "robfig/cron", "netresearch/go-cron", "gocron", "goroutine and timer"} {
			if flows > 100_000 && (e == "gocron" || e == "goroutine and timer") {
				continue // flat in n, and slow to set up
			}
			contenders = append(contenders, measure.Alone(e, runMemory(memoryLoad{e, flows})))
		}
		t := s.compare(measure.Table{Title: name, Columns: []measure.Column{
			{Key: "bytes", Title: "bytes/flow"}, {Key: "gc_ms", Title: "full collection ms"},
		}, Ratio: "bytes"}, contenders...)
		s.goal(measure.Goal{Text: name + ": bytes a flow", Value: t.Value("schedulerd", "bytes"), Bound: 512, Exact: true})
		s.atMost(name+": full collection, ms", t.Value("schedulerd", "gc_ms"), 100)
	}
	return nil
}
