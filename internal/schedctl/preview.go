package schedctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/schedule"
)

const (
	defaultFireTimes = 5
	maxFireTimes     = 1000 // as the server has it
)

// scheduleFlags describe a schedule that is not stored.
type scheduleFlags struct {
	every      time.Duration
	cron       string
	once       string
	daily      string
	weekly     string
	monthly    string
	zone       string
	shortMonth string
	flowID     string
}

var (
	scheduleKinds      = []string{"every", "cron", "once", "daily", "weekly", "monthly"}
	scheduleQualifiers = []string{"zone", "short-month", "flow-id"}
)

func (a *app) previewCommand() *cobra.Command {
	var flags scheduleFlags
	var from string
	var count int
	command := &cobra.Command{
		Use:   "preview [FLOW]",
		Short: "Show when a flow, or a schedule not yet stored, is due",
		Long: `Preview shows the next fire times of a stored flow, or of a schedule given by flags. For the
latter no server is needed. A schedule that is invalid, or can never fire, ends with exit code 7.

-o json prints {"description": …, "fire_times": […], "notes": […]}, the times in UTC.`,
		Example: `  schedctl preview backup --count 10
  schedctl preview --cron '0 30 2 * * *' --zone Europe/Berlin --from 2027-03-27T00:00:00Z
  schedctl preview --every 90s
  schedctl preview --daily 09:00 --zone America/New_York
  schedctl preview --weekly MON,FRI@09:00
  schedctl preview --monthly -1@23:30
  schedctl preview --once 2027-01-01T00:00:00Z`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeFlows,
	}
	f := command.Flags()
	f.DurationVar(&flags.every, "every", 0, "an interval, such as 30s or 1h30m")
	f.StringVar(&flags.cron, "cron", "", "a cron expression of 5, 6 (second first) or 7 (and year last) fields")
	f.StringVar(&flags.once, "once", "", "one instant in RFC 3339, or a local time without offset")
	f.StringVar(&flags.daily, "daily", "", "a wall time, HH:MM or HH:MM:SS, every day")
	f.StringVar(&flags.weekly, "weekly", "", "DAYS@TIME, such as MON,FRI@09:00")
	f.StringVar(&flags.monthly, "monthly", "", "DAY@TIME, such as 15@08:00, or -1@23:30 for the last day")
	f.StringVar(&flags.zone, "zone", "", "IANA time zone the schedule is read in; default UTC")
	f.StringVar(&flags.shortMonth, "short-month", "skip", "what --monthly does in a month without that day: skip or last-day")
	f.StringVar(&flags.flowID, "flow-id", "", "flow that H in a cron expression is hashed for")
	f.StringVar(&from, "from", "", "show fire times after this instant, in RFC 3339; default now")
	f.IntVarP(&count, "count", "n", defaultFireTimes, "fire times at most")
	a.completeFlag(command, "short-month", []string{"skip", "last-day"})
	command.MarkFlagsMutuallyExclusive(scheduleKinds...)

	command.RunE = a.offline(func(ctx context.Context, args []string) error {
		after := a.clock.now()
		if from != "" {
			var err error
			if after, err = time.Parse(time.RFC3339, from); err != nil {
				return usagef("--from %q is not an instant such as 2027-03-27T00:00:00Z", from)
			}
		}
		if count < 0 {
			return usagef("--count must not be negative")
		}
		if count == 0 {
			count = defaultFireTimes
		}
		count = min(count, maxFireTimes)
		kind := slices.IndexFunc(scheduleKinds, command.Flags().Changed)
		var response *pb.PreviewResponse
		var err error
		switch {
		case len(args) == 1 && kind >= 0:
			return usagef("FLOW and --%s exclude each other", scheduleKinds[kind])
		case len(args) == 1 && slices.ContainsFunc(scheduleQualifiers, command.Flags().Changed):
			return usagef("--%s go with a schedule given by flags, not with a FLOW", strings.Join(scheduleQualifiers, ", --"))
		case len(args) == 1:
			response, err = a.previewStored(ctx, args[0], after, count)
		case kind >= 0:
			response, err = flags.preview(scheduleKinds[kind], after, count)
		default:
			return usagef("what shall be previewed? Name a FLOW, or give one of --%s", strings.Join(scheduleKinds, ", --"))
		}
		if err != nil {
			return err
		}
		return a.printer.show(a.previewView(response))
	})
	return command
}

func (a *app) previewStored(ctx context.Context, flow string, after time.Time, count int) (*pb.PreviewResponse, error) {
	client, err := a.client()
	if err != nil {
		return nil, err
	}
	return call(ctx, a, client.Preview, &pb.PreviewRequest{
		Of:    &pb.PreviewRequest_FlowId{FlowId: flow},
		From:  timestamppb.New(after),
		Count: int32(count),
	})
}

// preview computes what the server would answer for the schedule.
func (f *scheduleFlags) preview(kind string, after time.Time, count int) (*pb.PreviewResponse, error) {
	spec, err := f.spec(kind)
	if err != nil {
		return nil, failf(ExitInvalid, "invalid schedule: %w", err)
	}
	compiled, err := schedule.Compile(spec, schedule.Options{FlowID: f.flowID, Now: after, AllowPast: true})
	if err != nil {
		return nil, failf(ExitInvalid, "invalid schedule: %s", pointOut(err, f.cron))
	}
	response := &pb.PreviewResponse{TimeZone: f.zone}
	response.Description, response.Notes = compiled.Describe(after)
	last := after
	for range count {
		next := compiled.Next(last, schedule.Anchors{Start: after})
		if next.IsZero() {
			break // Describe has a note about it
		}
		response.FireTimes = append(response.FireTimes, timestamppb.New(next))
		last = next
	}
	return response, nil
}

func (f *scheduleFlags) spec(kind string) (schedule.Spec, error) {
	spec := schedule.Spec{Zone: f.zone}
	switch kind {
	case "every":
		spec.Every = &schedule.Every{Interval: f.every}
	case "cron":
		spec.Cron = f.cron
	case "once":
		spec.Once = f.once
	case "daily":
		spec.Daily = &schedule.Daily{At: f.daily}
	case "weekly":
		text, at, found := strings.Cut(f.weekly, "@")
		if !found {
			return spec, fmt.Errorf("--weekly %q has no time: DAYS@TIME, such as MON,FRI@09:00", f.weekly)
		}
		days, err := weekdays(text)
		if err != nil {
			return spec, fmt.Errorf("--weekly: %w", err)
		}
		spec.Weekly = &schedule.Weekly{Days: days, At: at}
	case "monthly":
		text, at, found := strings.Cut(f.monthly, "@")
		if !found {
			return spec, fmt.Errorf("--monthly %q has no time: DAY@TIME, such as 15@08:00", f.monthly)
		}
		day, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return spec, fmt.Errorf("--monthly: day %q is not a number from 1 to 31, or -1 for the last day", text)
		}
		spec.Monthly = &schedule.Monthly{Day: day, At: at}
		switch strings.ReplaceAll(strings.ToLower(f.shortMonth), "_", "-") {
		case "skip":
			spec.Monthly.ShortMonth = schedule.SkipMonth
		case "last-day":
			spec.Monthly.ShortMonth = schedule.LastDay
		default:
			return spec, fmt.Errorf("--short-month %q is neither skip nor last-day", f.shortMonth)
		}
	}
	if spec.Cron == "" && kind == "cron" || spec.Once == "" && kind == "once" {
		return spec, fmt.Errorf("--%s is empty", kind)
	}
	return spec, nil
}

// weekdays reads names of weekdays, short or long, in any case, separated by commas.
func weekdays(text string) ([]time.Weekday, error) {
	var days []time.Weekday
	for name := range strings.SplitSeq(text, ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		day := time.Sunday
		for ; day <= time.Saturday; day++ {
			if long := strings.ToLower(day.String()); name == long || name == long[:3] {
				break
			}
		}
		if day > time.Saturday {
			return nil, fmt.Errorf("%q is not a weekday: MON, TUE, WED, THU, FRI, SAT, SUN or the full names", name)
		}
		days = append(days, day)
	}
	return days, nil
}

// pointOut puts the faults of a schedule into lines, with a caret where one is at a place in the cron expression.
func pointOut(err error, cron string) string {
	faults := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		faults = joined.Unwrap()
	}
	var lines []string
	for _, fault := range faults {
		lines = append(lines, fault.Error())
		if at := (*schedule.Error)(nil); errors.As(fault, &at) && at.Field == "cron" && at.Offset >= 0 && at.Offset <= len(cron) {
			lines = append(lines, "  "+clean(cron), "  "+strings.Repeat(" ", textWidth(clean(cron[:at.Offset])))+"^")
		}
	}
	return strings.Join(lines, "\n")
}

func (a *app) previewView(response *pb.PreviewResponse) view {
	type preview struct {
		Description string   `json:"description"`
		FireTimes   []string `json:"fire_times"`
		Notes       []string `json:"notes"`
	}
	document := preview{response.GetDescription(), []string{}, append([]string{}, response.GetNotes()...)}
	for _, t := range response.GetFireTimes() {
		document.FireTimes = append(document.FireTimes, t.AsTime().Format(time.RFC3339Nano))
	}
	return view{
		names:  document.FireTimes,
		encode: func() ([]byte, error) { return json.Marshal(document) },
		lines:  func(bool) []string { return a.previewLines(response) },
	}
}

// previewLines shows fire times in UTC, in the schedule's zone (or, if that is UTC, in the one here), and how far away they are.
func (a *app) previewLines(response *pb.PreviewResponse) []string {
	lines := []string{clean(response.GetDescription())}
	zone := a.clock.zone
	if name := response.GetTimeZone(); name != "" && name != "UTC" {
		if loaded, err := time.LoadLocation(name); err == nil {
			zone = loaded
		}
	}
	name := zone.String()
	if name == time.Local.String() {
		if name, _ = a.clock.now().In(zone).Zone(); name != "UTC" {
			name = "LOCAL"
		}
	}
	local := name != "UTC"
	header := cells("UTC")
	if local {
		header = append(header, cell{text: name})
	}
	rows := [][]cell{append(header, cell{text: "FROM NOW"})}
	for _, ts := range response.GetFireTimes() {
		t := ts.AsTime()
		row := cells(t.Format("Mon 2006-01-02T15:04:05.999Z07:00"))
		if local {
			row = append(row, cell{text: t.In(zone).Format("Mon 2006-01-02 15:04:05 MST")})
		}
		rows = append(rows, append(row, cell{text: distance(t.Sub(a.clock.now()))}))
	}
	if len(rows) > 1 {
		lines = append(lines, "")
		lines = append(lines, a.printer.canvas.table(rows)...)
	}
	if len(response.GetNotes()) > 0 {
		lines = append(lines, "")
	}
	for _, note := range response.GetNotes() {
		lines = append(lines, "note: "+clean(note))
	}
	return lines
}
