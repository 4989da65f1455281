package workflow

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// deep is a list in a list in a list ...
func deep(n int) any {
	var v any = "end"
	for range n {
		v = []any{v}
	}
	return v
}

// itself is a list that holds itself.
func itself() any {
	list := []any{nil}
	list[0] = list
	return list
}

func TestMeasureRefuses(t *testing.T) {
	for name, v := range map[string]any{
		"a time":           time.Now(),
		"an int":           1,
		"bytes":            []byte("x"),
		"a list of texts":  []string{"x"},
		"inside a list":    []any{"x", int64(1)},
		"inside an object": map[string]any{"k": struct{}{}},
		"NaN":              math.NaN(),
		"infinity":         []any{math.Inf(-1)},
		"too deep":         deep(maxValueDepth + 1),
		"itself":           itself(),
	} {
		if n, err := measure(v); err == nil {
			t.Errorf("%s: size %d", name, n)
		}
	}
	if _, err := measure(deep(maxValueDepth)); err != nil {
		t.Error(err)
	}
}

// value draws a JSON-like value.
func value(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kinds := 6
		if depth == 0 {
			kinds = 4
		}
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return rapid.Bool().Draw(t, "bool")
		case 2:
			return float64(rapid.IntRange(-1e6, 1e6).Draw(t, "number"))
		case 3:
			return rapid.StringMatching("[a-z]{0,20}").Draw(t, "text")
		case 4:
			return rapid.SliceOfN(value(depth-1), 0, 5).Draw(t, "list")
		}
		return rapid.MapOfN(rapid.StringMatching("[a-z]{1,8}"), value(depth-1), 0, 5).Draw(t, "object")
	})
}

// The estimate is close to what JSON takes.
func TestMeasureIsCloseToJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := value(3).Draw(t, "value")
		size, err := measure(v)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if real := len(text); size < real/2-4 || size > real*4+8 {
			t.Fatalf("measured %d, JSON has %d: %s", size, real, text)
		}
	})
}

func TestEmptyEnd(t *testing.T) {
	text, err := json.Marshal(endOf("", "", &branchEnd{}))
	if err != nil {
		t.Fatal(err)
	}
	if emptyEnd < len(text)-5 || emptyEnd > len(text)+5 {
		t.Errorf("emptyEnd is %d, JSON has %d bytes: %s", emptyEnd, len(text), text)
	}
}

// Sizes that were added up are those that measuring gives.
func TestSizesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Split
		values := rapid.SliceOfN(value(2), 1, 6).Draw(t, "values")
		for i, v := range values {
			task := gives(v)
			if i%3 == 2 {
				task = fails(strings.Repeat("é", rapid.IntRange(0, 3000).Draw(t, "error")))
			}
			s.Branches = append(s.Branches, Branch{Work: once(task)})
		}
		s.Join = Join{Strategy: JoinAny, WaitAll: true}
		m := &machine{w: line(), run: &Run{}, log: noLog}
		v := new(visit)
		v.begin(m, "s", "k", time.Time{})
		r, _, err := m.split(t.Context(), &s, v)
		if err != nil {
			t.Fatal(err)
		}
		if size, err := measure(r.Value); err != nil || size != r.size {
			t.Fatalf("measured %d, added up %d (%v)", size, r.size, err)
		}
	})
}
