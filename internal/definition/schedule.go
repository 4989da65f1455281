package definition

import (
	"errors"
	"fmt"
	"slices"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/schedule"
	"github.com/schedulerd/schedulerd/internal/fault"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// ScheduleSpec translates a schedule. A missing one is manual.
func ScheduleSpec(s *schedulerdv1.Schedule) schedule.Spec {
	if s == nil {
		return schedule.Spec{Manual: true}
	}
	spec := schedule.Spec{
		Zone:      s.GetTimeZone(),
		NotBefore: instant(s.GetNotBefore()),
		NotAfter:  instant(s.GetNotAfter()),
		Jitter:    s.GetJitter().AsDuration(),
		Splay:     s.GetSplay().AsDuration(),
	}
	switch kind := s.GetKind().(type) {
	case *schedulerdv1.Schedule_Every:
		spec.Every = &schedule.Every{
			Interval:     kind.Every.GetInterval().AsDuration(),
			InitialDelay: kind.Every.GetInitialDelay().AsDuration(),
			FixedDelay:   kind.Every.GetFixedDelay(),
		}
	case *schedulerdv1.Schedule_Cron:
		spec.Cron = kind.Cron
	case *schedulerdv1.Schedule_Once:
		spec.Once = kind.Once.GetAt()
	case *schedulerdv1.Schedule_Daily:
		spec.Daily = &schedule.Daily{At: kind.Daily.GetAt()}
	case *schedulerdv1.Schedule_Weekly:
		spec.Weekly = &schedule.Weekly{At: kind.Weekly.GetAt()}
		for _, day := range kind.Weekly.GetDays() {
			spec.Weekly.Days = append(spec.Weekly.Days, time.Weekday(day%7)) // Sunday is 7 here and 0 there
		}
	case *schedulerdv1.Schedule_Monthly:
		spec.Monthly = &schedule.Monthly{Day: int(kind.Monthly.GetDay()), At: kind.Monthly.GetAt()}
		if kind.Monthly.GetShortMonth() == schedulerdv1.ShortMonth_SHORT_MONTH_LAST_DAY {
			spec.Monthly.ShortMonth = schedule.LastDay
		}
	case *schedulerdv1.Schedule_Manual:
		spec.Manual = true
	case *schedulerdv1.Schedule_AnyOf:
		spec.AnyOf = []schedule.Spec{}
		for _, member := range kind.AnyOf.GetSchedules() {
			spec.AnyOf = append(spec.AnyOf, ScheduleSpec(member))
		}
	}
	return spec
}

func instant(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// ScheduleText says when a flow is due, from its source: one that was not compiled yet needs not be for that.
func ScheduleText(d *core.Definition) (string, error) {
	var f schedulerdv1.Flow
	if err := proto.Unmarshal(filtered(d.Source, func(field protowire.Number) bool { return field == scheduleField }), &f); err != nil {
		return "", fmt.Errorf("the definition of flow %s cannot be read: %w", d.ID, err)
	}
	if f.GetSchedule() == nil {
		return "manual", nil
	}
	compiled, err := schedule.Compile(ScheduleSpec(f.GetSchedule()), schedule.Options{FlowID: d.ID, AllowPast: true})
	if err != nil {
		return "", err
	}
	text, _ := compiled.Describe(time.Time{})
	return text, nil
}

// CompileSchedule compiles a schedule by itself, for a flow with an id; see schedule.Options for now.
func CompileSchedule(s *schedulerdv1.Schedule, flowID string, now time.Time) (*schedule.Schedule, fault.List) {
	var rules fault.List
	checkRules("", s, &rules)
	x := &compilation{faults: &fault.List{}, rules: rules}
	*x.faults = slices.Clone(rules)
	compiled := x.compileSchedule("", s, flowID, now)
	return compiled, x.distinct(*x.faults)
}

// schedule compiles the schedule at path; nil if it is wrong or manual by default.
func (x *compilation) schedule(path string, s *schedulerdv1.Schedule) *schedule.Schedule {
	if s == nil {
		return nil
	}
	return x.compileSchedule(path, s, x.flowID, x.now)
}

func (x *compilation) compileSchedule(path string, s *schedulerdv1.Schedule, flowID string, now time.Time) *schedule.Schedule {
	x.personal = x.personal || DependsOnFlow(s)
	compiled, err := schedule.Compile(ScheduleSpec(s), schedule.Options{FlowID: flowID, Now: now, AllowPast: now.IsZero()})
	for _, err := range each(err) {
		f := fault.Fault{Field: path, Offset: -1, Message: err.Error()}
		if e := (*schedule.Error)(nil); errors.As(err, &e) {
			f = fault.Fault{Field: fault.Field(path, memberPath(e.Field)), Offset: e.Offset, Message: e.Msg}
		}
		if !x.broken(f.Field) { // else a rule has told it better
			*x.faults = append(*x.faults, f)
		}
	}
	return compiled
}

// each takes joined errors apart.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}
