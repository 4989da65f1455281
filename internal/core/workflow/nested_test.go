package workflow

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/resource"
)

// looks notes what a task sees of params and results.
func (n *notes) looks(v any) *Step {
	return once(func(_ context.Context, in *Invocation) (Result, error) {
		n.add("%s:%v%v", in.State, in.Scope.Params, in.Scope.Results)
		return Result{Value: v}, nil
	})
}

func TestNested(t *testing.T) {
	var seen notes
	inner := line(does(seen.looks("i1")), does(seen.looks("i2")))
	w := line(
		does(seen.looks("o1")),
		does(&Nested{Workflow: inner, Params: func(s *Scope) (map[string]any, error) {
			return map[string]any{"q": s.Results["s1"]}, nil
		}}),
	)
	w.States["s2"] = &State{Work: w.States["s2"].Work, Transitions: []Transition{{When: on("done"), Next: "done"}}}
	end, journal := run(t, t.Context(), w, &Run{Params: map[string]any{"p": 1.0}})
	wantOutcome(t, end, Succeeded)
	if end.Result != "i2" {
		t.Errorf("result %v", end.Result)
	}
	// The nested workflow sees the params around it and its own, but not the results around it.
	want := "s1:map[p:1]map[] s2/s1:map[p:1 q:o1]map[] s2/s2:map[p:1 q:o1]map[s1:i1]"
	if seen.String() != want {
		t.Errorf("seen\n got %s\nwant %s", seen.String(), want)
	}
	wantTrace(t, journal.trace(), `enter s1, start s1 1, ok s1 1, enter s2, enter s2/s1, start s2/s1 1, ok s2/s1 1,
		enter s2/s2, start s2/s2 1, ok s2/s2 1, enter s2/done, enter done`)
	// Entering s2 is entering s2/s1.
	var places []string
	for _, c := range journal.checkpoints {
		places = append(places, c.place())
	}
	wantTrace(t, places, "s2, s2/s2")
}

func TestNestedFailures(t *testing.T) {
	failing := line(does(once(noop)))
	failing.Exits["done"] = &Exit{Failure: func(*Scope) (string, error) { return "no good", nil }}
	for name, test := range map[string]struct {
		work Work
		err  string
	}{
		"a task":                  {&Nested{Workflow: line(does(once(fails("no"))))}, `state "s1/s1": no`},
		"a failure exit":          {&Nested{Workflow: failing}, `exit "done": no good`},
		"params":                  {&Nested{Workflow: failing, Params: func(*Scope) (map[string]any, error) { return nil, errors.New("no such key") }}, `state "s1": params: no such key`},
		"params that are no JSON": {&Nested{Workflow: failing, Params: func(*Scope) (map[string]any, error) { return map[string]any{"t": time.Now()}, nil }}, `state "s1": params: a time.Time is not a JSON-like value`},
		"large params": {&Nested{Workflow: failing, Params: func(*Scope) (map[string]any, error) {
			return map[string]any{"t": strings.Repeat("x", MaxResultBytes)}, nil
		}}, `state "s1": params: they take about 64 KiB`},
		"timeout":    {&Nested{Workflow: line(does(once(after(time.Hour, noop)))), Timeout: time.Minute}, `the nested run took longer than its timeout of 1m0s in state "s1/s1"`},
		"depth":      {nest(MaxDepth).States["s1"].Work, ""},
		"more depth": {&Nested{Workflow: nest(MaxDepth)}, "nested more than 16 deep"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end := line(does(test.work)).Run(t.Context(), &Run{Identity: identity()})
				if test.err == "" {
					wantOutcome(t, end, Succeeded)
					return
				}
				wantOutcome(t, end, Failed)
				wantError(t, end.Err, test.err)
			})
		})
	}
}

// The run's timeout is the run's, whatever it is nested in; a nested one is a failure of its state.
func TestTimeoutsOfNestedRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := line(does(once(after(time.Hour, noop))))
		nested := &Nested{Workflow: line(does(&Nested{Workflow: slow, Timeout: 2 * time.Minute})), Timeout: 3 * time.Minute}
		end, _ := run(t, t.Context(), line(does(nested)), &Run{Timeout: time.Minute})
		wantOutcome(t, end, TimedOut)
		wantError(t, end.Err, "the run took longer than its timeout of 1m0s")

		end, _ = run(t, t.Context(), line(does(nested)), &Run{Timeout: time.Hour})
		wantOutcome(t, end, Failed)
		wantError(t, end.Err, "timeout of 2m0s")

		nested.Timeout = time.Minute
		end, _ = run(t, t.Context(), line(does(nested)), &Run{Timeout: time.Hour})
		wantOutcome(t, end, Failed)
		wantError(t, end.Err, "timeout of 1m0s")

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		end, _ = run(t, ctx, line(does(nested)), &Run{Timeout: time.Hour})
		wantOutcome(t, end, Cancelled)
	})
}

func TestFlowCall(t *testing.T) {
	var seen notes
	set, err := resource.Setup(t.Context(), []resource.Declaration{{Name: "theirs", Resource: inert{}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	other := line(does(once(func(_ context.Context, in *Invocation) (Result, error) {
		seen.add("%s:%v:%t:%t", in.State, in.Scope.Params, in.Resources.Get("theirs") != nil, in.Scope.Item != nil)
		return Result{Value: "r"}, nil
	})))
	flows := func(id string) (*Callee, error) {
		if id != "other" {
			return nil, errors.New("no such flow")
		}
		return &Callee{Workflow: other, Params: map[string]any{"a": 1.0, "b": 2.0}, Resources: set}, nil
	}
	call := &FlowCall{FlowID: "other", Params: func(s *Scope) (map[string]any, error) { return map[string]any{"b": s.Params["p"]}, nil }}
	w := line(
		does(call),
		does(&Split{ForEach: &ForEach{Items: func(*Scope) ([]any, error) { return []any{"x"}, nil }, Branch: Branch{Work: call}}, Join: Join{Strategy: JoinAll}}),
	)
	end, _ := run(t, t.Context(), w, &Run{Flows: flows, Params: map[string]any{"p": 3.0, "q": 4.0}})
	wantOutcome(t, end, Succeeded)
	// It sees its own flow's params and resources, and nothing of the caller's.
	if want := "s1/s1:map[a:1 b:3]:true:false s2/0/s1:map[a:1 b:3]:true:false"; seen.String() != want {
		t.Errorf("seen\n got %s\nwant %s", seen.String(), want)
	}

	for name, test := range map[string]struct {
		flows func(string) (*Callee, error)
		err   string
	}{
		"unknown": {func(string) (*Callee, error) { return nil, errors.New("no such flow") }, `state "s1": flow "other" cannot be called: no such flow`},
		"none":    {nil, `state "s1": flow "other" cannot be called: there are no other flows here`},
	} {
		t.Run(name, func(t *testing.T) {
			end, _ := run(t, t.Context(), w, &Run{Flows: test.flows})
			wantOutcome(t, end, Failed)
			wantError(t, end.Err, test.err)
		})
	}
	// Flows that call each other are rejected when they are loaded; at run time the depth is bounded all the same.
	t.Run("a cycle", func(t *testing.T) {
		calls := 0
		w := line(does(&FlowCall{FlowID: "self"}))
		end, _ := run(t, t.Context(), w, &Run{Flows: func(string) (*Callee, error) { calls++; return &Callee{Workflow: w}, nil }})
		wantOutcome(t, end, Failed)
		wantError(t, end.Err, "nested more than 16 deep")
		if calls != MaxDepth {
			t.Errorf("%d calls", calls)
		}
	})
}

// A split inside a nested workflow inside a split.
func TestNestedSplits(t *testing.T) {
	leaf := func() *Split {
		return &Split{Branches: []Branch{{Name: "x", Work: once(gives(1.0))}, {Name: "y", Work: once(gives(2.0))}}, Join: Join{Strategy: JoinAll}}
	}
	w := line(does(&Split{Branches: []Branch{{Name: "a", Work: &Nested{Workflow: line(does(leaf()))}}, {Name: "b", Work: &Nested{Workflow: line(does(leaf()))}}}, Join: Join{Strategy: JoinAll}}))
	end, journal := run(t, t.Context(), w, &Run{})
	wantOutcome(t, end, Succeeded)
	if journal.count(SplitDecided) != 3 || len(journal.checkpoints) != 0 { // a split is one unit: it makes no checkpoints inside
		t.Errorf("%d checkpoints, events %v", len(journal.checkpoints), journal.trace())
	}
	if got := fmt.Sprint(end.Result); got != "[map[branch:a cancelled:false error: result:[map[branch:x cancelled:false error: result:1 succeeded:true] map[branch:y cancelled:false error: result:2 succeeded:true]] succeeded:true] map[branch:b cancelled:false error: result:[map[branch:x cancelled:false error: result:1 succeeded:true] map[branch:y cancelled:false error: result:2 succeeded:true]] succeeded:true]]" {
		t.Error(got)
	}
}
