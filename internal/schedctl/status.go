package schedctl

import (
	"context"

	"github.com/spf13/cobra"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "status FLOW",
		Short:             "Show all there is to know about a flow's state",
		Example:           "  schedctl status backup\n  schedctl status backup -o json | jq .flow.next_fire",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeFlows,
		RunE: a.online(func(ctx context.Context, client pb.SchedulerServiceClient, args []string) error {
			response, err := call(ctx, a, client.Status, &pb.StatusRequest{FlowId: args[0]})
			if err != nil {
				return err
			}
			return a.printer.show(view{
				message: response,
				names:   []string{response.GetFlow().GetId()},
				lines: func(bool) []string {
					return a.printer.canvas.fields(flowFields(a.clock, response.GetFlow()))
				},
			})
		}),
	}
}
