package workflow

import (
	"fmt"
	"math"
)

// maxValueDepth bounds lists and objects inside each other, and so what a value that holds itself can cost.
const maxValueDepth = 100

// measure estimates the size of a value as JSON, to about a quarter, without writing it. It fails for what is not JSON-like.
func measure(v any) (int, error) { return measureAt(v, 0) }

// measured is a result with a value that a task gave, and that was accepted then.
func measured(value any, action string) Result {
	size, _ := measure(value)
	return Result{Value: value, Action: action, size: size}
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
func held(results map[string]any, stack []Compensation) (int, error) {
	size, err := measure(results)
	if err != nil {
		return 0, err
	}
	for i := range stack {
		const entry = 32 // name and number
		c := &stack[i]
		n, err := measure(c.Result)
		if err != nil {
			return 0, err
		}
		size += n + entry
		for j := range c.Inner {
			f := &c.Inner[j]
			n, err := held(f.Results, f.Compensations)
			if err != nil {
				return 0, err
			}
			params, err := measure(f.Params)
			if err != nil {
				return 0, err
			}
			size += n + params
		}
	}
	return size, nil
}
