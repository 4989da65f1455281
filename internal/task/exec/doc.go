// Package exec is the task kind that runs a command, and the resource kind that runs one at setup and one at teardown.
//
// What runs is a process group of its own that is gone when the task is; package process tells how. Output goes line by line
// to the run's output and is never held: package stream splits and bounds it. docs/tasks.md says what a user sees.
package exec
