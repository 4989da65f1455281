package store

import (
	"context"
	"errors"
	"fmt"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/expr"
	"github.com/schedulerd/schedulerd/internal/task"
	"github.com/schedulerd/schedulerd/internal/task/failure"
)

// Kind does one operation on a store. Files are written below the working directory.
var Kind = KindIn(".")

// KindIn does one operation on a store. Files are written below a directory.
func KindIn(dir string) task.Kind {
	return task.Kind{Field: "store", New: func(t *schedulerdv1.Task, env *task.Env) (workflow.Task, error) {
		return newTask(t.GetStore(), env, dir)
	}}
}

// MaxValue bounds the weight of a value that a task sets: it must fit into the state's result.
const MaxValue = workflow.MaxResultBytes - 1<<10

// operation is a task. Of the expressions those that its operation has no use for are empty.
type operation struct {
	store           string
	name            string // such as "put"
	key, file       *expr.Template
	value, expected *expr.TemplateValue
	do              func(context.Context, *Store, arguments) (map[string]any, error)
}

// arguments are the values of an operation's expressions.
type arguments struct {
	key, file       string
	value, expected any
}

func newTask(x *schedulerdv1.StoreTask, env *task.Env, dir string) (workflow.Task, error) {
	env.Resource("store.store", x.GetStore(), "store")
	o := &operation{
		store: x.GetStore(),
		key:   &expr.Template{}, file: &expr.Template{},
		value: &expr.TemplateValue{}, expected: &expr.TemplateValue{},
	}
	switch x := x.GetOperation().(type) {
	case *schedulerdv1.StoreTask_Get:
		o.name, o.do = "get", get
		o.key = env.Template("store.get.key", x.Get.GetKey())
	case *schedulerdv1.StoreTask_Put:
		o.name, o.do = "put", put
		o.key = env.Template("store.put.key", x.Put.GetKey())
		o.value = env.Value("store.put.value", x.Put.GetValue())
	case *schedulerdv1.StoreTask_Delete:
		o.name, o.do = "delete", remove
		o.key = env.Template("store.delete.key", x.Delete.GetKey())
	case *schedulerdv1.StoreTask_Append:
		o.name, o.do = "append", appendTo(int(x.Append.GetMaxEntries()))
		o.key = env.Template("store.append.key", x.Append.GetKey())
		o.value = env.Value("store.append.value", x.Append.GetValue())
	case *schedulerdv1.StoreTask_Increment:
		o.name, o.do = "increment", increment
		if x.Increment.GetBy() == nil {
			o.do = incrementByOne
		}
		o.key = env.Template("store.increment.key", x.Increment.GetKey())
		o.value = env.Value("store.increment.by", x.Increment.GetBy())
	case *schedulerdv1.StoreTask_CompareAndSet:
		o.name, o.do = "compare_and_set", compareAndSet
		o.key = env.Template("store.compare_and_set.key", x.CompareAndSet.GetKey())
		o.value = env.Value("store.compare_and_set.value", x.CompareAndSet.GetValue())
		o.expected = env.Value("store.compare_and_set.expected", x.CompareAndSet.GetExpected())
	case *schedulerdv1.StoreTask_List:
		o.name, o.do = "list", list
		o.key = env.Template("store.list.prefix", x.List.GetPrefix())
	case *schedulerdv1.StoreTask_ExportCsv:
		if !env.AllowExec {
			env.Faultf("store.export_csv", "flows that arrive over the API may not write files: put the flow into a flows file, or start schedulerd with --allow-api-exec")
		}
		o.name, o.do = "export_csv", exportCSV(dir, x.ExportCsv.GetColumns())
		o.key = env.Template("store.export_csv.key", x.ExportCsv.GetKey())
		o.file = env.Template("store.export_csv.file", x.ExportCsv.GetFile())
	}
	return o, nil
}

// Run does the operation.
func (o *operation) Run(ctx context.Context, in *workflow.Invocation) (workflow.Result, error) {
	s, ok := in.Resources.Get(o.store).(*Store)
	if !ok {
		return workflow.Result{}, failure.Permanent("store", "there is no store %q", o.store)
	}
	a, err := o.evaluate(in.Scope)
	if err != nil {
		return workflow.Result{}, failure.Expression(o.name, err)
	}
	value, err := o.do(ctx, s, a)
	switch {
	case err == nil:
		return workflow.Result{Value: value}, nil
	case ctx.Err() != nil:
		return workflow.Result{}, context.Cause(ctx)
	}
	return workflow.Result{}, classify(err)
}

func (o *operation) evaluate(scope *workflow.Scope) (a arguments, err error) {
	if a.key, err = o.key.String(scope); err != nil {
		return a, err
	}
	if a.file, err = o.file.String(scope); err != nil {
		return a, err
	}
	if a.value, err = o.value.Eval(scope); err != nil {
		return a, err
	}
	a.expected, err = o.expected.Eval(scope)
	return a, err
}

// classify says what the retry policy makes of an error. What the store holds does not change by waiting: only what the file
// system answers may.
func classify(err error) error {
	for _, kind := range []struct {
		err   error
		class string
	}{
		{ErrFull, "store:full"},
		{ErrConflict, "store:conflict"},
		{ErrType, "store:type"},
		{ErrMissing, "store:missing"},
		{ErrTooLarge, "store:large"},
		{ErrOutside, "store:file"},
	} {
		if errors.Is(err, kind.err) {
			return failure.Permanent(kind.class, "%w", err)
		}
	}
	return failure.Retryable("store", "%w", err)
}

func get(_ context.Context, s *Store, a arguments) (map[string]any, error) {
	value, found := s.Get(a.key)
	return map[string]any{"value": value, "found": found}, nil
}

func put(_ context.Context, s *Store, a arguments) (map[string]any, error) {
	if err := a.fits(); err != nil {
		return nil, err
	}
	found, err := s.Put(a.key, a.value)
	return map[string]any{"value": a.value, "found": found}, err
}

func remove(_ context.Context, s *Store, a arguments) (map[string]any, error) {
	return map[string]any{"value": nil, "found": s.Delete(a.key)}, nil
}

// appendTo gives the length of the list; the list itself would outgrow a result.
func appendTo(most int) func(context.Context, *Store, arguments) (map[string]any, error) {
	return func(_ context.Context, s *Store, a arguments) (map[string]any, error) {
		length, found, err := s.Append(a.key, a.value, most)
		return map[string]any{"length": float64(length), "found": found}, err
	}
}

func increment(_ context.Context, s *Store, a arguments) (map[string]any, error) {
	by, isNumber := a.value.(float64)
	if !isNumber {
		return nil, fmt.Errorf("%w: key %q is to be incremented by %s, not a number", ErrType, a.key, typeName(a.value))
	}
	sum, found, err := s.Increment(a.key, by)
	return map[string]any{"value": sum, "found": found}, err
}

func incrementByOne(ctx context.Context, s *Store, a arguments) (map[string]any, error) {
	a.value = 1.0
	return increment(ctx, s, a)
}

func compareAndSet(_ context.Context, s *Store, a arguments) (map[string]any, error) {
	if err := a.fits(); err != nil {
		return nil, err
	}
	found, err := s.CompareAndSet(a.key, a.expected, a.value)
	return map[string]any{"value": a.value, "found": found}, err
}

func list(_ context.Context, s *Store, a arguments) (map[string]any, error) {
	all := s.List(a.key)
	return map[string]any{"value": all, "found": len(all) > 0}, nil
}

func exportCSV(dir string, columns []string) func(context.Context, *Store, arguments) (map[string]any, error) {
	return func(ctx context.Context, s *Store, a arguments) (map[string]any, error) {
		rows, err := s.ExportCSV(ctx, a.key, dir, a.file, columns)
		return map[string]any{"file": a.file, "rows": float64(rows), "found": true}, err
	}
}

// fits tells when the value would not fit into the state's result, before anything is changed.
func (a arguments) fits() error {
	if w := weigh(a.value); w > MaxValue {
		return fmt.Errorf("%w: the one for key %q has %d bytes, and a task sets %d at most; append its parts to a list instead", ErrTooLarge, a.key, w, MaxValue)
	}
	return nil
}
