package core

import (
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/core/schedule"
	"github.com/schedulerd/schedulerd/internal/core/store"
)

// entry is a flow in the engine. Only the engine's goroutine touches it, but for published.
type entry struct {
	flow      *Definition
	id        string
	shard     store.Shard
	order     int // in which flows were added: resources are torn down the other way round
	resources *resource.Set

	state         flow.State
	run           *activeRun     // on its way, or about to be once its start is durable
	anchor        flow.Instant   // where the grid of an every schedule starts
	cursor        flow.Instant   // the last fire time that ran or was counted
	pausedAt      flow.Instant   // when the flow was paused
	backlog       []flow.Instant // missed fire times that shall still run, oldest first
	scheduleError string
	changes       uint64 // of the state, so far
	deleted       bool
	removing      bool // to be deleted when its run has ended

	nextFire flow.Instant // nominal; none: never due by itself
	dueAt    flow.Instant // when nextFire is acted upon: later by the jitter
	heapAt   int          // place in the queue of due times, from 1; 0: not in it
	waiting  *waiter      // a fire time that waits for a slot

	touched   *group // the group that will carry the present state
	published atomic.Pointer[Info]
	active    atomic.Pointer[activeRun] // for those who watch the run
}

// anchors are what an every schedule counts from.
func (en *entry) anchors() schedule.Anchors {
	a := schedule.Anchors{Start: en.anchor.Time(), Ended: en.state.LastFinish.Time()}
	if en.state.Status == flow.Running {
		a.Ended = notYet
	}
	return a
}

// reached is the fire time after which the next one is looked for: all up to there, and up to now, were acted on.
func (en *entry) reached(now flow.Instant) flow.Instant {
	reached := max(en.cursor, now-1)
	if w := en.waiting; w != nil && !w.catchUp {
		reached = max(reached, w.since)
	}
	return reached
}

// beginAnew makes another schedule count from now on.
func (en *entry) beginAnew(now flow.Instant) {
	en.anchor = now
	en.cursor = min(max(en.cursor, now-1), now) // it may be ahead of a clock that was set back
}

// notYet is when a run ends that is on its way: what counts from its end is never due.
var notYet = time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)

// info is the state as others see it.
func (en *entry) info(revision uint64) *Info {
	var info *Info
	if en.run == nil {
		info = &Info{}
	} else {
		both := &struct { // in one allocation
			Info
			current Current
		}{current: en.run.current}
		info = &both.Info
		info.Run = &both.current
	}
	info.Flow, info.State, info.NextFire, info.Revision = en.flow, en.state, en.nextFire, revision
	info.ScheduleError, info.Anchor, info.Deleted, info.resources = en.scheduleError, en.anchor, en.deleted, en.resources
	return info
}

// settled reports whether all of the entry's state is durable and published.
func (en *entry) settled() bool { return en.touched == nil }

// runID is the id of a flow's run: unique as long as the store lives.
func runID(flowID string, number uint64) string {
	return flowID + "@" + strconv.FormatUint(number, 10)
}

// parseRunID is the inverse of runID.
func parseRunID(id string) (flowID string, number uint64, ok bool) {
	at := strings.LastIndexByte(id, '@')
	if at <= 0 {
		return "", 0, false
	}
	number, err := strconv.ParseUint(id[at+1:], 10, 64)
	return id[:at], number, err == nil && number > 0 && runID(id[:at], number) == id
}
