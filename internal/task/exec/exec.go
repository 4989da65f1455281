package exec

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/expr"
	"github.com/schedulerd/schedulerd/internal/fault"
	"github.com/schedulerd/schedulerd/internal/task"
	"github.com/schedulerd/schedulerd/internal/task/exec/process"
	"github.com/schedulerd/schedulerd/internal/task/exec/stream"
	"github.com/schedulerd/schedulerd/internal/task/failure"
)

// Limits and defaults of a command.
const (
	DefaultKillDelay = 5 * time.Second
	// MaxOutput bounds the bytes of output that one attempt hands on, both streams together; each line counts 64 more.
	MaxOutput = 16 << 20
	// MaxResult bounds the output taken as the result: a state's result with the rest of the object around it.
	MaxResult = workflow.MaxResultBytes - 1<<10
)

// Kind runs commands that no daemon would find again after a crash.
var Kind = KindOf("")

// KindOf runs commands marked as an owner's, so that a daemon started after a crash can end what is left of them: see
// process.KillLeft.
func KindOf(owner string) task.Kind {
	return task.Kind{Field: "exec", New: func(t *schedulerdv1.Task, env *task.Env) (workflow.Task, error) {
		return newTask(t.GetExec(), env, owner)
	}}
}

type command struct {
	args         []*expr.Template
	shell        bool // args is the script alone
	env          map[string]*expr.Template
	passEnv      []string
	dir          *expr.Template
	stdin        *expr.Template
	output       schedulerdv1.ExecOutput
	successCodes []int32
	killDelay    time.Duration
	owner        string
}

var errNotAllowed = errors.New("commands are not allowed in flows that arrive over the API: put the flow into a flows file, or start schedulerd with --allow-api-exec")

func newTask(x *schedulerdv1.ExecTask, env *task.Env, owner string) (workflow.Task, error) {
	if !env.AllowExec {
		return nil, errNotAllowed
	}
	c := &command{
		env:          env.SecretTemplates("exec.env", x.GetEnv()),
		passEnv:      x.GetPassEnv(),
		dir:          env.Template("exec.dir", x.GetDir()),
		stdin:        env.Template("exec.stdin", x.GetStdin()),
		output:       x.GetOutput(),
		successCodes: x.GetSuccessCodes(),
		killDelay:    DefaultKillDelay,
		owner:        owner,
	}
	switch {
	case len(x.GetCommand()) > 0 && x.GetShell() != "":
		return nil, errors.New("command and shell are both set: keep one")
	case x.GetShell() != "":
		c.shell, c.args = true, []*expr.Template{env.Template("exec.shell", x.GetShell())}
	case len(x.GetCommand()) > 0:
		c.args = env.Templates("exec.command", x.GetCommand())
		if name, constant := c.args[0].Constant(); constant && name == "" {
			env.Faultf("exec.command[0]", "the program's name is empty")
		}
	default:
		return nil, errors.New("there is nothing to run: set command, such as [tar, -czf, out.tgz, folder], or shell")
	}
	if x.GetKillDelay() != nil {
		c.killDelay = x.GetKillDelay().AsDuration()
	}
	for i, code := range c.successCodes {
		if code < 0 || code > 255 {
			env.Faultf(fault.Index("exec.success_codes", i), "exit codes are 0 to 255, not %d", code)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(x.GetEnv())) {
		checkVariable(env, fault.Key("exec.env", name), name)
	}
	for i, name := range x.GetPassEnv() {
		checkVariable(env, fault.Index("exec.pass_env", i), name)
	}
	return c, nil
}

// Run runs the command to its end.
func (c *command) Run(ctx context.Context, in *workflow.Invocation) (workflow.Result, error) {
	p, err := c.command(in)
	if err != nil {
		return workflow.Result{}, err
	}
	budget := stream.NewBudget(MaxOutput)
	line := func(stderr bool) func(string) {
		return func(text string) { in.Output.Line(in.State, in.Attempt, stderr, text) }
	}
	stdout, stderr := stream.New(budget, line(false)), stream.New(budget, line(true))
	taken := &capture{out: stdout}
	switch c.output {
	case schedulerdv1.ExecOutput_EXEC_OUTPUT_TEXT, schedulerdv1.ExecOutput_EXEC_OUTPUT_JSON:
		taken.limit = MaxResult
	}
	p.Stdout, p.Stderr = taken, stderr

	exit, err := p.Run(ctx)
	stdout.Close()
	stderr.Close()
	if n := stdout.Dropped() + stderr.Dropped(); n > 0 {
		line(true)(fmt.Sprintf("[schedulerd: the output was too much to keep, %d bytes more were dropped]", n))
	}
	if exit.HeldOpen {
		line(true)("[schedulerd: a process that left the command's process group holds its output open; what it writes is not read]")
	}
	if err != nil {
		if start, ok := errors.AsType[*process.StartError](err); ok {
			return workflow.Result{}, &workflow.Error{Err: err, Class: "start", Permanent: start.Permanent}
		}
		return workflow.Result{}, err
	}
	if !c.succeeded(exit) {
		return workflow.Result{}, failed(exit, stderr.Tail(), c.shell)
	}
	value := map[string]any{"exit_code": float64(exit.Code)}
	switch c.output {
	case schedulerdv1.ExecOutput_EXEC_OUTPUT_TEXT:
		value["stdout"], value["truncated"] = taken.text()
	case schedulerdv1.ExecOutput_EXEC_OUTPUT_JSON:
		if value["value"], err = taken.json(); err != nil {
			return workflow.Result{}, failure.Permanent("output", "standard output: %w", err)
		}
	}
	return workflow.Result{Value: value}, nil
}

// command evaluates what to run.
func (c *command) command(in *workflow.Invocation) (*process.Command, error) {
	p := &process.Command{KillDelay: c.killDelay}
	var err error
	if p.Env, err = c.environment(in); err != nil {
		return nil, err
	}
	if c.shell {
		script, err := c.args[0].String(in.Scope)
		if err != nil {
			return nil, failure.Expression("shell", err)
		}
		p.Args = []string{"/bin/sh", "-c", script}
	} else {
		for i, t := range c.args {
			arg, err := t.String(in.Scope)
			if err != nil {
				return nil, failure.Expression(fault.Index("command", i), err)
			}
			p.Args = append(p.Args, arg)
		}
	}
	if p.Dir, err = c.dir.String(in.Scope); err != nil {
		return nil, failure.Expression("dir", err)
	}
	if p.Stdin, err = c.stdin.String(in.Scope); err != nil {
		return nil, failure.Expression("stdin", err)
	}
	return p, nil
}

func (c *command) succeeded(exit process.Exit) bool {
	return exit.Signal == "" && (slices.Contains(c.successCodes, int32(exit.Code)) || exit.Code == 0 && len(c.successCodes) == 0)
}

// failed is the failure that an exit stands for. said is the last line of its output.
func failed(exit process.Exit, said string, shell bool) error {
	if said != "" {
		said = ": " + said
	}
	class := "exit:" + strconv.Itoa(exit.Code)
	switch {
	case exit.Signal == "SIGKILL":
		return failure.Retryable("signal:KILL", "killed by SIGKILL; if no one did that, the machine was out of memory%s", said)
	case exit.Signal != "":
		return failure.Retryable("signal:"+strings.TrimPrefix(exit.Signal, "SIG"), "killed by %s%s", exit.Signal, said)
	case shell && exit.Code == 127:
		return failure.Retryable(class, "exit code 127, with which the shell says that there is no such command%s", said)
	case shell && exit.Code == 126:
		return failure.Retryable(class, "exit code 126, with which the shell says that a command cannot be executed%s", said)
	}
	return failure.Retryable(class, "exit code %d%s", exit.Code, said)
}

// inherited are the variables of the daemon's environment that every command sees.
var inherited = []string{"PATH", "HOME", "LANG", "TZ"}

// defaultPath is where programs are looked for when the daemon has no PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// The variables that tell a command what it works for.
const (
	envFlow           = "SCHEDULERD_FLOW_ID"
	envState          = "SCHEDULERD_STATE"
	envAttempt        = "SCHEDULERD_ATTEMPT"
	envIdempotencyKey = "SCHEDULERD_IDEMPOTENCY_KEY"
	envFireTime       = "SCHEDULERD_FIRE_TIME"
)

// environment is the environment of the command: inherited variables, those of the definition, and those of the run.
func (c *command) environment(in *workflow.Invocation) ([]string, error) {
	list := inherit(c.passEnv)
	for _, name := range slices.Sorted(maps.Keys(c.env)) {
		value, err := c.env[name].String(in.Scope)
		if err != nil {
			return nil, failure.Expression(fault.Key("env", name), err)
		}
		list = append(list, name+"="+value)
	}
	fireTime := "" // a run that was triggered has none; the variable is there, for scripts that refuse missing ones
	if !in.FireTime.IsZero() {
		fireTime = in.FireTime.UTC().Format(time.RFC3339Nano)
	}
	list = append(list, mark(c.owner)...)
	return append(list,
		process.RunIDVariable+"="+in.RunID,
		envFlow+"="+in.FlowID,
		envState+"="+in.State,
		envAttempt+"="+strconv.Itoa(in.Attempt),
		envIdempotencyKey+"="+in.IdempotencyKey,
		envFireTime+"="+fireTime,
	), nil
}

// inherit is what a command sees of the daemon's environment: little, for secrets are in it.
func inherit(more []string) []string {
	list := []string{"PATH=" + defaultPath}
	for _, name := range slices.Concat(inherited, more) {
		if value, ok := os.LookupEnv(name); ok {
			list = append(list, name+"="+value)
		}
	}
	return list
}

// mark is the variable by which a command is known as an owner's.
func mark(owner string) []string {
	if owner == "" {
		return nil
	}
	return []string{process.OwnerVariable + "=" + owner}
}

// checkVariable tells when a name cannot be that of a variable, or is one that the run sets.
func checkVariable(env *task.Env, field, name string) {
	switch name {
	case process.OwnerVariable, process.RunIDVariable, envFlow, envState, envAttempt, envIdempotencyKey, envFireTime:
		env.Faultf(field, "%s is set by schedulerd to what the run is: choose another name", name)
		return
	}
	if name == "" || strings.ContainsAny(name, "=\x00") {
		env.Faultf(field, "%q cannot be the name of a variable", name)
	}
}
