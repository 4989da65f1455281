// Command schedulerd runs workflows when they are due, and offers them over gRPC. docs/configuration.md describes its flags,
// docs/operations.md how to run it.
package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/schedulerd/schedulerd/internal/server"
	"github.com/spf13/cobra"
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
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr, signals))
}

// run is main without the process around it. It gives the exit code.
func run(args, env []string, stdout, stderr io.Writer, signals <-chan os.Signal) int {
	c := config{Options: server.Defaults(), logFormat: "text"}
	c.Version = version
	code := server.ExitOK
	command := &cobra.Command{
		Use:           "schedulerd",
		Short:         "Runs workflows when they are due",
		Long:          "schedulerd runs workflows when they are due: a gRPC service with schedules, retries, backoff and live status.\nEvery flag can be set in the environment, too: --data-dir as SCHEDULERD_DATA_DIR.",
		Args:          cobra.NoArgs,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(*cobra.Command, []string) error {
			var err error
			code, err = c.serve(stdout, stderr, signals)
			return err
		},
	}
	command.SetVersionTemplate("schedulerd {{.Version}}\n")
	command.SetArgs(args)
	command.SetOut(stdout)
	command.SetErr(stderr)
	c.flags(command.Flags())
	command.PreRunE = func(*cobra.Command, []string) error { return fromEnvironment(command.Flags(), env) }
	command.CompletionOptions.HiddenDefaultCmd = true
	command.AddCommand(inspectCommand(&code, stdout), restoreCommand(&code, stdout))
	if err := command.Execute(); err != nil {
		var lines interface{ Unwrap() []error }
		if code == server.ExitOK { // cobra's own, or of the environment
			code = server.ExitUsage
		}
		fmt.Fprintf(stderr, "schedulerd: %v\n", err)
		if code == server.ExitUsage && !errors.As(err, &lines) {
			fmt.Fprintln(stderr, "Run schedulerd --help for the flags.")
		}
	}
	return code
}

// config is what the flags set.
type config struct {
	server.Options
	check     bool
	logLevel  slog.Level
	logFormat string
}

// serve runs the server, or checks the flows files.
func (c *config) serve(stdout, stderr io.Writer, signals <-chan os.Signal) (code int, err error) {
	if err := c.Validate(); err != nil {
		return server.ExitUsage, err
	}
	if c.check {
		return c.checkFlows(stdout)
	}
	c.Log = slog.New(c.handler(stderr))
	err = server.Run(c.Options, signals)
	return server.ExitCode(err), err
}

func (c *config) checkFlows(stdout io.Writer) (code int, err error) {
	if len(c.Flows) == 0 {
		return server.ExitUsage, errors.New("--check needs --flows: there is nothing to check")
	}
	flows, err := server.Check(c.Options)
	if err != nil {
		return server.ExitCode(err), err
	}
	fmt.Fprintf(stdout, "flows checked: %d; nothing is wrong\n", flows)
	return server.ExitOK, nil
}

func (c *config) handler(out io.Writer) slog.Handler {
	options := &slog.HandlerOptions{Level: c.logLevel}
	if c.logFormat == "json" {
		return slog.NewJSONHandler(out, options)
	}
	return slog.NewTextHandler(out, options)
}
