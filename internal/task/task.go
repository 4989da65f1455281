// Package task is the registry of task kinds and resource kinds: what a package of a kind gives, and what it is given
// to build a task from its definition. The kinds themselves are the packages below it.
//
// A kind is one package with one registration:
//
//	var Kind = task.Kind{Field: "exec", New: newTask}
//
//	func newTask(t *schedulerdv1.Task, env *task.Env) (workflow.Task, error) {
//		x := t.GetExec()
//		return &run{
//			command: env.Templates("exec.command", x.GetCommand()),
//			dir:     env.Template("exec.dir", x.GetDir()),
//		}, nil
//	}
package task

import (
	"fmt"
	"maps"
	"slices"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Kind is a kind of task.
type Kind struct {
	// Field is its name in the oneof of the Task message, such as "exec".
	Field string
	// New builds a task. What is wrong with single fields it tells env; an error is about the task as a whole. The task
	// is thrown away if anything is wrong. The protovalidate rules of the message hold already.
	New func(*schedulerdv1.Task, *Env) (workflow.Task, error)
}

// ResourceKind is a kind of resource.
type ResourceKind struct {
	// Field is its name in the oneof of the Resource message, such as "temp_dir".
	Field string
	// New builds a resource that is not set up yet, as Kind.New builds a task.
	New func(*schedulerdv1.Resource, *Env) (resource.Resource, error)
}

// Registry finds kinds by their fields. It is not changed once it was made.
type Registry struct {
	tasks     map[string]Kind
	resources map[string]ResourceKind
}

// NewRegistry takes the kinds of a process. It panics on a kind that the messages do not know and on one given twice:
// both are mistakes of a programmer.
func NewRegistry(tasks []Kind, resources []ResourceKind) *Registry {
	r := &Registry{tasks: map[string]Kind{}, resources: map[string]ResourceKind{}}
	for _, k := range tasks {
		register(r.tasks, k.Field, k, (*schedulerdv1.Task)(nil))
	}
	for _, k := range resources {
		register(r.resources, k.Field, k, (*schedulerdv1.Resource)(nil))
	}
	return r
}

func register[K any](kinds map[string]K, field string, kind K, message proto.Message) {
	descriptor := message.ProtoReflect().Descriptor()
	if f := descriptor.Fields().ByName(protoreflect.Name(field)); f == nil || f.ContainingOneof() == nil || f.ContainingOneof().Name() != "kind" {
		panic(fmt.Sprintf("task: %s has no kind %q", descriptor.Name(), field))
	}
	if _, twice := kinds[field]; twice {
		panic(fmt.Sprintf("task: %s kind %q registered twice", descriptor.Name(), field))
	}
	kinds[field] = kind
}

// Task builds the task of a definition. What is wrong it tells env; the task is nil then, or of no use.
func (r *Registry) Task(t *schedulerdv1.Task, env *Env) workflow.Task {
	field := KindOf(t)
	if field == "" {
		return nil // the message's own rule tells that no kind is set
	}
	kind, ok := r.tasks[field]
	if !ok {
		env.Faultf(field, "task kind %s is not available in this version yet; available: %s", field, names(r.tasks))
		return nil
	}
	built, err := kind.New(t, env)
	if err != nil {
		env.Faultf(field, "%v", err)
	}
	return built
}

// Resource builds the resource of a definition, as Task builds a task.
func (r *Registry) Resource(d *schedulerdv1.Resource, env *Env) resource.Resource {
	field := KindOf(d)
	if field == "" {
		return nil
	}
	kind, ok := r.resources[field]
	if !ok {
		env.Faultf(field, "resource kind %s is not available in this version yet; available: %s", field, names(r.resources))
		return nil
	}
	built, err := kind.New(d, env)
	if err != nil {
		env.Faultf(field, "%v", err)
	}
	return built
}

// KindOf is the field that is set in the oneof "kind" of a task or a resource; empty if none is.
func KindOf(m proto.Message) string {
	r := m.ProtoReflect()
	if f := r.WhichOneof(r.Descriptor().Oneofs().ByName("kind")); f != nil {
		return string(f.Name())
	}
	return ""
}

func names[K any](kinds map[string]K) string {
	text := ""
	for i, name := range slices.Sorted(maps.Keys(kinds)) {
		if i > 0 {
			text += ", "
		}
		text += name
	}
	return text
}
