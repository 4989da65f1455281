package task

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/schedulerd/schedulerd/internal/expr"
	"github.com/schedulerd/schedulerd/internal/fault"
	"google.golang.org/protobuf/types/known/structpb"
)

// Config is what the tasks of one definition have in common.
type Config struct {
	// Resources has the kind of every resource that the tasks can name, by its name.
	Resources map[string]string
	// States has the states whose results expressions can name. Nil: they are not checked.
	States map[string]bool
	// AllowExec says whether commands may be run. It is off for flows that arrive over the API unless the operator turns it on.
	AllowExec bool
}

// Env is what a kind is given to build a task or a resource: it compiles the expressions in the definition, checks the
// names in it, and collects what is wrong. Fields are named by their path from the task, such as "exec.command[0]".
//
// The compiled expressions are never nil; those that are wrong are of no use.
type Env struct {
	Config
	path   string
	names  expr.Names
	faults *fault.List
}

// NewEnv gives the Env of the task at path, whose expressions may use names. What is wrong is added to faults.
func NewEnv(path string, names expr.Names, config Config, faults *fault.List) *Env {
	return &Env{Config: config, path: path, names: names, faults: faults}
}

// Faultf tells what is wrong with a field. An empty field is the task itself.
func (e *Env) Faultf(field, format string, args ...any) {
	e.faults.Add(fault.Field(e.path, field), format, args...)
}

// Resource checks that a field names a declared resource of one of the kinds; of any kind if none is given.
func (e *Env) Resource(field, name string, kinds ...string) {
	kind, declared := e.Resources[name]
	switch {
	case !declared:
		e.Faultf(field, "there is no resource %q%s", name, fault.DidYouMean(name, slices.Collect(maps.Keys(e.Resources))))
	case len(kinds) > 0 && !slices.Contains(kinds, kind):
		e.Faultf(field, "resource %q is of kind %s; this needs %s", name, kind, strings.Join(kinds, " or "))
	}
}

// Template compiles a text that may hold ${ … }.
func (e *Env) Template(field, text string) *expr.Template {
	return e.template(field, text, e.names)
}

// Templates compiles a list of texts.
func (e *Env) Templates(field string, texts []string) []*expr.Template {
	list := make([]*expr.Template, len(texts))
	for i, text := range texts {
		list[i] = e.Template(fault.Index(field, i), text)
	}
	return list
}

// SecretTemplates compiles a map of texts that may also read the daemon's environment with env("NAME"), such as headers.
// Their values must never be stored, logged or returned.
func (e *Env) SecretTemplates(field string, texts map[string]string) map[string]*expr.Template {
	list := make(map[string]*expr.Template, len(texts))
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		list[key] = e.template(fault.Key(field, key), texts[key], e.names|expr.Env)
	}
	return list
}

func (e *Env) template(field, text string, names expr.Names) *expr.Template {
	t, err := expr.CompileTemplate(text, names)
	e.report(field, err, t)
	return t
}

// Value compiles a value whose strings may hold ${ … }. A missing one is null.
func (e *Env) Value(field string, value *structpb.Value) *expr.TemplateValue {
	return e.value(field, value.AsInterface())
}

// Object compiles a map of such values. It evaluates to a map[string]any.
func (e *Env) Object(field string, values map[string]*structpb.Value) *expr.TemplateValue {
	object := make(map[string]any, len(values))
	for key, value := range values {
		object[key] = value.AsInterface()
	}
	return e.value(field, object)
}

func (e *Env) value(field string, value any) *expr.TemplateValue {
	v, err := expr.CompileTemplateValue(value, e.names)
	e.report(field, err)
	v.Walk(func(path string, t *expr.Template) { e.references(fault.Field(field, path), t) })
	return v
}

// Expression compiles a CEL expression, without ${ … } around it.
func (e *Env) Expression(field, text string) *expr.Value {
	v, err := expr.CompileValue(text, e.names)
	e.report(field, err, v)
	return v
}

// Condition compiles a CEL expression that gives a bool.
func (e *Env) Condition(field, text string) *expr.Condition {
	c, err := expr.CompileCondition(text, e.names)
	e.report(field, err, c)
	return c
}

// Moment compiles a CEL expression that gives a duration or a timestamp.
func (e *Env) Moment(field, text string) *expr.Moment {
	m, err := expr.CompileMoment(text, e.names)
	e.report(field, err, m)
	return m
}

// report adds what is wrong with a field: with its expressions, or, if nothing is, with the states that they name.
func (e *Env) report(field string, err error, compiled ...interface{ Results() []expr.Reference }) {
	if err == nil {
		for _, c := range compiled {
			e.references(field, c)
		}
		return
	}
	var faults fault.List
	if !errors.As(err, &faults) {
		faults = fault.List{{Offset: -1, Message: err.Error()}}
	}
	for _, f := range faults {
		f.Field = fault.Field(fault.Field(e.path, field), f.Field)
		*e.faults = append(*e.faults, f)
	}
}

// references checks the states whose results a field's expressions want.
func (e *Env) references(field string, compiled interface{ Results() []expr.Reference }) {
	if e.States == nil {
		return
	}
	for _, r := range compiled.Results() {
		if !e.States[r.State] {
			message := fmt.Sprintf("there is no state %s in this workflow%s", r.State, fault.DidYouMean(r.State, slices.Collect(maps.Keys(e.States))))
			*e.faults = append(*e.faults, fault.Fault{Field: fault.Field(e.path, field), Offset: r.Offset, Message: message})
		}
	}
}
