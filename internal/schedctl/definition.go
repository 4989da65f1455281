package schedctl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

func (a *app) getCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get FLOW",
		Short: "Print a flow's definition as a flows file",
		Long: `Get prints a flow's definition as a flows file in YAML, which apply takes again.
-o json prints the server's response: the definition, where it came from and its etag.`,
		Example:           "  schedctl get backup > backup.yaml\n  schedctl get backup -o json | jq .flow.schedule",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeFlows,
		RunE: a.online(func(ctx context.Context, client pb.SchedulerServiceClient, args []string) error {
			response, err := call(ctx, a, client.GetFlow, &pb.GetFlowRequest{FlowId: args[0]})
			if err != nil {
				return err
			}
			switch a.format {
			case formatJSON:
				return a.printer.show(view{encode: func() ([]byte, error) { return marshalDefinition(response) }})
			case formatName:
				return a.printer.lines([]string{response.GetFlow().GetId()})
			}
			document, err := marshalDefinition(&pb.FlowsFile{Flows: []*pb.Flow{response.GetFlow()}})
			if err != nil {
				return err
			}
			text, err := yamlOf(document)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.env.Out, "# from: %s\n# etag: %s\n%s", words(response.GetOrigin()), clean(response.GetEtag()), text)
			return err
		}),
	}
}

func (a *app) deleteCommand() *cobra.Command {
	var etag string
	command := &cobra.Command{
		Use:               "delete FLOW",
		Short:             "Remove a flow that is not running, with its kept runs",
		Example:           "  schedctl delete backup",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeFlows,
		RunE: a.online(func(ctx context.Context, client pb.SchedulerServiceClient, args []string) error {
			response, err := call(ctx, a, client.DeleteFlow, &pb.DeleteFlowRequest{FlowId: args[0], Etag: etag, RequestId: newRequestID()})
			if err != nil {
				return err
			}
			return a.done(response, args[0], args[0]+" is deleted")
		}),
	}
	command.Flags().StringVar(&etag, "etag", "", "etag of the definition that was looked at: fail if it has changed since")
	return command
}
