package store

import (
	"fmt"
	"math"
)

// maxDepth bounds how deep lists and objects are nested.
const maxDepth = 100

// overhead is the weight of a value beside its text.
const overhead = 16

// copied gives a deep copy of a JSON-like value, and its weight.
func copied(v any) (any, int64, error) { return copiedAt(v, 0) }

func copiedAt(v any, depth int) (any, int64, error) {
	if depth > maxDepth {
		return nil, 0, fmt.Errorf("lists and objects are nested more than %d deep", maxDepth)
	}
	switch v := v.(type) {
	case nil, bool:
		return v, overhead, nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, 0, fmt.Errorf("%v is not a number that JSON can hold", v)
		}
		return v, overhead, nil
	case string:
		return v, overhead + int64(len(v)), nil
	case []any:
		list, weight := make([]any, len(v)), int64(overhead)
		for i, element := range v {
			c, w, err := copiedAt(element, depth+1)
			if err != nil {
				return nil, 0, err
			}
			list[i], weight = c, weight+w
		}
		return list, weight, nil
	case map[string]any:
		object, weight := make(map[string]any, len(v)), int64(overhead)
		for key, element := range v {
			c, w, err := copiedAt(element, depth+1)
			if err != nil {
				return nil, 0, err
			}
			object[key], weight = c, weight+w+int64(len(key))
		}
		return object, weight, nil
	}
	return nil, 0, fmt.Errorf("a %T is not a JSON-like value", v)
}

// copyOut copies a value that was copied in.
func copyOut(v any) any {
	c, _, _ := copied(v)
	return c
}

// weigh gives the weight of a value that was copied in.
func weigh(v any) int64 {
	switch v := v.(type) {
	case string:
		return overhead + int64(len(v))
	case []any:
		weight := int64(overhead)
		for _, element := range v {
			weight += weigh(element)
		}
		return weight
	case map[string]any:
		weight := int64(overhead)
		for key, element := range v {
			weight += int64(len(key)) + weigh(element)
		}
		return weight
	}
	return overhead
}

// typeName names the type of a JSON-like value.
func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a bool"
	case float64:
		return "a number"
	case string:
		return "a text"
	case []any:
		return "a list"
	default:
		return "an object"
	}
}
