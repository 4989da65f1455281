package schedctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

func (a *app) benchCommand() *cobra.Command {
	b := bench{app: a}
	command := &cobra.Command{
		Use:   "bench [FLOW ...]",
		Short: "Measure how fast the daemon answers",
		Long: `Bench asks for the status of flows, or triggers them, from many callers at once, each with one
call after the other, and tells how many calls a second were answered and how long they took.
Triggers start real runs; one of a flow that is running is refused, and counted apart.`,
		Example:           "  schedctl bench\n  schedctl bench --trigger --callers 64 --for 10s ping-1 ping-2",
		ValidArgsFunction: a.completeFlows,
	}
	command.Flags().BoolVar(&b.trigger, "trigger", false, "trigger the flows instead of asking for their status")
	command.Flags().IntVar(&b.callers, "callers", 16, "how many calls are under way at once")
	command.Flags().DurationVar(&b.length, "for", 5*time.Second, "how long to measure")
	command.RunE = a.online(b.run)
	return command
}

// bench is one measurement.
type bench struct {
	*app
	trigger bool
	callers int
	length  time.Duration
}

func (b *bench) run(ctx context.Context, client pb.SchedulerServiceClient, flows []string) error {
	switch {
	case b.callers < 1 || b.callers > 10_000:
		return usagef("--callers must be from 1 to 10000, not %d", b.callers)
	case b.length <= 0:
		return usagef("--for must be positive, not %v", b.length)
	case b.trigger && len(flows) == 0:
		return usagef("name the flows to trigger: their runs are real")
	}
	if len(flows) == 0 {
		page, err := call(ctx, b.app, client.List, &pb.ListRequest{PageSize: 1000})
		if err != nil {
			return err
		}
		for _, f := range page.GetFlows() {
			flows = append(flows, f.GetId())
		}
		if len(flows) == 0 {
			return failf(ExitNotFound, "the daemon has no flows to ask for")
		}
	}
	ctx, cancel := context.WithTimeout(ctx, b.length)
	defer cancel()
	results := make([]benchResult, b.callers)
	began := time.Now()
	var all sync.WaitGroup
	for i := range results {
		all.Go(func() { results[i] = b.caller(ctx, client, flows, i) })
	}
	all.Wait()
	return b.tell(results, time.Since(began))
}

// benchResult is what one caller saw.
type benchResult struct {
	took    []time.Duration
	refused int
	err     error
}

// caller makes one call after the other until ctx ends.
func (b *bench) caller(ctx context.Context, client pb.SchedulerServiceClient, flows []string, turn int) (r benchResult) {
	for ; ; turn++ {
		id := flows[turn%len(flows)]
		began := time.Now()
		var err error
		if b.trigger {
			_, err = client.Trigger(ctx, &pb.TriggerRequest{FlowId: id})
		} else {
			_, err = client.Status(ctx, &pb.StatusRequest{FlowId: id})
		}
		if ctx.Err() != nil || wireStatus(err).Code() == codes.DeadlineExceeded { // the server may be the first to notice
			if errors.Is(ctx.Err(), context.Canceled) {
				r.err = ctx.Err()
			}
			return r
		}
		if b.trigger && wireStatus(err).Code() == codes.FailedPrecondition {
			r.refused++
		} else if err != nil {
			r.err = err
			return r
		}
		r.took = append(r.took, time.Since(began))
	}
}

func (b *bench) tell(results []benchResult, elapsed time.Duration) error {
	var took []time.Duration
	refused := 0
	for _, r := range results {
		if r.err != nil {
			return r.err
		}
		took = append(took, r.took...)
		refused += r.refused
	}
	if len(took) == 0 {
		return failf(ExitUnavailable, "no call was answered in %v", b.length)
	}
	slices.Sort(took)
	quantile := func(q float64) time.Duration { return took[int(q*float64(len(took)-1))] }
	rate := float64(len(took)) / elapsed.Seconds()
	what := "Status"
	if b.trigger {
		what = "Trigger"
	}
	return b.printer.show(view{
		encode: func() ([]byte, error) {
			return json.Marshal(map[string]any{
				"call": what, "callers": b.callers, "seconds": elapsed.Seconds(), "calls": len(took), "refused": refused, "calls_per_second": rate,
				"p50_seconds": quantile(.5).Seconds(), "p99_seconds": quantile(.99).Seconds(), "max_seconds": quantile(1).Seconds(),
			})
		},
		lines: func(bool) []string {
			fields := [][2]string{
				{"call", what},
				{"callers", fmt.Sprint(b.callers)},
				{"calls", fmt.Sprint(len(took))},
				{"calls a second", fmt.Sprintf("%.0f", rate)},
				{"p50", quantile(.5).Round(time.Microsecond).String()},
				{"p99", quantile(.99).Round(time.Microsecond).String()},
				{"longest", quantile(1).Round(time.Microsecond).String()},
			}
			if b.trigger {
				fields = append(fields, [2]string{"refused", fmt.Sprint(refused)})
			}
			return b.printer.canvas.fields(fields)
		},
	})
}
