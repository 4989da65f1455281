package schedctl

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

// app is one command line on its way.
type app struct {
	env     Env
	conn    connection
	format  format
	utc     bool
	noColor bool

	printer  printer
	clock    clock
	patient  bool // --timeout was given: it bounds commands that wait or stream, too
	running  bool // the command line was understood
	grpcConn *grpc.ClientConn
}

// Run runs one command line and returns its exit code.
func Run(ctx context.Context, env Env) int {
	a := &app{env: env, format: formatTable}
	defer a.close()
	root := a.root()
	root.SetIn(env.In)
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	root.SetArgs(append([]string{}, env.Args...)) // nil would mean those of the process
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	code := exitCode(err)
	switch {
	case !a.running:
		code = ExitUsage
		err = fmt.Errorf("%w; see: %s --help", err, command.CommandPath())
	case errors.Is(err, context.Canceled) || wireStatus(err).Code() == codes.Canceled:
		err = errors.New("interrupted")
	}
	a.report(err)
	return code
}

// report tells an error, unless the command has.
func (a *app) report(err error) {
	if !errors.Is(err, errSilent) {
		fmt.Fprintf(a.env.Err, "schedctl: %s\n", explain(err, a.conn.server))
	}
}

// outage tells on standard error when a stream breaks and when it goes on, once each.
type outage struct {
	*app
	on bool
}

// begin is told of each failure. A server that only ends a stream to spread load gives no error.
func (o *outage) begin(err error, _ time.Duration) {
	if err != nil && !o.on {
		o.on = true
		fmt.Fprintf(o.env.Err, "schedctl: %s\n", explainLoss(err, o.conn.server))
	}
}

// end is told of each message that comes.
func (o *outage) end() {
	if o.on {
		o.on = false
		fmt.Fprintln(o.env.Err, "schedctl: connected again")
	}
}

func (a *app) close() {
	if a.grpcConn != nil {
		a.grpcConn.Close()
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "schedctl",
		Short: "Look after the flows of a schedulerd",
		Long: `schedctl lists, triggers, watches and changes the flows of a schedulerd.

Each global flag can also be set in the environment: SCHEDCTL_SERVER for --server and so on.
Exit codes: 0 fine, 1 other, 2 usage, 3 not found, 4 refused by state, 5 unavailable,
6 the run failed (--wait), 7 invalid input, 130 interrupted.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	flags := root.PersistentFlags()
	a.conn.register(flags)
	flags.VarP(&a.format, "output", "o", "how to print")
	flags.BoolVar(&a.utc, "utc", false, "show times in UTC instead of the local zone")
	flags.BoolVar(&a.noColor, "no-color", false, "print without colours; so does NO_COLOR")
	a.completeFlag(root, "output", func() []string {
		names := make([]string, len(formats))
		for i, f := range formats {
			names[i] = string(f)
		}
		return names
	}())

	for _, group := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"look", "Look:", []*cobra.Command{a.listCommand(), a.statusCommand(), a.watchCommand(), a.runsCommand(), a.runCommand(), a.logsCommand()}},
		{"act", "Act:", []*cobra.Command{a.triggerCommand(), a.cancelCommand(), a.resetCommand(), a.pauseCommand(), a.resumeCommand()}},
		{"define", "Define:", []*cobra.Command{
			a.validateCommand(), a.planCommand(), a.applyCommand(), a.getCommand(), a.deleteCommand(),
			a.graphCommand(), a.previewCommand(),
		}},
		{"serve", "The server:", []*cobra.Command{a.infoCommand(), a.benchCommand(), a.backupCommand(), a.stopCommand()}},
		{"write", "Writing tasks:", []*cobra.Command{a.conformanceCommand()}},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, command := range group.commands {
			command.GroupID = group.id
			root.AddCommand(command)
		}
	}
	root.AddCommand(a.versionCommand())
	return root
}

// offline makes the function of a command that needs no server, or not always.
func (a *app) offline(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		if err := a.setUp(command); err != nil {
			return err
		}
		a.running = true
		return f(command.Context(), args)
	}
}

// online makes the function of a command that calls the server.
func (a *app) online(f func(ctx context.Context, client pb.SchedulerServiceClient, args []string) error) func(*cobra.Command, []string) error {
	return a.offline(func(ctx context.Context, args []string) error {
		client, err := a.client()
		if err != nil {
			return err
		}
		return f(ctx, client, args)
	})
}

// setUp takes global flags from the environment and looks at the terminal.
func (a *app) setUp(command *cobra.Command) error {
	var err error
	command.InheritedFlags().VisitAll(func(flag *pflag.Flag) {
		name := "SCHEDCTL_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		if value := a.env.Getenv(name); value != "" && !flag.Changed {
			if setErr := command.Flags().Set(flag.Name, value); setErr != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", name, setErr))
			}
		}
	})
	if err != nil {
		return err
	}
	if a.conn.timeout < 0 {
		return errors.New("--timeout must not be negative")
	}
	a.patient = command.Flags().Changed("timeout")

	zone := a.env.Now().Location()
	if a.utc {
		zone = time.UTC
	}
	a.clock = clock{now: a.env.Now, zone: zone}
	a.printer = printer{out: a.env.Out, format: a.format}
	if width, _, ok := a.env.Window(); ok {
		a.printer.canvas = canvas{width: width, color: !a.noColor && a.env.Getenv("NO_COLOR") == ""}
	}
	return nil
}

// client is the server's, connected on first use.
func (a *app) client() (pb.SchedulerServiceClient, error) {
	if a.grpcConn == nil {
		conn, err := a.conn.dial(a.env)
		if err != nil {
			return nil, err
		}
		a.grpcConn = conn
	}
	return pb.NewSchedulerServiceClient(a.grpcConn), nil
}

// call makes one call under --timeout.
func call[Request, Response any](
	ctx context.Context, a *app,
	method func(context.Context, *Request, ...grpc.CallOption) (*Response, error), request *Request,
) (*Response, error) {
	if a.conn.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.conn.timeout)
		defer cancel()
	}
	return method(ctx, request)
}

// whole bounds a command that waits or streams, if --timeout was given.
func (a *app) whole(ctx context.Context) (context.Context, context.CancelFunc) {
	if a.patient && a.conn.timeout > 0 {
		return context.WithTimeout(ctx, a.conn.timeout)
	}
	return context.WithCancel(ctx)
}

// newRequestID is a random UUID, version 4 (RFC 9562).
func newRequestID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// completeFlows offers the ids of flows to the shell.
func (a *app) completeFlows(command *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if err := a.setUp(command); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	client, err := a.client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	a.conn.timeout = 2 * time.Second // nobody waits longer for a Tab
	response, err := call(command.Context(), a, client.List, &pb.ListRequest{PageSize: 1000, View: pb.FlowView_FLOW_VIEW_BASIC})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var ids []string
	for _, flow := range response.GetFlows() {
		if strings.HasPrefix(flow.GetId(), prefix) {
			ids = append(ids, flow.GetId())
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// completeFlag offers fixed values of a flag to the shell.
func (a *app) completeFlag(command *cobra.Command, name string, values []string) {
	err := command.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // only for a flag that does not exist
	}
}
