package schedctl

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/manifest"
)

// stdin is the name of standard input in messages.
const stdin = "<stdin>"

// sources reads flows files: folders give the flows files in them, - is standard input.
func (a *app) sources(paths []string) ([]manifest.Source, error) {
	var sources []manifest.Source
	for _, path := range paths {
		if path == "-" {
			content, err := io.ReadAll(io.LimitReader(a.env.In, manifest.MaxFileBytes+1))
			if err != nil {
				return nil, err
			}
			sources = append(sources, manifest.Source{Name: stdin, Content: content})
			continue
		}
		loaded, err := manifest.Load(path)
		if err != nil {
			return nil, usagef("%w", err)
		}
		sources = append(sources, loaded...)
	}
	for _, source := range sources {
		switch {
		case len(source.Content) > manifest.MaxFileBytes:
			return nil, failf(ExitInvalid, "%s is larger than %s", source.Name, byteSize(manifest.MaxFileBytes))
		case !utf8.Valid(source.Content):
			return nil, failf(ExitInvalid, "%s is not text in UTF-8", source.Name)
		}
	}
	if len(sources) > manifest.MaxFiles {
		return nil, usagef("%d files are too many: at most %d at a time", len(sources), manifest.MaxFiles)
	}
	return sources, nil
}

// messages are sources as the server takes them.
func messages(sources []manifest.Source) []*pb.FlowsSource {
	messages := make([]*pb.FlowsSource, len(sources))
	for i, source := range sources {
		messages[i] = &pb.FlowsSource{Name: source.Name, Content: string(source.Content)}
	}
	return messages
}

func (a *app) validateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE…",
		Short: "Check flows files without applying them",
		Long: `Validate sends flows files to the daemon, which checks them together and applies nothing.
A folder stands for the .yaml, .yml and .json files in it, - for standard input. Every fault
is shown with its place; the exit code is 7 if there is one.`,
		Example: "  schedctl validate flows/",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.online(func(ctx context.Context, client pb.SchedulerServiceClient, args []string) error {
			sources, err := a.sources(args)
			if err != nil {
				return err
			}
			response, err := call(ctx, a, client.ValidateFlows, &pb.ValidateFlowsRequest{Sources: messages(sources)})
			if err != nil {
				return err
			}
			faults := response.GetFaults()
			err = a.printer.show(view{
				message: response,
				names:   response.GetFlowIds(),
				lines: func(bool) []string {
					if len(faults) > 0 {
						return nil // they go to standard error
					}
					return []string{fmt.Sprintf("valid: %s in %s", count(len(response.GetFlowIds()), "flow"), count(len(sources), "file"))}
				},
			})
			if err != nil || len(faults) == 0 {
				return err
			}
			return invalid(faults, sources)
		}),
	}
}

// invalid is the error of flows files with faults.
func invalid(faults []*pb.Fault, sources []manifest.Source) error {
	problems := make(manifest.Problems, len(faults))
	for i, fault := range faults {
		problems[i] = manifest.Problem{
			Source: fault.GetSource(), Line: int(fault.GetLine()), Column: int(fault.GetColumn()),
			Field: fault.GetField(), Message: fault.GetMessage(), Excerpt: excerpt(fault, sources),
		}
	}
	return failf(ExitInvalid, "%s\n%w", count(len(faults), "fault"), problems)
}

// excerpt is the line a fault is in with a caret under its column, or empty. The server knows the
// text no longer than the call takes; here it is at hand.
func excerpt(fault *pb.Fault, sources []manifest.Source) string {
	at := slices.IndexFunc(sources, func(s manifest.Source) bool { return s.Name == fault.GetSource() })
	if at < 0 || fault.GetLine() == 0 || strings.Contains(fault.GetMessage(), "\n") { // it brings its own picture
		return ""
	}
	lines := strings.Split(string(sources[at].Content), "\n")
	if int(fault.GetLine()) > len(lines) {
		return ""
	}
	line := []rune(clean(strings.TrimRight(lines[fault.GetLine()-1], "\r")))
	before := line[:min(max(int(fault.GetColumn())-1, 0), len(line))]
	return fmt.Sprintf("%5d | %s\n%5s | %s^", fault.GetLine(), string(line), "", strings.Repeat(" ", textWidth(string(before))))
}

// applyFlags are those of plan and apply.
type applyFlags struct {
	prune, dryRun bool
	etag          string
}

func (a *app) planCommand() *cobra.Command {
	var flags applyFlags
	command := &cobra.Command{
		Use:   "plan FILE…",
		Short: "Show what apply would change",
		Example: `  schedctl plan flows/
  schedctl plan flows/ --prune`,
		Args: cobra.MinimumNArgs(1),
		RunE: a.online(func(ctx context.Context, client pb.SchedulerServiceClient, args []string) error {
			flags.dryRun = true
			return a.apply(ctx, client, args, flags)
		}),
	}
	command.Flags().BoolVar(&flags.prune, "prune", false, "also remove flows that came over the API before and are not in the files")
	return command
}

func (a *app) applyCommand() *cobra.Command {
	var flags applyFlags
	command := &cobra.Command{
		Use:   "apply FILE…",
		Short: "Add, change and remove flows, all or none",
		Long: `Apply makes the flows of the files be as they say: new ones are added, others changed. With
--prune, flows that were applied before and are in none of the files are removed. It is all or
none: a fault in one file changes nothing. Runs on their way keep their old definition.

With --etag from a plan it does exactly what the plan showed, or fails with exit code 4.`,
		Example: `  schedctl apply flows/
  schedctl apply backup.yaml --dry-run
  schedctl get backup | sed s/03:00/04:00/ | schedctl apply -`,
		Args: cobra.MinimumNArgs(1),
		RunE: a.online(func(ctx context.Context, client pb.SchedulerServiceClient, args []string) error {
			return a.apply(ctx, client, args, flags)
		}),
	}
	command.Flags().BoolVar(&flags.prune, "prune", false, "also remove flows that came over the API before and are not in the files")
	command.Flags().BoolVar(&flags.dryRun, "dry-run", false, "only show what would change, as plan does")
	command.Flags().StringVar(&flags.etag, "etag", "", "etag of the plan that was looked at")
	return command
}

func (a *app) apply(ctx context.Context, client pb.SchedulerServiceClient, paths []string, flags applyFlags) error {
	sources, err := a.sources(paths)
	if err != nil {
		return err
	}
	request := &pb.ApplyFlowsRequest{Sources: messages(sources), Prune: flags.prune, DryRun: flags.dryRun, Etag: flags.etag}
	if !flags.dryRun {
		request.RequestId = newRequestID()
	}
	response, err := call(ctx, a, client.ApplyFlows, request)
	if exitCode(err) == ExitInvalid {
		// Say where in the files it is, if it is there.
		checked, checkErr := call(ctx, a, client.ValidateFlows, &pb.ValidateFlowsRequest{Sources: messages(sources)})
		if checkErr == nil && len(checked.GetFaults()) > 0 {
			return invalid(checked.GetFaults(), sources)
		}
	}
	if err != nil {
		return err
	}
	v := view{message: response, lines: func(wide bool) []string { return a.changeLines(response, flags, wide) }}
	for _, change := range response.GetChanges() {
		if change.GetType() != pb.DefinitionChangeType_DEFINITION_CHANGE_TYPE_UNCHANGED {
			v.names = append(v.names, change.GetFlowId())
		}
	}
	return a.printer.show(v)
}

var changeSigns = map[pb.DefinitionChangeType]cell{
	pb.DefinitionChangeType_DEFINITION_CHANGE_TYPE_ADDED:     {"+", green},
	pb.DefinitionChangeType_DEFINITION_CHANGE_TYPE_CHANGED:   {"~", yellow},
	pb.DefinitionChangeType_DEFINITION_CHANGE_TYPE_REMOVED:   {"-", red},
	pb.DefinitionChangeType_DEFINITION_CHANGE_TYPE_UNCHANGED: {"=", dim},
}

// changeLines shows a plan: what changes, and with wide what does not.
func (a *app) changeLines(response *pb.ApplyFlowsResponse, flags applyFlags, wide bool) []string {
	counts := map[pb.DefinitionChangeType]int{}
	var rows [][]cell
	for _, change := range response.GetChanges() {
		counts[change.GetType()]++
		if wide || change.GetType() != pb.DefinitionChangeType_DEFINITION_CHANGE_TYPE_UNCHANGED {
			rows = append(rows, []cell{changeSigns[change.GetType()], {change.GetFlowId(), bold}, {strings.Join(change.GetFields(), ", "), plain}})
		}
	}
	lines := a.printer.canvas.table(rows)
	summary := fmt.Sprintf("%d added, %d changed, %d removed, %d unchanged",
		counts[pb.DefinitionChangeType_DEFINITION_CHANGE_TYPE_ADDED],
		counts[pb.DefinitionChangeType_DEFINITION_CHANGE_TYPE_CHANGED],
		counts[pb.DefinitionChangeType_DEFINITION_CHANGE_TYPE_REMOVED],
		counts[pb.DefinitionChangeType_DEFINITION_CHANGE_TYPE_UNCHANGED])
	if flags.dryRun {
		summary = "would be: " + summary
		if response.GetEtag() != "" {
			summary += "\nto apply exactly this, add: --etag " + response.GetEtag()
		}
	}
	return append(lines, summary)
}
