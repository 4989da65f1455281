// Package flow is one flow's life as a pure function: what a tick, a trigger, a run's end, a reset or a pause does to its state.
//
//	next, effect, err := flow.Apply(state, policy, event)
//
// Apply has no clock, lock, I/O or randomness: the event carries the instant and the random number. Everything around it is
// plumbing, which asks here and acts on the Effect.
//
//	from                     event                   to          also
//	IDLE COMPLETED BACKOFF   tick, trigger accepted  RUNNING     LastRun = now, RunCount + 1
//	RUNNING                  tick                    -           skipped: OVERLAP
//	RUNNING                  trigger                 -           refused: ErrRunning
//	TRIPPED                  tick                    -           skipped: TRIPPED (a probe runs where one is allowed and due)
//	TRIPPED                  trigger                 -           refused: ErrTripped
//	BACKOFF, window open     tick                    -           skipped: BACKOFF
//	BACKOFF, window open     trigger                 RUNNING     an operator may override the window
//	any, paused              tick                    -           skipped: PAUSED; a trigger still runs
//	RUNNING                  run succeeded           COMPLETED   Streak = 0, NextEligible and LastError cleared
//	RUNNING                  run failed, at limit    TRIPPED     Streak + 1, LastError, NextEligible cleared
//	RUNNING                  run failed otherwise    BACKOFF     Streak + 1, LastError, NextEligible = now + delay
//	RUNNING                  run cancelled           IDLE        or BACKOFF, TRIPPED as before it; not a failure
//	not RUNNING              reset                   IDLE        Streak = 0, window and error cleared
//	RUNNING                  reset                   RUNNING     Streak = 0; a failure of the run then counts from 0
package flow
