package task

import (
	"context"
	"errors"
	"strings"
	"testing"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/expr"
	"github.com/schedulerd/schedulerd/internal/fault"
	"google.golang.org/protobuf/types/known/structpb"
)

func echo(_ *schedulerdv1.Task, env *Env) (workflow.Task, error) {
	message := env.Template("log.message", "hi")
	return workflow.TaskFunc(func(_ context.Context, in *workflow.Invocation) (workflow.Result, error) {
		text, err := message.String(in.Scope)
		return workflow.Result{Value: text}, err
	}), nil
}

func TestRegistry(t *testing.T) {
	r := NewRegistry(
		[]Kind{{"log", echo}, {"fail", func(*schedulerdv1.Task, *Env) (workflow.Task, error) { return nil, errors.New("makes no sense") }}},
		[]ResourceKind{{"store", func(*schedulerdv1.Resource, *Env) (resource.Resource, error) { return nil, errors.New("too big") }}},
	)
	logTask := &schedulerdv1.Task{Kind: &schedulerdv1.Task_Log{Log: &schedulerdv1.LogTask{}}}
	failTask := &schedulerdv1.Task{Kind: &schedulerdv1.Task_Fail{Fail: &schedulerdv1.FailTask{}}}
	grpcTask := &schedulerdv1.Task{Kind: &schedulerdv1.Task_Grpc{Grpc: &schedulerdv1.GrpcTask{}}}

	var faults fault.List
	env := NewEnv("flows[0].task", expr.Run, Config{}, &faults)
	built := r.Task(logTask, env)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if result, err := built.Run(t.Context(), &workflow.Invocation{}); err != nil || result.Value != "hi" {
		t.Errorf("%v, %v", result, err)
	}
	r.Task(failTask, env)
	r.Task(grpcTask, env)
	r.Task(&schedulerdv1.Task{}, env) // a rule of the message tells about that
	r.Task(nil, env)
	resources := NewEnv("resources[1]", 0, Config{}, &faults)
	r.Resource(&schedulerdv1.Resource{Kind: &schedulerdv1.Resource_Store{Store: &schedulerdv1.StoreResource{}}}, resources)
	r.Resource(&schedulerdv1.Resource{Kind: &schedulerdv1.Resource_Channel{}}, resources)
	r.Resource(nil, resources)
	const want = `flows[0].task.fail: makes no sense
flows[0].task.grpc: task kind grpc is not available in this version yet; available: fail, log
resources[1].store: too big
resources[1].channel: resource kind channel is not available in this version yet; available: store`
	if got := faults.Error(); got != want {
		t.Errorf("%s", got)
	}
}

func TestRegistryMistakes(t *testing.T) {
	for name, kinds := range map[string][]Kind{
		"unknown": {{"exce", echo}},
		"no kind": {{"retry", echo}},
		"twice":   {{"log", echo}, {"log", echo}},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("taken")
				}
			}()
			NewRegistry(kinds, nil)
		})
	}
}

func TestEnv(t *testing.T) {
	var faults fault.List
	env := NewEnv("task", expr.Run, Config{
		Resources: map[string]string{"orders": "http", "kept": "store"},
		States:    map[string]bool{"fetch": true},
	}, &faults)
	env.Template("a", "${params.x")
	env.Templates("b", []string{"fine", "${reslt}"})
	env.SecretTemplates("c", map[string]string{"A": `${env("A")}`, "B": "${"})
	env.Template("d", `${env("A")}`)
	env.Value("e", structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewStringValue("${1 +}")}}))
	env.Object("f", map[string]*structpb.Value{"k": structpb.NewStringValue("x ${results.fetsh}")})
	env.Expression("g", "results.fetch.x + results.other.y")
	env.Condition("h", `"text"`)
	env.Moment("i", "1")
	env.Resource("j", "kept", "store")
	env.Resource("k", "keptt", "store")
	env.Resource("l", "orders", "store", "temp_dir")
	env.Resource("m", "orders")
	env.Faultf("", "as a whole")
	const want = `task.a: this ${ has no closing }; write $${ for a literal ${
task.b[1]: column 3: there is no reslt; did you mean result?
task.c["B"]: this ${ has no closing }; write $${ for a literal ${
task.d: column 3: env("NAME") can be used in headers, metadata and the environment of commands only
task.e[0]: column 6: the expression ends where a value is expected
task.f["k"]: column 5: there is no state fetsh in this workflow; did you mean fetch?
task.g: column 19: there is no state other in this workflow; known: fetch
task.h: a condition must be true or false, this is a string
task.i: this must be a duration or a timestamp, it is an integer
task.k: there is no resource "keptt"; did you mean kept?
task.l: resource "orders" is of kind http; this needs store or temp_dir
task: as a whole`
	if got := faults.Error(); got != want {
		t.Errorf("%s", got)
	}
	if got := env.Value("n", nil); got == nil {
		t.Error("a missing value is not null")
	} else if value, err := got.Eval(nil); value != nil || err != nil {
		t.Errorf("%v, %v", value, err)
	}
}

func TestKindOf(t *testing.T) {
	for want, m := range map[string]*schedulerdv1.Task{
		"":    {},
		"set": {Kind: &schedulerdv1.Task_Set{}},
	} {
		if got := KindOf(m); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := KindOf(&schedulerdv1.Resource{Kind: &schedulerdv1.Resource_TempDir{}}); !strings.HasPrefix(got, "temp_dir") {
		t.Errorf("%q", got)
	}
}
