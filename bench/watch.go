package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/schedulerd/schedulerd/bench/measure"
	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/server"
)

// watched is the flow whose changes are watched: it is paused and resumed.
const watched = "watched"

var runWatched = measure.Program("watched", func(kind string, talk *measure.Talk) (measure.Sample, error) {
	if kind == "schedulerd" {
		s, err := daemon("")
		if err != nil {
			return nil, err
		}
		if err := apply(s.Addr().String(), 1, daily, func(int) string { return watched }); err != nil {
			return nil, err
		}
		return served(s.Addr().String(), talk)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := grpc.NewServer(server.Transport(server.Defaults())...)
	pb.RegisterSchedulerServiceServer(s, &prepared{shared: kind == "one encoding for all", grown: make(chan struct{})})
	go s.Serve(listener)
	return served(listener.Addr().String(), talk)
})

// prepared is as little as a server of watches can be: each change is encoded once, and a loop a stream sends it.
type prepared struct {
	pb.UnimplementedSchedulerServiceServer
	shared bool // else each stream encodes for itself

	mu      sync.Mutex
	version uint64
	newest  *pb.WatchStatusResponse
	encoded *grpc.PreparedMsg
	grown   chan struct{}
}

func (p *prepared) change() *pb.FlowInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.version++
	flow := &pb.FlowInfo{Id: watched, Status: pb.FlowStatus_FLOW_STATUS_IDLE, Paused: p.version%2 == 0, Revision: p.version, Schedule: "every 24h", Origin: pb.FlowOrigin_FLOW_ORIGIN_API}
	p.newest = &pb.WatchStatusResponse{
		Changes: []*pb.FlowChange{{Type: pb.FlowChangeType_FLOW_CHANGE_TYPE_UPDATED, Flow: flow}}, ResumeToken: "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN" + strconv.FormatUint(p.version, 10),
	}
	p.encoded = nil
	close(p.grown)
	p.grown = make(chan struct{})
	return flow
}

func (p *prepared) PauseFlow(context.Context, *pb.PauseFlowRequest) (*pb.PauseFlowResponse, error) {
	return &pb.PauseFlowResponse{Flow: p.change()}, nil
}

func (p *prepared) ResumeFlow(context.Context, *pb.ResumeFlowRequest) (*pb.ResumeFlowResponse, error) {
	return &pb.ResumeFlowResponse{Flow: p.change()}, nil
}

func (p *prepared) WatchStatus(_ *pb.WatchStatusRequest, stream grpc.ServerStreamingServer[pb.WatchStatusResponse]) error {
	if err := stream.Send(&pb.WatchStatusResponse{InitialStateComplete: true}); err != nil {
		return err
	}
	var seen uint64
	for {
		p.mu.Lock()
		version, grown, message := p.version, p.grown, any(p.newest)
		if p.shared && version > seen {
			if p.encoded == nil {
				p.encoded = &grpc.PreparedMsg{}
				if err := p.encoded.Encode(stream, p.newest); err != nil {
					p.mu.Unlock()
					return err
				}
			}
			message = p.encoded
		}
		p.mu.Unlock()
		if version > seen {
			seen = version
			if err := stream.SendMsg(message); err != nil {
				return err
			}
			continue
		}
		select {
		case <-grown:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// watchLoad is streams that watch while changes come.
type watchLoad struct {
	Address string
	Conns   int
	Streams int // on each connection
	Stalled int // on one more connection, which is not read from
	Rate    int // changes a second
	For     time.Duration
}

var runWatchers = measure.Program("watchers", func(l watchLoad, talk *measure.Talk) (measure.Sample, error) {
	client, conn, err := dial(l.Address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	watch := framed(&pb.WatchStatusRequest{})
	open := func(streams int) (*wire, error) {
		w, err := wireTo(l.Address, pb.SchedulerService_WatchStatus_FullMethodName)
		for range streams {
			if err == nil {
				_, err = w.call(watch)
			}
		}
		for range streams { // the initial states
			if err == nil {
				_, err = w.read()
			}
		}
		return w, err
	}
	if l.Stalled > 0 {
		if _, err := open(l.Stalled); err != nil {
			return nil, err
		}
	}
	var messages atomic.Uint64
	for range l.Conns {
		w, err := open(l.Streams)
		if err != nil {
			return nil, err
		}
		go func() {
			for {
				e, err := w.read()
				if err != nil {
					return // it ends with the process
				}
				if e.data > 0 {
					messages.Add(1)
				}
			}
		}()
	}
	if err := talk.Say("open"); err != nil {
		return nil, err
	}
	if _, err := talk.Hear(); err != nil { // until the heap was looked at
		return nil, err
	}
	if l.Rate == 0 {
		return measure.Sample{}, nil
	}
	if err := talk.Say("begin"); err != nil {
		return nil, err
	}
	changes := 0
	for began := time.Now(); time.Since(began) < l.For; {
		for changes < int(time.Since(began).Seconds()*float64(l.Rate)) && time.Since(began) < l.For {
			if changes%2 == 0 {
				_, err = client.PauseFlow(context.Background(), &pb.PauseFlowRequest{FlowId: watched})
			} else {
				_, err = client.ResumeFlow(context.Background(), &pb.ResumeFlowRequest{FlowId: watched})
			}
			if err != nil {
				return nil, err
			}
			changes++
		}
		time.Sleep(200 * time.Microsecond)
	}
	time.Sleep(100 * time.Millisecond) // for what is on its way
	if err := talk.Say("end"); err != nil {
		return nil, err
	}
	return measure.Sample{
		"messages": float64(messages.Load()), "rate": float64(messages.Load()) / l.For.Seconds(),
		"delivered": float64(messages.Load()) / float64(changes*l.Conns*l.Streams),
	}, nil
})

// watchServer measures a server that is watched: memory of idle streams, then CPU a message.
func watchServer(kind string, load watchLoad) func() (measure.Sample, error) {
	return func() (measure.Sample, error) {
		process, err := runWatched(kind).On(0).Start()
		if err != nil {
			return nil, err
		}
		defer process.Kill()
		if load.Address, err = process.Hear(); err != nil {
			return nil, err
		}
		heap := func() (float64, error) {
			if err := process.Say("heap"); err != nil {
				return 0, err
			}
			line, err := process.Hear()
			if err != nil {
				return 0, err
			}
			return strconv.ParseFloat(line, 64)
		}
		empty, err := heap()
		if err != nil {
			return nil, err
		}
		watchers, err := runWatchers(load).On(1).Start()
		if err != nil {
			return nil, err
		}
		defer watchers.Kill()
		if _, err := watchers.Hear(); err != nil {
			return nil, fmt.Errorf("opening streams: %w", err)
		}
		open, err := heap()
		s := measure.Sample{"idle_bytes": (open - empty) / float64(load.Conns*load.Streams+load.Stalled)}
		if err = errors.Join(err, watchers.Say("go")); err != nil {
			return nil, err
		}
		if load.Rate > 0 {
			for range 2 {
				line, err := watchers.Hear()
				if err == nil {
					err = process.Say(line)
				}
				if err != nil {
					return nil, err
				}
			}
		}
		got, err := watchers.Result()
		if err == nil && load.Stalled > 0 {
			var after float64
			after, err = heap()
			s["grown_bytes"] = (after - open) / float64(load.Stalled)
		}
		if err = errors.Join(err, process.Say("quit")); err != nil {
			return nil, err
		}
		used, err := process.Result()
		if err != nil {
			return nil, err
		}
		if load.Rate > 0 {
			s["cpu_ns"], s["cores"] = used["cpu_ns"]/got["messages"], used["cores"]
			s["rate"], s["delivered"] = got["rate"], got["delivered"]
		}
		return s, nil
	}
}

func watching(s *session) error {
	s.result.Notes = "One flow changes at a steady rate that leaves the server's core some air, by calls to pause and resume it; every stream gets each change as a message of its own. " +
		"The floor is a loop a stream that sends a grpc.PreparedMsg; beside it the same with an encoding for each stream. Bytes are of the server's heap and stacks."
	columns := []measure.Column{
		{Key: "cpu_ns", Title: "server CPU µs/message", Scale: 1e-3},
		{Key: "rate", Title: "messages/s"},
		{Key: "delivered", Title: "delivered %", Scale: 100},
		{Key: "cores", Title: "cores"},
		{Key: "idle_bytes", Title: "bytes/idle stream"},
	}
	kinds := []string{"one encoding for all", "an encoding for each", "schedulerd"}
	length := pick(s, 2*time.Second, time.Second)
	for _, shape := range pick(s, [][3]int{{1, 1, 2000}, {1, 100, 1000}, {10, 100, 100}, {10, 1000, 8}}, [][3]int{{1, 100, 1000}}) {
		load := watchLoad{Conns: shape[0], Streams: shape[1], Rate: shape[2], For: length}
		name := fmt.Sprintf("%s streams on %d connections, %d changes a second", count(load.Conns*load.Streams), load.Conns, load.Rate)
		var contenders []measure.Contender
		for _, k := range kinds {
			contenders = append(contenders, measure.Contender{Name: k, Run: watchServer(k, load)})
		}
		t := s.compare(measure.Table{Title: name, Columns: columns, Ratio: "cpu_ns"}, contenders...)
		if load.Streams == 1 {
			continue // the calls cost more than the messages
		}
		s.atLeast(name+": messages for the same CPU ÷ those of one encoding for all", t.Value(kinds[0], "cpu_ns")/t.Value(kinds[2], "cpu_ns"), .85)
		s.atMost(name+": bytes of an idle stream ÷ the floor's", t.Value(kinds[2], "idle_bytes")/t.Value(kinds[0], "idle_bytes"), 1.3)
	}
	live := watchLoad{Conns: 1, Streams: 100, Rate: 500, For: pick(s, 10*time.Second, 2*time.Second)}
	var contenders []measure.Contender
	stalls := pick(s, []int{0, 1, 10_000}, []int{0, 1000})
	for _, stalled := range stalls {
		live.Stalled = stalled
		contenders = append(contenders, measure.Contender{Name: strconv.Itoa(stalled) + " stalled", Run: watchServer("schedulerd", live)})
	}
	rounds := s.rounds
	s.rounds = min(rounds, 3)
	t := s.compare(measure.Table{Title: "100 streams that read beside others that do not", Columns: append(columns, measure.Column{Key: "grown_bytes", Title: "growth, bytes/stalled stream"}), Ratio: "cpu_ns"}, contenders...)
	s.rounds = rounds
	most := t.Rows[len(t.Rows)-1].Name
	s.atLeast("100 streams beside "+most+": delivered, %", 100*t.Value(most, "delivered"), 99)
	s.atMost("bytes that a stalled stream grows by, of "+most, t.Value(most, "grown_bytes"), 64<<10)
	return nil
}
