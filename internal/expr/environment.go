package expr

import (
	"fmt"
	"slices"
	"sync"

	"cel.dev/cel-go/cel"
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
	{Run, "resources", cel.MapType(cel.StringType, cel.MapType(cel.StringType, cel.DynType))},
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

// language is what every expression has. Functions whose cost is out of proportion to their arguments are in guarded;
// the sets and regex extensions are left out because they have more of those.
var language = slices.Concat([]cel.EnvOption{
	cel.OptionalTypes(),
	cel.DefaultUTCTimeZone(true),
	cel.CrossTypeNumericComparisons(true),
	cel.ParserExpressionSizeLimit(maxExpression),
	cel.ParserRecursionLimit(100),
	cel.ParserErrorRecoveryLimit(0),
	cel.ExpressionNodeLimit(10_000),
	cel.RegexProgramSizeLimit(10_000),
	cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals()),
	ext.Bindings(),
	ext.Encoders(ext.EncodersVersion(0)),
	ext.Lists(ext.ListsMaxRangeSize(100_000)),
	ext.Math(),
	ext.Strings(),
	ext.TwoVarComprehensions(),
}, arithmetic(), ownFunctions)

// environment is a CEL environment with what its programs are planned with.
type environment struct {
	*cel.Env
	planning []cel.ProgramOption
}

// environments holds one for each combination of names, made when first needed: it takes milliseconds.
var environments [allNames + 1]struct {
	once sync.Once
	environment
}

func environmentOf(names Names) *environment {
	e := &environments[names&allNames]
	e.once.Do(func() { e.environment = newEnvironment(names) })
	return &e.environment
}

func newEnvironment(names Names) environment {
	options := slices.Clone(language)
	for _, v := range variables {
		if names&v.set != 0 {
			options = append(options, cel.Variable(v.name, v.kind))
		}
	}
	if names&Env != 0 {
		options = append(options, envFunction)
	}
	env, err := cel.NewEnv(options...)
	if err != nil {
		panic(fmt.Sprintf("expr: the environment is wrong: %v", err)) // a mistake in this package, which every test would meet
	}
	return environment{env, []cel.ProgramOption{
		cel.CostLimit(maxCost),
		cel.CostTracking(charge{}),
		cel.OptimizeRegex(interpreter.MatchesRegexOptimization),
		cel.CustomDecoratorV2(mixNumbers),
		cel.CustomDecoratorV2(guard(env)),
	}}
}
