package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// lookUp finds a program as a shell that has the environment would: a name with a slash as it is, any other in the
// directories of PATH. Empty and relative entries of PATH are passed over: what runs must not depend on a directory.
func lookUp(name string, env []string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) {
		return name, nil
	}
	if runtime.GOOS == "windows" { // there, what is executable is a matter of PATHEXT
		return exec.LookPath(name)
	}
	path := ""
	for _, entry := range env { // the last one counts
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			path = value
		}
	}
	found := "" // there, but not executable
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		file := filepath.Join(dir, name)
		info, err := os.Stat(file)
		if err != nil || info.IsDir() {
			continue
		}
		if info.Mode()&0o111 != 0 {
			return file, nil
		}
		found = file
	}
	if found != "" {
		return "", fmt.Errorf("command %q is not executable: %s", name, found)
	}
	return "", fmt.Errorf("command %q not found in PATH (%s)", name, path)
}
