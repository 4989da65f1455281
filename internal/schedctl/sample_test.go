package schedctl

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

// at is an instant some time after noon, or before it.
func at(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(noon.Add(d)) }

// sampleFlows is one flow of each kind to be seen in tables.
func sampleFlows() []*pb.FlowInfo {
	return []*pb.FlowInfo{
		{
			Id: "backup", Status: pb.FlowStatus_FLOW_STATUS_RUNNING, RunCount: 12, Schedule: "at 03:00 every day, Europe/Berlin",
			LastRun: at(-75 * time.Second), LastFinish: at(-24 * time.Hour), LastDuration: durationpb.New(83 * time.Second),
			LastOutcome: pb.Outcome_OUTCOME_SUCCEEDED, NextFire: at(15 * time.Hour), Labels: map[string]string{"team": "ops", "tier": "1"},
			CurrentRun: &pb.CurrentRun{
				RunId: "backup@12", State: "archive", Attempt: 2, StartTime: at(-75 * time.Second), Cause: pb.RunCause_RUN_CAUSE_SCHEDULE,
				FireTime: at(-75 * time.Second), StateTime: at(-70 * time.Second),
			},
			Origin: pb.FlowOrigin_FLOW_ORIGIN_FILE, Description: "Archives the data folder",
		},
		{
			Id: "export", Status: pb.FlowStatus_FLOW_STATUS_IDLE, Paused: true, Schedule: "manual", Origin: pb.FlowOrigin_FLOW_ORIGIN_API,
		},
		{
			Id: "flaky", Status: pb.FlowStatus_FLOW_STATUS_TRIPPED, RunCount: 3, LastRun: at(-4 * time.Minute), LastFinish: at(-4 * time.Minute),
			LastDuration: durationpb.New(1234 * time.Millisecond), LastOutcome: pb.Outcome_OUTCOME_FAILED, FailureStreak: 3,
			LastError: "state call: exit status 75\n\x1b[31mevil\x1b[0m", Schedule: "every 30s", NextFire: at(20 * time.Second),
			Skipped: []*pb.SkipCount{
				{Reason: pb.SkipReason_SKIP_REASON_TRIPPED, Count: 7},
				{Reason: pb.SkipReason_SKIP_REASON_BACKOFF, Count: 2},
				{Reason: pb.SkipReason_SKIP_REASON_OVERLAP},
			},
			Labels: map[string]string{"team": "web"}, Origin: pb.FlowOrigin_FLOW_ORIGIN_FILE,
		},
		{
			Id: "health", Status: pb.FlowStatus_FLOW_STATUS_COMPLETED, RunCount: 4711, LastRun: at(-2500 * time.Millisecond),
			LastFinish: at(-2465 * time.Millisecond), LastDuration: durationpb.New(35 * time.Millisecond),
			LastOutcome: pb.Outcome_OUTCOME_SUCCEEDED, Schedule: "every 5s", NextFire: at(2500 * time.Millisecond),
			Labels: map[string]string{"team": "ops"}, Origin: pb.FlowOrigin_FLOW_ORIGIN_FILE,
		},
		{
			Id: "sync", Status: pb.FlowStatus_FLOW_STATUS_BACKOFF, RunCount: 40, LastRun: at(-time.Minute), LastFinish: at(-30 * time.Second),
			LastDuration: durationpb.New(30 * time.Second), LastOutcome: pb.Outcome_OUTCOME_TIMED_OUT, FailureStreak: 1,
			NextEligible: at(4 * time.Second), LastError: "state fetch: timed out after 30s", Schedule: "every 1m", NextFire: at(4 * time.Second),
			Origin: pb.FlowOrigin_FLOW_ORIGIN_FILE,
		},
	}
}

func event(after time.Duration, kind pb.RunEventType, state string, edit func(*pb.RunEvent)) *pb.RunEvent {
	e := &pb.RunEvent{Time: at(after), Type: kind, State: state}
	if edit != nil {
		edit(e)
	}
	return e
}

// sampleRun is a run that failed once, went on, was split, and ended well.
func sampleRun() *pb.Run {
	return &pb.Run{
		Id: "backup@11", FlowId: "backup", Number: 11, Cause: pb.RunCause_RUN_CAUSE_SCHEDULE, FireTime: at(0), StartTime: at(0),
		EndTime: at(12300 * time.Millisecond), Outcome: pb.Outcome_OUTCOME_SUCCEEDED, Exit: "done", State: "done", EventsDropped: 2, Resumed: 1,
		Params: map[string]*structpb.Value{"keep": structpb.NewNumberValue(3), "folder": structpb.NewStringValue("data")},
		Result: structpb.NewStringValue("backup-2027-01-15.tar"),
		Events: []*pb.RunEvent{
			event(0, pb.RunEventType_RUN_EVENT_TYPE_STATE_ENTERED, "archive", nil),
			event(time.Millisecond, pb.RunEventType_RUN_EVENT_TYPE_ATTEMPT_STARTED, "archive", func(e *pb.RunEvent) { e.Attempt = 1 }),
			event(2101*time.Millisecond, pb.RunEventType_RUN_EVENT_TYPE_ATTEMPT_FAILED, "archive", func(e *pb.RunEvent) {
				e.Attempt, e.Duration, e.Error = 1, durationpb.New(2100*time.Millisecond), "exit status 75"
			}),
			event(2101*time.Millisecond, pb.RunEventType_RUN_EVENT_TYPE_RETRY_SCHEDULED, "archive", func(e *pb.RunEvent) { e.Attempt, e.Detail = 1, "in 107ms" }),
			event(4*time.Second, pb.RunEventType_RUN_EVENT_TYPE_RESUMED, "archive", nil),
			event(4*time.Second, pb.RunEventType_RUN_EVENT_TYPE_ATTEMPT_STARTED, "archive", func(e *pb.RunEvent) { e.Attempt = 2 }),
			event(8*time.Second, pb.RunEventType_RUN_EVENT_TYPE_PROGRESS, "archive", func(e *pb.RunEvent) { e.Detail = "half of it" }),
			event(10*time.Second, pb.RunEventType_RUN_EVENT_TYPE_ATTEMPT_SUCCEEDED, "archive", func(e *pb.RunEvent) {
				e.Attempt, e.Duration = 2, durationpb.New(6*time.Second)
			}),
			event(10*time.Second, pb.RunEventType_RUN_EVENT_TYPE_STATE_ENTERED, "copies", nil),
			event(11*time.Second, pb.RunEventType_RUN_EVENT_TYPE_ATTEMPT_CANCELLED, "copies/slow", func(e *pb.RunEvent) { e.Attempt = 1 }),
			event(11*time.Second, pb.RunEventType_RUN_EVENT_TYPE_SPLIT_DECIDED, "copies", func(e *pb.RunEvent) { e.Detail = "2 of 3 succeeded" }),
			event(11*time.Second, pb.RunEventType_RUN_EVENT_TYPE_TIMER_ARMED, "settle", func(e *pb.RunEvent) { e.Detail = "until 12:00:12" }),
			event(12*time.Second, pb.RunEventType_RUN_EVENT_TYPE_TIMER_FIRED, "settle", nil),
			event(12*time.Second, pb.RunEventType_RUN_EVENT_TYPE_COMPENSATED, "copies", nil),
			event(12*time.Second, pb.RunEventType_RUN_EVENT_TYPE_COMPENSATION_FAILED, "archive", func(e *pb.RunEvent) { e.Error = "no space" }),
			event(12*time.Second, pb.RunEventType(99), "archive", nil),
			event(12300*time.Millisecond, pb.RunEventType_RUN_EVENT_TYPE_STATE_ENTERED, "done", nil),
		},
	}
}

func failedRun() *pb.Run {
	return &pb.Run{
		Id: "backup@10", FlowId: "backup", Number: 10, Cause: pb.RunCause_RUN_CAUSE_TRIGGER, StartTime: at(-25 * time.Hour),
		EndTime: at(-25*time.Hour + 90*time.Second), Outcome: pb.Outcome_OUTCOME_FAILED, State: "archive", Error: "archive: exit status 1",
	}
}

// sampleRig has the flows and runs above.
func sampleRig() (flows []*pb.FlowInfo, runs []*pb.Run) {
	running := &pb.Run{
		Id: "backup@12", FlowId: "backup", Number: 12, Cause: pb.RunCause_RUN_CAUSE_CATCH_UP, FireTime: at(-time.Hour),
		StartTime: at(-75 * time.Second), State: "archive",
	}
	return sampleFlows(), []*pb.Run{failedRun(), sampleRun(), running}
}
