// Package tasktest has task kinds for tests of definitions: they compile what a definition holds, as the real kinds do, and
// their tasks succeed without doing anything.
package tasktest

import (
	"context"
	"errors"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/task"
)

// Registry gives the kinds. grpc, service and worker, and the resource kind channel, are left out.
func Registry() *task.Registry {
	return task.NewRegistry([]task.Kind{
		kind("exec", func(t *schedulerdv1.Task, env *task.Env) error {
			x := t.GetExec()
			env.Templates("exec.command", x.GetCommand())
			env.Template("exec.shell", x.GetShell())
			env.Template("exec.dir", x.GetDir())
			env.Template("exec.stdin", x.GetStdin())
			env.SecretTemplates("exec.env", x.GetEnv())
			switch {
			case !env.AllowExec:
				return errors.New("commands are not allowed here")
			case len(x.GetCommand()) == 0 && x.GetShell() == "":
				return errors.New("needs command or shell")
			}
			return nil
		}),
		kind("http", func(t *schedulerdv1.Task, env *task.Env) error {
			env.Template("http.url", t.GetHttp().GetUrl())
			env.Template("http.text", t.GetHttp().GetText())
			env.Value("http.json", t.GetHttp().GetJson())
			env.SecretTemplates("http.headers", t.GetHttp().GetHeaders())
			return nil
		}),
		kind("wait", func(t *schedulerdv1.Task, env *task.Env) error {
			if text := t.GetWait().GetExpression(); text != "" {
				env.Moment("wait.expression", text)
			}
			return nil
		}),
		kind("set", func(t *schedulerdv1.Task, env *task.Env) error {
			env.Object("set.values", t.GetSet().GetValues())
			return nil
		}),
		kind("log", func(t *schedulerdv1.Task, env *task.Env) error {
			env.Template("log.message", t.GetLog().GetMessage())
			env.Object("log.fields", t.GetLog().GetFields())
			return nil
		}),
		kind("fail", func(t *schedulerdv1.Task, env *task.Env) error {
			env.Template("fail.message", t.GetFail().GetMessage())
			return nil
		}),
		kind("store", func(t *schedulerdv1.Task, env *task.Env) error {
			env.Resource("store.store", t.GetStore().GetStore(), "store")
			env.Value("store.append.value", t.GetStore().GetAppend().GetValue())
			env.Template("store.export_csv.file", t.GetStore().GetExportCsv().GetFile())
			return nil
		}),
	}, []task.ResourceKind{resourceKind("store"), resourceKind("temp_dir"), resourceKind("exec"), resourceKind("http")})
}

func kind(field string, check func(*schedulerdv1.Task, *task.Env) error) task.Kind {
	return task.Kind{Field: field, New: func(t *schedulerdv1.Task, env *task.Env) (workflow.Task, error) {
		return done{}, check(t, env)
	}}
}

type done struct{}

func (done) Run(context.Context, *workflow.Invocation) (workflow.Result, error) {
	return workflow.Result{}, nil
}

func resourceKind(field string) task.ResourceKind {
	return task.ResourceKind{Field: field, New: func(*schedulerdv1.Resource, *task.Env) (resource.Resource, error) {
		return nothing{}, nil
	}}
}

type nothing struct{}

func (nothing) Setup(context.Context) error    { return nil }
func (nothing) Teardown(context.Context) error { return nil }
