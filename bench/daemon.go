package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/server"
)

// daemon starts a schedulerd in this process as its main does: with the options it is shipped with, and a log, which goes nowhere.
func daemon(dir string) (*server.Server, error) {
	nowhere, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	o := server.Defaults()
	o.Version, o.DataDir, o.Listen, o.AdminListen = "bench", dir, "127.0.0.1:0", "127.0.0.1:0"
	o.Log = slog.New(slog.NewTextHandler(nowhere, nil))
	return server.Start(context.Background(), o)
}

func dial(address string) (pb.SchedulerServiceClient, *grpc.ClientConn, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, err
	}
	return pb.NewSchedulerServiceClient(conn), conn, nil
}

// Flows as they are written in a flows file, without their ids.
const (
	// noop is never due by itself; its task computes a constant.
	noop = `"schedule": {"manual": {}}, "task": {"set": {"values": {"done": true}}}`
	// daily is not due for hours.
	daily = `"schedule": {"every": {"interval": "24h", "initial_delay": "24h"}}, "task": {"set": {"values": {"done": true}}}`
	// sleeper has a run that does not end.
	sleeper = `"schedule": {"manual": {}}, "task": {"wait": {"duration": "1h"}}`
)

// apply gives a server flows, a thousand in a call.
func apply(address string, count int, flow string, id func(int) string) error {
	client, conn, err := dial(address)
	if err != nil {
		return err
	}
	defer conn.Close()
	for done := 0; done < count; done += 1000 {
		var text strings.Builder
		text.WriteString(`{"flows": [`)
		for n := done; n < min(done+1000, count); n++ {
			if n > done {
				text.WriteByte(',')
			}
			fmt.Fprintf(&text, `{"id": %q, %s}`, id(n), flow)
		}
		text.WriteString("]}")
		request := &pb.ApplyFlowsRequest{Sources: []*pb.FlowsSource{{Name: "bench.json", Content: text.String()}}}
		if _, err := client.ApplyFlows(context.Background(), request); err != nil {
			return fmt.Errorf("applying flows from %d on: %w", done, err)
		}
	}
	return nil
}
