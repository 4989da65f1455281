// Package expr is the expression language of flows: CEL over what a run knows.
//
// A [Condition] is an expression that gives a bool, a [Value] one that gives anything, a [Moment] one that gives a time.
// A [Template] is a text with expressions in ${ … }; a [TemplateValue] a JSON-like value whose strings are templates.
// All are compiled once and evaluated on a *workflow.Scope as often as needed, by any number of goroutines.
//
// What an expression sees:
//
//	params                the run's parameters
//	result                the result of the state before; of this state in its transitions, action and compensation
//	results.NAME          the result of an earlier state
//	action                in transitions: the task's action
//	item, index           in a branch of for_each
//	run.flow, run.id, run.number, run.cause, run.start, run.fire_time
//	                      the run; fire_time of a triggered run is its start
//	env("NAME")           where secrets are allowed: a variable of the daemon's environment
//
// beside CEL's standard functions, its extensions for strings, lists, sets, math, regex, encoders and optional values,
// and strftime. There is no clock, no chance and no I/O in it, so that a run that is resumed computes the same again.
//
// Values are JSON-like: nil, bool, float64, string, []any or map[string]any. Since JSON has one kind of number and CEL has
// three, arithmetic between them is allowed: result.count + 1 is a double.
//
// Nothing an expression does can hang or exhaust the daemon: its text, its cost, and the size of what it gives are bounded.
package expr

import (
	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

// Names says which names an expression may use, beside the functions that every one may use.
type Names uint8

// The sets of names.
const (
	Run    Names = 1 << iota // params, result, results and run
	Action                   // action
	Item                     // item and index
	Env                      // env("NAME")

	allNames = Run | Action | Item | Env
)

// Limits of expressions.
const (
	maxExpression  = 4096    // bytes of one expression
	maxExpressions = 1000    // expressions in one template
	maxCost        = 1 << 20 // CEL's units: about one per operation and per ten bytes handled
	maxResult      = 4 << 20 // bytes of what an expression or a template gives
	maxDepth       = 64      // of what an expression gives
	maxElements    = 1 << 18 // values in what an expression gives
)

// noScope is what an expression sees where there is no run.
var noScope = workflow.Scope{Identity: &workflow.Identity{}}
