// Command schedctl is the command line client of schedulerd. See docs/schedctl.md.
package main

import (
	"os"
	"runtime/debug"
	_ "time/tzdata" // preview computes in any zone, on any machine

	"github.com/schedulerd/schedulerd/internal/schedctl"
)

// version is set by the linker.
var version string

func main() {
	if version == "" {
		version = "unknown"
		if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
			version = info.Main.Version
		}
	}
	os.Exit(schedctl.Main(version))
}
