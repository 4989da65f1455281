package core

import (
	"time"

	"github.com/schedulerd/schedulerd/internal/core/flow"
)

// clock compares the wall clock with the monotonic one. Their distance changes when the wall clock is set or the machine was
// suspended; it is the only place where both are looked at.
type clock struct {
	wall     func() time.Time
	start    time.Time // carries a monotonic reading
	distance time.Duration
}

// jumpAtLeast separates a set clock from one that is slewed.
const jumpAtLeast = 500 * time.Millisecond

func newClock(wall func() time.Time) clock {
	c := clock{wall: wall, start: time.Now()}
	c.distance = wall().Round(0).Sub(c.start.Round(0))
	return c
}

// read gives the wall time, and by how much it was set since the last read, if it was.
func (c *clock) read() (flow.Instant, time.Duration) {
	slept := time.Since(c.start)
	wall := c.wall().Round(0)
	distance := wall.Sub(c.start.Round(0)) - slept
	jump := distance - c.distance
	c.distance = distance
	if jump.Abs() < jumpAtLeast {
		jump = 0
	}
	return flow.At(wall), jump
}
