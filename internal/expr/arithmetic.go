package expr

import (
	"math"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// CEL refuses to mix its kinds of numbers. But every number that comes from JSON is a double and every whole number in an
// expression is an int, so that result.count + 1 would be an error. Here such operations are done in doubles.
var operations = map[string]func(a, b ref.Val) ref.Val{
	operators.Add:      func(a, b ref.Val) ref.Val { return a.(traits.Adder).Add(b) },
	operators.Subtract: func(a, b ref.Val) ref.Val { return a.(traits.Subtractor).Subtract(b) },
	operators.Multiply: func(a, b ref.Val) ref.Val { return a.(traits.Multiplier).Multiply(b) },
	operators.Divide:   func(a, b ref.Val) ref.Val { return a.(traits.Divider).Divide(b) },
	operators.Modulo:   func(a, b ref.Val) ref.Val { return remainder(a.(types.Double), b.(types.Double)) },
}

// arithmetic declares the operations for the checker. How they are done is in mixNumbers.
func arithmetic() []cel.EnvOption {
	var options []cel.EnvOption
	for operator := range operations {
		overloads := []cel.FunctionOpt{
			cel.Overload(operator+"int_double", []*cel.Type{cel.IntType, cel.DoubleType}, cel.DoubleType),
			cel.Overload(operator+"double_int", []*cel.Type{cel.DoubleType, cel.IntType}, cel.DoubleType),
		}
		if operator == operators.Modulo {
			overloads = append(overloads, cel.Overload(operator+"double_double", []*cel.Type{cel.DoubleType, cel.DoubleType}, cel.DoubleType))
		}
		options = append(options, cel.Function(operator, overloads...))
	}
	return options
}

// mixNumbers replaces arithmetic calls by ones that can mix.
func mixNumbers(node interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := node.(interpreter.InterpretableCall)
	if !ok || len(call.Args()) != 2 {
		return node, nil
	}
	operate, ok := operations[call.Function()]
	if !ok {
		return node, nil
	}
	modulo := call.Function() == operators.Modulo
	return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
		a, b := args[0], args[1]
		x, isNumber := double(a)
		y, areNumbers := double(b)
		if isNumber && areNumbers && (a.Type() != b.Type() || modulo && a.Type() == types.DoubleType) {
			return operate(x, y)
		}
		if len(text(a))+len(text(b)) > maxResult {
			return types.WrapErr(errTooLarge)
		}
		if trait := traitOf[call.Function()]; !a.Type().HasTrait(trait) {
			return types.NewErr("%s", noOverload(call.Function(), args...))
		}
		if modulo {
			return a.(traits.Modder).Modulo(b)
		}
		if out := operate(a, b); !types.IsError(out) || isNumber && areNumbers || a.Type() == b.Type() {
			return out
		}
		return types.NewErr("%s", noOverload(call.Function(), args...))
	}), nil
}

var traitOf = map[string]int{
	operators.Add:      traits.AdderType,
	operators.Subtract: traits.SubtractorType,
	operators.Multiply: traits.MultiplierType,
	operators.Divide:   traits.DividerType,
	operators.Modulo:   traits.ModderType,
}

func double(v ref.Val) (types.Double, bool) {
	switch x := v.(type) {
	case types.Int:
		return types.Double(x), true
	case types.Uint:
		return types.Double(x), true
	case types.Double:
		return x, true
	}
	return 0, false
}

func remainder(a, b types.Double) ref.Val {
	if b == 0 {
		return types.NewErr("modulus by zero")
	}
	return types.Double(math.Mod(float64(a), float64(b)))
}
