package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/schedulerd/schedulerd/bench/measure"
	"github.com/schedulerd/schedulerd/internal/core"
)

// dueLoad is jobs that are due again and again.
type dueLoad struct {
	Engine string
	Flows  int
	Period time.Duration // of each
	Whole  bool          // due on whole seconds, else spread evenly
	For    time.Duration
}

func (l dueLoad) when(n int) when {
	if l.Whole {
		seconds := int(l.Period / time.Second)
		return when{cron: fmt.Sprintf("%d/%d * * * * *", n%seconds, seconds)}
	}
	return when{phase: time.Duration(n) * l.Period / time.Duration(l.Flows), period: l.Period}
}

func (l dueLoad) perSecond() float64 { return float64(l.Flows) / l.Period.Seconds() }

var runDue = measure.Program("due", func(l dueLoad, _ *measure.Talk) (measure.Sample, error) {
	e := engines[l.Engine]()
	var late measure.Latencies
	job := func(fire time.Time) { late.Add(time.Since(fire)) }
	for n := range l.Flows {
		if err := e.add(n, l.when(n), job); err != nil {
			return nil, err
		}
	}
	if err := e.start(); err != nil {
		return nil, err
	}
	defer e.stop()
	// Begin and end between two whole seconds, so that each instant is wholly in or out.
	begin := time.Now().Add(1500 * time.Millisecond).Truncate(time.Second).Add(700 * time.Millisecond)
	time.Sleep(time.Until(begin))
	late.Reset()
	before := measure.Used()
	time.Sleep(time.Until(begin.Add(l.For)))
	used, elapsed := measure.Used().Since(before)
	fired := float64(late.Count())
	s := measure.Sample{"delivered": fired / (l.perSecond() * elapsed.Seconds()), "cores": used.CPU.Seconds() / elapsed.Seconds()}
	late.Milliseconds(s)
	if fired > 0 {
		used.PerOp(s, fired)
	}
	return s, nil
})

// changeLoad is jobs added and removed while others wait.
type changeLoad struct {
	Engine  string
	Flows   int
	Changes int
}

var runChanges = measure.Program("changes", func(l changeLoad, _ *measure.Talk) (measure.Sample, error) {
	e := engines[l.Engine]()
	idle := when{cron: "59 59 23 1 1 *"} // never meanwhile
	if l.Engine == "schedulerd" {
		idle = when{phase: time.Hour, period: time.Hour}
	}
	nothing := func(time.Time) {}
	for n := range l.Flows {
		if err := e.add(n, idle, nothing); err != nil {
			return nil, err
		}
	}
	if err := e.start(); err != nil {
		return nil, err
	}
	defer e.stop()
	time.Sleep(200 * time.Millisecond)
	limit := time.Now().Add(5 * time.Second) // for those to which each one is expensive
	before := measure.Used()
	added := 0
	if o, ok := e.(*ours); ok {
		if err := o.addAll(l.Flows, l.Changes, idle); err != nil {
			return nil, err
		}
		added = l.Changes
	} else {
		for ; added < l.Changes && time.Now().Before(limit); added++ {
			if err := e.add(l.Flows+added, idle, nothing); err != nil {
				return nil, err
			}
		}
	}
	used, _ := measure.Used().Since(before)
	s := measure.Sample{"add_ns": float64(used.CPU.Nanoseconds()) / float64(added)}

	limit = time.Now().Add(5 * time.Second)
	before = measure.Used()
	removed := 0
	if o, ok := e.(*ours); ok {
		if err := o.removeAll(l.Flows, added); err != nil {
			return nil, err
		}
		removed = added
	} else {
		for ; removed < added && time.Now().Before(limit); removed++ {
			if err := e.remove(l.Flows + removed); err != nil {
				return nil, err
			}
		}
	}
	used, _ = measure.Used().Since(before)
	s["remove_ns"] = float64(used.CPU.Nanoseconds()) / float64(removed)
	return s, nil
})

// addAll adds flows the way a file with them is read again: in one call for each thousand.
func (e *ours) addAll(from, count int, due when) error {
	for done := 0; done < count; done += 1000 {
		var flows []*core.Flow
		for n := done; n < min(done+1000, count); n++ {
			f, err := e.flow(from+n, due, func(time.Time) {})
			if err != nil {
				return err
			}
			flows = append(flows, f)
		}
		if _, err := e.running.Apply(context.Background(), core.ApplyRequest{Flows: flows, Origin: core.FromAPI}); err != nil {
			return err
		}
	}
	return nil
}

// removeAll removes flows one by one, as many clients would.
func (e *ours) removeAll(from, count int) error {
	const clients = 64
	faults := make([]error, clients)
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for n := c; n < count && faults[c] == nil; n += clients {
				faults[c] = e.remove(from + n)
			}
		})
	}
	all.Wait()
	for _, err := range faults {
		if err != nil {
			return err
		}
	}
	return nil
}

var dueColumns = []measure.Column{
	{Key: "cpu_ns", Title: "CPU µs/firing", Scale: 1e-3},
	{Key: "p50_ms", Title: "late p50 ms"},
	{Key: "p99_ms", Title: "p99 ms"},
	{Key: "max_ms", Title: "max ms"},
	{Key: "delivered", Title: "delivered %", Scale: 100},
	{Key: "allocs", Title: "allocs"},
	{Key: "cores", Title: "cores"},
}

func due(s *session) error {
	s.result.Notes = "Each firing of schedulerd is a whole one: a state machine of one task, its start and end committed to the store in memory, published, " +
		"and the run kept. The peers call a function. *heap and workers* is as little as a scheduler can be. Lateness is from the fire time to the task; " +
		"that of peers is from the last whole second and so never shows as more than one."
	length := pick(s, 3*time.Second, 2*time.Second)
	peers := []string{"robfig/cron", "netresearch/go-cron", "gocron", "go-quartz"}

	for _, l := range []dueLoad{
		{Flows: 20_000, Period: time.Second},
		{Flows: 100_000, Period: time.Second},
		{Flows: 100_000, Period: 5 * time.Second},
		{Flows: 1_000_000, Period: 50 * time.Second},
		{Flows: 1_000_000, Period: 10 * time.Second},
	} {
		if s.quick && (l.Flows > 100_000 || l.Period > time.Second) {
			continue
		}
		l.For = length
		name := fmt.Sprintf("%s flows spread over %v, %s firings/s", count(l.Flows), l.Period, count(int(l.perSecond())))
		t := s.compare(measure.Table{Title: name, Columns: dueColumns, Ratio: "cpu_ns"}, dueContenders(l, "schedulerd", "heap and workers", "heap and goroutine")...)
		bound, late := 8.0, 3.0
		if l.perSecond() == 100_000 {
			bound, late = 4, 10
		}
		s.atMost(name+": CPU µs a firing", t.Value("schedulerd", "cpu_ns")/1e3, bound)
		s.atMost(name+": p99 lateness, ms", t.Value("schedulerd", "p99_ms"), late)
		s.atLeast(name+": delivered, %", 100*t.Value("schedulerd", "delivered"), 99.9)
	}
	for _, l := range []dueLoad{{Flows: 10_000, Period: time.Second}, {Flows: 100_000, Period: 10 * time.Second}, {Flows: 100_000, Period: time.Second}} {
		if s.quick && l.Flows > 10_000 {
			continue
		}
		l.Whole, l.For = true, length
		name := fmt.Sprintf("%s entries each %v, on whole seconds, %s firings/s", count(l.Flows), l.Period, count(int(l.perSecond())))
		contenders := append([]string{"schedulerd", "heap and workers"}, peers...)
		if l.Flows > 10_000 {
			contenders = contenders[:len(contenders)-1] // go-quartz takes seconds to add each thousand more, and fires none of them
		}
		t := s.compare(measure.Table{Title: name, Columns: dueColumns, Ratio: "cpu_ns"}, dueContenders(l, contenders...)...)
		ours := t.Value("schedulerd", "cpu_ns")
		if l.Flows == 100_000 {
			s.atMost(name+": CPU ÷ robfig's", ours/t.Value("robfig/cron", "cpu_ns"), 1)
			s.atMost(name+": CPU ÷ gocron's", ours/t.Value("gocron", "cpu_ns"), 1.0/10)
		}
		for _, peer := range peers {
			s.atMost(name+": p99 lateness ÷ that of "+peer, t.Value("schedulerd", "p99_ms")/t.Value(peer, "p99_ms"), 1.0/8)
		}
		s.atLeast(name+": delivered, %", 100*t.Value("schedulerd", "delivered"), 99.9)
	}
	for _, flows := range pick(s, []int{10_000, 100_000, 1_000_000}, []int{10_000}) {
		name := fmt.Sprintf("Adding and removing while %s wait", count(flows))
		var contenders []measure.Contender
		for _, e := range append([]string{"schedulerd"}, peers...) {
			if e == "go-quartz" || flows > 100_000 && e != "schedulerd" {
				continue // minutes to set up
			}
			contenders = append(contenders, measure.Alone(e, runChanges(changeLoad{e, flows, 5000})))
		}
		t := s.compare(measure.Table{Title: name, Columns: []measure.Column{
			{Key: "add_ns", Title: "CPU µs an addition", Scale: 1e-3}, {Key: "remove_ns", Title: "CPU µs a removal", Scale: 1e-3},
		}, Ratio: "add_ns"}, contenders...)
		s.atMost(name+": µs an addition", t.Value("schedulerd", "add_ns")/1e3, 5)
		s.atMost(name+": µs a removal", t.Value("schedulerd", "remove_ns")/1e3, 2)
	}
	return nil
}

func dueContenders(l dueLoad, names ...string) (out []measure.Contender) {
	for _, name := range names {
		l.Engine = name
		out = append(out, measure.Alone(name, runDue(l)))
	}
	return out
}

// count is n for people: 100k, 1M.
func count(n int) string {
	switch {
	case n >= 1_000_000 && n%1_000_000 == 0:
		return fmt.Sprintf("%dM", n/1_000_000)
	case n >= 1000 && n%1000 == 0:
		return fmt.Sprintf("%dk", n/1000)
	}
	return fmt.Sprint(n)
}
