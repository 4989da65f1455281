package schedctl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

func (a *app) runsCommand() *cobra.Command {
	var outcomes enumFlag[pb.Outcome]
	var limit limitFlag
	command := &cobra.Command{
		Use:               "runs FLOW",
		Short:             "List a flow's kept runs, newest first",
		Example:           "  schedctl runs backup\n  schedctl runs backup --outcome failed,timed-out -o wide",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeFlows,
		RunE: a.online(func(ctx context.Context, client pb.SchedulerServiceClient, args []string) error {
			all := &pb.ListRunsResponse{}
			err := pages(limit.n, func(size int32, token string) (int, string, error) {
				page, err := call(ctx, a, client.ListRuns, &pb.ListRunsRequest{
					FlowId: args[0], PageSize: size, PageToken: token, Outcomes: outcomes.values,
				})
				if err != nil {
					return 0, "", err
				}
				all.Runs = append(all.Runs, page.GetRuns()...)
				return len(page.GetRuns()), page.GetNextPageToken(), nil
			})
			if err != nil {
				return err
			}
			return a.printer.show(a.runsView(all))
		}),
	}
	command.Flags().Var(&outcomes, "outcome", "only runs that ended in one of these ways, separated by commas")
	a.completeFlag(command, "outcome", outcomes.names())
	limit.register(command.Flags(), "runs")
	return command
}

func (a *app) runsView(list *pb.ListRunsResponse) view {
	v := view{message: list}
	for _, run := range list.GetRuns() {
		v.names = append(v.names, run.GetId())
	}
	v.lines = func(wide bool) []string {
		if len(list.GetRuns()) == 0 {
			return []string{"no runs"}
		}
		header := cells("RUN", "OUTCOME", "STARTED", "TOOK", "CAUSE", "AT")
		if wide {
			header = append(header, cells("FIRE TIME", "RESUMED", "PARAMS")...)
		}
		header = append(header, cell{text: "ERROR"})
		for i := range header {
			header[i].style = dim
		}
		rows := [][]cell{header}
		for _, run := range list.GetRuns() {
			row := []cell{
				{run.GetId(), bold},
				{runOutcome(run), runStyle(run)},
				{a.clock.relative(run.GetStartTime()), plain},
				{shortDuration(a.runTime(run)), plain},
				{words(run.GetCause()), plain},
				{orNone(runPlace(run)), plain},
			}
			if wide {
				row = append(row, cells(a.clock.relative(run.GetFireTime()), strconv.FormatUint(uint64(run.GetResumed()), 10), orNone(params(run.GetParams())))...)
			}
			rows = append(rows, append(row, cell{text: run.GetError()}))
		}
		return a.printer.canvas.table(rows)
	}
	return v
}

func (a *app) runCommand() *cobra.Command {
	var follow bool
	command := &cobra.Command{
		Use:   "run ID",
		Short: "Show one run with the timeline of what happened in it",
		Long: `Run shows one run and what happened in it. A run's id is its flow's id, '@' and its number.
With --follow it goes on until the run has ended.`,
		Example: "  schedctl run backup@12\n  schedctl run backup@12 --follow",
		Args:    cobra.ExactArgs(1),
	}
	command.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the run has ended")
	command.RunE = a.online(func(ctx context.Context, client pb.SchedulerServiceClient, args []string) error {
		if follow {
			ctx, cancel := a.whole(ctx)
			defer cancel()
			_, err := a.follow(ctx, client, args[0], false)
			return err
		}
		response, err := call(ctx, a, client.GetRun, &pb.GetRunRequest{RunId: args[0]})
		if err != nil {
			return err
		}
		run := response.GetRun()
		return a.printer.show(view{
			message: response,
			names:   []string{run.GetId()},
			lines: func(bool) []string {
				lines := a.printer.canvas.fields(runFields(a, run))
				if len(run.GetEvents()) > 0 {
					lines = append(lines, "")
				}
				return append(lines, a.printer.canvas.uncut().table(timeline(run.GetStartTime(), run.GetEvents()))...)
			},
		})
	})
	return command
}

func runFields(a *app, run *pb.Run) [][2]string {
	fields := [][2]string{{"Run", run.GetId()}}
	add := func(name, value string) {
		if value != "" && value != none {
			fields = append(fields, [2]string{name, value})
		}
	}
	add("Outcome", runOutcome(run))
	add("At", runPlace(run))
	add("Error", run.GetError())
	add("Cause", runCause(a.clock, run.GetCause(), run.GetFireTime()))
	add("Started", a.clock.exact(run.GetStartTime()))
	add("Ended", a.clock.exact(run.GetEndTime()))
	add("Took", shortDuration(a.runTime(run)))
	if run.GetResumed() > 0 {
		add("Resumed", count(int(run.GetResumed()), "time")+" after a crash")
	}
	add("Params", params(run.GetParams()))
	if run.GetResult() != nil {
		add("Result", valueText(run.GetResult()))
	}
	if run.GetEventsDropped() > 0 {
		add("Events", fmt.Sprintf("the oldest %d are no longer kept", run.GetEventsDropped()))
	}
	return fields
}

// runOutcome is how a run ended, or that it has not.
func runOutcome(run *pb.Run) string {
	if run.GetEndTime() == nil {
		return "running"
	}
	return words(run.GetOutcome())
}

func runStyle(run *pb.Run) style {
	if run.GetEndTime() == nil {
		return cyan
	}
	return outcomeStyles[run.GetOutcome()]
}

// runPlace is the exit a run reached, or the state it is or ended in.
func runPlace(run *pb.Run) string {
	if run.GetExit() != "" {
		return run.GetExit()
	}
	return run.GetState()
}

// runTime is how long a run took, or has been on its way.
func (a *app) runTime(run *pb.Run) time.Duration {
	end := a.clock.now()
	if run.GetEndTime() != nil {
		end = run.GetEndTime().AsTime()
	}
	return end.Sub(run.GetStartTime().AsTime())
}

func runCause(c clock, cause pb.RunCause, fireTime *timestamppb.Timestamp) string {
	text := words(cause)
	if fireTime != nil {
		text += ", for " + fireTime.AsTime().In(c.zone).Format("2006-01-02 15:04:05 MST")
	}
	return text
}

func params(values map[string]*structpb.Value) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		parts = append(parts, key+"="+valueText(values[key]))
	}
	return strings.Join(parts, " ")
}

// valueText is a value as JSON on one line.
func valueText(value *structpb.Value) string {
	text, err := compactJSON(value)
	if err != nil {
		return "(unreadable)"
	}
	return string(text)
}

// timeline is events as rows: when, where, what.
func timeline(start *timestamppb.Timestamp, events []*pb.RunEvent) [][]cell {
	rows := make([][]cell, len(events))
	for i, event := range events {
		rows[i] = eventRow(start, event)
	}
	return rows
}

func eventRow(start *timestamppb.Timestamp, event *pb.RunEvent) []cell {
	offset := event.GetTime().AsTime().Sub(start.AsTime())
	what, style := eventText(event)
	return []cell{
		{fmt.Sprintf("%+9.3fs", offset.Seconds()), dim},
		{event.GetState(), bold},
		{what, style},
	}
}

func eventText(event *pb.RunEvent) (string, style) {
	attempt := fmt.Sprintf("attempt %d ", event.GetAttempt())
	after := ""
	if event.GetDuration() != nil {
		after = " after " + took(event.GetDuration())
	}
	why := ""
	switch detail := event.GetDetail(); {
	case event.GetError() != "" && detail != "":
		why = ": " + event.GetError() + " (" + detail + ")"
	case event.GetError()+detail != "":
		why = ": " + event.GetError() + detail
	}
	switch event.GetType() {
	case pb.RunEventType_RUN_EVENT_TYPE_STATE_ENTERED:
		return "entered" + why, plain
	case pb.RunEventType_RUN_EVENT_TYPE_ATTEMPT_STARTED:
		return attempt + "started" + why, plain
	case pb.RunEventType_RUN_EVENT_TYPE_ATTEMPT_SUCCEEDED:
		return attempt + "succeeded" + after + why, green
	case pb.RunEventType_RUN_EVENT_TYPE_ATTEMPT_FAILED:
		return attempt + "failed" + after + why, red
	case pb.RunEventType_RUN_EVENT_TYPE_ATTEMPT_CANCELLED:
		return attempt + "cancelled" + after + why, yellow
	case pb.RunEventType_RUN_EVENT_TYPE_RETRY_SCHEDULED:
		return "will be tried again" + why, yellow
	case pb.RunEventType_RUN_EVENT_TYPE_TIMER_ARMED:
		return "waits" + why, plain
	case pb.RunEventType_RUN_EVENT_TYPE_TIMER_FIRED:
		return "timer fired" + after + why, plain
	case pb.RunEventType_RUN_EVENT_TYPE_SPLIT_DECIDED:
		return "split decided" + after + why, plain
	case pb.RunEventType_RUN_EVENT_TYPE_COMPENSATED:
		return "undone" + after + why, yellow
	case pb.RunEventType_RUN_EVENT_TYPE_COMPENSATION_FAILED:
		return "could not be undone" + after + why, red
	case pb.RunEventType_RUN_EVENT_TYPE_RESUMED:
		return "resumed after a crash" + why, yellow
	case pb.RunEventType_RUN_EVENT_TYPE_PROGRESS:
		return strings.TrimPrefix(why, ": "), plain
	}
	return words(event.GetType()) + after + why, plain
}
