package workflow

import (
	"fmt"
	"math"
)

// maxValueDepth bounds lists and objects inside each other, and so what a value that holds itself can cost.
const maxValueDepth = 100

// measure estimates the size of a value as JSON, to about a quarter, without writing it. It fails for what is not JSON-like.
func measure(v any) (int, error) { return measureAt(v, 0) }

// sizeOf is the size of a value that was measured before, and accepted.
func sizeOf(v any) int {
	size, _ := measure(v)
	return size
}

// measured is a result with a value that was accepted before.
func measured(value any, action string) Result {
	return Result{Value: value, Action: action, size: sizeOf(value)}
}

func measureAt(v any, depth int) (int, error) {
	if depth > maxValueDepth {
		return 0, fmt.Errorf("lists and objects are nested more than %d deep", maxValueDepth)
	}
	switch v := v.(type) {
	case nil, bool:
		return 4, nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return 0, fmt.Errorf("%v is not a number that JSON can hold", v)
		}
		return 8, nil
	case string:
		return len(v) + 2, nil
	case []any:
		size := 2
		for _, element := range v {
			n, err := measureAt(element, depth+1)
			if err != nil {
				return 0, err
			}
			size += n + 1
		}
		return size, nil
	case map[string]any:
		size := 2
		for key, element := range v {
			n, err := measureAt(element, depth+1)
			if err != nil {
				return 0, err
			}
			size += len(key) + n + 4
		}
		return size, nil
	}
	return 0, fmt.Errorf("a %T is not a JSON-like value", v)
}

// held is the size of what a workflow holds: the results of its states and what it needs to undo them.
func held(results map[string]any, stack []Compensation) int {
	const entry = 32 // name and number
	size := sizeOf(results)
	for i := range stack {
		size += entry + sizeOf(stack[i].Result)
		for j := range stack[i].Inner {
			f := &stack[i].Inner[j]
			size += sizeOf(f.Params) + sizeOf(f.Item) + held(f.Results, f.Compensations)
		}
	}
	return size
}
