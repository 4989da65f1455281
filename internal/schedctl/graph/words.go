package graph

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

// taskText says in a few words what a task does.
func taskText(task *pb.Task) string {
	switch task.GetKind().(type) {
	case *pb.Task_Exec:
		if task.GetExec().GetShell() != "" {
			return shorten("shell: " + strings.TrimSpace(task.GetExec().GetShell()))
		}
		return shorten("exec: " + strings.Join(task.GetExec().GetCommand(), " "))
	case *pb.Task_Http:
		method := task.GetHttp().GetMethod()
		if method == "" {
			method = "GET"
		}
		return shorten(method + " " + task.GetHttp().GetUrl())
	case *pb.Task_Grpc:
		return shorten("grpc: " + task.GetGrpc().GetMethod())
	case *pb.Task_Service:
		return shorten("service: " + task.GetService().GetTask())
	case *pb.Task_Worker:
		return shorten("worker: " + task.GetWorker().GetTask())
	case *pb.Task_Wait:
		return shorten(waitText(task.GetWait()))
	case *pb.Task_Set:
		return shorten("set " + strings.Join(slices.Sorted(maps.Keys(task.GetSet().GetValues())), ", "))
	case *pb.Task_Log:
		return shorten("log: " + task.GetLog().GetMessage())
	case *pb.Task_Fail:
		return shorten("fail: " + task.GetFail().GetMessage())
	case *pb.Task_Store:
		return shorten(storeText(task.GetStore()))
	}
	return "no task"
}

func waitText(wait *pb.WaitTask) string {
	switch wait.GetUntil().(type) {
	case *pb.WaitTask_Duration:
		return "wait " + seconds(wait.GetDuration())
	case *pb.WaitTask_Time:
		return "wait until " + wait.GetTime().AsTime().Format("2006-01-02T15:04:05Z07:00")
	default:
		return "wait for " + wait.GetExpression()
	}
}

func storeText(task *pb.StoreTask) string {
	text := "store " + task.GetStore()
	message := task.ProtoReflect()
	operation := message.WhichOneof(message.Descriptor().Oneofs().ByName("operation"))
	if operation == nil {
		return text
	}
	text += ": " + strings.ReplaceAll(string(operation.Name()), "_", " ")
	inside := message.Get(operation).Message()
	for _, name := range []protoreflect.Name{"key", "prefix"} {
		if field := inside.Descriptor().Fields().ByName(name); field != nil && inside.Get(field).String() != "" {
			text += " " + inside.Get(field).String()
		}
	}
	return text
}

func timerNotes(timer *pb.Timer) []string {
	at := scheduleText(timer.GetSchedule())
	if timer.GetExecuteImmediately() {
		at = "at once"
	}
	return []string{at, taskText(timer.GetTask())}
}

// scheduleText says when a schedule is due, as a flows file puts it.
func scheduleText(s *pb.Schedule) string {
	text := "no schedule"
	switch s.GetKind().(type) {
	case *pb.Schedule_Every:
		text = "every " + seconds(s.GetEvery().GetInterval())
	case *pb.Schedule_Cron:
		text = "cron " + s.GetCron()
	case *pb.Schedule_Once:
		text = "once at " + s.GetOnce().GetAt()
	case *pb.Schedule_Daily:
		text = "daily at " + s.GetDaily().GetAt()
	case *pb.Schedule_Weekly:
		days := make([]string, len(s.GetWeekly().GetDays()))
		for i, day := range s.GetWeekly().GetDays() {
			days[i] = strings.ToLower(strings.TrimPrefix(day.String(), "WEEKDAY_"))
		}
		text = strings.Join(days, ", ") + " at " + s.GetWeekly().GetAt()
	case *pb.Schedule_Monthly:
		day := fmt.Sprintf("on day %d of the month", s.GetMonthly().GetDay())
		if s.GetMonthly().GetDay() < 0 {
			day = "on the last day of the month"
		}
		text = day + " at " + s.GetMonthly().GetAt()
	case *pb.Schedule_Manual:
		text = "manual"
	case *pb.Schedule_AnyOf:
		var parts []string
		for _, member := range s.GetAnyOf().GetSchedules() {
			parts = append(parts, scheduleText(member))
		}
		text = strings.Join(parts, " or ")
	}
	if s.GetTimeZone() != "" {
		text += " " + s.GetTimeZone()
	}
	return shorten(text)
}

func splitText(split *pb.Split) string {
	var parts []string
	if each := split.GetForEach(); each != nil {
		parts = append(parts, "for each of "+each.GetItems())
	}
	join := split.GetJoin()
	switch join.GetStrategy().(type) {
	case *pb.Join_All:
		parts = append(parts, "all")
	case *pb.Join_Any:
		parts = append(parts, "any")
	case *pb.Join_Quorum:
		parts = append(parts, fmt.Sprintf("quorum of %d", join.GetQuorum().GetN()))
	case *pb.Join_Percentage:
		parts = append(parts, fmt.Sprintf("%g%%", join.GetPercentage().GetShare()*100))
	case *pb.Join_PartialResults:
		parts = append(parts, fmt.Sprintf("partial results, %d", join.GetPartialResults().GetN()))
	case *pb.Join_PartialTimeout:
		parts = append(parts, "partial at the timeout")
	}
	if join.GetTimeout() != nil {
		parts = append(parts, "timeout "+seconds(join.GetTimeout()))
	}
	if split.Bulkhead != nil {
		parts = append(parts, fmt.Sprintf("%d at once", split.GetBulkhead()))
	}
	return shorten(strings.Join(parts, ", "))
}

// seconds writes a duration as flows files do.
func seconds(d *durationpb.Duration) string {
	return strconv.FormatFloat(d.AsDuration().Seconds(), 'f', -1, 64) + "s"
}

// shorten makes one line of text, of bounded length.
func shorten(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	if utf8.RuneCountInString(text) > maxLabel {
		text = string([]rune(text)[:maxLabel-1]) + "…"
	}
	return text
}
