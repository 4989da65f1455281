package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitEnd waits until the command has ended, and leaves it to be reaped.
func (c *child) awaitEnd() {
	for {
		err := unix.Waitid(unix.P_PID, c.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func (c *child) reap() error { return c.Wait() }

// identify gives the group of a command that was not reaped yet.
func identify(pid int, runID string) (Group, error) {
	start, _, err := stat(pid)
	if err != nil {
		return Group{}, err
	}
	boot, err := bootID()
	return Group{ID: pid, StartTime: start, Boot: boot, RunID: runID}, err
}

// KillGroup kills what is left of a group whose daemon is gone, and says whether there was anything. A group is known by
// its command, or, if that is dead, by the run's id in the environment of another member: as long as a group has a member,
// its number is not given to another.
func KillGroup(g Group) (killed bool, err error) {
	if boot, err := bootID(); err != nil || boot != g.Boot || g.ID <= 1 {
		return false, err
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return false, fmt.Errorf("process group %d: %w", g.ID, err)
	}
	for _, process := range processes {
		pid, err := strconv.Atoi(process.Name())
		if err != nil {
			continue
		}
		start, group, err := stat(pid)
		if err != nil || group != g.ID {
			continue
		}
		if pid == g.ID && start == g.StartTime || pid != g.ID && worksFor(pid, g.RunID) {
			if err := unix.Kill(-g.ID, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return false, fmt.Errorf("process group %d: %w", g.ID, err)
			}
			return true, nil
		}
	}
	return false, nil
}

// worksFor says whether a process has a run's id in its environment.
func worksFor(pid int, runID string) bool {
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && runID != "" && slices.Contains(strings.Split(string(environ), "\x00"), RunIDVariable+"="+runID)
}

// stat reads a process's start time and group. A zombie is there still. See proc_pid_stat(5).
func stat(pid int) (start uint64, group int, err error) {
	name := fmt.Sprintf("/proc/%d/stat", pid)
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, 0, err
	}
	// The second field is the program's name in parentheses, and may hold anything.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return 0, 0, &fs.PathError{Op: "read", Path: name, Err: fs.ErrInvalid}
	}
	if group, err = strconv.Atoi(string(fields[2])); err != nil {
		return 0, 0, err
	}
	start, err = strconv.ParseUint(string(fields[19]), 10, 64)
	return start, group, err
}

func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}
