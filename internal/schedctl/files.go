package schedctl

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

// maxSourceBytes is what the server takes for one file.
const maxSourceBytes = 4 << 20

// maxSources is how many files it takes.
const maxSources = 1000

// sources reads flows files: folders give the .yaml, .yml and .json files in them, - is standard input.
func (a *app) sources(paths []string) ([]*pb.FlowsSource, error) {
	var files []string
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case path == "-":
			files = append(files, path)
		case err != nil:
			return nil, usagef("%w", err)
		case !info.IsDir():
			files = append(files, path)
		default:
			found, err := flowsFilesIn(path)
			if err != nil {
				return nil, usagef("%w", err)
			}
			files = append(files, found...)
		}
	}
	if len(files) > maxSources {
		return nil, usagef("%d files are too many: at most %d at a time", len(files), maxSources)
	}
	var sources []*pb.FlowsSource
	for _, file := range files {
		text, err := readBounded(file, a.env.In, maxSourceBytes)
		if err != nil {
			return nil, usagef("%w", err)
		}
		if !utf8.Valid(text) {
			return nil, failf(ExitInvalid, "%s is not text in UTF-8", file)
		}
		name := file
		if file == "-" {
			name = "<stdin>"
		}
		sources = append(sources, &pb.FlowsSource{Name: name, Content: string(text)})
	}
	return sources, nil
}

func flowsFilesIn(folder string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := strings.HasPrefix(entry.Name(), ".") && path != folder
		switch {
		case entry.IsDir() && hidden:
			return fs.SkipDir
		case !entry.IsDir() && !hidden && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
			files = append(files, path)
		}
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s holds no .yaml, .yml or .json file", folder)
	}
	return files, err
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
			response, err := call(ctx, a, client.ValidateFlows, &pb.ValidateFlowsRequest{Sources: sources})
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
func invalid(faults []*pb.Fault, sources []*pb.FlowsSource) error {
	lines := make([]string, len(faults))
	for i, fault := range faults {
		lines[i] = faultText(fault, sources)
	}
	return failf(ExitInvalid, "%s\n%s", count(len(faults), "fault"), strings.Join(lines, "\n"))
}

// faultText shows a fault as compilers do: place, message, and the line with a caret under the column.
func faultText(fault *pb.Fault, sources []*pb.FlowsSource) string {
	place := fault.GetSource()
	if fault.GetLine() > 0 {
		place += fmt.Sprintf(":%d:%d", fault.GetLine(), max(fault.GetColumn(), 1))
	}
	text := place + ": "
	if fault.GetField() != "" && !strings.HasPrefix(fault.GetMessage(), fault.GetField()) {
		text += fault.GetField() + ": "
	}
	text += strings.TrimSpace(fault.GetMessage())
	line, found := sourceLine(sources, fault.GetSource(), int(fault.GetLine()))
	if !found || strings.Contains(fault.GetMessage(), "\n") { // it brings its own picture
		return text
	}
	before := string([]rune(line)[:min(max(int(fault.GetColumn())-1, 0), utf8.RuneCountInString(line))])
	number := fmt.Sprintf("%6d", fault.GetLine())
	return fmt.Sprintf("%s\n%s | %s\n%s | %s^", text, number, clean(line),
		strings.Repeat(" ", len(number)), strings.Repeat(" ", textWidth(clean(before))))
}

func sourceLine(sources []*pb.FlowsSource, name string, number int) (string, bool) {
	for _, source := range sources {
		if source.GetName() == name {
			lines := strings.Split(source.GetContent(), "\n")
			if number >= 1 && number <= len(lines) {
				return strings.TrimSuffix(lines[number-1], "\r"), true
			}
		}
	}
	return "", false
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
	request := &pb.ApplyFlowsRequest{Sources: sources, Prune: flags.prune, DryRun: flags.dryRun, Etag: flags.etag}
	if !flags.dryRun {
		request.RequestId = newRequestID()
	}
	response, err := call(ctx, a, client.ApplyFlows, request)
	if exitCode(err) == ExitInvalid {
		// Say where in the files it is, if it is there.
		checked, checkErr := call(ctx, a, client.ValidateFlows, &pb.ValidateFlowsRequest{Sources: sources})
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
