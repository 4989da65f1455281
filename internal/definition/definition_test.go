package definition_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/core/schedule"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/definition"
	"github.com/schedulerd/schedulerd/internal/manifest"
	"github.com/schedulerd/schedulerd/internal/task/tasktest"
	"google.golang.org/protobuf/proto"
)

var now = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)

// file reads a flows file that the tests write as users do.
func file(t *testing.T, text string) *schedulerdv1.FlowsFile {
	t.Helper()
	set, problems := manifest.Parse([]manifest.Source{{Name: "test", Content: []byte(text)}})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return set.File
}

func compile(t *testing.T, text string, o definition.Options) (*definition.Set, string) {
	t.Helper()
	set, faults := definition.New(tasktest.Registry()).Compile(file(t, text), o)
	return set, faults.Error()
}

func options() definition.Options {
	return definition.Options{Now: now, AllowExec: true, Origin: core.FromFile}
}

// one compiles a file with one flow.
func one(t *testing.T, text string) *core.Flow {
	t.Helper()
	set, faults := compile(t, text, options())
	if faults != "" {
		t.Fatal(faults)
	}
	return set.Flows[0]
}

func TestDefaults(t *testing.T) {
	f := one(t, `flows: [{id: hello, task: {log: {message: hi}}}]`)
	if f.ID != "hello" || f.Schedule != nil || f.Backoff != flow.DefaultPolicy || f.Params != nil || len(f.Resources) != 0 ||
		f.Timeout != 0 || f.CompensationTimeout != 0 || f.CatchUp != (core.CatchUp{}) || f.OnResume != 0 || f.OnCrash != 0 ||
		f.Paused || f.KeepRuns != 0 || f.ResourceKey != "" || f.Origin != core.FromFile {
		t.Errorf("%+v", f)
	}
	w := f.Workflow
	if w.Initial != "run" || len(w.States) != 1 || len(w.Exits) != 1 || w.States["run"].Next != "done" || w.Exits["done"].Failure != nil {
		t.Errorf("%+v", w)
	}
	step := w.States["run"].Work.(*workflow.Step)
	if step.Retry != nil || step.Timeout != 0 || step.Target != "" || step.Action != nil {
		t.Errorf("%+v", step)
	}
	source, err := definition.Source(core.Define(f))
	if err != nil || source.GetId() != "hello" || source.GetTask().GetLog().GetMessage() != "hi" {
		t.Errorf("%v, %v", source, err)
	}
}

func TestFields(t *testing.T) {
	f := one(t, `
flows:
  - id: all
    description: everything set
    labels: {team: a}
    schedule: {every: {interval: 5m, initial_delay: 1s}}
    backoff: {initial: 2s, multiplier: 3, max_delay: 1m, jitter: 0, trip_after: 4, retry_after_trip: 1h}
    resources:
      - name: kept
        store: {}
        setup_timeout: 1s
        teardown_timeout: 2s
      - name: api
        http: {base_url: "https://example.com"}
        circuit_breaker: {failure_threshold: 2}
        rate_limit: {calls: 3, per: 1s}
    params: {a: 1, b: [x, null, {c: true}]}
    timeout: 1h
    compensation_timeout: 10s
    catch_up: {mode: all, window: 2h, max: 7}
    on_resume: LAST
    on_crash: fail
    paused: true
    keep_runs: 0
    task:
      http: {url: /x}
      target: api
      timeout: 5s
      action: result.next
      retry: {exponential: {retries: 5, initial: 1s, multiplier: 3, max_delay: 1m, jitter: 0.5}, retry_on: ["http:5xx"], no_retry_on: [timeout]}
`)
	if f.Description != "everything set" || f.Labels["team"] != "a" || !f.Schedule.Next(now, schedule.Anchors{Start: now}).Equal(now.Add(time.Second)) {
		t.Errorf("%+v", f)
	}
	if want := (flow.Policy{Initial: 2 * time.Second, Multiplier: 3, MaxDelay: time.Minute, Jitter: 0, TripAfter: 4, RetryAfterTrip: time.Hour}); f.Backoff != want {
		t.Errorf("%+v", f.Backoff)
	}
	if want := map[string]any{"a": 1.0, "b": []any{"x", nil, map[string]any{"c": true}}}; !reflect.DeepEqual(f.Params, want) {
		t.Errorf("%v", f.Params)
	}
	if f.Timeout != time.Hour || f.CompensationTimeout != 10*time.Second || f.CatchUp != (core.CatchUp{Mode: core.CatchUpAll, Window: 2 * time.Hour, Max: 7}) ||
		f.OnResume != core.CatchUpLast || f.OnCrash != core.CrashFail || !f.Paused || f.KeepRuns != -1 {
		t.Errorf("%+v", f)
	}
	if len(f.Resources) != 2 {
		t.Fatalf("%+v", f.Resources)
	}
	kept, api := f.Resources[0], f.Resources[1]
	if kept.Name != "kept" || kept.Resource == nil || kept.SetupTimeout != time.Second || kept.TeardownTimeout != 2*time.Second || kept.Guard != nil {
		t.Errorf("%+v", kept)
	}
	if gate, ok := api.Guard.(*resource.Gate); !ok || gate.Breaker == nil || gate.Limiter == nil {
		t.Errorf("%+v", api)
	}
	step := f.Workflow.States["run"].Work.(*workflow.Step)
	if want := (workflow.Retry{Retries: 5, Initial: time.Second, Multiplier: 3, MaxDelay: time.Minute, Jitter: 0.5, On: []string{"http:5xx"}, NotOn: []string{"timeout"}}); !reflect.DeepEqual(*step.Retry, want) {
		t.Errorf("%+v", step.Retry)
	}
	if step.Target != "api" || step.Timeout != 5*time.Second {
		t.Errorf("%+v", step)
	}
	action, err := step.Action(&workflow.Scope{Result: map[string]any{"next": "later"}})
	if err != nil || action != "later" {
		t.Errorf("%q, %v", action, err)
	}
	if _, err := step.Action(&workflow.Scope{Result: map[string]any{"next": 3.0}}); err == nil {
		t.Error("a number is taken for an action")
	}
}

func TestRetries(t *testing.T) {
	for text, want := range map[string]*workflow.Retry{
		``:                         nil,
		`retry: {}`:                &workflow.DefaultRetry,
		`retry: {none: {}}`:        {},
		`retry: {exponential: {}}`: &workflow.DefaultRetry,
		`retry: {fixed: {retries: 2, delay: 3s}}`: {Retries: 2, Initial: 3 * time.Second, MaxDelay: 3 * time.Second, Multiplier: 1},
		// The cap that is not written is no shorter than the start that is.
		`retry: {exponential: {initial: 1h}}`: {Retries: 3, Initial: time.Hour, MaxDelay: time.Hour, Multiplier: 2, Jitter: 0.1},
	} {
		f := one(t, `flows: [{id: x, task: {log: {message: hi}, `+text+`}}]`)
		if got := f.Workflow.States["run"].Work.(*workflow.Step).Retry; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

func TestWorkflow(t *testing.T) {
	w := workflowOf(t, `
flows:
  - id: other
    task: {log: {message: hi}}
  - id: wf
    params: {limit: 10}
    workflow:
      initial: fetch
      max_transitions: 50
      states:
        fetch:
          task: {http: {url: "https://example.com/${params.limit}"}}
          transitions:
            - {when: result.status == 200, next: spread}
            - {when: action == "again", next: fetch}
            - {next: failed}
          compensate: {log: {message: "undo ${result}"}}
        spread:
          split:
            for_each:
              items: results.fetch.rows
              max_items: 5
              branch: {name: row, task: {log: {message: "${index} ${item.id}"}}}
            join: {percentage: {share: 0.5}, timeout: 1m, wait_all: true}
            bulkhead: 2
          next: both
        both:
          split:
            branches:
              - {name: a, task: {log: {message: a}}}
              - {workflow: {definition: {initial: s, states: {s: {task: {log: {message: "${params.p}"}}, next: e}}, exits: {e: }}, params: {p: "${params.limit * 2}"}, timeout: 3s}}
              - {flow: {flow_id: other, params: {x: "${params.limit}"}, timeout: 4s}}
            join: {quorum: {n: 2}}
          next: pause
        pause:
          timer: {schedule: {daily: {at: "03:00"}}, task: {log: {message: hi}}, execute_immediately: true, timeout: 9s}
          next: loop
        loop:
          timers:
            initial: check
            max_firings: 9
            timers:
              check:
                timer: {schedule: {every: {interval: 1m}}, task: {log: {message: hi}}}
                routes: {slow: later}
                default_route: check
                max_retries: 0
                retry_backoff: {initial: 1s}
              later:
                timer: {schedule: {every: {interval: 1h}}, task: {log: {message: hi}}}
          next: nested
        nested:
          workflow: {definition: {initial: s, states: {s: {task: {log: {message: hi}}, next: e}}, exits: {e: }}}
          next: call
        call: {flow: {flow_id: other}, next: done}
      exits:
        done:
        failed: {failure: "no answer: ${result.status}"}
`)
	scope := &workflow.Scope{
		Params:  map[string]any{"limit": 10.0},
		Result:  map[string]any{"status": 503.0},
		Results: map[string]any{"fetch": map[string]any{"rows": []any{1.0, 2.0}}},
		Action:  "again",
	}
	if w.Initial != "fetch" || w.MaxTransitions != 50 || len(w.States) != 7 {
		t.Errorf("%+v", w)
	}
	fetch := w.States["fetch"]
	for i, want := range []bool{false, true} {
		if holds, err := fetch.Transitions[i].When(scope); err != nil || holds != want {
			t.Errorf("transition %d: %v, %v", i, holds, err)
		}
	}
	if fetch.Transitions[2].When != nil || fetch.Transitions[2].Next != "failed" || fetch.Compensate == nil {
		t.Errorf("%+v", fetch)
	}
	if text, err := w.Exits["failed"].Failure(scope); err != nil || text != "no answer: 503" {
		t.Errorf("%q, %v", text, err)
	}
	if w.Exits["done"].Failure != nil {
		t.Error("done is a failure")
	}

	spread := w.States["spread"].Work.(*workflow.Split)
	if want := (workflow.Join{Strategy: workflow.JoinPercentage, Share: 0.5, Timeout: time.Minute, WaitAll: true}); spread.Join != want || spread.Bulkhead != 2 ||
		spread.ForEach.MaxItems != 5 || spread.ForEach.Branch.Name != "row" {
		t.Errorf("%+v", spread)
	}
	if items, err := spread.ForEach.Items(scope); err != nil || len(items) != 2 {
		t.Errorf("%v, %v", items, err)
	}
	if _, err := spread.ForEach.Items(&workflow.Scope{Results: map[string]any{"fetch": map[string]any{"rows": "one"}}}); err == nil || err.Error() != "items must be a list" {
		t.Errorf("%v", err)
	}
	both := w.States["both"].Work.(*workflow.Split)
	if both.Join != (workflow.Join{Strategy: workflow.JoinQuorum, N: 2}) || both.Branches[0].Name != "a" || both.Bulkhead != 0 {
		t.Errorf("%+v", both)
	}
	inner := both.Branches[1].Work.(*workflow.Nested)
	if params, err := inner.Params(scope); err != nil || params["p"] != 20.0 || inner.Timeout != 3*time.Second {
		t.Errorf("%v, %v", params, err)
	}
	call := both.Branches[2].Work.(*workflow.FlowCall)
	if params, err := call.Params(scope); err != nil || params["x"] != 10.0 || call.FlowID != "other" || call.Timeout != 4*time.Second {
		t.Errorf("%v, %v", params, err)
	}

	pause := w.States["pause"].Work.(*workflow.Timer)
	if !pause.Immediate || pause.Timeout != 9*time.Second || !pause.Schedule.Next(now, schedule.Anchors{}).Equal(now.Add(3*time.Hour)) {
		t.Errorf("%+v", pause)
	}
	loop := w.States["loop"].Work.(*workflow.TimerWorkflow)
	check := loop.Timers["check"]
	if loop.Initial != "check" || loop.MaxFirings != 9 || check.Routes["slow"] != "later" || check.Default != "check" || *check.MaxRetries != 0 ||
		check.Backoff.Initial != time.Second || loop.Timers["later"].MaxRetries != nil || loop.Timers["later"].Backoff != nil {
		t.Errorf("%+v", check)
	}
	if nested := w.States["nested"].Work.(*workflow.Nested); nested.Params != nil || nested.Workflow.Initial != "s" {
		t.Errorf("%+v", nested)
	}
	if call := w.States["call"].Work.(*workflow.FlowCall); call.Params != nil || call.FlowID != "other" {
		t.Errorf("%+v", call)
	}
	if calls := w.Calls(); !slices.Equal(calls, []string{"other"}) {
		t.Errorf("%v", calls)
	}
}

func TestJoins(t *testing.T) {
	for text, want := range map[string]workflow.Join{
		"all: {}":                {Strategy: workflow.JoinAll},
		"any: {}":                {Strategy: workflow.JoinAny},
		"quorum: {n: 1}":         {Strategy: workflow.JoinQuorum, N: 1},
		"percentage: {share: 1}": {Strategy: workflow.JoinPercentage, Share: 1},
		"partial_results: {n: 2}, wait_all: true": {Strategy: workflow.JoinPartialResults, N: 2, WaitAll: true},
		"partial_timeout: , timeout: 2s":          {Strategy: workflow.JoinPartialTimeout, Timeout: 2 * time.Second},
	} {
		w := workflowOf(t, `flows: [{id: x, workflow: {initial: s, states: {s: {next: e, split: {join: {`+text+`},
			branches: [{task: {log: {message: a}}}, {task: {log: {message: b}}}]}}}, exits: {e: }}}]`)
		if got := w.States["s"].Work.(*workflow.Split).Join; got != want {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

func TestTimersFlow(t *testing.T) {
	w := workflowOf(t, `flows: [{id: x, timers: {initial: a, timers: {a: {timer: {schedule: {every: {interval: 1s}}, task: {log: {message: hi}}}}}}}]`)
	if _, ok := w.States["run"].Work.(*workflow.TimerWorkflow); !ok || w.Initial != "run" || w.States["run"].Next != "done" {
		t.Errorf("%+v", w)
	}
}

// workflowOf compiles a file whose last flow has the workflow that is meant.
func workflowOf(t *testing.T, text string) *workflow.Workflow {
	t.Helper()
	set, faults := compile(t, text, options())
	if faults != "" {
		t.Fatal(faults)
	}
	return set.Flows[len(set.Flows)-1].Workflow
}

func TestScheduleSpec(t *testing.T) {
	for text, want := range map[string]schedule.Spec{
		`{every: {interval: 5m, initial_delay: 1s, fixed_delay: true}}`: {Every: &schedule.Every{Interval: 5 * time.Minute, InitialDelay: time.Second, FixedDelay: true}},
		`{cron: "0 9 * * MON", time_zone: Europe/Kyiv}`:                 {Cron: "0 9 * * MON", Zone: "Europe/Kyiv"},
		`{once: {at: "2027-03-28T02:30:00"}}`:                           {Once: "2027-03-28T02:30:00"},
		`{daily: {at: "03:00"}, jitter: 5s, splay: 1m}`:                 {Daily: &schedule.Daily{At: "03:00"}, Jitter: 5 * time.Second, Splay: time.Minute},
		`{weekly: {days: [SUNDAY, monday, WEEKDAY_SATURDAY], at: "1:00:01"}}`: {
			Weekly: &schedule.Weekly{Days: []time.Weekday{time.Sunday, time.Monday, time.Saturday}, At: "1:00:01"},
		},
		`{monthly: {day: -1, at: "00:00", short_month: LAST_DAY}}`: {Monthly: &schedule.Monthly{Day: -1, At: "00:00", ShortMonth: schedule.LastDay}},
		`{monthly: {day: 31, at: "00:00", short_month: SKIP}}`:     {Monthly: &schedule.Monthly{Day: 31, At: "00:00"}},
		`{manual: }`: {Manual: true},
		`{any_of: {schedules: [{cron: "@daily"}, {every: {interval: 1h}, time_zone: Asia/Tokyo}]}, not_before: 2027-01-01T00:00:00Z, not_after: 2028-01-01T00:00:00+01:00}`: {
			AnyOf:     []schedule.Spec{{Cron: "@daily"}, {Every: &schedule.Every{Interval: time.Hour}, Zone: "Asia/Tokyo"}},
			NotBefore: now, NotAfter: time.Date(2027, 12, 31, 23, 0, 0, 0, time.UTC),
		},
	} {
		f := file(t, `flows: [{id: x, task: {log: {message: hi}}, schedule: `+text+`}]`)
		if got := definition.ScheduleSpec(f.Flows[0].Schedule); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v", text, got)
		}
	}
	if got := definition.ScheduleSpec(nil); !reflect.DeepEqual(got, schedule.Spec{Manual: true}) {
		t.Errorf("nil: %+v", got)
	}
}

func TestCompileSchedule(t *testing.T) {
	s := file(t, `flows: [{id: x, task: {log: {message: hi}}, schedule: {cron: "0 9 * * *"}}]`).Flows[0].Schedule
	compiled, faults := definition.CompileSchedule(s, "x", now)
	if len(faults) > 0 || !compiled.Next(now, schedule.Anchors{}).Equal(now.Add(9*time.Hour)) {
		t.Errorf("%v, %v", compiled, faults)
	}
	for _, test := range []struct{ text, want string }{
		{`{}`, "needs one of every, cron, once, daily, weekly, monthly, manual and any_of"},
		{`{every: {}}`, "every.interval: must be set"},
		{`{every: {interval: 0s}}`, "every.interval: must be at least 1ms, at most 3650 days"},
		{`{weekly: {days: [MONDAY, MONDAY], at: 9}}`, "weekly.days: has the same entry twice\n" + `weekly.at: must be a time of day, hh:mm or hh:mm:ss, not "9"`},
		{`{any_of: {schedules: [{cron: "0 9 * * *"}, {cron: "0 61 * * * *"}]}}`, `any_of.schedules[1].cron: column 3: minute field: 61 is out of range; allowed are 0-59`},
		{`{once: {at: 2026-01-01T00:00:00Z}}`, "once.at: 2026-01-01T00:00:00Z lies in the past"},
	} {
		s := file(t, `flows: [{id: x, task: {log: {message: hi}}, schedule: `+test.text+`}]`).Flows[0].Schedule
		if _, faults := definition.CompileSchedule(s, "x", now); faults.Error() != test.want {
			t.Errorf("%s: %s", test.text, faults.Error())
		}
	}
	if _, faults := definition.CompileSchedule(nil, "x", now); len(faults) == 0 {
		t.Error("nothing is a schedule")
	}
}

// A once may have passed for a flow that exists, that comes from the store, or whose catch-up reaches back to it.
func TestPastOnce(t *testing.T) {
	flowText := func(ago time.Duration, rest string) string {
		return `flows: [{id: x, task: {log: {message: hi}}, schedule: {once: {at: "` + now.Add(-ago).Format(time.RFC3339) + `"}}` + rest + `}]`
	}
	existing := options()
	existing.Exists = func(id string) bool { return id == "x" }
	untimed := options()
	untimed.Now = time.Time{}
	for _, test := range []struct {
		text    string
		options definition.Options
		allowed bool
	}{
		{flowText(time.Minute, ""), options(), false},
		{flowText(-time.Minute, ""), options(), true},
		{flowText(time.Minute, ""), existing, true},
		{flowText(time.Minute, ""), untimed, true},
		{flowText(time.Minute, ", catch_up: {mode: LAST}"), options(), true},
		{flowText(2*time.Hour, ", catch_up: {mode: LAST}"), options(), false},
		{flowText(2*time.Hour, ", catch_up: {mode: ALL, window: 3h}"), options(), true},
		{flowText(time.Minute, ", catch_up: {mode: SKIP}"), options(), false},
	} {
		_, faults := compile(t, test.text, test.options)
		if allowed := faults == ""; allowed != test.allowed {
			t.Errorf("%s: %s", test.text, faults)
		}
	}
}

func TestStoredSource(t *testing.T) {
	c := definition.New(tasktest.Registry())
	f := one(t, `flows: [{id: x, schedule: {once: {at: 2027-06-01T00:00:00Z}}, task: {log: {message: hi}}}]`)
	again, err := c.CompileSource(f.Source, definition.Options{Now: now.AddDate(5, 0, 0), Origin: core.FromAPI})
	if err != nil || again.Schedule.Canonical() != f.Schedule.Canonical() || again.Workflow == nil {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := c.CompileSource([]byte{0xff}, definition.Options{}); err == nil {
		t.Error("nonsense is a definition")
	}
	wrong, err := proto.Marshal(&schedulerdv1.Flow{Id: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CompileSource(wrong, definition.Options{}); err == nil || err.Error() != "the definition of flow x is wrong: needs one of workflow, timers and task" {
		t.Errorf("%v", err)
	}
	if _, err := definition.Source(core.Define(&core.Flow{ID: "x", Source: []byte{0xff}})); err == nil {
		t.Error("nonsense is a source")
	}
}

// Flows may call flows and name resources that are there already.
func TestOutside(t *testing.T) {
	text := `
flows:
  - id: x
    workflow:
      initial: a
      states:
        a: {flow: {flow_id: stored}, next: b}
        b: {task: {store: {store: kept, get: {key: k}}}, next: done}
      exits: {done: }
`
	if _, faults := compile(t, text, options()); faults != `flows[0].workflow.states["b"].task.store.store: there is no resource "kept"
flows[0].workflow.states["a"].flow.flow_id: there is no flow stored; known: x` {
		t.Errorf("%s", faults)
	}
	o := options()
	o.Shared = map[string]string{"kept": "store"}
	o.Calls = func(id string) ([]string, bool) { return nil, id == "stored" }
	if _, faults := compile(t, text, o); faults != "" {
		t.Errorf("%s", faults)
	}
	o.Calls = func(id string) ([]string, bool) { return []string{"deeper"}, id == "stored" || id == "deeper" }
	if _, faults := compile(t, text, o); !strings.Contains(faults, "in a circle") {
		t.Errorf("deeper calls itself: %s", faults)
	}
	o.Calls = func(id string) ([]string, bool) { return []string{"x"}, id == "stored" }
	if _, faults := compile(t, text, o); faults != `flows[0].workflow.states["a"].flow.flow_id: flows call each other in a circle, which would never end: x → stored → x` {
		t.Errorf("%s", faults)
	}
}

func TestCallDepth(t *testing.T) {
	chain := func(n int) string {
		text := "flows:\n  - {id: f00, task: {log: {message: hi}}}\n"
		for i := 1; i <= n; i++ {
			text += "  - {id: f" + itoa(i) + ", workflow: {initial: a, states: {a: {flow: {flow_id: f" + itoa(i-1) + "}, next: done}}, exits: {done: }}}\n"
		}
		return text
	}
	if _, faults := compile(t, chain(workflow.MaxDepth), options()); faults != "" {
		t.Errorf("%s", faults)
	}
	if _, faults := compile(t, chain(workflow.MaxDepth+2), options()); faults != `flows[17].workflow.states["a"].flow.flow_id: flows call each other more than 16 deep from here` {
		t.Errorf("%s", faults)
	}
}

func itoa(i int) string { return string(rune('0'+i/10)) + string(rune('0'+i%10)) }

func TestDigest(t *testing.T) {
	read := func(text string) *schedulerdv1.Flow { return file(t, text).Flows[0] }
	a := read(`flows: [{id: x, labels: {a: "1", b: "2", c: "3"}, params: {p: 1, q: {r: 2}}, task: {log: {message: hi}}}]`)
	b := read(`flows: [{params: {q: {r: 2}, p: 1}, labels: {c: "3", b: "2", a: "1"}, task: {log: {message: hi}}, id: x}]`)
	other := read(`flows: [{id: x, labels: {a: "1", b: "2", c: "4"}, params: {p: 1, q: {r: 2}}, task: {log: {message: hi}}}]`)
	for range 20 {
		if definition.Digest(a) != definition.Digest(b) || len(definition.Digest(a)) != 32 {
			t.Fatal("the digest depends on an order that means nothing")
		}
	}
	if definition.Digest(a) == definition.Digest(other) {
		t.Error("different definitions have the same digest")
	}
}

func TestDiff(t *testing.T) {
	read := func(text string) *schedulerdv1.Flow { return file(t, text).Flows[0] }
	before := read(source)
	for _, test := range []struct {
		replace string
		by      string
		want    []string
	}{
		{"", "", nil},
		{"description: one", "description: two", []string{"description"}},
		{"    description: one\n", "", []string{"description"}},
		{`b: "2"`, `c: "3"`, []string{`labels["b"]`, `labels["c"]`}},
		{"interval: 5s", "interval: 6s", []string{"schedule.every.interval"}},
		{"every: {interval: 5s}", `cron: "@daily"`, []string{"schedule.cron", "schedule.every"}},
		{"p: {q: 1}", "p: {q: 2}", []string{`params["p"]`}},
		{"example.com/a", "example.com/b", []string{`workflow.states["a"].task.http.url`}},
		{"K: v", "K: w", []string{`workflow.states["a"].task.http.headers["K"]`}},
		{"[ls, -l]", "[ls, -a]", []string{`workflow.states["b"].task.exec.command[1]`}},
		{"[ls, -l]", "[ls]", []string{`workflow.states["b"].task.exec.command`}},
		{"exec: {command: [ls, -l]}", "log: {message: hi}", []string{`workflow.states["b"].task.exec`, `workflow.states["b"].task.log`}},
	} {
		after := read(strings.Replace(source, test.replace, test.by, 1))
		if got := definition.Diff(before, after); !slices.Equal(got, test.want) {
			t.Errorf("%s → %s: %v", test.replace, test.by, got)
		}
		if (len(definition.Diff(before, after)) == 0) != proto.Equal(before, after) {
			t.Errorf("%s → %s: equal and different", test.replace, test.by)
		}
	}
}

const source = `
flows:
  - id: x
    description: one
    labels: {a: "1", b: "2"}
    schedule: {every: {interval: 5s}}
    params: {p: {q: 1}}
    workflow:
      initial: a
      states:
        a: {task: {http: {url: "https://example.com/a", headers: {K: v}}}, next: done}
        b: {task: {exec: {command: [ls, -l]}}, next: done}
      exits: {done: }
`
