package resource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"sync"
	"time"
)

// Set is the resources a flow's tasks can reach, by name. The zero of *Set, nil, is the empty set.
type Set struct {
	byName map[string]Declaration
	order  []Declaration // as they were set up
	parent *Set

	described    sync.Once
	descriptions map[string]any

	down       sync.Once
	downErrors []error
}

// Describer is a resource that expressions can see something of, such as the path of a directory: a JSON-like object that does not change
// after setup.
type Describer interface{ Describe() map[string]any }

// Describe is what expressions see: an object for each resource in reach that is a Describer, by name.
func (s *Set) Describe() map[string]any {
	if s == nil {
		return nil
	}
	s.described.Do(func() {
		s.descriptions = maps.Clone(s.parent.Describe())
		for name, d := range s.byName {
			delete(s.descriptions, name) // one of the parent's is hidden
			if r, ok := d.Resource.(Describer); ok {
				if s.descriptions == nil {
					s.descriptions = map[string]any{}
				}
				s.descriptions[name] = r.Describe()
			}
		}
	})
	return s.descriptions
}

// ErrAbandoned marks a setup or teardown that went on after its bound and was left alone.
var ErrAbandoned = errors.New("abandoned: it ignores its context and may still be going on")

// Error is the failure of one resource.
type Error struct {
	Name string // of the resource
	Op   string // "setup" or "teardown"
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("%s of resource %q: %v", e.Op, e.Name, e.Err) }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Panic is a panic in a setup or teardown.
type Panic struct {
	Value any
	Stack []byte // for the log
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Setup makes the resources ready, in order, and lays the set of them over parent, which may be nil. If one fails, those that were
// set up are torn down, newest first, and the error joins an *Error for the one that failed and one for each failed teardown.
//
// The teardown of a failed Setup is not cut short when ctx is done; each is bounded by its own timeout.
func Setup(ctx context.Context, decls []Declaration, parent *Set) (*Set, error) {
	s := &Set{byName: make(map[string]Declaration, len(decls)), parent: parent}
	for _, d := range decls {
		if err := s.add(ctx, d); err != nil {
			errs := []error{&Error{d.Name, "setup", err}}
			return nil, errors.Join(append(errs, s.Teardown(context.WithoutCancel(ctx))...)...)
		}
	}
	return s, nil
}

func (s *Set) add(ctx context.Context, d Declaration) error {
	switch {
	case d.Name == "":
		return errors.New("it has no name")
	case d.Resource == nil:
		return errors.New("there is nothing to set up")
	}
	if _, twice := s.byName[d.Name]; twice {
		return errors.New("its name is declared twice")
	}
	if err := bounded(ctx, d.SetupTimeout, d.Resource.Setup); err != nil {
		return err
	}
	s.byName[d.Name] = d
	s.order = append(s.order, d)
	return nil
}

// Teardown tears the set's own resources down, newest first, none skipped, and gives an *Error for each that failed. Each is
// bounded by its own timeout and by ctx; once ctx is done the rest is still called, with a context that is done. A second call
// waits for the first and gives the same errors.
func (s *Set) Teardown(ctx context.Context) []error {
	if s == nil {
		return nil
	}
	s.down.Do(func() {
		for i := len(s.order) - 1; i >= 0; i-- {
			d := s.order[i]
			if err := bounded(ctx, d.TeardownTimeout, d.Resource.Teardown); err != nil {
				s.downErrors = append(s.downErrors, &Error{d.Name, "teardown", err})
			}
		}
	})
	return s.downErrors
}

// bounded calls f with a context that ends after limit, and does not wait much longer for it.
func bounded(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	if limit <= 0 {
		limit = DefaultTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %v: %w", limit, context.DeadlineExceeded))
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- &Panic{p, debug.Stack()}
			}
		}()
		done <- f(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	patience := time.NewTimer(AbandonAfter)
	defer patience.Stop()
	select {
	case err := <-done:
		if err != nil && !errors.Is(err, context.Cause(ctx)) {
			err = fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
		return err
	case <-patience.C:
		return fmt.Errorf("%w, %w", context.Cause(ctx), ErrAbandoned)
	}
}

// Get finds a resource in the set or in the sets it was laid over; nil if there is none.
func (s *Set) Get(name string) Resource {
	d, _ := s.find(name)
	return d.Resource
}

// Guard finds the guard of a resource, as Get finds the resource; nil if the resource has none.
func (s *Set) Guard(name string) Guard {
	d, _ := s.find(name)
	return d.Guard
}

func (s *Set) find(name string) (Declaration, bool) {
	for ; s != nil; s = s.parent {
		if d, ok := s.byName[name]; ok {
			return d, true
		}
	}
	return Declaration{}, false
}

// Guards gives the status of the guards of the resources in reach, the parent's first, in the order of their declaration.
func (s *Set) Guards() []GuardStatus {
	if s == nil {
		return nil
	}
	all := s.parent.Guards()
	for _, d := range s.order {
		if g, ok := d.Guard.(interface{ Status() GuardStatus }); ok {
			status := g.Status()
			status.Resource = d.Name
			all = append(all, status)
		}
	}
	return all
}
