// Command worker does two tasks for a schedulerd: "word_count" counts the words of a text file, "wait" takes its time and tells
// how far it is. It dials in; nothing has to reach it.
//
//	go run ./examples/workers/go --server 127.0.0.1:7420 --label zone=west
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/schedulerd/schedulerd/sdk/go/worker"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

func main() {
	server := flag.String("server", "127.0.0.1:7420", "address of the daemon")
	slots := flag.Int("slots", 4, "tasks at once")
	labels := map[string]string{}
	flag.Func("label", "NAME=VALUE that flows may ask for; may be given more than once", func(text string) error {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return errors.New("write NAME=VALUE")
		}
		labels[name] = value
		return nil
	})
	flag.Parse()
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer restore()
	if err := run(ctx, *server, *slots, labels); err != nil {
		log.Fatal(err)
	}
}

// run works until ctx is done. A daemon elsewhere wants TLS: use credentials.NewTLS there.
func run(ctx context.Context, server string, slots int, labels map[string]string) error {
	conn, err := grpc.NewClient(server, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}))
	if err != nil {
		return err
	}
	defer conn.Close()
	host, _ := os.Hostname()
	return worker.Run(ctx, conn, worker.Options{
		Name: host, Version: "1.0", Slots: slots, Labels: labels,
		Disconnected: func(err error) { log.Printf("disconnected: %v", err) },
	}, map[string]worker.Handler{"word_count": wordCount, "wait": wait})
}

// wordCount counts the words of the file that the input names.
func wordCount(ctx context.Context, t *worker.Task) (any, error) {
	name := t.GetInput().GetStructValue().GetFields()["file"].GetStringValue()
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &worker.Error{Err: err, Class: "no_file", Permanent: true} // it does not appear by trying again
	} else if err != nil {
		return nil, err
	}
	defer file.Close()
	words := 0
	scanner := bufio.NewScanner(file)
	scanner.Split(bufio.ScanWords)
	for scanner.Scan() && ctx.Err() == nil {
		words++
	}
	t.Logf("%s has %d words", name, words)
	return map[string]any{"words": words}, errors.Join(scanner.Err(), ctx.Err())
}

// wait takes as many seconds as the input says.
func wait(ctx context.Context, t *worker.Task) (any, error) {
	seconds := t.GetInput().GetStructValue().GetFields()["seconds"].GetNumberValue()
	whole := time.Duration(seconds * float64(time.Second))
	for began := time.Now(); time.Since(began) < whole; {
		t.Progress(fmt.Sprintf("waited %v", time.Since(began).Round(time.Second)), float64(time.Since(began))/float64(whole))
		select {
		case <-time.After(min(time.Second, whole)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return map[string]any{"waited": seconds}, nil
}
