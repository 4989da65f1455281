// Package log is the task kind that writes a line to the daemon's log.
package log

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/expr"
	"github.com/schedulerd/schedulerd/internal/fault"
	"github.com/schedulerd/schedulerd/internal/task"
	"github.com/schedulerd/schedulerd/internal/task/failure"
)

// Kind writes a line to the log.
var Kind = task.Kind{Field: "log", New: newTask}

var levels = map[schedulerdv1.LogLevel]slog.Level{
	schedulerdv1.LogLevel_LOG_LEVEL_UNSPECIFIED: slog.LevelInfo,
	schedulerdv1.LogLevel_LOG_LEVEL_DEBUG:       slog.LevelDebug,
	schedulerdv1.LogLevel_LOG_LEVEL_INFO:        slog.LevelInfo,
	schedulerdv1.LogLevel_LOG_LEVEL_WARN:        slog.LevelWarn,
	schedulerdv1.LogLevel_LOG_LEVEL_ERROR:       slog.LevelError,
}

// taken are the fields that every line has already.
var taken = []string{"time", "level", "msg", "flow", "run", "state", "attempt"}

type line struct {
	level   slog.Level
	message *expr.Template
	fields  *expr.TemplateValue
}

func newTask(t *schedulerdv1.Task, env *task.Env) (workflow.Task, error) {
	l := t.GetLog()
	for _, name := range taken {
		if _, used := l.GetFields()[name]; used {
			env.Faultf(fault.Key("log.fields", name), "every line has a field %s already: choose another name", name)
		}
	}
	return &line{
		level:   levels[l.GetLevel()],
		message: env.Template("log.message", l.GetMessage()),
		fields:  env.Object("log.fields", l.GetFields()),
	}, nil
}

// Run writes the line. It has no result.
func (l *line) Run(ctx context.Context, in *workflow.Invocation) (workflow.Result, error) {
	message, err := l.message.String(in.Scope)
	if err != nil {
		return workflow.Result{}, failure.Expression("message", err)
	}
	fields, err := l.fields.Eval(in.Scope)
	if err != nil {
		return workflow.Result{}, failure.Expression("fields", err)
	}
	object := fields.(map[string]any)
	attributes := make([]slog.Attr, 0, len(object))
	for _, name := range slices.Sorted(maps.Keys(object)) {
		attributes = append(attributes, slog.Any(name, object[name]))
	}
	in.Log.LogAttrs(ctx, l.level, message, attributes...)
	return workflow.Result{}, nil
}
