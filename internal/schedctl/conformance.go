package schedctl

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/schedulerd/schedulerd/internal/schedctl/conformance"
)

func (a *app) conformanceCommand() *cobra.Command {
	names := conformance.DefaultNames
	target := ""
	command := &cobra.Command{
		Use:   "conformance task",
		Short: "Check that a TaskService keeps the contract",
		Long: `Conformance calls a service that does tasks, as the daemon would, and checks what it
must keep: invocations and results, codes, deadlines, cancellation, streams, large inputs.
No daemon is needed. The service does the three tasks that docs/tasks.md describes.
The exit code is 6 if a check fails. The global flags about TLS apply to the target.`,
		Example:   "  schedctl conformance task --target localhost:50051",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"task"},
	}
	f := command.Flags()
	f.StringVar(&target, "target", "", "address of the service, HOST:PORT, unix:///PATH or any gRPC target")
	f.StringVar(&names.Echo, "echo", names.Echo, "name of its task that gives back its invocation")
	f.StringVar(&names.Sleep, "sleep", names.Sleep, "name of its task that sleeps")
	f.StringVar(&names.Fail, "fail", names.Fail, "name of its task that fails")
	command.RunE = a.offline(func(ctx context.Context, _ []string) error {
		if target == "" {
			return usagef("--target says which service is to be checked")
		}
		a.conn.server = target
		conn, err := a.conn.dial(a.env)
		if err != nil {
			return err
		}
		defer conn.Close()
		ctx, cancel := a.whole(ctx)
		defer cancel()
		checks := []conformance.Check{}
		failed := conformance.Run(ctx, conn, names, func(c conformance.Check) {
			checks = append(checks, c)
			if a.printer.human() {
				line := fmt.Sprintf("ok    %s", c.Name)
				if c.Err != "" {
					line = fmt.Sprintf("FAIL  %s: %s", c.Name, clean(c.Err))
				}
				fmt.Fprintln(a.env.Out, line)
			}
		})
		if !a.printer.human() {
			err := a.printer.show(view{
				names:  failedChecks(checks),
				encode: func() ([]byte, error) { return json.Marshal(map[string]any{"checks": checks}) },
			})
			if err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if failed > 0 {
			return failf(ExitRunFailed, "%s of %d failed", count(failed, "check"), len(checks))
		}
		return nil
	})
	return command
}

func failedChecks(checks []conformance.Check) (names []string) {
	for _, c := range checks {
		if c.Err != "" {
			names = append(names, c.Name)
		}
	}
	return names
}
