package runlog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/schedulerd/schedulerd/internal/core/flow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, o Options) *Logs {
	t.Helper()
	o.Dir = filepath.Join(t.TempDir(), "logs")
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func tail(t *testing.T, l *Logs, run string, bytes int64) []string {
	t.Helper()
	var texts []string
	err := l.Tail(t.Context(), run, false, bytes, func(lines []Line) error {
		for _, line := range lines {
			texts = append(texts, line.Text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

func TestLinesComeBackAsTheyWere(t *testing.T) {
	l := open(t, Options{})
	w := l.Run("f@1")
	w.Line("build", 1, false, "one")
	w.Line("build/b", 2, true, "with\ttabs and a\nline end and \xff")
	w.End(flow.Failed)
	var got []Line
	if err := l.Tail(t.Context(), "f@1", true, 0, func(lines []Line) error { got = append(got, lines...); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Text != "one" || got[0].State != "build" || got[0].Stderr || got[0].Attempt != 1 {
		t.Fatalf("first: %+v", got)
	}
	if want := "with\ttabs and a line end and \uFFFD"; got[1].Text != want || got[1].State != "build/b" || !got[1].Stderr || got[1].Attempt != 2 {
		t.Errorf("second: %+v, want text %q", got[1], want)
	}
	for _, id := range []string{"f@2", "../etc@1", "nonsense", ".@1", "f@x", "@1"} {
		if err := l.Tail(t.Context(), id, false, 0, func([]Line) error { return nil }); !errors.Is(err, ErrNotFound) {
			t.Errorf("tail of %q: %v", id, err)
		}
	}
}

func TestTheNewestOutputIsKept(t *testing.T) {
	l := open(t, Options{MaxRunBytes: 8 << 10})
	w := l.Run("f@1")
	for i := range 2000 {
		w.Line("s", 1, false, fmt.Sprintf("line %d", i))
	}
	texts := tail(t, l, "f@1", 0)
	if last := texts[len(texts)-1]; last != "line 1999" {
		t.Errorf("last line %q", last)
	}
	for i, text := range texts { // no gap
		if want := fmt.Sprintf("line %d", 2000-len(texts)+i); text != want {
			t.Fatalf("line %d of %d is %q, want %q", i, len(texts), text, want)
		}
	}
	if some := tail(t, l, "f@1", 500); len(some) == 0 || len(some) > 12 || some[len(some)-1] != "line 1999" {
		t.Errorf("the last 500 bytes: %q", some)
	}
	if some := tail(t, l, "f@1", 5000); !slices.Equal(some, texts[len(texts)-len(some):]) || len(some) < 50 {
		t.Errorf("the last 5000 bytes are %d of %d lines", len(some), len(texts))
	}
	var bytes int64
	for _, run := range append(l.runs(), keptRun{}) {
		bytes += run.bytes
	}
	w.End(flow.Succeeded)
	for _, run := range l.runs() {
		bytes += run.bytes
	}
	if bytes > 8<<10 {
		t.Errorf("%d bytes are kept, more than the cap", bytes)
	}
}

func TestFollowSeesEveryLineOverRotations(t *testing.T) {
	l := open(t, Options{MaxRunBytes: 1 << 20})
	w := l.Run("f@1")
	var wg sync.WaitGroup
	var texts []string
	wg.Go(func() {
		err := l.Tail(t.Context(), "f@1", true, 0, func(lines []Line) error {
			for _, line := range lines {
				texts = append(texts, line.Text)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	for i := range 3000 {
		w.Line("s", 1, false, fmt.Sprintf("%d", i))
	}
	w.End(flow.Succeeded)
	wg.Wait()
	if len(texts) != 3000 || texts[2999] != "2999" {
		t.Errorf("followed %d lines", len(texts))
	}
	ctx, cancel := context.WithCancel(t.Context())
	l.Run("f@2")
	wg.Go(func() {
		if err := l.Tail(ctx, "f@2", true, 0, func([]Line) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("a follower that gave up: %v", err)
		}
	})
	cancel()
	wg.Wait()
}

func TestAResumedRunGoesOnInItsFile(t *testing.T) {
	l := open(t, Options{})
	l.Run("f@1").Line("s", 1, false, "before")
	again, err := Open(l.Options)
	if err != nil {
		t.Fatal(err)
	}
	w := again.Run("f@1")
	w.Line("s", 1, false, "after")
	w.End(flow.Succeeded)
	if got := tail(t, again, "f@1", 0); !slices.Equal(got, []string{"before", "after"}) {
		t.Errorf("got %q", got)
	}
}

func TestRetention(t *testing.T) {
	now := time.Now()
	l := open(t, Options{KeepRuns: 3, MaxAge: time.Hour, Now: func() time.Time { return now }})
	for i := 1; i <= 6; i++ {
		w := l.Run(fmt.Sprintf("ok@%d", i))
		w.Line("s", 1, false, "x")
		w.End(flow.Succeeded)
		w = l.Run(fmt.Sprintf("bad@%d", i))
		w.Line("s", 1, false, "x")
		w.End(flow.Failed)
	}
	running := l.Run("ok@0")
	running.Line("s", 1, false, "x")
	kept := func() string {
		l.Drop()
		var names []string
		for _, run := range l.runs() {
			names = append(names, fmt.Sprintf("%s@%d", run.flow, run.number))
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	if got := kept(); got != "bad@4 bad@5 bad@6 ok@4 ok@5 ok@6" {
		t.Errorf("by count: %s", got)
	}
	now = now.Add(2 * time.Hour)
	if got := kept(); got != "bad@4 bad@5 bad@6" {
		t.Errorf("by age, failed ones longer: %s", got)
	}
	l.MaxBytes = 1
	if got := kept(); got != "" {
		t.Errorf("by size: %s", got)
	}
	running.End(flow.Succeeded)
	if _, err := os.Stat(filepath.Join(l.Dir, "bad")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of a flow without output stays: %v", err)
	}
}
