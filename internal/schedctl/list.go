package schedctl

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

// pageSize is what lists ask for at a time.
const pageSize = 500

// filterFlags select flows: list and watch have them.
type filterFlags struct {
	labels   []string
	statuses enumFlag[pb.FlowStatus]
}

func (f *filterFlags) register(a *app, command *cobra.Command) {
	flags := command.Flags()
	flags.StringArrayVarP(&f.labels, "label", "l", nil, "only flows with this label, KEY=VALUE or KEY for any value; repeat for more, all must hold")
	flags.Var(&f.statuses, "status", "only flows with one of these statuses, separated by commas")
	a.completeFlag(command, "status", f.statuses.names())
}

// filter is nil where nothing is selected.
func (f *filterFlags) filter(flows []string) (*pb.FlowFilter, error) {
	if len(flows)+len(f.labels)+len(f.statuses.values) == 0 {
		return nil, nil
	}
	filter := &pb.FlowFilter{FlowIds: flows, Statuses: f.statuses.values}
	for _, label := range f.labels {
		key, value, _ := strings.Cut(label, "=")
		if key == "" {
			return nil, usagef("--label %q has no key: KEY=VALUE, or KEY for any value", label)
		}
		if filter.Labels == nil {
			filter.Labels = map[string]string{}
		}
		filter.Labels[key] = value
	}
	return filter, nil
}

func (a *app) listCommand() *cobra.Command {
	var selection filterFlags
	var limit limitFlag
	command := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List flows and where they stand",
		Example: `  schedctl list
  schedctl list --status tripped,backoff
  schedctl list -l team=ops -o name`,
		Args: cobra.NoArgs,
		RunE: a.online(func(ctx context.Context, client pb.SchedulerServiceClient, _ []string) error {
			filter, err := selection.filter(nil)
			if err != nil {
				return err
			}
			all := &pb.ListResponse{}
			err = pages(limit.n, func(size int32, token string) (int, string, error) {
				page, err := call(ctx, a, client.List, &pb.ListRequest{PageSize: size, PageToken: token, Filter: filter})
				if err != nil {
					return 0, "", err
				}
				if token == "" {
					all.Revision = page.GetRevision() // the one all pages are at least as new as
				}
				all.Flows = append(all.Flows, page.GetFlows()...)
				return len(page.GetFlows()), page.GetNextPageToken(), nil
			})
			if err != nil {
				return err
			}
			return a.printer.show(a.flowsView(all))
		}),
	}
	selection.register(a, command)
	limit.register(command.Flags(), "flows")
	return command
}

// limitFlag is --limit.
type limitFlag struct{ n uint32 }

func (f *limitFlag) register(flags *pflag.FlagSet, what string) {
	flags.Uint32Var(&f.n, "limit", 0, what+" at most; 0 shows all")
}

// pages reads pages until there is no more, or limit items are there (0: no limit).
func pages(limit uint32, read func(size int32, token string) (n int, next string, err error)) error {
	for token, have := "", uint32(0); ; {
		size := uint32(pageSize)
		if limit > 0 {
			size = min(size, limit-have)
		}
		n, next, err := read(int32(size), token)
		if err != nil {
			return err
		}
		have += uint32(n)
		if next == "" || limit > 0 && have >= limit {
			return nil
		}
		token = next
	}
}

func (a *app) flowsView(list *pb.ListResponse) view {
	v := view{message: list}
	for _, flow := range list.GetFlows() {
		v.names = append(v.names, flow.GetId())
	}
	v.lines = func(wide bool) []string {
		if len(list.GetFlows()) == 0 {
			return []string{"no flows"}
		}
		rows := [][]cell{flowHeader(wide)}
		for _, flow := range list.GetFlows() {
			rows = append(rows, flowRow(a.clock, flow, wide))
		}
		return a.printer.canvas.table(rows)
	}
	return v
}
