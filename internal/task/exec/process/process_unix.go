//go:build unix

package process

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func terminate(p *os.Process) {
	_ = syscall.Kill(-p.Pid, syscall.SIGTERM)
	_ = syscall.Kill(-p.Pid, syscall.SIGCONT) // a process that is stopped hears it only then
}

func kill(p *os.Process) {
	_ = syscall.Kill(-p.Pid, syscall.SIGKILL) // it fails when no one is left
}

// signalOf names the signal that killed a process; empty if none did.
func signalOf(state *os.ProcessState) string {
	if status := state.Sys().(syscall.WaitStatus); status.Signaled() {
		return unix.SignalName(status.Signal())
	}
	return ""
}

// transient says whether a start failed for want of something that may be there later.
func transient(err error) bool {
	for _, e := range []error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ETXTBSY, syscall.EIO} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func isNoProgram(err error) bool { return errors.Is(err, syscall.ENOEXEC) }
