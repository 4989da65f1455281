package resource

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// probe notes its setup and teardown in a book.
type probe struct {
	name     string
	book     *[]string
	setup    func(context.Context) error
	teardown func(context.Context) error
}

var booking sync.Mutex // a teardown that was left alone says nothing of its end

func (p *probe) note(what string) {
	booking.Lock()
	defer booking.Unlock()
	*p.book = append(*p.book, what+p.name)
}

func (p *probe) Setup(ctx context.Context) error {
	p.note("+")
	if p.setup != nil {
		return p.setup(ctx)
	}
	return nil
}

func (p *probe) Teardown(ctx context.Context) error {
	p.note("-")
	if p.teardown != nil {
		return p.teardown(ctx)
	}
	return nil
}

func wantBook(t *testing.T, book []string, want string) {
	t.Helper()
	if got := strings.Join(book, " "); got != want {
		t.Errorf("book %q, want %q", got, want)
	}
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
}

func declare(probes ...*probe) []Declaration {
	var decls []Declaration
	for _, p := range probes {
		decls = append(decls, Declaration{Name: p.name, Resource: p})
	}
	return decls
}

func TestSetupAndTeardown(t *testing.T) {
	var book []string
	a, b, c := &probe{name: "a", book: &book}, &probe{name: "b", book: &book}, &probe{name: "c", book: &book}
	s, err := Setup(t.Context(), declare(a, b, c), nil)
	if err != nil {
		t.Fatal(err)
	}
	wantBook(t, book, "+a +b +c")
	if s.Get("b") != b || s.Get("x") != nil || s.Guard("b") != nil {
		t.Error("look-up")
	}
	for range 2 { // the second does nothing more
		if errs := s.Teardown(t.Context()); errs != nil {
			t.Error(errs)
		}
	}
	wantBook(t, book, "+a +b +c -c -b -a")
}

func TestSetsAreLayered(t *testing.T) {
	var book []string
	shared, own, other := &probe{name: "s", book: &book}, &probe{name: "o", book: &book}, &probe{name: "s", book: &book}
	breaker := &Gate{Breaker: NewBreaker(BreakerPolicy{})}
	parent, err := Setup(t.Context(), []Declaration{{Name: "s", Resource: shared, Guard: breaker}, {Name: "t", Resource: shared}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	child, err := Setup(t.Context(), declare(own), parent)
	if err != nil {
		t.Fatal(err)
	}
	if child.Get("o") != own || child.Get("s") != shared || parent.Get("o") != nil || child.Guard("s") != breaker {
		t.Error("look-up")
	}
	hiding, err := Setup(t.Context(), declare(other), parent)
	if err != nil {
		t.Fatal(err)
	}
	if hiding.Get("s") != other || hiding.Guard("s") != nil {
		t.Error("a resource and its guard are hidden together")
	}
	child.Teardown(t.Context())
	wantBook(t, book, "+s +s +o +s -o") // not the parent's
}

func TestEmptySet(t *testing.T) {
	var none *Set
	if none.Get("x") != nil || none.Guard("x") != nil || none.Guards() != nil || none.Teardown(t.Context()) != nil {
		t.Error("nil is the empty set")
	}
	s, err := Setup(t.Context(), nil, nil)
	if err != nil || s.Get("x") != nil || s.Teardown(t.Context()) != nil {
		t.Error("and so is one of no declarations")
	}
}

func TestSetupFails(t *testing.T) {
	broken := errors.New("disk is full")
	closed := errors.New("already closed")
	for name, test := range map[string]struct {
		third func(book *[]string) Declaration
		err   string
		book  string
	}{
		"an error": {func(book *[]string) Declaration {
			return declare(&probe{name: "c", book: book, setup: func(context.Context) error { return broken }})[0]
		}, `setup of resource "c": disk is full`, "+a +b +c -b -a"},
		"a panic": {func(book *[]string) Declaration {
			return declare(&probe{name: "c", book: book, setup: func(context.Context) error { panic("boom") }})[0]
		}, `setup of resource "c": panic: boom`, "+a +b +c -b -a"},
		"a timeout": {func(book *[]string) Declaration {
			d := declare(&probe{name: "c", book: book, setup: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }})[0]
			d.SetupTimeout = time.Minute
			return d
		}, `setup of resource "c": context deadline exceeded (it took longer than 1m0s: context deadline exceeded)`, "+a +b +c -b -a"},
		"a name used twice": {func(book *[]string) Declaration {
			return declare(&probe{name: "a", book: book})[0]
		}, `setup of resource "a": its name is declared twice`, "+a +b -b -a"},
		"no name": {func(book *[]string) Declaration {
			return Declaration{Resource: &probe{book: book}}
		}, `setup of resource "": it has no name`, "+a +b -b -a"},
		"no resource": {func(book *[]string) Declaration {
			return Declaration{Name: "c"}
		}, `setup of resource "c": there is nothing to set up`, "+a +b -b -a"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var book []string
				decls := declare(&probe{name: "a", book: &book, teardown: func(context.Context) error { return closed }}, &probe{name: "b", book: &book})
				decls = append(decls, test.third(&book))
				decls = append(decls, declare(&probe{name: "d", book: &book})...)
				s, err := Setup(t.Context(), decls, nil)
				if s != nil {
					t.Error("there is a set")
				}
				wantBook(t, book, test.book)
				// The rollback's errors are told too.
				wantError(t, err, test.err, `teardown of resource "a": already closed`)
				if strings.Contains(err.Error(), "goroutine") {
					t.Error("the stack is for the log")
				}
				var first *Error
				if !errors.As(err, &first) || first.Op != "setup" {
					t.Errorf("first error %+v", first)
				}
				if p, ok := errors.AsType[*Panic](err); (name == "a panic") != ok || ok && !strings.Contains(string(p.Stack), "goroutine") {
					t.Errorf("panic %+v", p)
				}
			})
		})
	}
}

func TestSetupIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		var book []string
		var downCtx error
		a := &probe{name: "a", book: &book, teardown: func(ctx context.Context) error { downCtx = ctx.Err(); return nil }}
		b := &probe{name: "b", book: &book, setup: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		_, err := Setup(ctx, declare(a, b), nil)
		wantError(t, err, `setup of resource "b": context canceled`)
		wantBook(t, book, "+a +b -a")
		if downCtx != nil {
			t.Error("the rollback was cancelled as well")
		}
	})
}

func TestTeardownSkipsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var book []string
		var released bool
		release := make(chan struct{})
		defer func() { // the one that was left alone ends with the test
			close(release)
			synctest.Wait()
			if !released {
				t.Error("not released")
			}
		}()
		decls := declare(
			&probe{name: "fine", book: &book},
			&probe{name: "panics", book: &book, teardown: func(context.Context) error { panic("boom") }},
			&probe{name: "slow", book: &book, teardown: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
			&probe{name: "deaf", book: &book, teardown: func(context.Context) error { <-release; released = true; return nil }},
			&probe{name: "fails", book: &book, teardown: func(context.Context) error { return errors.New("no") }},
			&probe{name: "late", book: &book, teardown: func(ctx context.Context) error { <-ctx.Done(); return nil }},
		)
		for i := range decls {
			decls[i].TeardownTimeout = 10 * time.Second
		}
		s, err := Setup(t.Context(), decls, nil)
		if err != nil {
			t.Fatal(err)
		}
		book = nil
		begin := time.Now()
		errs := s.Teardown(t.Context())
		wantBook(t, book, "-late -fails -deaf -slow -panics -fine")
		if took := time.Since(begin); took != 30*time.Second+AbandonAfter {
			t.Errorf("took %v", took)
		}
		var names []string
		for _, err := range errs {
			var e *Error
			errors.As(err, &e)
			names = append(names, e.Name)
		}
		if !slices.Equal(names, []string{"fails", "deaf", "slow", "panics"}) { // late came to its end
			t.Errorf("errors %v", errs)
		}
		if !errors.Is(errs[1], ErrAbandoned) || errors.Is(errs[2], ErrAbandoned) {
			t.Errorf("errors %v", errs)
		}
		wantError(t, errs[1], `teardown of resource "deaf": it took longer than 10s`, "abandoned")
		wantError(t, errs[3], "panic: boom")
	})
}

// The deadline of a stop bounds all of the teardown: what is left is called, but not waited for long.
func TestTeardownDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var book []string
		hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		s, err := Setup(t.Context(), declare(&probe{name: "a", book: &book}, &probe{name: "b", book: &book, teardown: hang}, &probe{name: "c", book: &book, teardown: hang}), nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		errs := s.Teardown(ctx)
		if took := time.Since(begin); took != time.Second || len(errs) != 2 {
			t.Errorf("took %v: %v", took, errs)
		}
		wantBook(t, book, "+a +b +c -c -b -a")
	})
}

func TestDefaultTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var book []string
		begin := time.Now()
		_, err := Setup(t.Context(), declare(&probe{name: "a", book: &book, setup: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}), nil)
		wantError(t, err, fmt.Sprint("it took longer than ", DefaultTimeout))
		if took := time.Since(begin); took != DefaultTimeout {
			t.Errorf("took %v", took)
		}
	})
}

func TestGuardStatuses(t *testing.T) {
	var book []string
	p := &probe{book: &book}
	s, err := Setup(t.Context(), []Declaration{
		{Name: "z", Resource: p, Guard: &Gate{Breaker: NewBreaker(BreakerPolicy{})}},
		{Name: "a", Resource: p},
		{Name: "b", Resource: p, Guard: &Gate{Limiter: NewLimiter(Rate{Calls: 3})}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := s.Guards()
	if len(all) != 2 || all[0].Resource != "z" || all[0].Breaker.State != Closed || all[0].Limiter != nil || all[1].Resource != "b" || all[1].Limiter.Tokens != 3 || all[1].Breaker != nil {
		t.Errorf("%+v", all)
	}
}

type described map[string]any

func (described) Setup(context.Context) error    { return nil }
func (described) Teardown(context.Context) error { return nil }
func (d described) Describe() map[string]any     { return d }

func TestDescribe(t *testing.T) {
	shared, err := Setup(t.Context(), []Declaration{
		{Name: "dir", Resource: described{"path": "/shared"}}, {Name: "kept", Resource: described{"path": "/kept"}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	own, err := Setup(t.Context(), []Declaration{{Name: "dir", Resource: described{"path": "/own"}}}, shared)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"dir": map[string]any{"path": "/own"}, "kept": map[string]any{"path": "/kept"}}
	if got := own.Describe(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := (*Set)(nil).Describe(); got != nil {
		t.Errorf("no resources: %v", got)
	}
}
