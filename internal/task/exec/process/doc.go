// Package process runs one command in a process group of its own and leaves nothing of it behind.
//
// # The end of a group
//
// When the command has ended, for whatever reason and also well, what is left of its group is killed: a task that is over
// has nothing running. A command is stopped with SIGTERM to the whole group and, after a delay, SIGKILL. On Linux the
// signals are sent before the command is reaped: as long as the zombie is there, its number is no one else's, so that a
// signal never hits a stranger. A process that wants to outlive the task makes a session of its own (setsid).
//
// # The end of the daemon
//
// On Linux the command dies with the daemon, however that dies: the kernel sends the parent-death signal (SIGKILL). It does
// so when the thread that made the child ends, not the process (https://go.dev/issue/27505), and Go ends a thread when a
// goroutine locked to it ends. So the goroutine that starts the command locks its thread, and stays on it until the command
// has ended. That costs nothing: waiting for a child takes a thread of its own anyway. The alternatives were one thread that
// starts every command, where a program on a dead network disk would hold up all others, and a supervisor process, which
// would be one more thing that can die. What the signal cannot reach are the command's own children. They carry [OwnerVariable] in
// their environment, by which [KillLeft] finds them at the daemon's next start.
//
// Elsewhere there is no parent-death signal, and groups left behind are not found.
//
// # Output
//
// Output is copied from pipes to two writers, by 32 KiB at a time. When the group is gone, a process outside of it may still
// hold the pipes open; after [DrainTime] they are closed.
package process
