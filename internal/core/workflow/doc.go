// Package workflow validates and runs workflows: finite-state machines whose states run tasks, split into branches, wait for
// timers or run other workflows. It knows nothing of schedules' flows, of storage or of what tasks do; definition.go has the
// definitions, run.go what a run is given and what it reports, task.go what a task is given.
//
// # The run loop
//
// (*Workflow).Run goes from state to state (machine.go). For each, in this order: is the run cancelled? The state is entered and an
// event tells so. A checkpoint is made, except of the first state of a fresh run and of exits: the start and the end of a run are
// on record anyway. An exit ends the run. Otherwise the state's work is done, its result is kept, and its transitions choose what is
// next.
//
// A run uses its caller's goroutine; only branches of a split get goroutines of their own, and all of them have ended when Run
// returns. Panics in tasks, expressions, schedules and journals are errors of the run, with their stack in its log.
//
// Nobody can end a goroutine from outside. A task that ignores its context therefore keeps its run from ending, and the run's
// owner must name the runs that do not end after they were cancelled.
//
// # Attempts
//
// A task is attempted as its step says (attempt.go, retry.go). An attempt fails when the task gives an error, panics, gives a
// result that is too large or not JSON-like, or exceeds its timeout. Whether it is repeated depends on the error's class and on
// whether it is marked permanent, as results that are at fault always are. If the step has a target, the target's guard admits each
// attempt; a refusal is a failed attempt of the class "circuit_open" or "rate_limited", repeated after the time the guard names.
// The wait for a rate limit is not part of the attempt's timeout.
//
// # Ends
//
// Reaching a success exit is a success. A failed state, a failure exit and a nested timeout are failures. If the run's context ends,
// its cause says whether the run was cancelled, has timed out or is lost.
//
// A run that does not succeed is rolled back (compensate.go): completed states that say how are undone, newest first, each given
// an equal share of the time that is left, so that one that hangs does not keep the others from being undone. Nested workflows that
// completed are undone as part of that, unless the state they were in has a compensate task of its own. What could not be undone
// makes the run a failure and is named in a *RollbackError.
//
// A lost run is the exception: it stops where it is, since another process goes on with it. ErrLost as the cause of its context
// says so, and so does a checkpoint that cannot be made.
//
// # Resuming
//
// A Checkpoint says where a run stands: its state, the results and what can be undone, the deadline of an armed timer, inside of
// it the same for a nested workflow or the cursor of a timer workflow. A run resumed from it repeats the interrupted state, so tasks
// run at least once. A split is one unit: all of its branches are repeated. Attempts count from 1 again. What identifies the work does not
// change: Invocation.IdempotencyKey is made of store, run, path of the state and number of the visit. Timeouts and timers keep
// their absolute deadlines. A run that was being rolled back is rolled back further.
//
// # Bounds
//
// States entered, firings of timers, items of a for_each, depth of nesting, the size of one result and of all that a
// workflow holds: each has a limit, named in definition.go, and an error that names it.
package workflow
