package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/schedulerd/schedulerd/bench/measure"
	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/server"
)

// serverLoad is a server to be called.
type serverLoad struct {
	Kind    string // see the switch
	Durable bool
	Flows   int
	// What an echo answers, encoded: a StatusResponse, a TriggerResponse and the status of a refusal.
	Status, Trigger, Refusal []byte
}

var (
	noopID = func(n int) string { return fmt.Sprintf("noop-%06d", n) }
	busyID = func(n int) string { return fmt.Sprintf("busy-%06d", n) }
)

const busyFlows = 16

var runServer = measure.Program("server", func(l serverLoad, talk *measure.Talk) (measure.Sample, error) {
	echo := &echo{}
	if l.Kind != "schedulerd" {
		if err := echo.decode(l); err != nil {
			return nil, err
		}
	}
	var address string
	switch l.Kind {
	case "schedulerd":
		dir := ""
		if l.Durable {
			var err error
			if dir, err = os.MkdirTemp("", "bench"); err != nil {
				return nil, err
			}
			defer os.RemoveAll(dir)
		}
		s, err := daemon(dir)
		if err != nil {
			return nil, err
		}
		address = s.Addr().String()
		if err := busyAndIdle(address, l.Flows); err != nil {
			return nil, err
		}
	case "echo, the same options", "echo, grpc-go's defaults":
		var options []grpc.ServerOption
		if l.Kind == "echo, the same options" {
			options = server.Transport(server.Defaults())
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		s := grpc.NewServer(options...)
		pb.RegisterSchedulerServiceServer(s, echo)
		go s.Serve(listener)
		address = listener.Addr().String()
	case "grpc-go in net/http", "connect-go":
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		var handler http.Handler
		if l.Kind == "connect-go" {
			handler = connect.NewUnaryHandler(pb.SchedulerService_Status_FullMethodName, func(ctx context.Context, r *connect.Request[pb.StatusRequest]) (*connect.Response[pb.StatusResponse], error) {
				out, err := echo.Status(ctx, r.Msg)
				return connect.NewResponse(out), err
			})
		} else {
			s := grpc.NewServer()
			pb.RegisterSchedulerServiceServer(s, echo)
			handler = s
		}
		var protocols http.Protocols
		protocols.SetUnencryptedHTTP2(true)
		go (&http.Server{Protocols: &protocols, Handler: handler, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1000}}).Serve(listener)
		address = listener.Addr().String()
	default:
		return nil, fmt.Errorf("there is no server %q", l.Kind)
	}
	return served(address, talk)
})

// served tells where the server is, measures what it uses from "begin" to "end", and returns at "quit".
func served(address string, talk *measure.Talk) (measure.Sample, error) {
	if err := talk.Say(address); err != nil {
		return nil, err
	}
	var before measure.Usage
	var sample measure.Sample
	for {
		line, err := talk.Hear()
		if err != nil {
			return nil, err
		}
		switch line {
		case "begin":
			before = measure.Used()
		case "end":
			used, elapsed := measure.Used().Since(before)
			sample = measure.Sample{
				"cpu_ns": float64(used.CPU.Nanoseconds()), "allocs": float64(used.Mallocs), "bytes": float64(used.Bytes),
				"cores": used.CPU.Seconds() / elapsed.Seconds(),
			}
		case "heap":
			bytes, _ := measure.Heap()
			if err := talk.Say(strconv.FormatFloat(bytes, 'f', 0, 64)); err != nil {
				return nil, err
			}
		case "quit":
			return sample, nil
		}
	}
}

// busyAndIdle gives a server flows: some whose runs do not end, and others to trigger.
func busyAndIdle(address string, flows int) error {
	if err := errors.Join(apply(address, flows, noop, noopID), apply(address, busyFlows, sleeper, busyID)); err != nil {
		return err
	}
	client, conn, err := dial(address)
	if err != nil {
		return err
	}
	defer conn.Close()
	for n := range busyFlows {
		if _, err := client.Trigger(context.Background(), &pb.TriggerRequest{FlowId: busyID(n)}); err != nil {
			return err
		}
	}
	return nil
}

// echo answers with the messages that a schedulerd answered with, and does nothing else.
type echo struct {
	pb.UnimplementedSchedulerServiceServer
	status  *pb.StatusResponse
	trigger *pb.TriggerResponse
	refusal error
}

func (e *echo) decode(l serverLoad) error {
	e.status, e.trigger = &pb.StatusResponse{}, &pb.TriggerResponse{}
	refusal := status.New(0, "").Proto()
	err := errors.Join(proto.Unmarshal(l.Status, e.status), proto.Unmarshal(l.Trigger, e.trigger), proto.Unmarshal(l.Refusal, refusal))
	e.refusal = status.ErrorProto(refusal)
	return err
}

func (e *echo) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return e.status, nil
}

func (e *echo) Trigger(_ context.Context, r *pb.TriggerRequest) (*pb.TriggerResponse, error) {
	if strings.HasPrefix(r.FlowId, "busy") {
		return nil, e.refusal
	}
	return e.trigger, nil
}

// answers asks a schedulerd for the messages that an echo is to answer with.
func answers() (l serverLoad, err error) {
	s, err := daemon("")
	if err != nil {
		return l, err
	}
	defer s.Stop(context.Background())
	if err := busyAndIdle(s.Addr().String(), 1); err != nil {
		return l, err
	}
	client, conn, err := dial(s.Addr().String())
	if err != nil {
		return l, err
	}
	defer conn.Close()
	trigger, err := client.Trigger(context.Background(), &pb.TriggerRequest{FlowId: noopID(0)})
	if err != nil {
		return l, err
	}
	state, err := client.Status(context.Background(), &pb.StatusRequest{FlowId: noopID(0)})
	if err != nil {
		return l, err
	}
	_, refusal := client.Trigger(context.Background(), &pb.TriggerRequest{FlowId: busyID(0)})
	var faults [3]error
	l.Status, faults[0] = proto.Marshal(state)
	l.Trigger, faults[1] = proto.Marshal(trigger)
	l.Refusal, faults[2] = proto.Marshal(status.Convert(refusal).Proto())
	return l, errors.Join(faults[:]...)
}

// callServer measures a server under a load: the server on one core, the load on another.
func callServer(l serverLoad, load callLoad) func() (measure.Sample, error) {
	return func() (measure.Sample, error) {
		process, err := runServer(l).On(0).Start()
		if err != nil {
			return nil, err
		}
		defer process.Kill()
		if load.Address, err = process.Hear(); err != nil {
			return nil, fmt.Errorf("the server did not start: %w", err)
		}
		caller, err := runCalls(load).On(1).Start()
		if err != nil {
			return nil, err
		}
		defer caller.Kill()
		for range 2 { // "begin" and "end"
			line, err := caller.Hear()
			if err == nil {
				err = process.Say(line)
			}
			if err != nil {
				return nil, err
			}
		}
		calls, err := caller.Result()
		if err == nil {
			err = process.Say("quit")
		}
		if err != nil {
			return nil, err
		}
		used, err := process.Result()
		if err != nil {
			return nil, err
		}
		s := measure.Sample{"rps": calls["rps"], "p50_us": calls["p50_us"], "p99_us": calls["p99_us"], "cores": used["cores"]}
		for _, key := range []string{"cpu_ns", "allocs", "bytes"} {
			s[key] = used[key] / calls["calls"]
		}
		return s, nil
	}
}

var rpcColumns = []measure.Column{
	{Key: "rps", Title: "calls/s"},
	{Key: "cpu_ns", Title: "server CPU µs/call", Scale: 1e-3},
	{Key: "p50_us", Title: "p50 µs"},
	{Key: "p99_us", Title: "p99 µs"},
	{Key: "allocs", Title: "allocs"},
	{Key: "bytes", Title: "bytes"},
	{Key: "cores", Title: "cores"},
}

func rpcs(s *session) error {
	s.result.Notes = "Server on one core, load on another: an HTTP/2 client that does little but count. *echo* answers with the very messages that schedulerd answered with, and has the " +
		"same transport options; no validation, log, metrics or handlers. *Accepted Trigger* includes the whole run of a flow whose task computes a constant, and *durable Trigger* " +
		"that with all of it on disk."
	base, err := answers()
	if err != nil {
		return err
	}
	const flows = 4000
	requests := func(count int, id func(int) string, message func(string) proto.Message) (out [][]byte) {
		for n := range count {
			out = append(out, framed(message(id(n))))
		}
		return out
	}
	triggers := func(count int, id func(int) string) [][]byte {
		return requests(count, id, func(id string) proto.Message { return &pb.TriggerRequest{FlowId: id} })
	}
	load := callLoad{Method: pb.SchedulerService_Status_FullMethodName, For: pick(s, 1200*time.Millisecond, 700*time.Millisecond)}
	load.Calls = requests(flows, noopID, func(id string) proto.Message { return &pb.StatusRequest{FlowId: id} })
	compare := func(name string, load callLoad, kinds ...serverLoad) *measure.Table {
		var contenders []measure.Contender
		for _, k := range kinds {
			full := base
			full.Kind, full.Durable, full.Flows = k.Kind, k.Durable, flows
			contenders = append(contenders, measure.Contender{Name: k.Kind, Run: callServer(full, load)})
		}
		return s.compare(measure.Table{Title: name, Columns: rpcColumns, Ratio: "cpu_ns"}, contenders...)
	}
	ours, floor := serverLoad{Kind: "schedulerd"}, serverLoad{Kind: "echo, the same options"}
	type shape struct{ conns, callers int }
	for _, kind := range []struct {
		name    string
		calls   [][]byte
		refused bool
		durable bool
		least   float64
		shapes  []shape
	}{
		{"Status", load.Calls, false, false, .85, pick(s, []shape{{1, 1}, {1, 16}, {1, 128}, {4, 64}}, []shape{{1, 128}})},
		{"refused Trigger", triggers(busyFlows, busyID), true, false, .9, pick(s, []shape{{1, 16}, {1, 128}, {4, 64}}, []shape{{1, 128}})},
		{"accepted Trigger with its run", triggers(flows, noopID), false, false, .6, pick(s, []shape{{1, 16}, {1, 128}, {4, 64}}, []shape{{1, 128}})},
		{"durable Trigger with its run", triggers(flows, noopID), false, true, .45, pick(s, []shape{{1, 16}, {1, 128}}, []shape{{1, 128}})},
	} {
		load := load
		load.Calls, load.Refused = kind.calls, kind.refused
		if !strings.HasPrefix(kind.name, "Status") {
			load.Method = pb.SchedulerService_Trigger_FullMethodName
		}
		for _, shape := range kind.shapes {
			load.Conns, load.Callers = shape.conns, shape.callers
			name := fmt.Sprintf("%s, %d × %d callers", kind.name, shape.conns, shape.callers)
			ours.Durable = kind.durable
			t := compare(name, load, floor, ours)
			if shape.conns == 1 && shape.callers == 128 {
				// The server's core is what gives out, so this is also the ratio of calls a second, but for neighbours on that core.
				s.atLeast(name+": calls for the same CPU ÷ echo's", t.Value(floor.Kind, "cpu_ns")/t.Value(ours.Kind, "cpu_ns"), kind.least)
				if kind.name == "Status" {
					s.goal(measure.Goal{Text: name + ": allocations beyond the echo's", Value: t.Value(ours.Kind, "allocs") - t.Value(floor.Kind, "allocs"), Bound: 10})
				}
			}
		}
	}
	for _, callers := range pick(s, []int{16, 128}, []int{128}) {
		load.Conns, load.Callers = 1, callers
		name := fmt.Sprintf("Servers that echo Status, 1 × %d callers", callers)
		kinds := []serverLoad{{Kind: "echo, grpc-go's defaults"}, floor, {Kind: "grpc-go in net/http"}, {Kind: "connect-go"}}
		t := compare(name, load, kinds...)
		s.atMost(name+": CPU with the options of schedulerd ÷ with the defaults", t.Value(floor.Kind, "cpu_ns")/t.Value(kinds[0].Kind, "cpu_ns"), .8)
	}
	return nil
}
