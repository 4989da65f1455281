package definition

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"weak"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// shapes are the compiled definitions in use, each once: of a million flows that differ in id, labels and params one is compiled and
// kept. They are found by the definition's bytes without what differs. What nobody uses any more goes.
type shapes struct {
	flows     interned[core.Flow]
	workflows interned[workflow.Workflow] // shared further: by flows whose schedules differ
}

// The fields of a Flow that its shape leaves out, and its schedule.
const (
	idField          protowire.Number = 1
	descriptionField protowire.Number = 2
	labelsField      protowire.Number = 3
	scheduleField    protowire.Number = 4
	paramsField      protowire.Number = 10
)

// share sets the shape of a flow that was compiled without faults.
func (s *shapes) share(compiled *core.Flow, personalSchedule, personalWork bool, o Options) {
	if personalWork || len(compiled.Resources) > 0 {
		return // its work depends on its id, or uses what is its own
	}
	shape := *compiled
	shape.ID, shape.Description, shape.Labels, shape.Params, shape.Source, shape.Origin = "", "", nil, nil, nil, 0
	shape.Workflow = s.workflows.put(o.key()+without(compiled.Source, idField, descriptionField, labelsField, paramsField, scheduleField), compiled.Workflow)
	if personalSchedule {
		compiled.Shape = &shape
		return
	}
	compiled.Shape = s.flows.put(shapeKey(compiled.Source, o), &shape)
}

// find is the shape of a definition like one that is in use; nil if there is none.
func (s *shapes) find(source []byte, o Options) *core.Flow { return s.flows.get(shapeKey(source, o)) }

func shapeKey(source []byte, o Options) string {
	return o.key() + without(source, idField, descriptionField, labelsField, paramsField)
}

// key is what the outcome of a compilation depends on beside the definition.
func (o Options) key() string {
	if len(o.Shared) == 0 {
		return fmt.Sprint(o.AllowExec)
	}
	var b strings.Builder
	fmt.Fprint(&b, o.AllowExec)
	for _, name := range slices.Sorted(maps.Keys(o.Shared)) {
		fmt.Fprintf(&b, " %s=%s", name, o.Shared[name])
	}
	return b.String()
}

// without is a message's bytes without some fields.
func without(message []byte, fields ...protowire.Number) string {
	return string(filtered(message, func(field protowire.Number) bool { return !slices.Contains(fields, field) }))
}

func filtered(message []byte, keep func(protowire.Number) bool) []byte {
	kept := make([]byte, 0, len(message))
	for len(message) > 0 {
		field, _, n := protowire.ConsumeField(message)
		if n < 0 {
			return append(kept, message...) // not a message; whoever reads it will say so
		}
		if keep(field) {
			kept = append(kept, message[:n]...)
		}
		message = message[n:]
	}
	return kept
}

// Describe reads what the shape of a flow leaves out from the flow's source, and nothing else.
func Describe(source []byte) (core.Description, error) {
	var f schedulerdv1.Flow
	if err := proto.Unmarshal(filtered(source, func(field protowire.Number) bool {
		return field == descriptionField || field == labelsField || field == paramsField
	}), &f); err != nil {
		return core.Description{}, fmt.Errorf("the stored definition cannot be read: %w", err)
	}
	d := core.Description{Description: f.GetDescription(), Labels: f.GetLabels()}
	if len(f.GetParams()) > 0 {
		d.Params = make(map[string]any, len(f.GetParams()))
		for name, value := range f.GetParams() {
			d.Params[name] = value.AsInterface()
		}
	}
	return d, nil
}

// DependsOnFlow reports whether a schedule's fire times differ from flow to flow: by H or splay, from the flow's id.
func DependsOnFlow(s *schedulerdv1.Schedule) bool {
	return s.GetSplay().AsDuration() > 0 || strings.Contains(s.GetCron(), "H") || slices.ContainsFunc(s.GetAnyOf().GetSchedules(), DependsOnFlow)
}

// interned holds values by key as long as somebody else holds them.
type interned[T any] struct {
	mu    sync.Mutex
	byKey map[string]weak.Pointer[T]
}

// get is the value with a key; nil if nobody holds one.
func (i *interned[T]) get(key string) *T {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.byKey[key].Value()
}

// put gives the value that is held with a key, which becomes this one if there was none.
func (i *interned[T]) put(key string, value *T) *T {
	i.mu.Lock()
	defer i.mu.Unlock()
	if held := i.byKey[key].Value(); held != nil {
		return held
	}
	if i.byKey == nil {
		i.byKey = map[string]weak.Pointer[T]{}
	}
	i.byKey[key] = weak.Make(value)
	runtime.AddCleanup(value, i.forget, key)
	return value
}

func (i *interned[T]) forget(key string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.byKey[key].Value() == nil {
		delete(i.byKey, key)
	}
}
