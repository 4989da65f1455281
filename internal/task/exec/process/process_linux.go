package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitEnd waits until the command has ended, and leaves it to be reaped.
func awaitEnd(cmd *exec.Cmd) (reap func() error) {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return cmd.Wait
		}
	}
}

// KillLeft kills the process groups that daemons with this owner left behind, waits until they are gone, and tells which they were. No
// daemon with this owner may be running. A process with a session of its own (setsid) wanted to outlive its task, and does.
func KillLeft(owner string) (killed []Group, err error) {
	for range killTries {
		left, err := groupsOf(owner)
		if err != nil || len(left) == 0 {
			return killed, err
		}
		for _, g := range left {
			if err := unix.Kill(-g.ID, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return killed, fmt.Errorf("process group %d: %w", g.ID, err)
			}
			if !slices.Contains(killed, g) {
				killed = append(killed, g)
			}
		}
		time.Sleep(killPause) // the kernel takes its time
	}
	return killed, fmt.Errorf("process groups %v do not go away", killed)
}

const (
	killTries = 1000
	killPause = 5 * time.Millisecond
)

// groupsOf lists the groups with a member that has this owner. Zombies have no environment.
func groupsOf(owner string) (groups []Group, err error) {
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("commands left behind: %w", err)
	}
	for _, process := range processes {
		pid, err := strconv.Atoi(process.Name())
		if err != nil {
			continue
		}
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil { // it has ended, or is another user's
			continue
		}
		variables := strings.Split(string(environ), "\x00")
		if !slices.Contains(variables, OwnerVariable+"="+owner) {
			continue
		}
		group, session, err := stat(pid)
		if err != nil || group == session || group <= 1 {
			continue
		}
		g := Group{ID: group}
		for _, v := range variables {
			if id, ok := strings.CutPrefix(v, RunIDVariable+"="); ok {
				g.RunID = id
			}
		}
		if !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	return groups, nil
}

// stat reads a process's group and session. See proc_pid_stat(5).
func stat(pid int) (group, session int, err error) {
	name := fmt.Sprintf("/proc/%d/stat", pid)
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, 0, err
	}
	// The second field is the program's name in parentheses, and may hold anything.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 4 {
		return 0, 0, &fs.PathError{Op: "read", Path: name, Err: fs.ErrInvalid}
	}
	if group, err = strconv.Atoi(string(fields[2])); err != nil {
		return 0, 0, err
	}
	session, err = strconv.Atoi(string(fields[3]))
	return group, session, err
}
