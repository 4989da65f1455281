package process

// OwnerVariable is the variable of a command's environment that says which daemon's it is: the one with that data directory. After a
// crash the next daemon on that directory finds by it what the one before left behind. A record of the running commands would have a
// gap: between a command's start and its record.
const OwnerVariable = "SCHEDULERD_OWNER"

// RunIDVariable is the variable of a command's environment that holds the run's id.
const RunIDVariable = "SCHEDULERD_RUN_ID"

// Group is a process group that was left behind.
type Group struct {
	ID    int    // its number
	RunID string // of the run it worked for
}
