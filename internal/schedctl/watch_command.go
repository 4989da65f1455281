package schedctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

// The live table asks for no more changes than an eye can follow.
const liveInterval = 200 * time.Millisecond

func (a *app) watchCommand() *cobra.Command {
	var selection filterFlags
	var until enumFlag[pb.FlowStatus]
	command := &cobra.Command{
		Use:   "watch [FLOW…]",
		Short: "Follow the states of flows as they change",
		Long: `Watch follows the states of flows, all or some: as a live table on a terminal, as a
line for each change otherwise, as a JSON document a line with -o json. It goes on over
broken connections and restarts of the daemon. Ctrl-C ends it.

With --until it ends by itself once every watched flow has one of those statuses.`,
		Example: `  schedctl watch
  schedctl watch -l team=ops | tee changes.log
  schedctl watch backup --until completed,tripped`,
		ValidArgsFunction: a.completeFlows,
		RunE: a.online(func(ctx context.Context, client pb.SchedulerServiceClient, flows []string) error {
			filter, err := selection.filter(flows)
			if err != nil {
				return err
			}
			if len(until.values) > 0 && len(selection.statuses.values) > 0 {
				return usagef("--until and --status exclude each other: a flow that leaves the filter is no longer seen")
			}
			ctx, cancel := a.whole(ctx)
			defer cancel()
			w := watching{
				app:   a,
				watch: StatusWatch{Client: client, Filter: filter},
				until: until.values,
			}
			if len(selection.statuses.values)+len(selection.labels) == 0 {
				w.wanted = flows
			}
			err = w.run(ctx)
			late, interrupted := errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled)
			switch {
			case late && len(until.values) > 0:
				return failf(ExitOther, "not %s within %s", until.String(), a.conn.timeout)
			case (late || interrupted) && len(until.values) == 0:
				return nil // this is how a watch ends
			}
			return err
		}),
	}
	selection.register(a, command)
	command.Flags().Var(&until, "until", "end once every watched flow has one of these statuses, separated by commas")
	a.completeFlag(command, "until", until.names())
	return command
}

// watching is one watch command on its way.
type watching struct {
	*app
	watch  StatusWatch
	wanted []string // flows that must be there
	until  []pb.FlowStatus

	mirror mirror
	lost   string // why there is no connection now
}

func (w *watching) run(ctx context.Context) error {
	if _, _, live := w.env.Window(); live && w.printer.human() {
		return w.live(ctx)
	}
	outage := outage{app: w.app}
	w.watch.Lost = outage.begin
	return w.watch.Run(ctx, func(response *pb.WatchStatusResponse, fresh bool) error {
		outage.end()
		changes := w.mirror.apply(response, fresh)
		if err := w.print(response, changes); err != nil {
			return err
		}
		return w.check(response)
	})
}

// live shows a table that is redrawn in place.
func (w *watching) live(ctx context.Context) error {
	screen := &screen{out: w.env.Out, window: w.env.Window}
	screen.block = func() []string { return w.table(screen.room()) }
	w.watch.MinInterval = liveInterval
	w.watch.Lost = func(err error, _ time.Duration) {
		screen.update(func() []string {
			if err != nil { // else the server only ended a stream to spread load
				w.lost = explainLoss(err, w.conn.server)
			}
			return nil
		})
	}
	stop := screen.start()
	defer stop()
	return w.watch.Run(ctx, func(response *pb.WatchStatusResponse, fresh bool) error {
		screen.update(func() []string {
			w.lost = ""
			w.mirror.apply(response, fresh)
			return nil
		})
		return w.check(response)
	})
}

// check says whether the watch is over, or cannot succeed.
func (w *watching) check(response *pb.WatchStatusResponse) error {
	if !w.mirror.complete {
		return nil
	}
	if response.GetInitialStateComplete() || len(w.until) > 0 {
		for _, id := range w.wanted {
			if w.mirror.flows[id] == nil {
				return failf(ExitNotFound, "there is no flow %s; run: schedctl list", id)
			}
		}
	}
	if len(w.until) == 0 || len(w.mirror.flows) == 0 {
		return nil
	}
	for _, flow := range w.mirror.flows {
		if !slices.Contains(w.until, flow.GetStatus()) {
			return nil
		}
	}
	return errEnough
}

func (w *watching) print(response *pb.WatchStatusResponse, changes []flowChange) error {
	v := view{message: response}
	for _, change := range changes {
		v.names = append(v.names, change.id)
	}
	v.lines = func(bool) []string {
		var lines []string
		for _, change := range changes {
			if change.worthALine() {
				lines = append(lines, w.printer.canvas.line(changeLine(w.clock, change), nil, "  "))
			}
		}
		return lines
	}
	return w.printer.stream(v)
}

// table is the live table, made for a room.
func (w *watching) table(width, height int) []string {
	canvas := canvas{width: width, color: w.printer.canvas.color}
	total := len(w.mirror.flows)
	summary := fmt.Sprintf("%s, %s", w.conn.server, count(total, "flow"))
	counts := w.mirror.counts()
	for _, status := range slices.Backward(w.statuses()) {
		if counts[status] > 0 {
			summary += fmt.Sprintf(", %d %s", counts[status], words(status))
		}
	}
	if !w.mirror.complete {
		summary += ", loading"
	}
	head := []cell{{w.clock.now().In(w.clock.zone).Format("15:04:05"), dim}, {summary, plain}}
	lines := []string{canvas.line(head, nil, "  ")}
	if w.lost != "" {
		lines = append(lines, canvas.line([]cell{{w.lost, red}}, nil, ""))
	}
	wide := w.printer.format == formatWide
	rows := [][]cell{flowHeader(wide)}
	room := height - len(lines) - 1 // for the header
	if total > room {
		room-- // and for the note about the rest
	}
	shown := w.mirror.top(max(room, 0))
	for _, flow := range shown {
		rows = append(rows, flowRow(w.clock, flow, wide))
	}
	lines = append(lines, canvas.table(rows)...)
	if hidden := total - len(shown); hidden > 0 {
		note := fmt.Sprintf("… and %d more, quieter ones: make the window higher, or use --label and --status", hidden)
		lines = append(lines, canvas.line([]cell{{note, dim}}, nil, ""))
	}
	return lines
}

// statuses are those that are known, in their order in the API.
func (w *watching) statuses() []pb.FlowStatus {
	var statuses []pb.FlowStatus
	for number := range pb.FlowStatus_name {
		if number != 0 {
			statuses = append(statuses, pb.FlowStatus(number))
		}
	}
	slices.Sort(statuses)
	return statuses
}
