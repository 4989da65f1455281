package simtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

// Simulate runs one world, and reports what it found wrong. It is called in a synctest bubble.
func Simulate(t *testing.T, seed uint64, steps int) Stats {
	w := newWorld(t, seed)
	began := time.Now()
	w.begin()
	for range steps {
		if w.failed() {
			break
		}
		w.step()
	}
	if !w.failed() {
		w.finish()
	}
	if w.life != nil {
		w.end(w.life)
	}
	time.Sleep(time.Minute) // for tasks that ignore their context
	w.report()
	w.stats.Seeds = 1
	w.stats.Time = time.Since(began)
	w.stats.Commits, w.stats.Runs, w.stats.Resumed = w.model.commits, w.model.runs, w.model.resumed
	for _, s := range w.streams {
		w.stats.Shown += uint64(s.Changes())
	}
	return w.stats
}

// step lets some time pass, does something, and checks everything.
func (w *world) step() {
	if w.pass(around(w.rng, w.pace.step/2)) {
		return
	}
	id := pick(w.rng, w.ids...)
	switch n := w.rng.IntN(100); {
	case n < 20:
		w.trigger(id)
	case n < 24:
		w.askAgain()
	case n < 32:
		w.call(id, "reset", func(r *core.Running) error {
			info, err := r.Reset(context.Background(), id, "")
			if err == nil && info.Streak != 0 {
				w.fail("flow %s has streak %d after a reset", id, info.Streak)
			}
			return w.saw(info, err)
		})
	case n < 37:
		w.call(id, "pause", func(r *core.Running) error { return w.saw(r.Pause(context.Background(), id, "")) })
	case n < 47:
		mode := core.CatchUpMode(w.rng.IntN(4))
		w.call(id, "resume", func(r *core.Running) error { return w.saw(r.Resume(context.Background(), id, mode, "")) })
	case n < 53:
		w.call(id, "cancel", func(r *core.Running) error {
			info, _, err := r.Cancel(context.Background(), id, "", "")
			return w.saw(info, err)
		})
	case n < 60:
		w.apply(id)
	case n < 63:
		w.call(id, "delete", func(r *core.Running) error {
			_, err := r.Delete(context.Background(), id, "", "")
			return err
		})
	case n < 66:
		w.edit(id)
	case n < 68:
		w.setClock()
	case n < 70:
		w.mu.Lock()
		w.trouble = !w.trouble
		w.note2("the disk forgets: %v", w.trouble)
		w.mu.Unlock()
	case n < 75:
		w.runs(id)
	case n < 83:
		w.crash()
		w.outage()
		w.begin()
		return
	case n < 91:
		w.note("the next commits will crash")
		w.crashInCommit(1 + w.rng.IntN(4))
	case n < 96:
		w.restart(pick(w.rng, 0, time.Second, around(w.rng, w.pace.tick), 0))
		w.outage()
		w.begin()
		return
	}
	synctest.Wait()
	w.look()
}

// note2 is note for who holds the lock.
func (w *world) note2(format string, args ...any) {
	w.mu.Unlock()
	defer w.mu.Lock()
	w.note(format, args...)
}

// look checks everything, as far as nothing is on its way.
func (w *world) look() {
	if w.life != nil && !w.failed() {
		w.check()
	}
}

// pass lets time pass. If the engine crashes or halts meanwhile, it begins a new life and reports that.
func (w *world) pass(d time.Duration) (reborn bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		synctest.Wait()
		w.look()
		return false
	case <-w.collapse: // in the middle of a commit
		time.Sleep(time.Duration(w.rng.IntN(int(time.Second))))
		w.crash()
	case <-w.life.running.Halted():
		w.note("the disk broke")
		time.Sleep(time.Duration(w.rng.IntN(int(time.Minute))))
		w.crash()
	}
	w.outage()
	w.begin()
	return true
}

// outage is the time without an engine.
func (w *world) outage() {
	switch {
	case chance(w.rng, 40):
		time.Sleep(around(w.rng, time.Second))
	case chance(w.rng, 70):
		time.Sleep(around(w.rng, w.pace.tick))
	default:
		time.Sleep(around(w.rng, 20*w.pace.tick))
	}
	if chance(w.rng, 20) { // somebody edits the files meanwhile
		w.edit(pick(w.rng, w.ids...))
	}
	if chance(w.rng, 3) {
		w.jump()
	}
}

// call makes a call in the background.
func (w *world) call(id, what string, do func(r *core.Running) error) {
	l := w.life
	w.note("%s %s", what, id)
	w.stats.Calls++
	done := w.model.called(id, what)
	w.calls.Go(func() {
		defer done()
		began := time.Now()
		err := do(l.running)
		w.note("%s %s: %v", what, id, err)
		w.judge(l, id, what, began, err)
	})
}

// saw tells the model of a state that a call was answered with.
func (w *world) saw(info *core.Info, err error) error {
	if err == nil {
		w.model.shown(info)
	}
	return err
}

// judge decides whether a call may fail as it did.
func (w *world) judge(l *life, id, what string, began time.Time, err error) {
	switch {
	case err == nil || l.dead.Load():
	case errors.Is(err, core.ErrFlowNotFound), errors.Is(err, core.ErrStore), errors.Is(err, core.ErrStopping):
	case errors.Is(err, core.ErrFlowRunning) && (what == "trigger" || what == "delete"):
		if !w.model.was(id, flow.Running, began) {
			w.fail("%s of %s: %v, and it was not running", what, id, err)
		}
	case errors.Is(err, core.ErrFlowTripped) && what == "trigger":
		if !w.model.was(id, flow.Tripped, began) {
			w.fail("%s of %s: %v, and it had not tripped", what, id, err)
		}
	case errors.Is(err, core.ErrLimit) && what == "trigger":
	case errors.Is(err, core.ErrConflict) && (what == "delete" || what == "apply"):
	case errors.Is(err, errTask) && what == "apply":
	default:
		w.fail("%s of %s: %v", what, id, err)
	}
}

func (w *world) trigger(id string) {
	req := core.TriggerRequest{FlowID: id, WaitForSlot: chance(w.rng, 20)}
	if chance(w.rng, 30) {
		req.Params = map[string]any{"n": float64(w.rng.IntN(10))}
	}
	var a *asked
	if chance(w.rng, 60) {
		w.version++
		req.RequestID = fmt.Sprint("r", w.version)
		req.Params = map[string]any{"n": float64(w.version)}
		a = &asked{flow: id, id: req.RequestID, at: w.now(), jumps: w.model.jumps, version: w.version}
		w.asked = append(w.asked, a)
	}
	w.ask(req, a)
}

func (w *world) ask(req core.TriggerRequest, a *asked) {
	w.call(req.FlowID, "trigger", func(r *core.Running) error {
		run, revision, err := r.Trigger(context.Background(), req)
		if err != nil {
			return err
		}
		if a != nil {
			w.mu.Lock()
			first := a.run
			a.run = run.ID
			w.mu.Unlock()
			if first != "" && first != run.ID {
				w.fail("request %s was answered with run %s, and now with %s", a.id, first, run.ID)
			}
		}
		w.model.started(req.FlowID, run.Number, revision)
		return nil
	})
}

// askAgain repeats a trigger with the same request id.
func (w *world) askAgain() {
	if len(w.asked) == 0 {
		return
	}
	a := w.asked[len(w.asked)-1-w.rng.IntN(min(len(w.asked), 5))]
	w.mu.Lock()
	known := a.run != ""
	w.mu.Unlock()
	if w.now().Sub(a.at) > 23*time.Hour || a.jumps != w.model.jumps {
		return
	}
	if known {
		w.model.called(a.flow, "repeat")
	}
	w.ask(core.TriggerRequest{FlowID: a.flow, RequestID: a.id, Params: map[string]any{"n": float64(a.version)}}, a)
}

// apply adds, changes or removes definitions over the API.
func (w *world) apply(id string) {
	req := core.ApplyRequest{Origin: core.FromAPI, Prune: chance(w.rng, 10), DryRun: chance(w.rng, 10)}
	for range w.rng.IntN(3) {
		p := w.plan(pick(w.rng, w.ids...), core.FromAPI)
		if w.files[p.ID] == nil && !slices.ContainsFunc(req.Flows, func(f *core.Flow) bool { return f.ID == p.ID }) {
			req.Flows = append(req.Flows, p.flow(w.life))
		}
	}
	if len(req.Flows) > 0 && chance(w.rng, 10) {
		p, err := parsePlan(req.Flows[0].Source)
		if err != nil {
			panic(err)
		}
		p.Tool = brokenTool
		req.Flows[0] = p.flow(w.life)
	}
	if chance(w.rng, 50) {
		w.version++
		req.RequestID = fmt.Sprint("a", w.version)
	}
	w.call(id, "apply", func(r *core.Running) error {
		result, err := r.Apply(context.Background(), req)
		if err == nil && !req.DryRun {
			w.model.applied(req, result)
		}
		return err
	})
}

// edit changes the flows files, which are read at the next start.
func (w *world) edit(id string) {
	switch {
	case w.files[id] == nil, chance(w.rng, 60):
		w.files[id] = w.plan(id, core.FromFile)
	default:
		delete(w.files, id)
	}
	w.note("the files have another %s", id)
}

// setClock sets the wall clock.
func (w *world) setClock() {
	w.jump()
	w.call("nobody", "cancel", func(r *core.Running) error { // wakes the engine
		_, err := r.Apply(context.Background(), core.ApplyRequest{DryRun: true})
		return err
	})
}

func (w *world) jump() {
	by := pick(w.rng, time.Second, time.Minute, 2*time.Hour, 5*time.Hour, 10*w.pace.tick)
	by = around(w.rng, by)
	if chance(w.rng, 50) {
		by = -by
	}
	w.note("the clock is set by %v", by)
	w.stats.Jumps++
	w.model.jump(by)
	w.shift.Add(int64(by))
}

// runs reads a flow's kept runs.
func (w *world) runs(id string) {
	runs, _, err := w.life.running.Runs(context.Background(), id, core.RunListOptions{Limit: 50})
	if err != nil {
		w.judge(w.life, id, "runs", time.Now(), err)
		return
	}
	for i, run := range runs {
		if i > 0 && run.Number >= runs[i-1].Number || (run.End == 0) != (i == 0 && run.Outcome == 0) {
			w.fail("flow %s: kept are %+v", id, runs)
			return
		}
		got, err := w.life.running.Run(context.Background(), run.ID)
		if err != nil && !errors.Is(err, core.ErrRunNotFound) || err == nil && got.Number != run.Number {
			w.fail("run %s: %v", run.ID, err)
			return
		}
		if err == nil && slices.ContainsFunc(got.Events, func(e workflow.Event) bool { return e.Time.IsZero() }) {
			w.fail("run %s has an event without a time", run.ID)
		}
	}
}

// finish lets everything come to rest, and checks what must be true then.
func (w *world) finish() {
	if w.disarm() {
		w.crash()
		w.begin()
	}
	w.calls.Wait()
	w.note("everything comes to rest")
	for _, id := range w.ids {
		w.call(id, "pause", func(r *core.Running) error { return w.saw(r.Pause(context.Background(), id, "")) })
	}
	for w.pass(200*w.pace.tick + 10*time.Minute) {
		if w.failed() {
			return
		}
		for _, id := range w.ids {
			w.call(id, "pause", func(r *core.Running) error { return w.saw(r.Pause(context.Background(), id, "")) })
		}
	}
	infos, _, _ := w.life.running.List(core.ListOptions{})
	for _, info := range infos {
		if info.Run != nil || w.model.backlogged(info.Flow.ID) {
			w.fail("flow %s does not come to rest: %+v", info.Flow.ID, info.State)
		}
	}
	if w.failed() {
		return
	}
	w.restart(time.Minute)
	for _, s := range w.streams {
		s.Keeps(w.t, w.model.truth)
	}
}
