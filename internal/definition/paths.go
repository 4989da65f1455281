package definition

import (
	"slices"
	"strings"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/schedule"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/fault"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// validate checks a workflow as a whole. Its faults are at path; strip is what their own paths begin with beyond it. The
// message is the one at path.
func (x *compilation) validate(path, strip string, w *workflow.Workflow, message proto.Message) {
	descriptor := message.ProtoReflect().Descriptor()
	for _, f := range w.Validate(nil) {
		rest := strings.TrimPrefix(f.Path, strip)
		if strip != "" && rest == strings.TrimSuffix(strip, ".") {
			rest = ""
		}
		field, ok := fieldPath(descriptor, rest)
		if field = fault.Field(path, field); ok && !x.policyFaulty(field) {
			x.faults.Add(field, "%s", f.Msg)
		}
	}
}

// policyFaulty says whether a path is that of a policy, and something was found wrong with fields of it, which says more
// exactly what is wrong with it as a whole.
func (x *compilation) policyFaulty(path string) bool {
	name := fault.Last(path)
	return (name == "retry" || name == "retry_backoff") &&
		slices.ContainsFunc(*x.faults, func(f fault.Fault) bool { return fault.Within(f.Field, path) })
}

// fieldPath spells a path of core, states.fetch.next, as a field path, states["fetch"].next. It is not ok if there is no
// such field: a key with a dot in it, which a rule told about.
func fieldPath(message protoreflect.MessageDescriptor, path string) (string, bool) {
	spelt := ""
	var entries protoreflect.FieldDescriptor // the map whose key comes next
	for _, step := range splitPath(path) {
		if entries != nil {
			spelt, message, entries = fault.Key(spelt, step), entries.MapValue().Message(), nil
			continue
		}
		name, index, hasIndex := strings.Cut(step, "[")
		if message == nil {
			return "", false
		}
		field := message.Fields().ByName(protoreflect.Name(name))
		if field == nil {
			return "", false
		}
		spelt, message = fault.Field(spelt, name), field.Message()
		if hasIndex {
			spelt += "[" + index
		}
		if field.IsMap() {
			entries = field
		}
	}
	return spelt, true
}

func splitPath(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(path, ".")
}

// memberPath spells a path of package schedule, any_of[1].cron, as a field path, any_of.schedules[1].cron.
func memberPath(path string) string {
	return strings.ReplaceAll(path, "any_of[", "any_of.schedules[")
}

// faultySchedule stands for a schedule that could not be compiled, so that the workflow around it can be checked.
var faultySchedule workflow.Schedule = never{}

type never struct{}

func (never) Next(time.Time, schedule.Anchors) time.Time { return time.Time{} }
func (never) Manual() bool                               { return false }
