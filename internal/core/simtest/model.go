package simtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/store/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/schedule"
	"github.com/schedulerd/schedulerd/internal/core/store"
)

// model is what must be true, told by someone who knows the promises and not the engine.
type model struct {
	fail    func(format string, args ...any)
	wall    func() time.Time
	random  float64 // what Config.Random answers
	maxRuns int

	mu      sync.Mutex
	flows   map[string]*flowModel
	pending *store.Group // handed to the disk, its outcome not known
	truth   *Truth
	jumps   int // the wall clock was set so often
	sealed  int // jumps when the group on its way was handed to the disk

	commits, runs, resumed uint64
}

// flowModel is what is known of one flow.
type flowModel struct {
	id       string
	state    *storev1.StateRecord // as the last commit left it; nil: never heard of
	open     *storev1.OpenRunRecord
	plan     *plan // its definition
	schedule *schedule.Schedule
	old      *plan              // its definition before, if it has changed since the last state
	before   *schedule.Schedule // and its schedule
	removing bool               // its definition is gone; its state follows when its run has ended
	jumps    int                // model.jumps at the last state

	fired   map[int64]firing // fire times that became runs
	windows []window         // of backoff, whose ticks vanish or move to their end

	// Calls that were made, whatever became of them, and those that are on their way.
	triggers, triggered   int
	resets, resumes       int // how many states they may still show in: the next one may have been on its way before the call
	resetting, resuming   int
	cancels               int
	lastRunning, lastTrip time.Time // when it was last seen so
}

// once reports whether it has one fire time, which never comes again.
func (f *flowModel) once() bool { return f.plan != nil && f.plan.Schedule.Once != "" }

// firing is the run that a fire time became.
type firing struct {
	run   uint64
	jumps int // model.jumps when its group was handed to the disk
}

type window struct{ from, to int64 }

// commitView is a group of changes, decoded.
type commitView struct {
	definitions map[string]*plan // nil: removed
	states      map[string]*storev1.StateRecord
	open        map[string]*storev1.OpenRunRecord // nil: removed
	history     map[string]map[uint64]*storev1.RunRecord
}

func decode(changes []store.Change) (*commitView, error) {
	v := &commitView{map[string]*plan{}, map[string]*storev1.StateRecord{}, map[string]*storev1.OpenRunRecord{}, map[string]map[uint64]*storev1.RunRecord{}}
	for _, c := range changes {
		kind, id := string(c.Key[:2]), string(c.Key[2:])
		var err error
		switch kind {
		case definitionKey:
			v.definitions[id] = nil
			if c.Value != nil {
				var d storev1.DefinitionRecord
				if err = proto.Unmarshal(c.Value, &d); err == nil {
					v.definitions[id], err = parsePlan(d.Source)
				}
			}
		case stateKey:
			if c.Value != nil {
				v.states[id] = &storev1.StateRecord{}
				err = proto.Unmarshal(c.Value, v.states[id])
			}
		case openRunKey:
			v.open[id] = nil
			if c.Value != nil {
				v.open[id] = &storev1.OpenRunRecord{}
				err = proto.Unmarshal(c.Value, v.open[id])
			}
		case historyKey:
			if id, number, ok := strings.Cut(id, "\x00"); ok && c.Value != nil {
				r := &storev1.RunRecord{}
				err = proto.Unmarshal(c.Value, r)
				if v.history[id] == nil {
					v.history[id] = map[uint64]*storev1.RunRecord{}
				}
				v.history[id][binary.BigEndian.Uint64([]byte(number))] = r
			}
		}
		if err != nil {
			return nil, fmt.Errorf("record %q: %w", c.Key, err)
		}
	}
	return v, nil
}

func (m *model) flow(id string) *flowModel {
	f := m.flows[id]
	if f == nil {
		f = &flowModel{id: id, fired: map[int64]firing{}, jumps: m.jumps}
		m.flows[id] = f
	}
	return f
}

// handed is told of a group on its way to the disk.
func (m *model) handed(g store.Group) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pending == nil { // else it is tried again
		m.sealed = m.jumps
	}
	m.pending = &g
}

// settled reports whether no commit is on its way.
func (m *model) settled() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pending == nil
}

// committed is told of a group that is durable.
func (m *model) committed(changes []store.Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.take(changes)
}

func (m *model) take(changes []store.Change) {
	m.pending = nil
	m.commits++
	v, err := decode(changes)
	if err != nil {
		m.fail("a commit does not decode: %v", err)
		return
	}
	for id, p := range v.definitions {
		f := m.flow(id)
		f.removing = p == nil
		if p == nil || f.plan != nil && p.Version == f.plan.Version {
			continue
		}
		f.old, f.before = f.plan, f.schedule
		f.plan, f.schedule = p, p.compile()
	}
	for id, open := range v.open {
		m.flow(id).open = open
	}
	for id, next := range v.states {
		m.transition(m.flow(id), next, v)
	}
	running := 0
	for _, f := range m.flows {
		if f.state.GetRun() != nil {
			running++
		}
	}
	if running > m.maxRuns {
		m.fail("%d runs at once, allowed are %d", running, m.maxRuns)
	}
	m.truth.mu.Lock()
	defer m.truth.mu.Unlock()
	for id, s := range v.states {
		m.truth.add(id, s)
	}
}

// transition compares a flow's state with the one before.
func (m *model) transition(f *flowModel, next *storev1.StateRecord, v *commitView) {
	prev := f.state
	bad := func(format string, args ...any) {
		m.fail("flow %s: %s\nbefore %v\nafter  %v\nplan   %s\nwas    %s", f.id, fmt.Sprintf(format, args...), prev, next, describe(f.plan), describe(f.old))
	}
	if prev == nil {
		prev = &storev1.StateRecord{Deleted: true}
	}
	if next.RunCount < prev.RunCount || next.RunCount > prev.RunCount+1 {
		bad("run count went from %d to %d", prev.RunCount, next.RunCount)
	}
	f.state = next
	if next.Deleted {
		f.plan, f.schedule, f.old, f.before, f.windows = nil, nil, nil, nil, nil
		clear(f.fired)
		return
	}
	if prev.Deleted { // it is new: as if it had been there, idle, since just before
		prev = &storev1.StateRecord{
			Status: uint32(flow.Idle), RunCount: prev.RunCount, Anchor: next.Anchor, Cursor: next.Anchor - 1, Paused: f.plan.Paused, LastRun: next.LastRun,
		}
		f.old, f.before = nil, nil
		if once, ok := f.schedule.Once(); ok { // it may have passed since it was accepted
			prev.Cursor = min(next.Anchor, once.UnixNano()) - 1
		}
	}
	if (flow.Status(next.Status) == flow.Running) != (next.Run != nil) {
		bad("it is %v with run %v", flow.Status(next.Status), next.Run)
	}
	started := next.RunCount > prev.RunCount
	ended := prev.Run != nil && (next.Run == nil || started)
	jumped := f.jumps != m.jumps
	switch {
	case started && (next.Run == nil || next.Run.Number != next.RunCount):
		bad("it started run %d and has run %v", next.RunCount, next.Run)
		return
	case !started && next.Run != nil && (prev.Run == nil || prev.Run.Number != next.Run.Number || prev.Run.Cause != next.Run.Cause ||
		prev.Run.FireTime != next.Run.FireTime || prev.Run.Start != next.Run.Start || prev.Run.Resumed > next.Run.Resumed):
		bad("its run became another one")
	}
	if next.GetRun().GetResumed() > prev.GetRun().GetResumed() && !started {
		m.resumed++
	}
	if ended {
		m.runEnded(f, prev, next, v, started, bad)
	} else if next.LastFinish != prev.LastFinish && !jumped || next.LastOutcome != prev.LastOutcome || next.Streak != prev.Streak && f.resets == 0 {
		bad("streak or last outcome changed, and no run ended")
	}
	if started {
		m.runs++
		m.runStarted(f, prev, next, ended, jumped, bad)
	}
	m.backlog(f, prev, next, jumped, bad)
	if !jumped {
		m.accounts(f, prev, next, started, bad)
	} else if next.NextEligible != 0 {
		f.windows = append(f.windows, window{next.LastFinish - int64(f.schedule.Jitter()), next.NextEligible})
	}
	for i, n := range next.Skipped {
		if i < len(prev.Skipped) && n < prev.Skipped[i] && (flow.SkipReason(i) != flow.SkipPaused || f.resumes == 0) {
			bad("counter %v went back", flow.SkipReason(i))
		}
	}
	if flow.Status(prev.Status) == flow.Running {
		f.lastRunning = time.Now()
	}
	if flow.Status(prev.Status) == flow.Tripped {
		f.lastTrip = time.Now()
	}
	f.old, f.before, f.jumps = nil, nil, m.sealed
	if f.resets > 0 && f.resetting == 0 {
		f.resets--
	}
	if f.resumes > 0 && f.resuming == 0 {
		f.resumes--
	}
}

func describe(p *plan) string {
	if p == nil {
		return "none"
	}
	return string(p.source())
}

// runEnded checks what the end of a run did to the flow: outcome, streak, backoff, trip, and that the run was kept.
func (m *model) runEnded(f *flowModel, prev, next *storev1.StateRecord, v *commitView, started bool, bad func(string, ...any)) {
	status, outcome := flow.Status(next.Status), flow.Outcome(next.LastOutcome)
	if started {
		status = flow.Status(next.Before)
	}
	streaks := []uint32{prev.Streak}
	if f.resets > 0 {
		streaks = append(streaks, 0)
	}
	plans := []*plan{f.plan}
	if f.old != nil {
		plans = append(plans, f.old)
	}
	ok := f.resets > 0 && status == flow.Idle && next.Streak == 0 && next.NextEligible == 0 // it was reset after the run's end
	switch outcome {
	case flow.Succeeded:
		ok = ok || (status == flow.Completed || started && status == flow.Idle) && next.Streak == 0 && next.NextEligible == 0 && next.LastError == ""
	case flow.Cancelled:
		ok = ok || status == flow.Status(prev.Before) && next.Streak == prev.Streak && (next.NextEligible == prev.NextEligible || f.jumps != m.jumps)
		if f.cancels == 0 {
			bad("run %d was cancelled, and nobody had asked for it", prev.Run.Number)
		}
	case flow.Failed, flow.TimedOut, flow.Lost:
		for _, streak := range streaks {
			for _, p := range plans {
				ok = ok || next.Streak == streak+1 && next.LastError != "" && m.heldOff(p, status, next)
			}
		}
		if outcome == flow.Lost && f.plan.OnCrash != core.CrashFail {
			bad("run %d was lost: %s", prev.Run.Number, next.LastError)
		}
	default:
		bad("run %d ended with outcome %v", prev.Run.Number, outcome)
	}
	if !ok {
		bad("run %d ended with outcome %v, and the flow is %v", prev.Run.Number, outcome, status)
	}
	if next.NextEligible != 0 {
		f.windows = append(f.windows, window{next.LastFinish - int64(f.schedule.Jitter()), next.NextEligible}) // what jitter holds up moves too
	}
	if want := max(next.LastFinish-prev.LastRun, 0); next.LastDuration != want && f.jumps == m.jumps {
		bad("run %d took %v, it says %v", prev.Run.Number, time.Duration(want), time.Duration(next.LastDuration))
	}
	if kept := v.history[f.id][prev.Run.Number]; kept == nil {
		if !slices.ContainsFunc(plans, func(p *plan) bool { return p.KeepRuns < 0 }) {
			bad("run %d ended and was not kept", prev.Run.Number)
		}
	} else if flow.Outcome(kept.Outcome) != outcome || kept.Number != prev.Run.Number || kept.Cause != prev.Run.Cause ||
		kept.FireTime != prev.Run.FireTime || kept.Start != prev.Run.Start || kept.End != next.LastFinish && f.jumps == m.jumps {
		bad("run %d ended and was kept as %v", prev.Run.Number, kept)
	}
}

// heldOff reports whether a flow that has failed holds off as its policy says. The formula is written here a second time.
func (m *model) heldOff(p *plan, status flow.Status, s *storev1.StateRecord) bool {
	policy := p.Policy
	if policy.TripAfter > 0 && s.Streak >= policy.TripAfter {
		probe := int64(0)
		if policy.RetryAfterTrip > 0 {
			probe = s.LastFinish + int64(policy.RetryAfterTrip)
		}
		return status == flow.Tripped && s.NextEligible == probe
	}
	delay := float64(policy.Initial)
	for range s.Streak - 1 {
		if delay *= policy.Multiplier; delay > float64(policy.MaxDelay) {
			break
		}
	}
	delay = min(delay, float64(policy.MaxDelay))
	delay = min(max(delay*(1+policy.Jitter*(2*m.random-1)), 0), float64(policy.MaxDelay))
	return status == flow.Backoff && math.Abs(float64(s.NextEligible-s.LastFinish)-delay) < float64(time.Millisecond)
}

// runStarted checks that a run had a reason to start.
func (m *model) runStarted(f *flowModel, prev, next *storev1.StateRecord, ended, jumped bool, bad func(string, ...any)) {
	run := next.Run
	if flow.Cause(run.Cause) == flow.ByTrigger {
		if f.triggered++; f.triggered > f.triggers {
			bad("%d runs were triggered by %d calls", f.triggered, f.triggers)
		}
		if flow.Status(prev.Status) == flow.Tripped && f.resets == 0 {
			bad("a trigger ran a tripped flow")
		}
		return
	}
	if by, twice := f.fired[run.FireTime]; twice && (by.jumps == m.sealed || f.once() && f.old == nil) { // after a jump back it comes to the same instants again
		bad("fire time %v had run %d already", at(run.FireTime), by.run)
	}
	f.fired[run.FireTime] = firing{run.Number, m.sealed}
	if run.FireTime > run.Start && m.jumps == 0 {
		bad("run %d started before its fire time", run.Number)
	}
	if jumped || m.jumps > 0 && run.FireTime == prev.NextFire { // it waited while the clock was set back
		return
	}
	if ended && f.resets > 0 && f.schedule.Interval() {
		// It failed, held off, ran at the end of the window and was reset, all in one commit: nothing tells of the window any more.
		f.windows = append(f.windows, window{next.LastFinish - int64(f.schedule.Jitter()), run.FireTime})
	}
	if !slices.Contains(prev.Backlog, run.FireTime) && !f.named(f.schedule, next.Anchor, run.FireTime, prev, next) && !f.named(f.before, prev.Anchor, run.FireTime, prev, next) {
		bad("run %d is for %v, which is no fire time", run.Number, at(run.FireTime))
	}
	eligible, status := prev.NextEligible, flow.Status(prev.Status)
	if ended {
		eligible, status = next.NextEligible, flow.Status(next.Before)
	}
	if f.resets == 0 && (status == flow.Backoff && run.Start < eligible || status == flow.Tripped && (eligible == 0 || run.Start < eligible)) {
		bad("run %d started at %v while the flow held off", run.Number, at(run.Start))
	}
}

func at(i int64) time.Time { return flow.Instant(i).Time() }

// named reports whether a schedule names an instant.
func (f *flowModel) named(s *schedule.Schedule, anchor, fire int64, prev, next *storev1.StateRecord) bool {
	if s == nil {
		return false
	}
	for _, ended := range []int64{prev.LastFinish, next.LastFinish} {
		if s.Next(at(fire-1), schedule.Anchors{Start: at(anchor), Ended: at(ended)}).Equal(at(fire)) {
			return true
		}
	}
	return s.Interval() && (fire == prev.NextEligible || fire == next.NextEligible || slices.ContainsFunc(f.windows, func(w window) bool { return w.to == fire }))
}

// accounts checks that each fire time between two cursors has become a run, was counted or waits in the backlog, exactly once.
func (m *model) accounts(f *flowModel, prev, next *storev1.StateRecord, started bool, bad func(string, ...any)) {
	got := int64(len(next.Backlog) - len(prev.Backlog))
	if started && flow.Cause(next.Run.Cause) != flow.ByTrigger {
		got++
	}
	for i := range flow.SkipReasons {
		got += int64(counter(next, i)) - int64(counter(prev, i))
	}
	if next.Cursor < prev.Cursor {
		if m.jumps == 0 {
			bad("the cursor went back")
		}
		return
	}
	s := f.schedule
	if s.FixedDelay() || f.before != nil && (f.before.FixedDelay() || f.before.Interval()) {
		return // what they name depends on when runs ended
	}
	from, most := prev.Cursor, int64(0)
	if f.before != nil && next.Anchor != prev.Anchor && f.before.Canonical() != s.Canonical() {
		cut := max(next.Anchor-1, from)
		most += count(f.before, prev.Anchor, from, cut)
		from = cut
	}
	most += count(s, next.Anchor, from, next.Cursor)
	least := most
	if s.Interval() {
		kept := f.windows[:0]
		for _, w := range f.windows {
			least -= count(s, next.Anchor, max(from, w.from-1), min(next.Cursor, w.to))
			if from < w.to && w.to <= next.Cursor {
				most++
			}
			if w.to > next.Cursor {
				kept = append(kept, w)
			}
		}
		f.windows = kept
	}
	if got < least || got > most {
		bad("%d to %d fire times have passed, and %d became runs, were counted or wait", least, most, got)
	}
}

func counter(s *storev1.StateRecord, reason flow.SkipReason) uint64 {
	if int(reason) < len(s.Skipped) {
		return s.Skipped[reason]
	}
	return 0
}

// count is the number of fire times in (from, to].
func count(s *schedule.Schedule, anchor, from, to int64) (n int64) {
	if s == nil || from >= to {
		return 0
	}
	for t := s.Next(at(from), schedule.Anchors{Start: at(anchor)}); !t.IsZero() && t.UnixNano() <= to; n++ {
		t = s.Next(t, schedule.Anchors{Start: at(anchor)})
	}
	return n
}

// backlog checks that missed fire times wait in order, no more of them and no older ones than the policy wants.
func (m *model) backlog(f *flowModel, prev, next *storev1.StateRecord, jumped bool, bad func(string, ...any)) {
	if !slices.IsSorted(next.Backlog) {
		bad("the backlog is out of order")
	}
	modes := []core.CatchUpMode{f.plan.CatchUp.Mode}
	window, most := f.plan.CatchUp.Window, f.plan.CatchUp.Max
	if window == 0 {
		window = core.DefaultCatchUpWindow
	}
	if most == 0 {
		most = core.DefaultCatchUpMax
	}
	if f.old != nil || f.resumes > 0 || jumped {
		return
	}
	added := 0
	for _, fire := range next.Backlog {
		if slices.Contains(prev.Backlog, fire) {
			continue
		}
		added++
		if !f.named(f.schedule, next.Anchor, fire, prev, next) {
			bad("%v is caught up with, which is no fire time", at(fire))
		}
		if age := m.wall().Sub(at(fire)); age > window+time.Hour && age > 2*window {
			bad("%v is caught up with, which is %v ago", at(fire), age)
		}
	}
	switch mode := modes[0]; {
	case added == 0:
	case mode == core.CatchUpSkip:
		bad("%d fire times wait that should be skipped", added)
	case mode == core.CatchUpAll && len(next.Backlog) > most, mode != core.CatchUpAll && added > 1:
		bad("%d fire times were added to the backlog, now %d", added, len(next.Backlog))
	case next.Paused && prev.Paused:
		bad("%d fire times of a paused flow wait", added)
	}
}

// taskStarts is told of a task at work: its run, and the state it is in, must be durable.
func (m *model) taskStarts(flowID string, number uint64, path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.flow(flowID)
	run := f.state.GetRun()
	if run == nil || run.Number != number {
		m.fail("flow %s: a task of run %d works, and what is durable says %v", flowID, number, f.state)
		return
	}
	state, compensating := strings.CutSuffix(path, ":compensate")
	state, _, _ = strings.Cut(state, "/")
	if !compensating && run.State != state {
		m.fail("flow %s: a task of run %d works in state %s, and what is durable says %v", flowID, number, path, f.state)
	}
	if c := f.open.GetCheckpoint(); !compensating && state != "a" && c.GetState() != state {
		m.fail("flow %s: a task of run %d works in state %s, and the checkpoint says %v", flowID, number, path, c)
	}
}

// shown is told of a flow's state that somebody saw.
func (m *model) shown(info *core.Info) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.flow(info.Flow.ID).state
	if s == nil || info.Revision > s.Revision || info.RunCount > s.RunCount {
		m.fail("flow %s was shown at revision %d after %d runs, durable is %v", info.Flow.ID, info.Revision, info.RunCount, s)
	}
}

// same compares what a reader is shown while nothing is on its way with what is durable.
func (m *model) same(infos []*core.Info, full bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	alive := 0
	for _, f := range m.flows {
		if f.state != nil && !f.state.Deleted {
			alive++
		}
	}
	if alive != len(infos) {
		m.fail("%d flows are listed, there are %d", len(infos), alive)
	}
	for _, info := range infos {
		f := m.flow(info.Flow.ID)
		s := f.state
		if s == nil || info.Revision != s.Revision || info.Status != flow.Status(s.Status) || info.RunCount != s.RunCount || info.Streak != s.Streak ||
			info.Paused != s.Paused || int64(info.LastFinish) != s.LastFinish || int64(info.NextEligible) != s.NextEligible || (info.Run != nil) != (s.Run != nil) {
			m.fail("flow %s is shown as %+v, durable is %v", info.Flow.ID, info.State, s)
			continue
		}
		if !bytes.Equal(info.Flow.Source, f.plan.source()) {
			m.fail("flow %s is shown with definition %s, durable is %s", info.Flow.ID, info.Flow.Source, f.plan.source())
		}
		m.next(f, info, full)
	}
}

// next checks the next fire time that a reader is shown while nothing is on its way.
func (m *model) next(f *flowModel, info *core.Info, full bool) {
	now, s := m.wall(), f.state
	got := info.NextFire.Time()
	anchors := schedule.Anchors{Start: at(s.Anchor), Ended: at(s.LastFinish)}
	if s.Run != nil {
		anchors.Ended = time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC) // what counts from the run's end is not due yet
	}
	want := []time.Time{f.schedule.Next(now, anchors)}
	if f.removing {
		want[0] = time.Time{}
	}
	if f.once() {
		want[0] = f.schedule.Next(at(max(s.Cursor, now.UnixNano())), anchors)
	}
	if f.schedule.Interval() && (flow.Status(s.Status) == flow.Backoff || flow.Status(s.Before) == flow.Backoff) {
		if window := at(s.NextEligible); window.After(now) {
			want = append(want, window, f.schedule.Next(window, anchors))
		}
	}
	if full { // it may wait for a slot
		want = append(want, at(s.NextEligible))
		if next := f.schedule.Next(got, anchors); !got.After(now) && (next.IsZero() || next.Add(f.schedule.Jitter()).After(now)) {
			want = append(want, f.schedule.Next(got.Add(-1), anchors))
		}
		if m.jumps > 0 { // and what waits may be ahead of the clock
			waits := f.schedule.Next(at(s.Cursor), anchors)
			want = append(want, f.schedule.Next(want[0], anchors), waits, f.schedule.Next(waits, anchors))
		}
	}
	if jitter := f.schedule.Jitter(); jitter > 0 { // it may be held up
		for t := f.schedule.Next(now.Add(-jitter), anchors); !t.IsZero() && !t.After(now); t = f.schedule.Next(t, anchors) {
			want = append(want, t)
		}
		want = append(want, at(s.NextEligible))
	}
	if s.Cursor > now.UnixNano() && m.jumps > 0 { // the clock was set back, and what has come does not come again
		want = append(want, f.schedule.Next(at(s.Cursor), anchors))
	}
	if !slices.ContainsFunc(want, got.Equal) {
		m.fail("flow %s: the next fire time is shown as %v, it should be one of %v at %v\nstate %v\nplan %s", f.id, got, want, now, s, describe(f.plan))
	}
}

// called notes a call about a flow before it is made; the function it returns notes its end.
func (m *model) called(flowID, what string) func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.flow(flowID)
	switch what {
	case "trigger":
		f.triggers++
	case "cancel":
		f.cancels++
	case "reset":
		f.resets = 2
		f.resetting++
		return func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			f.resetting--
		}
	case "resume":
		f.resumes = 2
		f.resuming++
		return func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			f.resuming--
		}
	}
	return func() {}
}

// cancelled notes that a stop may cancel every run.
func (m *model) cancelled() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.flows {
		f.cancels++
	}
}

// was reports whether a flow had a status at some time since an instant of virtual time.
func (m *model) was(flowID string, status flow.Status, since time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.flow(flowID)
	last := f.lastRunning
	if status == flow.Tripped {
		last = f.lastTrip
	}
	return flow.Status(f.state.GetStatus()) == status || !last.Before(since)
}

// jump notes that the wall clock was set.
func (m *model) jump(by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.jumps++
	for _, f := range m.flows {
		for _, w := range slices.Clip(f.windows) {
			f.windows = append(f.windows, window{w.from + int64(by), w.to + int64(by)})
		}
	}
}

// recovered compares the disk after a crash with what must be there: what was committed, and of a group on its way all or nothing.
func (m *model) recovered(found []store.Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	disk := make(map[string][]byte, len(found))
	for _, c := range found {
		disk[string(c.Key)] = c.Value
	}
	if m.pending != nil {
		last := map[string][]byte{}
		for _, c := range m.pending.Changes {
			last[string(c.Key)] = c.Value
		}
		there, gone := 0, 0
		for key, value := range last {
			if bytes.Equal(disk[key], value) {
				there++
			} else {
				gone++
			}
		}
		switch changes := m.pending.Changes; {
		case gone == 0:
			m.take(changes)
		default:
			m.pending = nil
		}
	}
	v, err := decode(found)
	if err != nil {
		m.fail("the disk does not decode: %v", err)
		return
	}
	for id, f := range m.flows {
		if !proto.Equal(f.state, v.states[id]) && (f.state != nil || v.states[id] != nil) {
			m.fail("flow %s: committed was %v, after the crash there is %v", id, f.state, v.states[id])
		}
	}
	m.orphans(v, found)
}

// orphans looks for records that nothing refers to any more.
func (m *model) orphans(v *commitView, found []store.Change) {
	for id, s := range v.states {
		f := m.flow(id)
		if _, defined := v.definitions[id]; !defined && !s.Deleted && !f.removing {
			m.fail("flow %s has a state and no definition: %v", id, s)
		}
		keep := core.DefaultKeepRuns
		if f.plan != nil && f.plan.KeepRuns != 0 {
			keep = max(f.plan.KeepRuns, 0)
		}
		if kept := len(v.history[id]); s.Deleted && kept > 0 || kept > max(keep, core.DefaultKeepRuns) {
			m.fail("flow %s: %d runs are kept; deleted %v", id, kept, s.Deleted)
		}
	}
	for _, c := range found {
		kind, id := string(c.Key[:2]), string(c.Key[2:])
		if (kind == openRunKey || kind == pinnedKey) && v.states[id].GetRun() == nil {
			m.fail("flow %s has no run, and yet a record %s", id, kind)
		}
	}
}

// backlogged reports whether missed fire times of a flow wait.
func (m *model) backlogged(flowID string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.flow(flowID).state.GetBacklog()) > 0
}

// started is told of a trigger that was answered: its run must be durable.
func (m *model) started(flowID string, number, revision uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.flow(flowID).state
	if number > s.GetRunCount() || revision > s.GetRevision() {
		m.fail("flow %s: a trigger was answered with run %d at revision %d, durable is %v", flowID, number, revision, s)
	}
}

// applied is told of an answered apply: unless a later one changed them again, the definitions are durable.
func (m *model) applied(req core.ApplyRequest, result *core.ApplyResult) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range req.Flows {
		p, err := parsePlan(f.Source)
		if err != nil {
			panic(err)
		}
		if have := m.flow(f.ID); have.plan != nil && have.plan.Version < p.Version && have.state.GetRevision() <= result.Revision {
			m.fail("flow %s: version %d was applied at revision %d, durable is version %d: %v", f.ID, p.Version, result.Revision, have.plan.Version, have.state)
		}
	}
}
