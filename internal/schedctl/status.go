package schedctl

import (
	"context"
	"fmt"
	"strings"

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
					return a.printer.canvas.fields(append(flowFields(a.clock, response.GetFlow()), guardFields(a.clock, response.GetGuards())...))
				},
			})
		}),
	}
}

// guardFields tells of circuit breakers and rate limits, a line a resource.
func guardFields(c clock, guards []*pb.GuardInfo) (fields [][2]string) {
	for _, g := range guards {
		var parts []string
		switch g.GetBreaker() {
		case pb.BreakerState_BREAKER_STATE_CLOSED:
			parts = append(parts, "closed")
			if n := g.GetFailures(); n > 0 {
				parts = append(parts, fmt.Sprintf("%d failures in a row", n))
			}
		case pb.BreakerState_BREAKER_STATE_OPEN:
			parts = append(parts, "open until "+c.exact(g.GetOpenUntil()), fmt.Sprintf("%d calls refused", g.GetBreakerRefused()))
		case pb.BreakerState_BREAKER_STATE_HALF_OPEN:
			parts = append(parts, "half-open, trying")
		}
		if g.Tokens != nil {
			parts = append(parts, fmt.Sprintf("%.4g calls free", g.GetTokens()))
			if n := g.GetWaiting(); n > 0 {
				parts = append(parts, fmt.Sprintf("%d waiting", n))
			}
		}
		fields = append(fields, [2]string{"Target " + g.GetResource(), strings.Join(parts, ", ")})
	}
	return fields
}
