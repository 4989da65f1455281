package expr

import (
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// CEL's cost limit charges a call after it was made, and a call whose overload the checker could not choose with 1. That
// is too late for functions whose work or result is out of proportion to their arguments (x.replace("", x) with a text of
// 1 MiB would first make a terabyte), and too little for texts that come from JSON. So the work of the former is bounded
// before the call, and charge has a price for the latter.

// maxWork bounds one call, in bytes made or comparisons.
const maxWork = 1 << 22

// guarded says how much work a call is, or at least whether it is more than maxWork. Arguments of types that a function does
// not take make none: the call will refuse them.
var guarded = map[string]func(args []ref.Val) int{
	operators.Equals:    func(args []ref.Val) int { return min(weight(args[0]), weight(args[1])) },
	operators.NotEquals: func(args []ref.Val) int { return min(weight(args[0]), weight(args[1])) },
	operators.In: func(args []ref.Val) int {
		if _, isMap := args[1].(traits.Mapper); isMap {
			return 1
		}
		return weight(args[1])
	},
	"replace": func(args []ref.Val) int {
		s, old, with := text(args[0]), text(args[1]), text(args[2])
		return len(s) + product(strings.Count(s, old), len(with))
	},
	"join": func(args []ref.Val) int {
		work := weight(args[0])
		if len(args) > 1 {
			work += product(size(args[0]), len(text(args[1])))
		}
		return work
	},
	"format":      func(args []ref.Val) int { return weight(args[0]) + weight(args[1]) },
	"strftime":    func(args []ref.Val) int { return 16 * len(text(args[1])) },
	"flatten":     func(args []ref.Val) int { return weight(args[0]) },
	"distinct":    func(args []ref.Val) int { return product(size(args[0]), weight(args[0])/16) },
	"hasAll":      compareAll,
	"hasAny":      compareAll,
	"hasOnly":     compareAll,
	"hasExactly":  compareAll,
	"json.encode": func(args []ref.Val) int { return weight(args[0]) },
	"json.decode": func(args []ref.Val) int { return 4 * len(text(args[0])) },
}

func compareAll(args []ref.Val) int {
	return product(size(args[0]), weight(args[1])/8) + product(size(args[1]), weight(args[0])/8)
}

// guard replaces the guarded calls by ones that look before they leap.
func guard(env *cel.Env) interpreter.InterpretableDecoratorV2 {
	originals := map[string]*functions.Overload{
		operators.Equals:    {Binary: types.Equal},
		operators.NotEquals: {Binary: func(a, b ref.Val) ref.Val { return types.Bool(types.Equal(a, b) != types.True) }},
	}
	for name, function := range env.Functions() {
		if guarded[name] == nil || originals[name] != nil {
			continue
		}
		bindings, err := function.Bindings()
		if err != nil {
			panic("expr: " + name + ": " + err.Error()) // a mistake in this package, which every test would meet
		}
		for _, b := range bindings {
			originals[b.Operator] = b
		}
	}
	return func(node interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		call, ok := node.(interpreter.InterpretableCall)
		if !ok {
			return node, nil
		}
		work := guarded[call.Function()]
		if work == nil {
			return node, nil
		}
		original := originals[call.Function()]
		if exact := originals[call.OverloadID()]; exact != nil {
			original = exact
		}
		if original == nil {
			return node, nil
		}
		return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
			if work(args) > maxWork {
				return types.NewErr("%s would be too much work: its values are too large", shownFunction(call.Function()))
			}
			return invoke(call.Function(), original, args)
		}), nil
	}
}

func invoke(name string, f *functions.Overload, args []ref.Val) ref.Val {
	switch {
	case len(args) == 1 && f.Unary != nil:
		return f.Unary(args[0])
	case len(args) == 2 && f.Binary != nil:
		return f.Binary(args[0], args[1])
	case f.Function != nil:
		return f.Function(args...)
	}
	return types.NewErr("%s", noOverload(name, args...))
}

// charge prices the calls that CEL does not.
type charge struct{}

// CallCost gives about one unit per ten bytes handled, as CEL does; nil leaves the price to CEL.
func (charge) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	var units int
	switch work := guarded[function]; {
	case work != nil:
		units = work(args)/10 + len(text(result))/10
	case overload == "":
		for _, v := range args {
			units += len(text(v)) / 10
		}
		units += len(text(result)) / 10
	default:
		return nil
	}
	price := uint64(units) + 1
	return &price
}

// text is the content of a string or of bytes, and nothing for other values.
func text(v ref.Val) string {
	switch x := v.(type) {
	case types.String:
		return string(x)
	case types.Bytes:
		return string(x)
	}
	return ""
}

func size(v ref.Val) int {
	if s, ok := v.(traits.Sizer); ok {
		if n, ok := s.Size().(types.Int); ok && n >= 0 {
			return int(min(n, maxWork+1))
		}
		return maxWork + 1
	}
	return 1
}

// product is a·b, or a number above maxWork.
func product(a, b int) int {
	if a > maxWork || b > maxWork {
		return maxWork + 1
	}
	return a * b // both have 23 bits at most
}

// weight is the size of a value with all that is in it: bytes of texts, and 8 for every value. It stops above maxWork.
func weight(v ref.Val) int {
	left := maxWork
	weigh(v, &left, 0)
	return maxWork - left
}

func weigh(v ref.Val, left *int, depth int) {
	if *left -= 8; *left < 0 || depth > maxDepth {
		*left = -1
		return
	}
	switch x := v.(type) {
	case types.String:
		*left -= len(x)
	case types.Bytes:
		*left -= len(x)
	case traits.Mapper:
		for it := x.Iterator(); *left >= 0 && it.HasNext() == types.True; {
			key := it.Next()
			weigh(key, left, depth+1)
			weigh(x.Get(key), left, depth+1)
		}
	case traits.Lister:
		for it := x.Iterator(); *left >= 0 && it.HasNext() == types.True; {
			weigh(it.Next(), left, depth+1)
		}
	}
}
