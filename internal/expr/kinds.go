package expr

import (
	"fmt"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

// Value is an expression that gives any value.
type Value struct{ program *program }

// CompileValue compiles an expression. An error is a fault.List, whose offsets are bytes of text; the Value is never nil.
func CompileValue(text string, names Names) (*Value, error) {
	p, err := compile(text, names)
	return &Value{p}, err
}

// Eval gives its value, JSON-like.
func (v *Value) Eval(scope *workflow.Scope) (any, error) {
	out, err := v.program.eval(scope)
	if err != nil {
		return nil, err
	}
	value, err := jsonLike(out)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", v.program.shown(), err)
	}
	return value, nil
}

// Results lists the results the expression refers to by name.
func (v *Value) Results() []Reference { return v.program.uses.results }

// Condition is an expression that gives a bool.
type Condition struct{ program *program }

// CompileCondition compiles a condition. An error is a fault.List, whose offsets are bytes of text; the Condition is never nil.
func CompileCondition(text string, names Names) (*Condition, error) {
	p, err := compile(text, names)
	if err == nil && !p.mayBe(cel.BoolType) {
		err = faultAt(0, "a condition must be true or false, this is %s", typeName(p.kind))
	}
	return &Condition{p}, err
}

// Eval says whether it holds.
func (c *Condition) Eval(scope *workflow.Scope) (bool, error) {
	out, err := c.program.eval(scope)
	if err != nil {
		return false, err
	}
	holds, ok := out.(types.Bool)
	if !ok {
		return false, fmt.Errorf("%s: a condition must be true or false, this is %s", c.program.shown(), valueName(out))
	}
	return bool(holds), nil
}

// Results lists the results the condition refers to by name.
func (c *Condition) Results() []Reference { return c.program.uses.results }

// Moment is an expression that gives a time: a duration or a timestamp.
type Moment struct{ program *program }

// CompileMoment compiles a moment. An error is a fault.List, whose offsets are bytes of text; the Moment is never nil.
func CompileMoment(text string, names Names) (*Moment, error) {
	p, err := compile(text, names)
	if err == nil && !p.mayBe(cel.DurationType, cel.TimestampType, cel.StringType) {
		err = faultAt(0, "this must be a duration or a timestamp, it is %s", typeName(p.kind))
	}
	return &Moment{p}, err
}

// Eval gives the instant: a timestamp as it is, a duration counted from start. A string is read as RFC 3339 or as a
// duration such as "90s".
func (m *Moment) Eval(scope *workflow.Scope, start time.Time) (time.Time, error) {
	out, err := m.program.eval(scope)
	if err != nil {
		return time.Time{}, err
	}
	switch v := out.(type) {
	case types.Timestamp:
		return v.Time, nil
	case types.Duration:
		return start.Add(v.Duration), nil
	case types.String:
		if t, err := time.Parse(time.RFC3339Nano, string(v)); err == nil {
			return t, nil
		}
		if d, err := time.ParseDuration(string(v)); err == nil {
			return start.Add(d), nil
		}
	}
	return time.Time{}, fmt.Errorf("%s: this must be a duration or a timestamp, it is %s", m.program.shown(), valueName(out))
}

// Results lists the results the moment refers to by name.
func (m *Moment) Results() []Reference { return m.program.uses.results }

// mayBe says whether the program can give a value of one of the types: it does, or only a run will tell.
func (p *program) mayBe(kinds ...*cel.Type) bool {
	if p.kind.Kind() == types.DynKind || p.kind.Kind() == types.AnyKind {
		return true
	}
	for _, kind := range kinds {
		if p.kind.IsExactType(kind) {
			return true
		}
	}
	return false
}
