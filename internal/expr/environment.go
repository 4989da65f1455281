package expr

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"
	"cel.dev/cel-go/interpreter"
)

// variables are the names of each set with their types.
var variables = []struct {
	set  Names
	name string
	kind *cel.Type
}{
	{Run, "params", cel.MapType(cel.StringType, cel.DynType)},
	{Run, "results", cel.MapType(cel.StringType, cel.DynType)},
	{Run, "result", cel.DynType},
	{Run, "run.flow", cel.StringType},
	{Run, "run.id", cel.StringType},
	{Run, "run.number", cel.IntType},
	{Run, "run.cause", cel.StringType},
	{Run, "run.start", cel.TimestampType},
	{Run, "run.fire_time", cel.TimestampType},
	{Action, "action", cel.StringType},
	{Item, "item", cel.DynType},
	{Item, "index", cel.IntType},
}

// environments holds one CEL environment for each combination of names, made when first needed: it takes milliseconds.
var environments [allNames + 1]struct {
	once sync.Once
	env  *cel.Env
}

func environment(names Names) *cel.Env {
	e := &environments[names&allNames]
	e.once.Do(func() {
		env, err := cel.NewEnv(append(environmentOptions(names), language...)...)
		if err != nil {
			panic(fmt.Sprintf("expr: the environment is wrong: %v", err)) // a mistake in this file; every test would see it
		}
		e.env = env
	})
	return e.env
}

func environmentOptions(names Names) []cel.EnvOption {
	var options []cel.EnvOption
	for _, v := range variables {
		if names&v.set != 0 {
			options = append(options, cel.Variable(v.name, v.kind))
		}
	}
	if names&Env != 0 {
		options = append(options, cel.Function("env",
			cel.Overload("env_string", []*cel.Type{cel.StringType}, cel.StringType, cel.UnaryBinding(readEnv))))
	}
	return options
}

// language is what every expression has.
var language = []cel.EnvOption{
	cel.OptionalTypes(),
	cel.DefaultUTCTimeZone(true),
	cel.CrossTypeNumericComparisons(true),
	cel.ParserExpressionSizeLimit(maxExpression),
	cel.ParserRecursionLimit(100),
	cel.ExpressionNodeLimit(10_000),
	cel.RegexProgramSizeLimit(10_000),
	cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals()),
	ext.Bindings(),
	ext.Encoders(),
	ext.Lists(),
	ext.Math(),
	ext.Regex(),
	ext.Sets(),
	ext.Strings(),
	ext.TwoVarComprehensions(),
}

// programOptions bound what a program does.
var programOptions = []cel.ProgramOption{
	cel.CostLimit(maxCost),
	cel.OptimizeRegex(interpreter.MatchesRegexOptimization),
}

var errNotSet = errors.New("is not set in the daemon's environment")

// readEnv gives a variable of the daemon's environment.
func readEnv(name ref.Val) ref.Val {
	value, set := os.LookupEnv(string(name.(types.String)))
	if !set {
		return types.WrapErr(fmt.Errorf("%s %w", name.(types.String), errNotSet))
	}
	return types.String(value)
}
