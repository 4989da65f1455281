package process

// Group identifies a process group beyond doubt, also after the daemon or the machine was started anew.
type Group struct {
	ID        int    // its number, which is the process id of the command
	StartTime uint64 // when the command was started, in clock ticks since the machine was (field 22 of /proc/PID/stat)
	Boot      string // the machine's boot id
	RunID     string // its processes have it in their environment as SCHEDULERD_RUN_ID
}

// Tracker remembers the groups that run, so that a daemon started after a crash can end what is left of them. Its methods
// are called from many goroutines and hold up the command.
type Tracker interface {
	Started(Group)
	Ended(Group)
}

// RunIDVariable is the variable of a command's environment that holds the run's id.
const RunIDVariable = "SCHEDULERD_RUN_ID"
