package service

import (
	"bufio"
	"os"
	"runtime"
	"strings"
)

// tzdataFiles are where systems that have the time zone database keep a file that begins with its version.
var tzdataFiles = []string{"/usr/share/zoneinfo/tzdata.zi", "/usr/lib/zoneinfo/tzdata.zi", "/usr/share/lib/zoneinfo/tzdata.zi", "/etc/zoneinfo/tzdata.zi"}

// tzdataVersion is the version of the time zone database in use. Package time takes the system's, and the one embedded in the
// program where there is none; that one does not tell its version, but belongs to a release of Go.
func tzdataVersion() string {
	for _, name := range tzdataFiles {
		if version := tzdataHeader(name); version != "" {
			return version
		}
	}
	return runtime.Version()
}

// tzdataHeader reads a first line such as "# version 2025b".
func tzdataHeader(name string) string {
	file, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer file.Close()
	line, _ := bufio.NewReaderSize(file, 64).ReadString('\n')
	version, ok := strings.CutPrefix(strings.TrimSpace(line), "# version ")
	if !ok {
		return ""
	}
	return version
}
