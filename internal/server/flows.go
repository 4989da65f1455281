package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/store"
	"github.com/schedulerd/schedulerd/internal/definition"
	"github.com/schedulerd/schedulerd/internal/manifest"
)

// flowsFiles are the flows files of a daemon, compiled.
type flowsFiles struct {
	*definition.Set
	shared string // changes with the resources that all flows share
}

// readFlows reads and compiles flows files. exists says which flows were created before; calls finds flows outside of the files
// that flows inside may call.
func readFlows(paths []string, compiler *definition.Compiler, exists func(string) bool, calls func(string) ([]string, bool)) (*flowsFiles, error) {
	sources, err := manifest.Load(paths...)
	if err != nil {
		return nil, of{ErrFlows, err}
	}
	set, compiled, problems := manifest.Check(sources, compiler, definition.Options{
		Now: time.Now(), Exists: exists, Calls: calls, AllowExec: true, Origin: core.FromFile,
	})
	if err := problems.Err(); err != nil {
		return nil, of{ErrFlows, err}
	}
	// A flow with these resources and nothing else: Digest is about flows.
	shared := definition.Digest(&pb.Flow{Resources: set.File.GetResources()})
	return &flowsFiles{compiled, shared}, nil
}

// Check tells what is wrong with the flows files of o, without starting anything.
func Check(o Options) (flows int, err error) {
	files, err := readFlows(o.Flows, definition.New(o.kinds("", nil, nil)), nil, nil)
	if err != nil {
		return 0, err
	}
	return len(files.Flows), nil
}

// stored says which flows a store knows.
func stored(ctx context.Context, s store.Store) func(id string) bool {
	return func(id string) bool {
		known, err := core.Stored(ctx, s, id)
		return known || err != nil // an unreadable store is told of when it is loaded
	}
}

// ErrShared is the reason why a reload cannot be done while the server runs.
var ErrShared = errors.New("the resources that all flows share have changed, and they are set up once, at the start: restart to use them")

// Reload reads the flows files again and makes the flows what they say: new ones come, changed ones change, those that are
// gone go. If anything is wrong nothing changes.
func (s *Server) Reload(ctx context.Context) error {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	changes, err := s.reload(ctx)
	if err != nil {
		s.metrics.reloads.WithLabelValues("failed").Inc()
		s.tellProblems(ctx, err)
		return err
	}
	s.metrics.reloads.WithLabelValues("ok").Inc()
	s.metrics.reloaded.SetToCurrentTime()
	counts := map[core.DefinitionChangeType]int{}
	for _, c := range changes {
		counts[c.Type]++
	}
	s.log.Info("the flows files were read again",
		"added", counts[core.Added], "changed", counts[core.Modified], "removed", counts[core.Removed], "unchanged", counts[core.Unchanged])
	return nil
}

func (s *Server) reload(ctx context.Context) ([]core.DefinitionChange, error) {
	status := s.running.Status
	files, err := readFlows(s.options.Flows, s.compiler,
		func(id string) bool { _, err := status(id); return err == nil },
		func(id string) ([]string, bool) {
			info, err := status(id)
			if err != nil || info.Flow.Origin == core.FromFile { // those of files are all in the files
				return nil, false
			}
			calls, err := info.Flow.Calls()
			return calls, err == nil
		})
	if err != nil {
		return nil, err
	}
	if files.shared != s.files.shared {
		return nil, ErrShared
	}
	result, err := s.running.Apply(ctx, core.ApplyRequest{Flows: files.Flows, Prune: true, Origin: core.FromFile})
	if err != nil {
		return nil, fmt.Errorf("applying the flows files: %w", err)
	}
	for _, c := range result.Changes {
		if c.Type != core.Unchanged {
			s.log.LogAttrs(ctx, slog.LevelDebug, "definition", slog.String("flow", c.FlowID), slog.String("change", changeNames[c.Type]))
		}
	}
	return result.Changes, nil
}

// tellProblems logs why a reload failed, each problem with its place.
func (s *Server) tellProblems(ctx context.Context, err error) {
	const message = "the flows files were not taken over; the flows stay as they are"
	var problems manifest.Problems
	if !errors.As(err, &problems) {
		s.log.ErrorContext(ctx, message, "error", err)
		return
	}
	for _, p := range problems {
		place := fmt.Sprintf("%s:%d:%d", p.Source, p.Line, p.Column)
		s.log.ErrorContext(ctx, message, "place", place, "field", p.Field, "problem", p.Message)
	}
}

var changeNames = map[core.DefinitionChangeType]string{core.Added: "added", core.Modified: "changed", core.Removed: "removed"}
