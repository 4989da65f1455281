package schedctl

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

var statusStyles = map[pb.FlowStatus]style{
	pb.FlowStatus_FLOW_STATUS_RUNNING:   cyan,
	pb.FlowStatus_FLOW_STATUS_COMPLETED: green,
	pb.FlowStatus_FLOW_STATUS_BACKOFF:   yellow,
	pb.FlowStatus_FLOW_STATUS_TRIPPED:   red,
}

var outcomeStyles = map[pb.Outcome]style{
	pb.Outcome_OUTCOME_SUCCEEDED: green,
	pb.Outcome_OUTCOME_CANCELLED: yellow,
	pb.Outcome_OUTCOME_FAILED:    red,
	pb.Outcome_OUTCOME_TIMED_OUT: red,
	pb.Outcome_OUTCOME_LOST:      red,
}

func flowHeader(wide bool) []cell {
	header := cells("FLOW", "STATUS", "RUNS", "LAST RUN", "RESULT", "NEXT")
	if wide {
		header = append(header, cells("SCHEDULE", "SKIPPED", "LABELS", "ORIGIN", "REVISION")...)
	}
	header = append(header, cell{text: "DETAIL"})
	for i := range header {
		header[i].style = dim
	}
	return header
}

func flowRow(c clock, flow *pb.FlowInfo, wide bool) []cell {
	row := []cell{
		{flow.GetId(), bold},
		{flowStatus(flow), statusStyles[flow.GetStatus()]},
		{strconv.FormatUint(flow.GetRunCount(), 10), plain},
		{c.relative(flow.GetLastRun()), plain},
		{flowResult(flow), outcomeStyles[flow.GetLastOutcome()]},
		{nextRun(c, flow), plain},
	}
	if wide {
		row = append(row, cells(
			orNone(flow.GetSchedule()),
			orNone(skipped(flow)),
			orNone(labels(flow)),
			words(flow.GetOrigin()),
			strconv.FormatUint(flow.GetRevision(), 10),
		)...)
	}
	return append(row, cell{text: flowDetail(c, flow)})
}

// flowStatus is where a flow stands, with its consecutive failures: "BACKOFF ×2, paused".
func flowStatus(flow *pb.FlowInfo) string {
	text := short(flow.GetStatus())
	if streak := flow.GetFailureStreak(); streak > 0 {
		text += fmt.Sprintf(" ×%d", streak)
	}
	if flow.GetPaused() {
		text += ", paused"
	}
	return text
}

// nextRun is when a flow will run by itself: fire times of a tripped or paused one are skipped.
func nextRun(c clock, flow *pb.FlowInfo) string {
	if flow.GetPaused() || flow.GetStatus() == pb.FlowStatus_FLOW_STATUS_TRIPPED {
		return none
	}
	return c.relative(flow.GetNextFire())
}

// flowResult is how the last ended run went.
func flowResult(flow *pb.FlowInfo) string {
	if flow.GetLastOutcome() == pb.Outcome_OUTCOME_UNSPECIFIED {
		return none
	}
	text := words(flow.GetLastOutcome())
	if flow.GetLastDuration() != nil {
		text += " " + took(flow.GetLastDuration())
	}
	return text
}

// flowDetail is what there is to know about a flow now, beside its columns.
func flowDetail(c clock, flow *pb.FlowInfo) string {
	var parts []string
	if run := flow.GetCurrentRun(); run != nil {
		parts = append(parts, runPosition(run.GetRunId(), run.GetState(), run.GetAttempt()))
		if run.GetCancelling() {
			parts = append(parts, "cancelling")
		}
	}
	if flow.GetStatus() == pb.FlowStatus_FLOW_STATUS_BACKOFF && flow.GetNextEligible() != nil {
		parts = append(parts, "next try "+c.relative(flow.GetNextEligible()))
	}
	if flow.GetScheduleError() != "" {
		parts = append(parts, "schedule: "+flow.GetScheduleError())
	}
	if flow.GetLastError() != "" {
		parts = append(parts, flow.GetLastError())
	}
	return strings.Join(parts, "; ")
}

// runPosition is where a run is: "backup@12 in archive, attempt 2".
func runPosition(run, state string, attempt uint32) string {
	if state != "" {
		run += " in " + state
	}
	if attempt > 1 {
		run += fmt.Sprintf(", attempt %d", attempt)
	}
	return run
}

func skipped(flow *pb.FlowInfo) string {
	var parts []string
	for _, skip := range flow.GetSkipped() {
		if skip.GetCount() > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", words(skip.GetReason()), skip.GetCount()))
		}
	}
	return strings.Join(parts, ", ")
}

func labels(flow *pb.FlowInfo) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(flow.GetLabels())) {
		parts = append(parts, key+"="+flow.GetLabels()[key])
	}
	return strings.Join(parts, ",")
}

func orNone(text string) string {
	if text == "" {
		return none
	}
	return text
}

// flowFields is all that is known about one flow.
func flowFields(c clock, flow *pb.FlowInfo) [][2]string {
	fields := [][2]string{{"Flow", flow.GetId()}}
	add := func(name, value string) {
		if value != "" && value != none {
			fields = append(fields, [2]string{name, value})
		}
	}
	add("Description", flow.GetDescription())
	add("Labels", labels(flow))
	add("Status", flowStatus(flow))
	if run := flow.GetCurrentRun(); run != nil {
		text := runPosition(run.GetRunId(), run.GetState(), run.GetAttempt())
		if run.GetCancelling() {
			text += ", cancelling"
		}
		add("Running", text)
		add("  since", c.exact(run.GetStartTime()))
		add("  cause", runCause(c, run.GetCause(), run.GetFireTime()))
	}
	add("Schedule", flow.GetSchedule())
	add("Next", c.exact(flow.GetNextFire()))
	add("Schedule error", flow.GetScheduleError())
	add("Runs", strconv.FormatUint(flow.GetRunCount(), 10))
	add("Last run", c.exact(flow.GetLastRun()))
	add("  result", flowResult(flow))
	if flow.GetFailureStreak() > 0 {
		add("Failures", fmt.Sprintf("%d in a row", flow.GetFailureStreak()))
	}
	add("Held off until", c.exact(flow.GetNextEligible()))
	add("Last error", flow.GetLastError())
	add("Skipped", skipped(flow))
	add("Origin", words(flow.GetOrigin()))
	add("Revision", strconv.FormatUint(flow.GetRevision(), 10))
	if flow.GetStatus() == pb.FlowStatus_FLOW_STATUS_TRIPPED {
		add("", "it runs again after: schedctl reset "+flow.GetId())
	}
	return fields
}

// changeLine is a change of a flow as a line of its own.
func changeLine(c clock, change flowChange) []cell {
	row := []cell{{c.now().In(c.zone).Format("15:04:05"), dim}, {change.id, bold}}
	if change.flow == nil {
		return append(row, cell{text: words(change.left)})
	}
	flow := change.flow
	row = append(row, cell{flowStatus(flow), statusStyles[flow.GetStatus()]})
	var parts []string
	if flow.GetStatus() != pb.FlowStatus_FLOW_STATUS_RUNNING && flowResult(flow) != none {
		parts = append(parts, flowResult(flow))
	}
	if detail := flowDetail(c, flow); detail != "" {
		parts = append(parts, detail)
	}
	if next := nextRun(c, flow); flow.GetStatus() != pb.FlowStatus_FLOW_STATUS_RUNNING && next != none {
		parts = append(parts, "next "+next)
	}
	if change.merged > 0 {
		parts = append(parts, fmt.Sprintf("%d changes merged", change.merged))
	}
	return append(row, cell{text: strings.Join(parts, "; ")})
}
