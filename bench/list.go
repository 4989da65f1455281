package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/schedulerd/schedulerd/bench/measure"
	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/store"
	"github.com/schedulerd/schedulerd/internal/service"
)

// listLoad is flows that are due all the time, and a reader beside them.
type listLoad struct {
	Reader string // "list", "encode" or none
	Flows  int
	For    time.Duration
}

// listPage is how many flows a page has.
const listPage = 1000

// listFirings is how many firings a second go on; each is two updates of a flow.
const listFirings = 10_000

var runList = measure.Program("list", func(l listLoad, _ *measure.Talk) (measure.Sample, error) {
	e := newOurs(store.NewMemory())
	var late measure.Latencies
	load := dueLoad{Flows: l.Flows, Period: time.Duration(l.Flows) * time.Second / listFirings}
	for n := range l.Flows {
		if err := e.add(n, load.when(n), func(fire time.Time) { late.Add(time.Since(fire)) }); err != nil {
			return nil, err
		}
	}
	if err := e.start(); err != nil {
		return nil, err
	}
	defer e.stop()
	api, err := service.New(service.Config{})
	if err != nil {
		return nil, err
	}
	api.Attach(service.Engine{Running: e.running})
	time.Sleep(500 * time.Millisecond)

	first, err := api.List(context.Background(), &pb.ListRequest{PageSize: listPage})
	if err != nil {
		return nil, err
	}
	var stop atomic.Bool
	time.AfterFunc(l.For, func() { stop.Store(true) })
	late.Reset()
	before := measure.Used()
	s := measure.Sample{}
	switch l.Reader {
	case "list":
		request := &pb.ListRequest{PageSize: listPage}
		err = reading(s, &stop, func() (int, error) {
			page, err := api.List(context.Background(), request)
			if err != nil {
				return 0, err
			}
			request.PageToken = page.NextPageToken // empty after the last: begin again
			_, err = proto.Marshal(page)
			return len(page.Flows), err
		})
	case "encode":
		err = reading(s, &stop, func() (int, error) {
			_, err := proto.Marshal(first)
			return len(first.Flows), err
		})
	default:
		time.Sleep(l.For)
	}
	_, elapsed := measure.Used().Since(before)
	late.Milliseconds(s)
	s["delivered"] = float64(late.Count()) / (listFirings * elapsed.Seconds())
	return s, err
})

// reading reads pages until stop, and measures the CPU of its own thread by flow.
func reading(s measure.Sample, stop *atomic.Bool, page func() (int, error)) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() time.Duration {
		var t unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // cannot fail with these arguments
		return time.Duration(t.Nano())
	}
	flows, before := 0, used()
	for !stop.Load() {
		n, err := page()
		if err != nil {
			return err
		}
		flows += n
	}
	if flows == 0 {
		return errors.New("nothing was read")
	}
	s["cpu_ns"] = float64((used() - before).Nanoseconds()) / float64(flows)
	return nil
}

func listing(s *session) error {
	s.result.Notes = fmt.Sprintf("Pages of %d flows, translated and encoded as the service does, by one reader without a pause, while %s firings a second go on, which is twice as many updates. "+
		"The floor encodes one page's messages again and again.", listPage, count(listFirings))
	for _, flows := range pick(s, []int{1000, 100_000}, []int{1000}) {
		name := fmt.Sprintf("%s flows", count(flows))
		length := pick(s, 2*time.Second, time.Second)
		t := s.compare(measure.Table{Title: name, Columns: []measure.Column{
			{Key: "cpu_ns", Title: "reader's CPU ns/flow"}, {Key: "delivered", Title: "firings delivered %", Scale: 100}, {Key: "p50_ms", Title: "late p50 ms"}, {Key: "p99_ms", Title: "p99 ms"},
		}, Ratio: "cpu_ns"},
			measure.Alone("encoding", runList(listLoad{"encode", flows, length})), measure.Alone("List", runList(listLoad{"list", flows, length})),
			measure.Alone("no reader", runList(listLoad{"", flows, length})))
		s.atMost(name+": List ÷ encoding", t.Value("List", "cpu_ns")/t.Value("encoding", "cpu_ns"), 2)
		s.atLeast(name+": firings beside List ÷ without a reader", t.Value("List", "delivered")/t.Value("no reader", "delivered"), .95)
	}
	return nil
}
