package workflow

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/schedule"
)

func TestValidate(t *testing.T) {
	yes := func(*Scope) (bool, error) { return true, nil }
	ok := once(noop)
	manual, err := schedule.Compile(schedule.Spec{Manual: true}, schedule.Options{})
	if err != nil {
		t.Fatal(err)
	}
	second := every(t, time.Second)
	split := func(s Split) *Workflow { return line(does(&s)) }
	three := []Branch{{Work: ok}, {Work: ok}, {Work: ok}}
	items := func(*Scope) ([]any, error) { return nil, nil }
	retry := func(r Retry) *Workflow { return line(does(&Step{Task: noop, Retry: &r})) }

	tests := []struct {
		name   string
		w      *Workflow
		faults []string // path: part of the message
	}{
		{"valid", line(does(ok), does(ok)), nil},
		{"nothing", nil, []string{": there is no definition"}},
		{"empty", &Workflow{}, []string{"states: at least one state", "exits: at least one exit"}},
		{"no exit", &Workflow{Initial: "a", States: map[string]*State{"a": {Work: ok, Next: "a"}}}, []string{"exits: at least one exit"}},
		{"unknown initial", &Workflow{Initial: "b", States: map[string]*State{"a": {Work: ok, Next: "x"}}, Exits: map[string]*Exit{"x": {}}}, []string{`initial: "b" is not a state; states: a`}},
		{"no initial", &Workflow{States: map[string]*State{"a": {Work: ok, Next: "x"}}, Exits: map[string]*Exit{"x": {}}}, []string{"initial: the empty name is not a state"}},
		{"exit as initial", &Workflow{Initial: "x", States: map[string]*State{"a": {Work: ok, Next: "x"}}, Exits: map[string]*Exit{"x": {}}}, []string{`initial: "x" is not a state`}},
		{"nil state and exit", &Workflow{Initial: "a", States: map[string]*State{"a": {Work: ok, Transitions: []Transition{{When: yes, Next: "b"}, {Next: "x"}}}, "b": nil}, Exits: map[string]*Exit{"x": nil}}, []string{
			"exits.x: there is no definition",
			`states.a.transitions[0].next: "b" is neither`,
			`states.a.transitions[1].next: "x" is neither`,
			"states.b: there is no definition",
		}},
		{"state and exit of one name", &Workflow{Initial: "a", States: map[string]*State{"a": {Work: ok, Next: "b"}, "b": {Work: ok, Next: "x"}}, Exits: map[string]*Exit{"x": {}, "b": {}}}, []string{`exits.b: "b" is a state as well`}},
		{"unknown targets", &Workflow{Initial: "a", States: map[string]*State{
			"a": {Work: ok, Transitions: []Transition{{When: yes, Next: "c"}, {When: yes, Next: "b"}, {Next: ""}}},
			"b": {Work: ok, Next: "d"},
		}, Exits: map[string]*Exit{"x": {}}}, []string{
			`states.a.transitions[0].next: "c" is neither a state nor an exit; states: a, b; exits: x`,
			"states.a.transitions[2].next: the empty name is neither",
			`states.b.next: "d" is neither`,
		}},
		{"no next", &Workflow{Initial: "a", States: map[string]*State{"a": {Work: ok}}, Exits: map[string]*Exit{"x": {}}}, []string{"states.a: needs next or transitions"}},
		{"next and transitions", &Workflow{Initial: "a", States: map[string]*State{"a": {Work: ok, Next: "x", Transitions: []Transition{{Next: "x"}}}}, Exits: map[string]*Exit{"x": {}}}, []string{"states.a.transitions: set next or transitions"}},
		{"early default", &Workflow{Initial: "a", States: map[string]*State{"a": {Work: ok, Transitions: []Transition{{Next: "x"}, {When: yes, Next: "x"}}}}, Exits: map[string]*Exit{"x": {}}}, []string{"states.a.transitions[0]: the default"}},
		{"unreachable", &Workflow{Initial: "a", States: map[string]*State{"a": {Work: ok, Next: "x"}, "b": {Work: ok, Next: "c"}, "c": {Work: ok, Next: "b"}}, Exits: map[string]*Exit{"x": {}}}, []string{"states.b: is never entered", "states.c: is never entered"}},
		{"no way out", &Workflow{Initial: "a", States: map[string]*State{
			"a": {Work: ok, Transitions: []Transition{{When: yes, Next: "x"}, {Next: "b"}}}, "b": {Work: ok, Next: "c"}, "c": {Work: ok, Next: "b"},
		}, Exits: map[string]*Exit{"x": {}}}, []string{"states.b: no exit can be reached", "states.c: no exit can be reached"}},
		{"a legal cycle", &Workflow{Initial: "a", States: map[string]*State{
			"a": {Work: ok, Next: "b"}, "b": {Work: ok, Transitions: []Transition{{When: yes, Next: "a"}, {When: yes, Next: "b"}, {Next: "x"}}},
		}, Exits: map[string]*Exit{"x": {}, "unused": {}}}, nil},
		{"names", &Workflow{Initial: "a/b", States: map[string]*State{"a/b": {Work: ok, Next: "2nd"}, "2nd": {Work: ok, Next: "é"}}, Exits: map[string]*Exit{"é": {}}}, []string{
			`exits.é: "é" is not a name`, `states.2nd: "2nd" is not a name`, `states.a/b: "a/b" is not a name`,
		}},
		{"bounds", &Workflow{Initial: "a", MaxTransitions: -1, States: map[string]*State{"a": {Work: &Step{Task: noop, Timeout: -1}, Next: "x"}}, Exits: map[string]*Exit{"x": {}}}, []string{
			"max_transitions: must not be negative", "states.a.task.timeout: must not be negative",
		}},
		{"no work", line(does(nil), does(&Step{}), &State{Work: ok, Compensate: &Step{}}), []string{
			"states.s1: has no work", "states.s2.task: there is no task", "states.s3.compensate: there is no task",
		}},
		{"targets", line(does(&Step{Task: noop, Target: "api"}), does(&Split{Branches: []Branch{{Work: &Step{Task: noop, Target: "db"}}}, Join: Join{Strategy: JoinAll}})), []string{
			`states.s2.split.branches[0].task.target: no resource "db"`,
		}},
		{"retries", retry(Retry{Retries: -1}), []string{"states.s1.task.retry: retries must not be negative"}},
		{"delays", retry(Retry{Retries: 1, Initial: time.Second, Multiplier: 1}), []string{"states.s1.task.retry: delays must not be negative, and the longest (0s) not below the first (1s)"}},
		{"multiplier", retry(Retry{Retries: 1, Multiplier: math.NaN()}), []string{"states.s1.task.retry: multiplier must be"}},
		{"infinite multiplier", retry(Retry{Retries: 1, Multiplier: math.Inf(1)}), []string{"states.s1.task.retry: multiplier must be"}},
		{"jitter", retry(Retry{Retries: 1, Multiplier: 1, Jitter: 1.5}), []string{"states.s1.task.retry: jitter must be"}},
		{"default retry", retry(DefaultRetry), nil},
		{"fixed retry", retry(FixedRetry(3, time.Second)), nil},
		{"no retry", retry(Retry{}), nil},

		{"split", split(Split{}), []string{"states.s1.split: needs branches or for_each", "states.s1.split.join: needs a strategy"}},
		{"split of both", split(Split{Branches: three, ForEach: &ForEach{Items: items, Branch: three[0]}, Join: Join{Strategy: JoinAll}}), []string{"states.s1.split.for_each: set branches or for_each"}},
		{"for_each", split(Split{ForEach: &ForEach{MaxItems: -1}, Join: Join{Strategy: JoinQuorum, N: 1000}}), []string{
			"states.s1.split.for_each.items: must give", "states.s1.split.for_each.max_items: must not be negative", "states.s1.split.for_each.branch: has no work",
		}},
		{"bulkhead", split(Split{Branches: three, Bulkhead: -1, Join: Join{Strategy: JoinAll}}), []string{"states.s1.split.bulkhead: must be at least 1"}},
		{"branch names", split(Split{Branches: []Branch{{Name: "a", Work: ok}, {Name: "a", Work: ok}, {Name: "1", Work: ok}, {Work: ok}, {Name: "a b", Work: ok}, {Name: "4", Work: ok}}, Join: Join{Strategy: JoinAll}}), []string{
			`states.s1.split.branches[1].name: "a" is the name of branches[0] already`, `states.s1.split.branches[4].name: "a b"`,
		}},
		{"branch named like an index", split(Split{Branches: []Branch{{Name: "1", Work: ok}, {Work: ok}}, Join: Join{Strategy: JoinAll}}), []string{`states.s1.split.branches[1].name: "1" is the name of branches[0] already`}},
		{"branch work", split(Split{Branches: []Branch{{Work: &Split{}}, {Work: &Timer{}}, {Work: &TimerWorkflow{}}, {}}, Join: Join{Strategy: JoinAll}}), []string{
			"states.s1.split.branches[0]: a branch is one of", "states.s1.split.branches[1]: a branch is one of", "states.s1.split.branches[2]: a branch is one of", "states.s1.split.branches[3]: has no work",
		}},
		{"quorum", split(Split{Branches: three, Join: Join{Strategy: JoinQuorum}}), []string{"states.s1.split.join.quorum.n: must be at least 1"}},
		{"quorum of more", split(Split{Branches: three, Join: Join{Strategy: JoinQuorum, N: 4}}), []string{"states.s1.split.join.quorum.n: 4 successes can never be reached with 3 branches"}},
		{"quorum of all", split(Split{Branches: three, Join: Join{Strategy: JoinQuorum, N: 3}}), nil},
		{"partial results", split(Split{Branches: three, Join: Join{Strategy: JoinPartialResults, N: -1}}), []string{"states.s1.split.join.partial_results.n: must be at least 1"}},
		{"partial results of more", split(Split{Branches: three, Join: Join{Strategy: JoinPartialResults, N: 4}}), []string{"states.s1.split.join.partial_results.n: 4 successes"}},
		{"percentage of nothing", split(Split{Branches: three, Join: Join{Strategy: JoinPercentage}}), []string{"states.s1.split.join.percentage.share: must be a number above 0"}},
		{"percentage above 1", split(Split{Branches: three, Join: Join{Strategy: JoinPercentage, Share: 1.5}}), []string{"states.s1.split.join.percentage.share: must be"}},
		{"percentage NaN", split(Split{Branches: three, Join: Join{Strategy: JoinPercentage, Share: math.NaN()}}), []string{"states.s1.split.join.percentage.share: must be"}},
		{"percentage of 1", split(Split{Branches: three, Join: Join{Strategy: JoinPercentage, Share: 1}}), nil},
		{"partial timeout", split(Split{Branches: three, Join: Join{Strategy: JoinPartialTimeout}}), []string{"states.s1.split.join.timeout: partial_timeout needs it"}},
		{"join timeout", split(Split{Branches: three, Join: Join{Strategy: JoinAll, Timeout: -1}}), []string{"states.s1.split.join.timeout: must not be negative"}},

		{"timer", line(does(&Timer{})), []string{"states.s1.timer.schedule: there is no schedule", "states.s1.timer.task: there is no task"}},
		{"manual timer", line(does(&Timer{Schedule: manual, Step: ok, Timeout: -1})), []string{"states.s1.timer.schedule: a manual schedule is never due", "states.s1.timer.timeout: must not be negative"}},
		{"no timers", line(does(&TimerWorkflow{})), []string{"states.s1.timers.timers: there must be at least one timer"}},
		{"timer workflow", line(does(&TimerWorkflow{Initial: "z", MaxFirings: -1, Timers: map[string]*TimerNode{
			"a": {Timer: &Timer{Schedule: second, Step: ok}, Routes: map[string]string{"next": "y", "retry": "a"}, Default: "b", MaxRetries: new(-1), Backoff: &flow.Policy{}},
			"b": nil,
		}})), []string{
			`states.s1.timers.initial: "z" is not a timer; timers: a, b`, "states.s1.timers.max_firings: must not be negative",
			`states.s1.timers.timers.a.routes.next: "y" is not a timer`, `states.s1.timers.timers.a.routes.retry: the action "retry" needs no route`,
			`states.s1.timers.timers.a.default_route: "b" is not a timer`, "states.s1.timers.timers.a.max_retries: must not be negative",
			"states.s1.timers.timers.a.retry_backoff: initial must be above 0", "states.s1.timers.timers.b: there is no definition",
		}},
		{"timers never armed", line(does(&TimerWorkflow{Initial: "a", Timers: map[string]*TimerNode{
			"a": {Timer: &Timer{Schedule: second, Step: ok}, Routes: map[string]string{"next": "b"}}, "b": {Timer: &Timer{Schedule: second, Step: ok}}, "c": {Timer: &Timer{Schedule: second, Step: ok}, Default: "a"},
			"d": {},
		}})), []string{"states.s1.timers.timers.d.timer: there is no timer", `states.s1.timers.timers.c: is never armed: no route leads here from "a"`, "states.s1.timers.timers.d: is never armed"}},

		{"nested", line(does(&Nested{Workflow: &Workflow{Initial: "a", States: map[string]*State{"a": {Work: ok, Next: "nowhere"}}, Exits: map[string]*Exit{"x": {}}}, Timeout: -1})), []string{
			"states.s1.workflow.timeout: must not be negative", `states.s1.workflow.definition.states.a.next: "nowhere" is neither`,
		}},
		{"nested nothing", line(does(&Nested{})), []string{"states.s1.workflow.definition: there is no definition"}},
		{"nested in a branch", split(Split{Branches: []Branch{{Work: &Nested{Workflow: line(does(&Step{}))}}}, Join: Join{Strategy: JoinAll}}), []string{"states.s1.split.branches[0].workflow.definition.states.s1.task: there is no task"}},
		{"nested in a for_each", split(Split{ForEach: &ForEach{Items: items, Branch: Branch{Work: &Nested{Workflow: line(does(&Step{}))}}}, Join: Join{Strategy: JoinAll}}), []string{"states.s1.split.for_each.branch.workflow.definition.states.s1.task: there is no task"}},
		{"nested as deep as allowed", nest(MaxDepth), nil},
		{"nested too deep", nest(MaxDepth + 1), []string{strings.Repeat("states.s1.workflow.definition.", MaxDepth) + "states.s1.workflow.definition: workflows are nested more than 16 deep"}},
		{"nested in itself", ownChild(), []string{strings.Repeat("states.s1.workflow.definition.", MaxDepth) + "states.s1.workflow.definition: workflows are nested more than 16 deep"}},
		{"flow call", line(does(&FlowCall{Timeout: -1})), []string{"states.s1.flow.timeout: must not be negative", "states.s1.flow.flow_id: must name the flow"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			faults := test.w.Validate(func(name string) bool { return name == "api" })
			var got []string
			for _, f := range faults {
				got = append(got, f.Error())
			}
			for i, want := range test.faults {
				path, part, _ := strings.Cut(want, ": ")
				if i >= len(faults) || faults[i].Path != path || !strings.Contains(faults[i].Msg, part) {
					t.Fatalf("faults\n got %s\nwant %s", strings.Join(got, "\n     "), strings.Join(test.faults, "\n     "))
				}
			}
			if len(faults) != len(test.faults) {
				t.Fatalf("faults\n got %s\nwant %s", strings.Join(got, "\n     "), strings.Join(test.faults, "\n     "))
			}
		})
	}
}

// nest is a workflow with others inside each other.
func nest(depth int) *Workflow {
	w := line(does(once(noop)))
	for range depth {
		w = line(does(&Nested{Workflow: w}))
	}
	return w
}

// ownChild is a workflow nested in itself.
func ownChild() *Workflow {
	w := line(does(&Nested{}))
	w.States["s1"].Work = &Nested{Workflow: w}
	return w
}

func TestFaultsListOnlySomeNames(t *testing.T) {
	w := &Workflow{Initial: "a", States: map[string]*State{"a": {Work: once(noop), Next: "nowhere"}}, Exits: map[string]*Exit{}}
	for i := range 100 {
		w.Exits[fmt.Sprintf("x%02d", i)] = &Exit{}
	}
	faults := w.Validate(nil)
	if len(faults) != 1 || !strings.HasSuffix(faults[0].Msg, "exits: x00, x01, x02, x03, x04, x05, x06, x07, x08, x09 and 90 more") {
		t.Error(faults)
	}
}

func TestCalls(t *testing.T) {
	call := func(id string) *FlowCall { return &FlowCall{FlowID: id} }
	w := line(
		does(call("b")),
		does(&Split{Branches: []Branch{{Work: call("c")}, {Work: &Nested{Workflow: line(does(call("a")), does(call("b")))}}}}),
		does(&Split{ForEach: &ForEach{Branch: Branch{Work: call("d")}}}),
		does(once(noop)),
	)
	if got := w.Calls(); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Error(got)
	}
	if got := ownChild().Calls(); len(got) != 0 {
		t.Error(got)
	}
}

func TestCallCycle(t *testing.T) {
	for _, test := range []struct{ calls, want string }{
		{"", ""},
		{"a:b b:c c:", ""},
		{"a:b,c b:d c:d d:", ""},
		{"a:a", "a a"},
		{"a:b b:c c:b", "b c b"},
		{"a: b:c c:d d:b", "b c d b"},
		{"a:unknown", ""},
	} {
		calls := map[string][]string{}
		var flows []string
		for f := range strings.FieldsSeq(test.calls) {
			id, called, _ := strings.Cut(f, ":")
			flows = append(flows, id)
			calls[id] = strings.FieldsFunc(called, func(r rune) bool { return r == ',' })
		}
		got := CallCycle(flows, func(id string) []string { return calls[id] })
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: %v, want %s", test.calls, got, test.want)
		}
	}
}
