package core_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/schedule"
	"github.com/schedulerd/schedulerd/internal/core/store/storetest"
)

// compiler compiles sources that are intervals, such as "1h", and counts how often.
type compiler struct {
	t        *testing.T
	compiled atomic.Int64
	broken   atomic.Bool // it understands nothing any more
	shift    time.Duration
	runs     atomic.Int64
}

func (c *compiler) flow(id, source string) *core.Flow {
	interval, err := time.ParseDuration(source)
	if err != nil {
		c.t.Fatal(err)
	}
	f := &core.Flow{ID: id, Workflow: task(counting(&c.runs)), Backoff: steady, Source: []byte(source), Origin: core.FromAPI}
	if interval > 0 {
		f.Schedule = every(c.t, interval+c.shift)
	}
	return f
}

func (c *compiler) compile(source []byte, _ core.Origin) (*core.Flow, error) {
	c.compiled.Add(1)
	if c.broken.Load() {
		return nil, errors.New("no such task")
	}
	return c.flow("", string(source)), nil
}

func (c *compiler) config(d *storetest.Disk) core.Config {
	return core.Config{
		Store: opened(c.t, d), Compile: c.compile,
		Describe: func(source []byte) (core.Description, error) {
			return core.Description{Description: "every " + string(source), Labels: map[string]string{"every": string(source)}}, nil
		},
	}
}

// apply defines flows over the API: id and source.
func (c *compiler) apply(r *core.Running, flows map[string]string) {
	c.t.Helper()
	var all []*core.Flow
	for id, source := range flows {
		all = append(all, c.flow(id, source))
	}
	if _, err := r.Apply(c.t.Context(), core.ApplyRequest{Flows: all, Origin: core.FromAPI}); err != nil {
		c.t.Fatal(err)
	}
}

// A start compiles nothing, and writes nothing of flows that nothing has happened to. All that is shown of them is there.
func TestStartCompilesWhatItNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := storetest.NewDisk(1)
		c := &compiler{t: t}
		r := start(t, c.config(d))
		flows := map[string]string{"soon": "10m", "manual": "0s"}
		for i := range 50 {
			flows[fmt.Sprintf("f%02d", i)] = "24h"
		}
		c.apply(r, flows)
		sleep(time.Minute)
		before, _, _ := r.List(core.ListOptions{})
		crash(t, d, r)
		c.compiled.Store(0)

		sleep(time.Minute)
		r = start(t, c.config(d))
		after, _, _ := r.List(core.ListOptions{})
		if n := c.compiled.Load(); n != 0 || len(after) != len(flows) {
			t.Errorf("%d definitions were compiled for %d flows", n, len(after))
		}
		for i := range before {
			a, b := before[i], after[i]
			if a.State != b.State || a.NextFire != b.NextFire || a.Anchor != b.Anchor || a.Revision != b.Revision || a.Flow.ETag() != b.Flow.ETag() {
				t.Errorf("flow %s was\n%+v, and is\n%+v", a.Flow.ID, a, b)
			}
		}
		labelled, _, _ := r.List(core.ListOptions{Filter: core.Filter{Labels: map[string]string{"every": "10m"}}})
		if description, err := labelled[0].Flow.Describe(); err != nil || len(labelled) != 1 || description.Description != "every 10m" {
			t.Errorf("%d flows with the label, described as %+v, %v", len(labelled), description, err)
		}
		sleep(8*time.Minute + time.Second)
		expect(t, status(t, r, "soon"), flow.Completed, 2)
		if _, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "manual"}); err != nil {
			t.Error(err)
		}
		expect(t, status(t, r, "manual"), flow.Completed, 1)
		if n := c.compiled.Load(); n != 2 {
			t.Errorf("%d definitions were compiled, two were needed", n)
		}
	})
}

// A definition that is not understood any more keeps its flow from running, and nothing else; and it is kept.
func TestBrokenDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := storetest.NewDisk(1)
		c := &compiler{t: t}
		r := start(t, c.config(d))
		c.apply(r, map[string]string{"f": "1h", "quiet": "24h"})
		sleep(time.Second)
		crash(t, d, r)

		c.broken.Store(true)
		r = start(t, c.config(d), &core.Flow{ID: "other", Schedule: every(t, time.Hour), Workflow: task(counting(&c.runs)), Origin: core.FromFile})
		sleep(time.Hour)
		info := status(t, r, "f")
		expect(t, info, flow.Completed, 1)
		if !strings.Contains(info.ScheduleError, "no such task") || info.NextFire != 0 {
			t.Errorf("schedule error %q, next fire time %v", info.ScheduleError, info.NextFire.Time())
		}
		expect(t, status(t, r, "other"), flow.Completed, 2)
		if _, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "quiet"}); !errors.Is(err, core.ErrBroken) || !strings.Contains(err.Error(), "quiet") {
			t.Errorf("trigger: %v", err)
		}
		for _, call := range []func() (*core.Info, error){
			func() (*core.Info, error) { return r.Pause(t.Context(), "quiet", "") },
			func() (*core.Info, error) { return r.Resume(t.Context(), "quiet", 0, "") },
			func() (*core.Info, error) { return r.Reset(t.Context(), "quiet", "") },
		} {
			if _, err := call(); err != nil {
				t.Error(err)
			}
		}
		crash(t, d, r)

		c.broken.Store(false)
		r = start(t, c.config(d))
		info = status(t, r, "f")
		expect(t, info, flow.Completed, 2) // what it missed is caught up with
		if info.ScheduleError != "" || info.NextFire == 0 {
			t.Errorf("schedule error %q, next fire time %v", info.ScheduleError, info.NextFire.Time())
		}
		if info := status(t, r, "quiet"); info.ScheduleError != "" || info.NextFire == 0 {
			t.Errorf("schedule error %q, next fire time %v", info.ScheduleError, info.NextFire.Time())
		}
	})
}

// A run whose definition is not understood any more is lost.
func TestBrokenDefinitionOfARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := storetest.NewDisk(1)
		c := &compiler{t: t}
		r := start(t, c.config(d))
		f := c.flow("f", "0s")
		f.Workflow = task(lasting(time.Hour))
		if _, err := r.Apply(t.Context(), core.ApplyRequest{Flows: []*core.Flow{f}, Origin: core.FromAPI}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.Trigger(t.Context(), core.TriggerRequest{FlowID: "f"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		crash(t, d, r)
		c.broken.Store(true)
		r = start(t, c.config(d))
		info := status(t, r, "f")
		expect(t, info, flow.Backoff, 1)
		if info.LastOutcome != flow.Lost || !strings.Contains(info.LastError, "no such task") {
			t.Errorf("the run ended as %v: %s", info.LastOutcome, info.LastError)
		}
	})
}

// When the program or the time zones change, the stored next fire times are computed anew.
func TestBasis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := storetest.NewDisk(1)
		c := &compiler{t: t}
		life := func(basis string, shift time.Duration) *core.Running {
			config := c.config(d)
			config.Basis, c.shift = basis, shift
			return start(t, config)
		}
		r := life("1", 0)
		began := time.Now()
		c.apply(r, map[string]string{"f": "1h"})
		sleep(time.Second)
		next := func() time.Duration { return status(t, r, "f").NextFire.Time().Sub(began) }
		for _, l := range []struct {
			basis string
			shift time.Duration
			want  time.Duration
		}{{"1", 0, time.Hour}, {"1", time.Minute, time.Hour}, {"2", time.Minute, 61 * time.Minute}, {"2", 0, 61 * time.Minute}, {"1", 0, time.Hour}} {
			crash(t, d, r)
			r = life(l.basis, l.shift)
			if got := next(); got != l.want {
				t.Errorf("basis %s, shifted by %v: next after %v, want %v", l.basis, l.shift, got, l.want)
			}
		}
	})
}

// A fire time that its jitter holds up is not missed by a restart.
func TestJitterOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := storetest.NewDisk(1)
		c := &compiler{t: t}
		jittered := func(source []byte, _ core.Origin) (*core.Flow, error) {
			f := c.flow("f", string(source))
			f.Schedule = compile(t, schedule.Spec{Every: &schedule.Every{Interval: time.Hour, InitialDelay: time.Hour}, Jitter: time.Minute})
			return f, nil
		}
		config := func() core.Config {
			config := c.config(d)
			config.Compile, config.Random = jittered, func() float64 { return 0.5 }
			return config
		}
		r := start(t, config())
		f, _ := jittered([]byte("1h"), 0)
		if _, err := r.Apply(t.Context(), core.ApplyRequest{Flows: []*core.Flow{f}, Origin: core.FromAPI}); err != nil {
			t.Fatal(err)
		}
		sleep(time.Minute)
		crash(t, d, r)
		r = start(t, config())
		sleep(59*time.Minute + 29*time.Second)
		expect(t, status(t, r, "f"), flow.Idle, 0)
		sleep(2 * time.Second)
		expect(t, status(t, r, "f"), flow.Completed, 1)
	})
}
