package schedctl

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

// maxParamsBytes bounds a file of parameters. The server takes 64 KiB.
const maxParamsBytes = 1 << 20

// paramFlags are the parameters of a run.
type paramFlags struct {
	values []string
	texts  []string
	file   string
}

func (a *app) triggerCommand() *cobra.Command {
	var params paramFlags
	var requestID string
	var wait, waitForSlot bool
	command := &cobra.Command{
		Use:   "trigger FLOW",
		Short: "Start a run of a flow now",
		Long: `Trigger starts a run of a flow now, whatever its schedule says. It is refused (exit code 4)
while the flow is running, and after it has tripped.

With --wait it shows what happens in the run and ends with it: exit code 0 if the run succeeded,
6 if not. It goes on over broken connections and restarts of the daemon; Ctrl-C ends the
waiting, not the run.

The value of a --param is taken as JSON where it is JSON (3, true, null, "x", [1,2], {"a":1}),
as text otherwise. --param-text takes any value as text. They are laid over --params-file, and
that over the flow's own parameters.`,
		Example: `  schedctl trigger backup
  schedctl trigger export --param day=2027-03-28 --param limit=100 --wait
  schedctl trigger export --params-file params.yaml --wait --timeout 10m`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeFlows,
		RunE: a.online(func(ctx context.Context, client pb.SchedulerServiceClient, args []string) error {
			values, err := params.read(a.env.In)
			if err != nil {
				return err
			}
			request := &pb.TriggerRequest{FlowId: args[0], Params: values, RequestId: requestID, WaitForSlot: waitForSlot}
			if requestID == "" {
				request.RequestId = newRequestID()
			}
			var response *pb.TriggerResponse
			if waitForSlot { // as long as it takes
				ctx, cancel := a.whole(ctx)
				defer cancel()
				response, err = client.Trigger(ctx, request)
			} else {
				response, err = call(ctx, a, client.Trigger, request)
			}
			if err != nil {
				return err
			}
			run := response.GetRun()
			if !wait {
				return a.done(response, run.GetId(), "started "+run.GetId())
			}
			if a.printer.human() {
				a.printer.lines([]string{clean("started " + run.GetId())})
			}
			return a.waitFor(ctx, client, run)
		}),
	}
	flags := command.Flags()
	flags.StringArrayVarP(&params.values, "param", "p", nil, "parameter KEY=VALUE, the value JSON or text; repeat for more")
	flags.StringArrayVar(&params.texts, "param-text", nil, "parameter KEY=VALUE, the value always text; repeat for more")
	flags.StringVar(&params.file, "params-file", "", "YAML or JSON file with an object of parameters; - is standard input")
	flags.StringVar(&requestID, "request-id", "", "UUID: the same id gives the same run again; default: a new one")
	flags.BoolVar(&wait, "wait", false, "follow the run, and end with it: exit code 6 if it did not succeed")
	flags.BoolVar(&waitForSlot, "wait-for-slot", false, "wait for a free slot where the limit of concurrent runs is reached, instead of being refused")
	return command
}

// read puts the parameters together; nil if there are none.
func (f *paramFlags) read(stdin io.Reader) (map[string]*structpb.Value, error) {
	var params map[string]*structpb.Value
	if f.file != "" {
		var err error
		if params, err = readParams(f.file, stdin); err != nil {
			return nil, err
		}
	}
	add := func(flag, text string, value func(string) *structpb.Value) error {
		key, rest, found := strings.Cut(text, "=")
		if !found || key == "" {
			return usagef("%s %q is not KEY=VALUE", flag, text)
		}
		if params == nil {
			params = map[string]*structpb.Value{}
		}
		params[key] = value(rest)
		return nil
	}
	for _, text := range f.values {
		if err := add("--param", text, paramValue); err != nil {
			return nil, err
		}
	}
	for _, text := range f.texts {
		if err := add("--param-text", text, structpb.NewStringValue); err != nil {
			return nil, err
		}
	}
	return params, nil
}

// paramValue takes text as JSON where it is JSON.
func paramValue(text string) *structpb.Value {
	value := &structpb.Value{}
	if !json.Valid([]byte(text)) || value.UnmarshalJSON([]byte(text)) != nil {
		return structpb.NewStringValue(text)
	}
	return value
}

// readParams reads an object of parameters. YAML holds JSON, too.
func readParams(file string, stdin io.Reader) (map[string]*structpb.Value, error) {
	text, err := readBounded(file, stdin, maxParamsBytes)
	if err != nil {
		return nil, usagef("--params-file: %w", err)
	}
	document, err := jsonOf(text)
	params := &structpb.Struct{}
	if err == nil {
		err = params.UnmarshalJSON(document)
	}
	if err != nil {
		return nil, failf(ExitInvalid, "--params-file %s must hold an object of values as JSON has them: %w", file, err)
	}
	return params.GetFields(), nil
}

// readBounded reads a file, or standard input for "-", of at most so many bytes.
func readBounded(file string, stdin io.Reader, most int) ([]byte, error) {
	input := stdin
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer opened.Close()
		input = opened
	}
	text, err := io.ReadAll(io.LimitReader(input, int64(most)+1))
	if err != nil {
		return nil, err
	}
	if len(text) > most {
		return nil, fmt.Errorf("%s is larger than %d KiB", file, most>>10)
	}
	return text, nil
}
