package schedctl

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

// follow shows what happens in a run until it has ended, and returns how it ended.
// begun says that the run is known to be there, even if the server is not at the moment.
func (a *app) follow(ctx context.Context, client pb.SchedulerServiceClient, id string, begun bool) (*pb.Run, error) {
	watch := RunWatch{Client: client, RunID: id, Begun: begun}
	if a.printer.human() {
		return a.followForPeople(ctx, watch)
	}
	outage := outage{app: a}
	watch.Lost = outage.begin
	return watch.Run(ctx, func(response *pb.WatchRunResponse) error {
		outage.end()
		return a.printer.stream(view{message: response, names: endedName(response.GetRun())})
	})
}

// endedName is a run's name once it has ended, so that -o name prints it once.
func endedName(run *pb.Run) []string {
	if run.GetEndTime() == nil {
		return nil
	}
	return []string{run.GetId()}
}

// followForPeople prints events as lines and, on a terminal, where the run is under them.
func (a *app) followForPeople(ctx context.Context, watch RunWatch) (*pb.Run, error) {
	progress := progress{app: a}
	outage := outage{app: a}
	watch.Lost = outage.begin
	show := func(change func() []string) {
		outage.end()
		a.printer.lines(change())
	}
	if _, _, live := a.env.Window(); live {
		screen := &screen{out: a.env.Out, window: a.env.Window, block: func() []string { return progress.status() }}
		stop := screen.start()
		defer stop()
		show = screen.update
		watch.Lost = func(err error, _ time.Duration) {
			screen.update(func() []string {
				if err != nil {
					progress.lost = explainLoss(err, a.conn.server)
				}
				return nil
			})
		}
	}
	return watch.Run(ctx, func(response *pb.WatchRunResponse) error {
		show(func() []string { return progress.take(response) })
		return nil
	})
}

// progress is what is known about a run that is followed.
type progress struct {
	*app
	run     *pb.Run
	state   string
	attempt uint32
	lost    string
	widest  int // state so far, so that the columns stay where they are
}

// take takes news in and returns them as lines.
func (p *progress) take(response *pb.WatchRunResponse) []string {
	if response.GetRun() != nil {
		p.run, p.state = response.GetRun(), response.GetRun().GetState()
	}
	p.lost = ""
	var lines []string
	for _, event := range response.GetEvents() {
		if event.GetState() != "" {
			p.state, p.attempt = event.GetState(), event.GetAttempt()
		}
		row := eventRow(p.run.GetStartTime(), event)
		p.widest = max(p.widest, textWidth(row[1].text), 12)
		lines = append(lines, p.printer.canvas.uncut().line(row, []int{0, p.widest, 0}, "  "))
	}
	if run := p.run; run.GetEndTime() != nil {
		what := fmt.Sprintf("%s after %s", runOutcome(run), shortDuration(p.runTime(run)))
		if place := runPlace(run); place != "" {
			what += " at " + place
		}
		if run.GetError() != "" {
			what += ": " + run.GetError()
		}
		lines = append(lines, p.printer.canvas.uncut().line([]cell{{run.GetId(), bold}, {what, runStyle(run)}}, nil, " "))
	}
	return lines
}

// status is the line under the events: none once the run has ended.
func (p *progress) status() []string {
	if p.run == nil || p.run.GetEndTime() != nil {
		return nil
	}
	width, _, _ := p.env.Window()
	canvas := canvas{width: max(width-1, 1), color: p.printer.canvas.color}
	row := []cell{{"running", cyan}, {fmt.Sprintf("%s, %s", runPosition(p.run.GetId(), p.state, p.attempt), coarse(p.runTime(p.run))), plain}}
	if p.lost != "" {
		row = append(row, cell{p.lost, red})
	}
	return []string{canvas.line(row, nil, "  ")}
}

// waitFor follows a run and turns its end into an exit code.
func (a *app) waitFor(ctx context.Context, client pb.SchedulerServiceClient, run *pb.Run) error {
	ctx, cancel := a.whole(ctx)
	defer cancel()
	ended, err := a.await(ctx, client, run.GetId())
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return failf(ExitOther, "%s has not ended within %s and goes on; to follow it: schedctl run %s --follow", run.GetId(), a.conn.timeout, run.GetId())
	case errors.Is(err, context.Canceled):
		return failf(ExitInterrupted, "interrupted; %s goes on; to end it: schedctl cancel %s", run.GetId(), run.GetId())
	case err != nil:
		return err
	case ended.GetOutcome() != pb.Outcome_OUTCOME_SUCCEEDED:
		return &exitError{ExitRunFailed, errSilent}
	}
	return nil
}

// await follows a run to its end. People see what happens; scripts get the run as it ended, once.
func (a *app) await(ctx context.Context, client pb.SchedulerServiceClient, id string) (*pb.Run, error) {
	if a.printer.human() {
		return a.follow(ctx, client, id, true)
	}
	outage := outage{app: a}
	watch := RunWatch{Client: client, RunID: id, Begun: true, Lost: outage.begin}
	var events []*pb.RunEvent
	run, err := watch.Run(ctx, func(response *pb.WatchRunResponse) error {
		outage.end()
		events = append(events, response.GetEvents()...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	full, err := call(ctx, a, client.GetRun, &pb.GetRunRequest{RunId: id})
	if err != nil { // a flow may keep no runs
		run.Events = events
		full = &pb.GetRunResponse{Run: run}
	}
	return run, a.printer.show(view{message: full, names: []string{id}})
}
