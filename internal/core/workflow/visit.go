package workflow

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"time"
)

// visit is what the task of a state, branch or timer is given. It is made afresh for each, so that what a task keeps of it
// after its end does not change under its hands.
type visit struct {
	Invocation
	m       *machine
	scope   Scope
	logger  slog.Logger
	handler stateHandler
	ended   time.Time // the last attempt; zero: not known
}

// begin fills in a visit, which is zero, in the scope of m.
func (v *visit) begin(m *machine, path, key string, entered time.Time) {
	v.m = m
	identity := &m.run.Identity

	v.scope.Identity = identity
	v.scope.Params, v.scope.Results, v.scope.Result = m.params, m.results, m.result
	v.scope.Item, v.scope.Index = m.item, m.index

	v.handler = stateHandler{m.log.Handler(), path}
	v.logger = *slog.New(&v.handler)

	v.Identity = identity
	v.State, v.Attempt, v.IdempotencyKey, v.Entered = path, 1, key, entered
	v.Scope, v.Resources, v.Log = &v.scope, m.resources, &v.logger
	if v.Output = m.run.Output; v.Output == nil {
		v.Output = noOutput{}
	}
	v.Progress = noProgress
	if m.run.Journal != nil {
		v.Progress = v.progress
	}
}

// attempt is the invocation of attempt n.
func (v *visit) attempt(n int) *Invocation {
	if n == 1 {
		return &v.Invocation
	}
	in := v.Invocation
	in.Attempt = n
	if v.m.run.Journal != nil {
		in.Progress = func(message string, fraction float64) { v.m.progress(v.State, n, message, fraction) }
	}
	return &in
}

func (v *visit) progress(message string, fraction float64) {
	v.m.progress(v.State, 1, message, fraction)
}

func (m *machine) progress(state string, attempt int, message string, fraction float64) {
	if fraction > 0 && fraction <= 1 {
		message = fmt.Sprintf("%.0f%% %s", math.Floor(fraction*100), message)
	}
	m.emit(Event{Time: time.Now(), Type: Progress, State: state, Attempt: attempt, Detail: message})
}

var noLog = slog.New(slog.DiscardHandler)

func noProgress(string, float64) {}

type noOutput struct{}

func (noOutput) Line(string, int, bool, string) {}

// stateHandler adds the state to the lines of a run's log. It does so when a line is written: most tasks write none.
type stateHandler struct {
	slog.Handler
	state string
}

func (h *stateHandler) Handle(ctx context.Context, r slog.Record) error {
	r = r.Clone()
	r.AddAttrs(slog.String("state", h.state))
	return h.Handler.Handle(ctx, r)
}

func (h *stateHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.named().WithAttrs(attrs)
}

func (h *stateHandler) WithGroup(name string) slog.Handler {
	return h.named().WithGroup(name)
}

func (h *stateHandler) named() slog.Handler {
	return h.Handler.WithAttrs([]slog.Attr{slog.String("state", h.state)})
}

func itoa(n int) string { return strconv.Itoa(n) }
