package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/schedulerd/schedulerd/internal/server"
	"github.com/spf13/cobra"
)

// dataDirCommand makes a command about a data directory that no daemon uses.
func dataDirCommand(c *cobra.Command, code *int, run func(cmd *cobra.Command, dir string, args []string) error) *cobra.Command {
	var dir string
	c.Flags().StringVar(&dir, "data-dir", "", "the `folder` that keeps the daemon's data")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		err := errors.New("--data-dir is missing: say which folder")
		*code = server.ExitUsage
		if dir != "" {
			err = run(cmd, dir, args)
			*code = server.ExitCode(err)
		}
		return err
	}
	return c
}

func inspectCommand(code *int, stdout io.Writer) *cobra.Command {
	var flow string
	c := dataDirCommand(&cobra.Command{
		Use:   "inspect --data-dir DIR",
		Short: "Show what is in a data directory, as JSON",
		Long: `Inspect shows what is in a data directory, as JSON: each flow with its state, its next fire time and the run that was
on its way; with --flow one flow with its definition, its kept runs and their events. It changes nothing, and needs no
daemon: while one uses the directory it refuses; look at a backup then, or ask the daemon with schedctl.`,
		Example: "  schedulerd inspect --data-dir data | jq '.flows[] | select(.open_run)'",
		Args:    cobra.NoArgs,
	}, code, func(cmd *cobra.Command, dir string, _ []string) error {
		return server.Inspect(cmd.Context(), dir, flow, stdout)
	})
	c.Flags().StringVar(&flow, "flow", "", "show the flow with this `id`, with its runs")
	return c
}

func restoreCommand(code *int, stdout io.Writer) *cobra.Command {
	return dataDirCommand(&cobra.Command{
		Use:   "restore FILE --data-dir DIR",
		Short: "Make a data directory of a backup",
		Long: `Restore makes a data directory of a backup that schedctl backup wrote. The directory must be empty or not there. All of
the backup is checked before the directory becomes a data directory. It is another one than the one the backup is of:
watches and lists that began there do not go on here. A daemon that is started on it goes on from the time of the backup.`,
		Example: "  schedctl backup monday.tar\n  schedulerd restore monday.tar --data-dir data2",
		Args:    cobra.ExactArgs(1),
	}, code, func(cmd *cobra.Command, dir string, args []string) error {
		counts, err := server.Restore(cmd.Context(), args[0], dir)
		if err == nil {
			fmt.Fprintf(stdout, "restored %s to %s: %d flows, %d kept runs, %d runs that were on their way\n", args[0], dir, counts.Flows, counts.KeptRuns, counts.OpenRuns)
		}
		return err
	})
}
