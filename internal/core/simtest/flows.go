package simtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/core/schedule"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

// plan is a flow's definition as data. Its JSON is the definition's source.
type plan struct {
	ID       string
	Version  int
	Origin   core.Origin
	Schedule schedule.Spec
	Policy   flow.Policy
	CatchUp  core.CatchUp
	OnResume core.CatchUpMode
	OnCrash  core.OnCrash
	Paused   bool
	KeepRuns int
	Timeout  time.Duration
	Team     string
	Tool     string // its resource; empty: none
	Shape    string
	Longest  time.Duration // that a task takes
	Failing  float64       // share of the attempts that fail
	Stubborn bool          // its tasks ignore their context for a while
}

// brokenTool is a resource whose setup fails.
const brokenTool = "broken"

func (p *plan) source() []byte {
	data, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return data
}

func parsePlan(source []byte) (*plan, error) {
	p := new(plan)
	return p, json.Unmarshal(source, p)
}

// compile makes the plan's schedule.
func (p *plan) compile() *schedule.Schedule {
	s, err := schedule.Compile(p.Schedule, schedule.Options{FlowID: p.ID, AllowPast: true})
	if err != nil {
		panic(fmt.Sprintf("simtest: %+v: %v", p.Schedule, err))
	}
	return s
}

// pace is how fast a world lives.
type pace struct {
	name  string
	tick  time.Duration // a typical interval
	step  time.Duration // longest time between two steps
	watch time.Duration // longest pause of a watcher
}

var paces = []pace{
	{"seconds", 5 * time.Second, 20 * time.Second, time.Second},
	{"minutes", 5 * time.Minute, 20 * time.Minute, 5 * time.Minute},
	{"hours", 5 * time.Hour, 24 * time.Hour, 10 * time.Hour},
	{"days", 48 * time.Hour, 10 * 24 * time.Hour, 5 * 24 * time.Hour},
}

func chance(rng *rand.Rand, percent int) bool { return rng.IntN(100) < percent }

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// around is a random duration of d's magnitude, in whole milliseconds.
func around(rng *rand.Rand, d time.Duration) time.Duration {
	return max(time.Duration((0.05+1.95*rng.Float64())*float64(d)).Truncate(time.Millisecond), time.Millisecond)
}

// newPlan makes up a definition of a flow.
func newPlan(rng *rand.Rand, id string, version int, origin core.Origin, at pace, now time.Time) *plan {
	p := &plan{
		ID: id, Version: version, Origin: origin,
		Policy: flow.Policy{
			Initial: around(rng, at.tick/3), Multiplier: 1 + 2*rng.Float64(), Jitter: pick(rng, 0, 0.1, 0.5, 1),
			TripAfter: pick[uint32](rng, 0, 0, 1, 3, 5),
		},
		CatchUp:  core.CatchUp{Mode: core.CatchUpMode(rng.IntN(4)), Window: pick(rng, 0, around(rng, 10*at.tick), around(rng, 100*at.tick)), Max: pick(rng, 0, 1, 3)},
		OnResume: core.CatchUpMode(rng.IntN(4)),
		OnCrash:  pick(rng, 0, core.CrashResume, core.CrashFail),
		Paused:   chance(rng, 5),
		KeepRuns: pick(rng, 0, 3, 3, -1),
		Team:     pick(rng, "", "red", "blue"),
		Tool:     pick(rng, "", "", "hammer", "saw"),
		Shape:    pick(rng, "single", "single", "chain", "choice", "saga", "timer", "split"),
		Longest:  pick(rng, 0, time.Second, at.tick/4, at.tick, 3*at.tick),
		Failing:  pick(rng, 0, 0, 0.1, 0.5, 1),
		Stubborn: chance(rng, 10),
	}
	p.Policy.MaxDelay = p.Policy.Initial + around(rng, 5*at.tick)
	if p.Policy.TripAfter > 0 && chance(rng, 30) {
		p.Policy.RetryAfterTrip = around(rng, 10*at.tick)
	}
	if chance(rng, 20) {
		p.Timeout = around(rng, 2*at.tick)
	}
	p.Schedule = newSchedule(rng, at, now, 0)
	if rest := shortest(p.Schedule); rest > 0 && chance(rng, 20) {
		p.Schedule.Jitter = min(around(rng, rest/8), 8*time.Second)
	}
	if chance(rng, 20) {
		p.Schedule.Splay = min(around(rng, at.tick), 24*time.Hour)
	}
	return p
}

// shortest is the least time between two fire times of the kinds that may have jitter here.
func shortest(s schedule.Spec) time.Duration {
	if s.Every != nil {
		return s.Every.Interval
	}
	if s.Cron != "" {
		return time.Minute
	}
	return 0
}

func newSchedule(rng *rand.Rand, at pace, now time.Time, depth int) schedule.Spec {
	n := rng.IntN(100)
	switch {
	case n < 30:
		return schedule.Spec{Every: &schedule.Every{Interval: around(rng, at.tick), InitialDelay: pick(rng, 0, 0, around(rng, at.tick))}}
	case n < 45:
		return schedule.Spec{Every: &schedule.Every{Interval: around(rng, at.tick), InitialDelay: pick(rng, 0, around(rng, at.tick)), FixedDelay: true}}
	case n < 60:
		return schedule.Spec{Cron: newCron(rng, at), Zone: pick(rng, "", "", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe")}
	case n < 65:
		wall := fmt.Sprintf("%02d:%02d:%02d", rng.IntN(24), rng.IntN(60), rng.IntN(60))
		if chance(rng, 50) {
			return schedule.Spec{Daily: &schedule.Daily{At: wall}, Zone: "Europe/Berlin"}
		}
		return schedule.Spec{Weekly: &schedule.Weekly{Days: []time.Weekday{time.Weekday(rng.IntN(7))}, At: wall}}
	case n < 75:
		return schedule.Spec{Once: now.Add(around(rng, 3*at.tick)).UTC().Format(time.RFC3339Nano)}
	case n < 88 && depth == 0:
		return schedule.Spec{AnyOf: []schedule.Spec{newSchedule(rng, at, now, 1), newSchedule(rng, at, now, 1)}}
	case depth == 0:
		return schedule.Spec{Manual: true}
	}
	return schedule.Spec{Every: &schedule.Every{Interval: around(rng, at.tick)}}
}

func newCron(rng *rand.Rand, at pace) string {
	switch {
	case at.tick < time.Minute:
		return pick(rng, "*/7 * * * * *", "5,35 * * * * *", "*/30 */2 * * * *")
	case at.tick < time.Hour:
		return pick(rng, "*/15 * * * *", "0 30 * * * *", "7/20 * * * *")
	case at.tick < 24*time.Hour:
		return pick(rng, "0 */6 * * *", "30 2 * * *", "@hourly")
	}
	return pick(rng, "@daily", "0 9 * * MON", "30 2 */3 * *", "0 0 L * *")
}

// flow makes the definition that the engine of a life runs.
func (p *plan) flow(l *life) *core.Flow {
	f := &core.Flow{
		ID: p.ID, Backoff: p.Policy, Workflow: p.workflow(l), CatchUp: p.CatchUp, OnResume: p.OnResume, OnCrash: p.OnCrash, Paused: p.Paused,
		KeepRuns: p.KeepRuns, Timeout: p.Timeout, Source: p.source(), Origin: p.Origin, Params: map[string]any{"version": float64(p.Version)},
	}
	if !p.Schedule.Manual || p.Version%2 == 0 { // manual is also no schedule at all
		f.Schedule = p.compile()
	}
	if p.Team != "" {
		f.Labels = map[string]string{"team": p.Team}
	}
	if p.Tool != "" {
		f.ResourceKey = p.Tool
		f.Resources = []resource.Declaration{{Name: p.Tool, Resource: &tool{life: l, name: p.ID + "/" + p.Tool, broken: p.Tool == brokenTool}}}
	}
	return f
}

// workflow is a state machine of the plan's shape.
func (p *plan) workflow(l *life) *workflow.Workflow {
	step := func() *workflow.Step {
		return &workflow.Step{
			Task:  workflow.TaskFunc(func(ctx context.Context, in *workflow.Invocation) (workflow.Result, error) { return l.work(ctx, p, in) }),
			Retry: &workflow.Retry{Retries: 1, Initial: time.Second, Multiplier: 2, MaxDelay: time.Minute},
		}
	}
	w := &workflow.Workflow{Initial: "a", States: map[string]*workflow.State{}, Exits: map[string]*workflow.Exit{"done": {}}}
	switch p.Shape {
	case "single":
		w.States["a"] = &workflow.State{Work: step(), Next: "done"}
	case "chain":
		for i, name := range []string{"a", "b", "c", "d"} {
			w.States[name] = &workflow.State{Work: step(), Next: []string{"b", "c", "d", "done"}[i]}
		}
	case "choice":
		right := func(s *workflow.Scope) (bool, error) { return s.Action == "right", nil }
		w.States["a"] = &workflow.State{Work: step(), Transitions: []workflow.Transition{{When: right, Next: "b"}, {Next: "done"}}}
		w.States["b"] = &workflow.State{Work: step(), Transitions: []workflow.Transition{{When: right, Next: "bad"}, {Next: "a"}}}
		w.Exits["bad"] = &workflow.Exit{Failure: func(*workflow.Scope) (string, error) { return "it went right twice", nil }}
	case "saga":
		for i, name := range []string{"a", "b", "c"} {
			w.States[name] = &workflow.State{Work: step(), Compensate: step(), Next: []string{"b", "c", "done"}[i]}
		}
	case "timer":
		pause, err := schedule.Compile(schedule.Spec{Every: &schedule.Every{Interval: max(p.Longest, time.Second), InitialDelay: max(p.Longest, time.Second)}}, schedule.Options{})
		if err != nil {
			panic(err)
		}
		w.States["a"] = &workflow.State{Work: step(), Next: "b"}
		w.States["b"] = &workflow.State{Work: &workflow.Timer{Schedule: pause, Step: step()}, Next: "done"}
	case "split":
		w.States["a"] = &workflow.State{Next: "done", Work: &workflow.Split{
			Branches: []workflow.Branch{{Work: step()}, {Work: step()}, {Work: step()}}, Join: workflow.Join{Strategy: workflow.JoinQuorum, N: 2},
		}}
	}
	return w
}

// fate is a random number in [0, 1) that belongs to something that happens, whenever and in whatever order it does.
func fate(seed uint64, what ...any) float64 {
	h := fnv.New64a()
	fmt.Fprint(h, seed)
	for _, w := range what {
		fmt.Fprint(h, "/", w)
	}
	x := h.Sum64()
	x ^= x >> 33 // FNV's high bits of short texts are alike
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return float64(x>>11) / (1 << 53)
}

var errTask = errors.New("boom")

// work is what every task does: it takes its time, and fails or panics if that is its fate.
func (l *life) work(ctx context.Context, p *plan, in *workflow.Invocation) (workflow.Result, error) {
	if err := l.begin(in); err != nil {
		return workflow.Result{}, err
	}
	defer l.end(in)
	throw := func(what string) float64 {
		return fate(l.world.seed, what, in.IdempotencyKey, in.Attempt, l.number)
	}
	took := throw("duration")
	took = took * took * took * float64(p.Longest)
	if p.Stubborn {
		time.Sleep(min(time.Duration(took), 8*time.Second))
	}
	if err := wait(ctx, time.Duration(took)); err != nil {
		return workflow.Result{}, context.Cause(ctx)
	}
	if throw("failure") < p.Failing {
		switch n := throw("kind"); {
		case n < 0.1:
			panic("bang")
		case n < 0.5:
			return workflow.Result{}, &workflow.Error{Err: errTask, Permanent: true}
		}
		return workflow.Result{}, errTask
	}
	action := "left"
	if throw("action") < 0.4 {
		action = "right"
	}
	return workflow.Result{Value: throw("value"), Action: action}, nil
}

// tool is a resource that has to be set up once and torn down once.
type tool struct {
	life   *life
	name   string
	broken bool
}

func (t *tool) Setup(context.Context) error {
	if t.broken {
		return errTask
	}
	t.life.tool(t, 1)
	return nil
}

func (t *tool) Teardown(context.Context) error {
	t.life.tool(t, -1)
	return nil
}
