package schedctl

import (
	"bufio"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

func (a *app) logsCommand() *cobra.Command {
	var follow, timestamps, prefix bool
	var tail uint64
	command := &cobra.Command{
		Use:   "logs RUN",
		Short: "Print what the tasks of a run wrote",
		Long: `Logs prints what the tasks of a run wrote to standard output and standard error, as it was,
as far as it is kept. With --follow it goes on until the run ends.`,
		Example: "  schedctl logs backup@12\n  schedctl logs backup@12 --follow --prefix",
		Args:    cobra.ExactArgs(1),
		RunE: a.online(func(ctx context.Context, client pb.SchedulerServiceClient, args []string) error {
			ctx, cancel := a.whole(ctx)
			defer cancel()
			out := bufio.NewWriter(a.env.Out)
			defer out.Flush()
			outage := outage{app: a}
			tailing := logTail{
				client:  client,
				request: &pb.TailLogsRequest{RunId: args[0], Follow: follow, TailBytes: tail},
				lost:    outage.begin,
			}
			return tailing.run(ctx, func(lines []*pb.LogLine) error {
				outage.end()
				if !a.printer.human() {
					return a.printer.stream(view{message: &pb.TailLogsResponse{Lines: lines}, names: args})
				}
				for _, line := range lines {
					if timestamps {
						fmt.Fprint(out, line.GetTime().AsTime().In(a.clock.zone).Format("2006-01-02T15:04:05.000Z07:00"), " ")
					}
					if prefix {
						fmt.Fprint(out, logPrefix(line))
					}
					fmt.Fprintln(out, line.GetText())
				}
				return out.Flush()
			})
		}),
	}
	flags := command.Flags()
	flags.BoolVarP(&follow, "follow", "f", false, "go on until the run ends")
	flags.BoolVarP(&timestamps, "timestamps", "t", false, "begin each line with the time it was written")
	flags.BoolVar(&prefix, "prefix", false, "begin each line with its state, attempt and stream")
	flags.Uint64Var(&tail, "tail-bytes", 0, "begin so many bytes before the end; 0: with all that is kept")
	return command
}

func logPrefix(line *pb.LogLine) string {
	stream := "out"
	if line.GetStderr() {
		stream = "err"
	}
	return fmt.Sprintf("%s#%d %s| ", line.GetState(), line.GetAttempt(), stream)
}

// logTail reads a run's output over as many connections as that takes.
type logTail struct {
	client  pb.SchedulerServiceClient
	request *pb.TailLogsRequest
	lost    func(error, time.Duration)
}

func (t *logTail) run(ctx context.Context, print func([]*pb.LogLine) error) error {
	// A stream cannot be resumed in its middle. A new one begins with all that is kept; lines
	// come in the order they were read, so those up to the last one printed are left out.
	var last time.Time // of the newest line printed
	atLast := 0        // lines printed with that time
	repeated := 0      // of those, seen in this stream
	stream := resuming[pb.TailLogsResponse]{
		lost:  t.lost,
		ended: func() bool { return true },
		open: func(ctx context.Context) (grpc.ServerStreamingClient[pb.TailLogsResponse], error) {
			request := t.request
			repeated = 0
			if atLast > 0 {
				request = &pb.TailLogsRequest{RunId: request.GetRunId(), Follow: request.GetFollow()}
			}
			return t.client.TailLogs(ctx, request)
		},
		receive: func(response *pb.TailLogsResponse) error {
			var lines []*pb.LogLine
			for _, line := range response.GetLines() {
				at := line.GetTime().AsTime()
				switch order := at.Compare(last); {
				case order < 0 && atLast > 0:
					continue
				case order == 0 && repeated < atLast:
					repeated++
					continue
				case order != 0:
					last, atLast, repeated = at, 0, 0
				}
				atLast++
				repeated++
				lines = append(lines, line)
			}
			if len(lines) == 0 {
				return nil
			}
			return print(lines)
		},
	}
	return stream.run(ctx)
}
