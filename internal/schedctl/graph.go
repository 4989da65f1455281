package schedctl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/schedctl/graph"
)

var graphFormats = []string{"mermaid", "dot"}

func (a *app) graphCommand() *cobra.Command {
	var format, only string
	command := &cobra.Command{
		Use:   "graph FLOW|FILE",
		Short: "Draw a flow's state machine as Mermaid or DOT",
		Long: `Graph draws the state machine of a stored flow, or of the flows in a file, for which no server
is needed. An argument with a slash, or one that ends in .yaml, .yml or .json, is a file; - is
standard input. A file with several flows gives one diagram after the other.`,
		Example: `  schedctl graph backup
  schedctl graph flows/backup.yaml --format dot | dot -Tsvg > backup.svg`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeFlows,
		RunE: a.offline(func(ctx context.Context, args []string) error {
			if !slices.Contains(graphFormats, format) {
				return usagef("--format %q is neither mermaid nor dot", format)
			}
			flows, err := a.flowsOf(ctx, args[0])
			if err != nil {
				return err
			}
			var texts []string
			for _, flow := range flows {
				if only != "" && flow.GetId() != only {
					continue
				}
				diagram := graph.Of(flow)
				if format == "dot" {
					texts = append(texts, diagram.DOT())
				} else {
					texts = append(texts, diagram.Mermaid())
				}
			}
			if len(texts) == 0 {
				return failf(ExitNotFound, "%s holds no flow %s", args[0], only)
			}
			_, err = fmt.Fprint(a.env.Out, strings.Join(texts, "\n"))
			return err
		}),
	}
	command.Flags().StringVar(&format, "format", "mermaid", "mermaid or dot")
	command.Flags().StringVar(&only, "flow", "", "of a file with several flows, only this one")
	a.completeFlag(command, "format", graphFormats)
	return command
}

// flowsOf is the flows an argument means: those of a file, or a stored one.
func (a *app) flowsOf(ctx context.Context, argument string) ([]*pb.Flow, error) {
	if isFile(argument) {
		return a.fileFlows(argument)
	}
	client, err := a.client()
	if err != nil {
		return nil, err
	}
	response, err := call(ctx, a, client.GetFlow, &pb.GetFlowRequest{FlowId: argument})
	if err != nil {
		return nil, err
	}
	return []*pb.Flow{response.GetFlow()}, nil
}

// fileFlows reads a flows file without checking more than its form: a diagram helps to find what is wrong.
func (a *app) fileFlows(file string) ([]*pb.Flow, error) {
	sources, err := a.sources([]string{file})
	if err != nil {
		return nil, err
	}
	var flows []*pb.Flow
	for _, source := range sources {
		content := &pb.FlowsFile{}
		document, err := jsonOf([]byte(source.GetContent()))
		if err == nil {
			err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(document, content)
		}
		if err != nil {
			return nil, failf(ExitInvalid, "%s is not a flows file: %w; schedctl validate says more", source.GetName(), err)
		}
		flows = append(flows, content.GetFlows()...)
	}
	return flows, nil
}
