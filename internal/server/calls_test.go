package server

import (
	"log/slog"
	"strings"
	"testing"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

func TestCallLog(t *testing.T) {
	for _, c := range []struct {
		level slog.Level
		has   []string
		lacks []string
	}{
		{
			slog.LevelInfo,
			[]string{"rpc=Trigger code=OK", "flow=quick run=quick@1", "peer=127.0.0.1:", "rpc=Trigger code=NotFound", "flow=nobody", `error="flow \"nobody\": no such flow`, "request_id=" + someID},
			[]string{"rpc=Status", "rpc=WatchRun"},
		},
		{
			slog.LevelDebug,
			[]string{"level=DEBUG msg=call rpc=Status code=OK", "rpc=WatchRun code=NotFound", "run=nobody@1"},
			nil,
		},
	} {
		log := &testLog{}
		s := start(t, func(o *Options) { o.Log = log.logger(c.level) })
		client := pb.NewSchedulerServiceClient(dial(t, s.Addr().String()))
		if _, err := client.Trigger(t.Context(), &pb.TriggerRequest{FlowId: "quick", RequestId: someID}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Trigger(t.Context(), &pb.TriggerRequest{FlowId: "nobody"}); err == nil {
			t.Fatal("triggered nobody")
		}
		if _, err := client.Status(t.Context(), &pb.StatusRequest{FlowId: "quick"}); err != nil {
			t.Fatal(err)
		}
		stream, err := client.WatchRun(t.Context(), &pb.WatchRunRequest{RunId: "nobody@1"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err == nil {
			t.Fatal("watched nobody")
		}
		for _, text := range c.has {
			if !strings.Contains(log.String(), text) {
				t.Errorf("%v lacks %q: %s", c.level, text, log)
			}
		}
		for _, text := range c.lacks {
			if strings.Contains(log.String(), text) {
				t.Errorf("%v has %q: %s", c.level, text, log)
			}
		}
	}
}

const someID = "0190a8a0-7b8e-7c3d-9f4e-1a2b3c4d5e6f"

func TestWhatChangesSomething(t *testing.T) {
	c := newCallLog(slog.New(slog.DiscardHandler))
	for method, changes := range map[string]bool{
		"Trigger": true, "Stop": true, "ApplyFlows": true, "DeleteFlow": true, "PauseFlow": true,
		"Status": false, "List": false, "WatchStatus": false, "Preview": false, "ValidateFlows": false,
	} {
		if got := c.level("/schedulerd.v1.SchedulerService/"+method) == slog.LevelInfo; got != changes {
			t.Errorf("%s: %v", method, got)
		}
	}
	if c.level("/grpc.health.v1.Health/Check") != slog.LevelDebug {
		t.Error("probes of health are logged")
	}
}
