package schedctl

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

// each does something to each of several flows. All are tried; the exit code is that of the first failure.
func (a *app) each(flows []string, do func(flow string) error) error {
	code := ExitOK
	for _, flow := range flows {
		if err := do(flow); err != nil {
			if code == ExitOK {
				code = exitCode(err)
			}
			a.report(err)
		}
	}
	if code != ExitOK {
		return &exitError{code, errSilent}
	}
	return nil
}

// done prints what a verb answered: a sentence for people.
func (a *app) done(response proto.Message, name, sentence string) error {
	return a.printer.show(view{
		message: response,
		names:   []string{name},
		lines:   func(bool) []string { return []string{clean(sentence)} },
	})
}

func (a *app) resetCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "reset FLOW…",
		Short:             "Clear the failures of flows, so that they run again",
		Long:              "Reset clears a flow's failure streak, its backoff window and its trip, and wakes its schedule.",
		Example:           "  schedctl reset backup\n  schedctl list --status tripped -o name | xargs schedctl reset",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeFlows,
		RunE: a.online(func(ctx context.Context, client pb.SchedulerServiceClient, args []string) error {
			return a.each(args, func(id string) error {
				response, err := call(ctx, a, client.ResetFlow, &pb.ResetFlowRequest{FlowId: id, RequestId: newRequestID()})
				if err != nil {
					return err
				}
				flow := response.GetFlow()
				return a.done(response, id, fmt.Sprintf("%s is reset: %s%s", id, flowStatus(flow), a.next(flow)))
			})
		}),
	}
}

func (a *app) cancelCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel FLOW",
		Short: "Cancel a flow's run",
		Long: `Cancel asks the run of a flow to stop. It does not wait for its end.
Given the id of a run (backup@12), it cancels that one, and leaves a later one alone.`,
		Example:           "  schedctl cancel backup\n  schedctl cancel backup@12",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeFlows,
		RunE: a.online(func(ctx context.Context, client pb.SchedulerServiceClient, args []string) error {
			request := &pb.CancelFlowRequest{FlowId: args[0], RequestId: newRequestID()}
			if flow, _, isRun := strings.Cut(args[0], "@"); isRun {
				request.FlowId, request.RunId = flow, args[0]
			}
			response, err := call(ctx, a, client.CancelFlow, request)
			if err != nil {
				return err
			}
			sentence := args[0] + " is not running: nothing was cancelled"
			if response.GetRunId() != "" {
				sentence = response.GetRunId() + " is told to stop"
			}
			return a.done(response, response.GetRunId(), sentence)
		}),
	}
}

func (a *app) pauseCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "pause FLOW…",
		Short:             "Skip the fire times of flows until they are resumed",
		Long:              "Pause makes a flow's fire times be skipped. A run on its way goes on, and triggers still work.",
		Example:           "  schedctl pause backup report",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeFlows,
		RunE: a.online(func(ctx context.Context, client pb.SchedulerServiceClient, args []string) error {
			return a.each(args, func(id string) error {
				response, err := call(ctx, a, client.PauseFlow, &pb.PauseFlowRequest{FlowId: id, RequestId: newRequestID()})
				if err != nil {
					return err
				}
				return a.done(response, id, fmt.Sprintf("%s is paused; to go on: schedctl resume %s", id, id))
			})
		}),
	}
}

func (a *app) resumeCommand() *cobra.Command {
	var catchUp enumFlag[pb.CatchUpMode]
	command := &cobra.Command{
		Use:               "resume FLOW…",
		Short:             "End the pause of flows",
		Example:           "  schedctl resume backup --catch-up last",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeFlows,
		RunE: a.online(func(ctx context.Context, client pb.SchedulerServiceClient, args []string) error {
			mode := pb.CatchUpMode_CATCH_UP_MODE_UNSPECIFIED
			switch len(catchUp.values) {
			case 0:
			case 1:
				mode = catchUp.values[0]
			default:
				return usagef("--catch-up takes one value")
			}
			return a.each(args, func(id string) error {
				response, err := call(ctx, a, client.ResumeFlow, &pb.ResumeFlowRequest{FlowId: id, CatchUp: mode, RequestId: newRequestID()})
				if err != nil {
					return err
				}
				return a.done(response, id, fmt.Sprintf("%s is resumed: %s%s", id, flowStatus(response.GetFlow()), a.next(response.GetFlow())))
			})
		}),
	}
	command.Flags().Var(&catchUp, "catch-up", "what to do about the fire times that passed; default: the flow's on_resume")
	a.completeFlag(command, "catch-up", catchUp.names())
	return command
}

// next tells when a flow will run by itself, if it will.
func (a *app) next(flow *pb.FlowInfo) string {
	next := nextRun(a.clock, flow)
	if next == none {
		return ""
	}
	return ", next " + next
}
