package main

import (
	"errors"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes the test binary a schedctl for the scripts.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"schedctl": main})
}

// TestScripts runs the command line as a process of its own, without a server.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// exits CODE PROGRAM ARGS… checks the exit code exactly.
			"exits": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) < 2 {
					ts.Fatalf("usage: exits CODE PROGRAM ARGS…")
				}
				err := ts.Exec(args[1], args[2:]...)
				code := 0
				if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
					code = exit.ExitCode()
				} else if err != nil {
					ts.Fatalf("%v", err)
				}
				if want := args[0]; strconv.Itoa(code) != want {
					ts.Fatalf("exit code %d, want %s", code, want)
				}
			},
		},
	})
}
