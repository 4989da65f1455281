//go:build !unix

package process

import (
	"os"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return nil }

// There are no process groups and no signals: the command alone is ended, at once.
func terminate(p *os.Process) { kill(p) }

func kill(p *os.Process) { _ = p.Kill() }

func signalOf(*os.ProcessState) string { return "" }

func transient(error) bool { return false }

func isNoProgram(error) bool { return false }
