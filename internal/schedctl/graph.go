package schedctl

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/manifest"
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
			flows, faults := a.flowsOf(ctx, args[0])
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
			if len(texts) == 0 && faults == nil {
				return failf(ExitNotFound, "%s holds no flow %s", args[0], only)
			}
			_, err := fmt.Fprint(a.env.Out, strings.Join(texts, "\n"))
			return errors.Join(err, faults)
		}),
	}
	command.Flags().StringVar(&format, "format", "mermaid", "mermaid or dot")
	command.Flags().StringVar(&only, "flow", "", "of a file with several flows, only this one")
	a.completeFlag(command, "format", graphFormats)
	return command
}

// flowsOf is the flows an argument means: those of a file, or a stored one. Of a file with
// faults it is what can be read: a diagram helps to find what is wrong.
func (a *app) flowsOf(ctx context.Context, argument string) ([]*pb.Flow, error) {
	if isFile(argument) {
		sources, err := a.sources([]string{argument})
		if err != nil {
			return nil, err
		}
		set, problems := manifest.Parse(sources)
		if len(problems) > 0 {
			err = failf(ExitInvalid, "%s\n%w", count(len(problems), "fault"), problems)
		}
		return set.File.GetFlows(), err
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

// isFile says whether an argument means a flows file and not a flow: ids of flows hold no slash and end in no .yaml.
func isFile(argument string) bool {
	return argument == "-" || strings.ContainsAny(argument, `/\`) || slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(argument))
}
