package worker

import (
	"context"
	"net"
	"strconv"
	"sync"
	"testing"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	sdk "github.com/schedulerd/schedulerd/sdk/go/worker"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// BenchmarkDo measures assignments over loopback, from submission to result, to workers that do nothing.
func BenchmarkDo(b *testing.B) {
	for _, workers := range []int{1, 100} {
		b.Run("workers="+strconv.Itoa(workers), func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			hub, server := New(Options{}), grpc.NewServer()
			schedulerdv1.RegisterWorkerServiceServer(server, hub)
			ctx, cancel := context.WithCancel(b.Context())
			var serving, all sync.WaitGroup
			serving.Go(func() { _ = server.Serve(l) })
			ready := make(chan bool, workers)
			for range workers {
				conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
				if err != nil {
					b.Fatal(err)
				}
				all.Go(func() {
					defer conn.Close()
					_ = sdk.Run(ctx, conn, sdk.Options{Slots: 8}, map[string]sdk.Handler{
						"nothing": func(context.Context, *sdk.Task) (any, error) { return nil, nil },
						"ready":   func(ctx context.Context, _ *sdk.Task) (any, error) { ready <- true; return nil, nil },
					})
				})
			}
			for hub.Figures().Streams < workers {
				if _, err := hub.Do(ctx, work("ready", "")); err != nil {
					b.Fatal(err)
				}
				<-ready
			}
			w := work("nothing", "x")
			b.SetParallelism(32)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := hub.Do(ctx, w); err != nil {
						b.Error(err)
					}
				}
			})
			b.StopTimer()
			cancel()
			all.Wait() // before the hub is closed: they would try for long to be heard
			hub.Close()
			server.Stop()
			serving.Wait()
		})
	}
}
