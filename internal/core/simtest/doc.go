// Package simtest puts the engine through years of random life in seconds, and checks after every step that it kept its word.
//
// # The simulation
//
// A world (see world.go) is the real engine on virtual time (testing/synctest) with a disk (storetest.Disk) that keeps at a crash only
// what was synced, and any prefix of the rest. Random flows of all kinds (flows.go) run, fail, panic, take their time and checkpoint;
// random steps (steps.go) trigger, reset, pause, cancel, apply, delete, set the clock, make the disk slow or forgetful, and crash the
// engine: between commits, during commits, during its start. A crash marks the life as dead, so that nothing its tasks do counts any
// more, and takes the disk away; what is left of the engine in memory can reach nothing and is cleared away.
//
// # The model
//
// The model (model.go) knows no engine. It reads every commit on its way to the disk and compares each flow's state with the one
// before: a run has one start and one end, the streak, the backoff and the trip follow their formulas, and every fire time that the
// schedule names between two cursors has become a run, was counted or waits in the backlog, exactly once. Tasks, callers and watchers
// tell it what they were told, and it compares that with what was durable then and what is there after a crash.
//
// # Reproducing a failure
//
// The seed of a world decides everything but the order in which goroutines run within one instant, so a seed mostly fails again:
//
//	go test ./internal/core/simtest -run Simulation -seed 4711 -v
//
// A failure prints the last steps. SCHEDULERD_SIMULATE=10m makes a long run, which begins at a random seed and prints it.
package simtest
