package fault

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestPaths(t *testing.T) {
	path := Field(Key(Field(Field(Index("flows", 2), "workflow"), "states"), `fe"t.ch]`), "transitions")
	path = Field(Index(path, 0), "when")
	const want = `flows[2].workflow.states["fe\"t.ch]"].transitions[0].when`
	if path != want {
		t.Fatalf("%s\nwant %s", path, want)
	}
	steps := []Step{
		{Field: "flows", Index: -1},
		{Index: 2},
		{Field: "workflow", Index: -1},
		{Field: "states", Index: -1},
		{Index: -1, Key: `fe"t.ch]`},
		{Field: "transitions", Index: -1},
		{Index: 0},
		{Field: "when", Index: -1},
	}
	if got := Split(path); !reflect.DeepEqual(got, steps) {
		t.Errorf("%#v", got)
	}
	if got := Last(path); got != "when" {
		t.Errorf("last: %s", got)
	}
	if got := Parent(path); got != `flows[2].workflow.states["fe\"t.ch]"].transitions[0]` {
		t.Errorf("parent: %s", got)
	}
	if got := Last(Parent(Parent(path))); got != `states["fe\"t.ch]"]` {
		t.Errorf("last of the parent's parent: %s", got)
	}
	for _, test := range []struct{ path, name, want string }{
		{"", "id", "id"}, {"a", "", "a"}, {"a", "[0]", "a[0]"}, {"a", `["k"]`, `a["k"]`}, {"", "", ""},
	} {
		if got := Field(test.path, test.name); got != test.want {
			t.Errorf("Field(%q, %q) = %q", test.path, test.name, got)
		}
	}
	for _, misspelt := range []string{"[", "[x", `["x]`, ".", "a..b", "[-]"} {
		if got := Split(misspelt); len(got) > 1 {
			t.Errorf("%s: %v", misspelt, got)
		}
	}
}

func TestWithin(t *testing.T) {
	for _, test := range []struct {
		path, above string
		want        bool
	}{
		{"a.b", "a", true}, {"a[0]", "a", true}, {"a", "a", true}, {"a", "", true}, {"ab", "a", false}, {"a", "a.b", false},
	} {
		if got := Within(test.path, test.above); got != test.want {
			t.Errorf("Within(%q, %q) = %v", test.path, test.above, got)
		}
	}
}

// Whatever the keys are, a path that was put together comes apart again.
func TestSplitIsInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		path := ""
		var steps []Step
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			switch kind := rapid.IntRange(0, 2).Draw(t, "kind"); {
			case kind == 0 || path == "":
				name := rapid.StringMatching(`[a-z_]{1,8}`).Draw(t, "name")
				path, steps = Field(path, name), append(steps, Step{Field: name, Index: -1})
			case kind == 1:
				i := rapid.IntRange(0, 1000).Draw(t, "index")
				path, steps = Index(path, i), append(steps, Step{Index: i})
			default:
				key := rapid.String().Draw(t, "key")
				path, steps = Key(path, key), append(steps, Step{Index: -1, Key: key})
			}
		}
		if got := Split(path); !reflect.DeepEqual(got, steps) {
			t.Fatalf("%s: %#v", path, got)
		}
	})
}

func TestList(t *testing.T) {
	var l List
	if l.Err() != nil {
		t.Error("an empty list is an error")
	}
	l.Add("a.b", "must be %d", 3)
	l = append(l, Fault{Field: "c", Offset: 4, Message: "no", Other: "d"}, Fault{Offset: -1, Message: "all of it"})
	const want = "a.b: must be 3\nc: column 5: no; see d\nall of it"
	if got := l.Err().Error(); got != want {
		t.Errorf("%s", got)
	}
	var back List
	if !errors.As(fmt.Errorf("wrapped: %w", l.Err()), &back) || len(back) != 3 {
		t.Errorf("%v", back)
	}
}

func TestDidYouMean(t *testing.T) {
	known := []string{"schedule", "workflow", "task", "timers", "on_crash"}
	for _, test := range []struct{ name, want string }{
		{"shedule", "; did you mean schedule?"},
		{"Schedule", "; did you mean schedule?"},
		{"onCrash", "; did you mean on_crash?"},
		{"on-crash", "; did you mean on_crash?"},
		{"timer", "; did you mean timers?"},
		{"tsak", "; did you mean task?"},
		{"retries", "; known: on_crash, schedule, task, timers, workflow"},
		{"", "; known: on_crash, schedule, task, timers, workflow"},
	} {
		if got := DidYouMean(test.name, known); got != test.want {
			t.Errorf("%s: %s", test.name, got)
		}
	}
	if got := DidYouMean("x", nil); got != "" {
		t.Errorf("nothing is known: %s", got)
	}
	var many []string
	for i := range 50 {
		many = append(many, fmt.Sprintf("long-name-%02d", i))
	}
	if got := DidYouMean("other", many); !strings.HasSuffix(got, "long-name-19, …") {
		t.Errorf("%s", got)
	}
}
