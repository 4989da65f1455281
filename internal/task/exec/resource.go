package exec

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/expr"
	"github.com/schedulerd/schedulerd/internal/fault"
	"github.com/schedulerd/schedulerd/internal/task"
	"github.com/schedulerd/schedulerd/internal/task/exec/process"
	"github.com/schedulerd/schedulerd/internal/task/exec/stream"
)

// ResourceKind runs a command at setup and another at teardown, that no daemon would find again after a crash.
var ResourceKind = ResourceKindOf("")

// ResourceKindOf marks these commands as an owner's, as KindOf does those of tasks.
func ResourceKindOf(owner string) task.ResourceKind {
	return task.ResourceKind{Field: "exec", New: func(r *schedulerdv1.Resource, env *task.Env) (resource.Resource, error) {
		return newResource(r.GetExec(), env, owner)
	}}
}

// commands is a resource.
type commands struct {
	setup, teardown []*expr.Template
	env             map[string]*expr.Template
	dir             string
	owner           string
}

func newResource(x *schedulerdv1.ExecResource, env *task.Env, owner string) (resource.Resource, error) {
	if !env.AllowExec {
		return nil, errNotAllowed
	}
	if len(x.GetSetup()) == 0 && len(x.GetTeardown()) == 0 {
		return nil, errors.New("there is nothing to run: set setup or teardown, such as setup: [mkdir, -p, work]")
	}
	for _, name := range slices.Sorted(maps.Keys(x.GetEnv())) {
		checkVariable(env, fault.Key("exec.env", name), name)
	}
	return &commands{
		setup:    env.Templates("exec.setup", x.GetSetup()),
		teardown: env.Templates("exec.teardown", x.GetTeardown()),
		env:      env.SecretTemplates("exec.env", x.GetEnv()),
		dir:      x.GetDir(),
		owner:    owner,
	}, nil
}

// Setup runs the command for it, if there is one.
func (c *commands) Setup(ctx context.Context) error { return c.run(ctx, c.setup) }

// Teardown runs the command for it, if there is one.
func (c *commands) Teardown(ctx context.Context) error { return c.run(ctx, c.teardown) }

// run runs a command. Of its output the last line is kept, for the error.
func (c *commands) run(ctx context.Context, templates []*expr.Template) error {
	if len(templates) == 0 {
		return nil
	}
	p := process.Command{Env: inherit(nil), Dir: c.dir, KillDelay: resource.AbandonAfter / 2}
	for _, t := range templates {
		arg, err := t.String(nil)
		if err != nil {
			return err
		}
		p.Args = append(p.Args, arg)
	}
	for _, name := range slices.Sorted(maps.Keys(c.env)) {
		value, err := c.env[name].String(nil)
		if err != nil {
			return fmt.Errorf("%s: %w", fault.Key("env", name), err)
		}
		p.Env = append(p.Env, name+"="+value)
	}
	p.Env = append(p.Env, mark(c.owner)...)
	nowhere := stream.NewBudget(0)
	stdout, stderr := stream.New(nowhere, nil), stream.New(nowhere, nil)
	p.Stdout, p.Stderr = stdout, stderr
	exit, err := p.Run(ctx)
	stdout.Close()
	stderr.Close()
	if err != nil {
		return err
	}
	if exit.Signal == "" && exit.Code == 0 {
		return nil
	}
	said := stderr.Tail()
	if said == "" {
		said = stdout.Tail()
	}
	return failed(exit, said, false)
}
