// Package e2e tests the real programs: processes, files, signals, the network on loopback.
package e2e

import (
	"os"
	"testing"

	"github.com/schedulerd/schedulerd/test/daemon"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(roleVariable); name != "" {
		role(name)
		return
	}
	code := m.Run()
	daemon.Cleanup()
	os.Exit(code)
}
