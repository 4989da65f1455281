package schedctl

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

func (a *app) stopCommand() *cobra.Command {
	var grace time.Duration
	command := &cobra.Command{
		Use:   "stop",
		Short: "Stop the daemon in order, and wait for its end",
		Long: `Stop asks the daemon to end: it starts nothing more, lets runs finish for the grace,
then cancels them, tears down resources and ends. The exit code is 1 if a run did not end
even then, or a teardown failed.`,
		Example: "  schedctl stop --grace 1m",
		Args:    cobra.NoArgs,
	}
	command.Flags().DurationVar(&grace, "grace", 0, "how long runs may take to finish before they are cancelled; default: the daemon's --grace")
	command.RunE = a.online(func(ctx context.Context, client pb.SchedulerServiceClient, _ []string) error {
		request := &pb.StopRequest{}
		if command.Flags().Changed("grace") {
			if grace < 0 {
				return usagef("--grace must not be negative")
			}
			request.Grace = durationpb.New(grace)
		}
		ctx, cancel := a.whole(ctx)
		defer cancel()
		response, err := client.Stop(ctx, request)
		if err != nil {
			return err
		}
		err = a.printer.show(view{
			message: response,
			names:   response.GetUnfinishedRuns(),
			lines:   func(bool) []string { return stopLines(response) },
		})
		if err == nil && len(response.GetUnfinishedRuns())+len(response.GetTeardownErrors()) > 0 {
			return failf(ExitOther, "the scheduler stopped, but not cleanly: %s did not end, %s failed",
				count(len(response.GetUnfinishedRuns()), "run"), count(len(response.GetTeardownErrors()), "teardown"))
		}
		return err
	})
	return command
}

func stopLines(response *pb.StopResponse) []string {
	lines := []string{"stopped in " + took(response.GetDuration())}
	for _, run := range response.GetCancelledRuns() {
		lines = append(lines, "cancelled: "+clean(run))
	}
	for _, run := range response.GetUnfinishedRuns() {
		lines = append(lines, "did not end: "+clean(run))
	}
	for _, failure := range response.GetTeardownErrors() {
		lines = append(lines, "teardown failed: "+clean(failure))
	}
	return lines
}
