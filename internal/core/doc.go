// Package core is the scheduler: it runs workflows when they are due, one run a flow at a time, and remembers how they went.
//
//	s := core.New(core.Config{Store: store.NewMemory()})
//	s.Add(&core.Flow{ID: "hello", Schedule: hourly, Backoff: flow.DefaultPolicy, Workflow: w})
//	running, err := s.Start(ctx)
//	...
//	running.Stop(ctx, 30*time.Second)
//
// A Scheduler collects flows; Start consumes it and gives a Running. What happens to a flow is decided by flow.Apply, when it is due by
// schedule.Next, what a run does by workflow.Run: all three know no store and no clock. This package is the plumbing around them.
//
// # One writer
//
// One goroutine, the engine's loop, owns every flow's state and the queue of due times. Fire times, calls and the ends of runs reach it
// as messages; so there are no locks on flow state, and a check and the change it allows are one step. It decides in memory, gathers
// what it decided in a group, and hands that to the store. Only when the group is durable it publishes the new states, answers the
// calls and starts the runs: nobody is told what a crash could take back. While a commit is on its way the next group gathers, so one
// flow waits for one fsync and ten thousand share it. Readers see the published states, which are never changed.
//
// One loop is enough: a firing costs it a few microseconds, the disk gives out before.
//
// # After a crash
//
// Every fire time either ran or is counted with the reason it did not; the cursor in a flow's state says up to which. At the next start
// those after the cursor were missed, and the flow's catch-up policy settles them, as after a suspend or a clock set forward. A run that
// was on its way goes on from its last checkpoint, or ends as lost.
package core
