package runlog

import (
	"cmp"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// keptRun is the files of one run.
type keptRun struct {
	path   string // without ending
	flow   string
	number uint64
	bytes  int64
	last   time.Time
	failed bool
}

// Keep drops old output now and then every interval until ctx is done.
func (l *Logs) Keep(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		l.Drop()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// Drop removes the output that the bounds leave out.
func (l *Logs) Drop() {
	for _, run := range l.surplus(l.runs()) {
		for _, ending := range []string{current, older, failed} {
			os.Remove(run.path + ending) // what is not there is fine
		}
		os.Remove(filepath.Dir(run.path)) // goes only when it is empty
	}
}

// runs lists the output kept of runs that have ended.
func (l *Logs) runs() []keptRun {
	byPath := map[string]*keptRun{}
	filepath.WalkDir(l.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // what cannot be read cannot be dropped; the next time it may
		}
		name := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(d.Name(), failed), current), ".old")
		number, err := strconv.ParseUint(name, 10, 64)
		info, infoErr := d.Info()
		if err != nil || infoErr != nil {
			return nil
		}
		base := filepath.Join(filepath.Dir(path), name)
		run := byPath[base]
		if run == nil {
			run = &keptRun{path: base, flow: filepath.Base(filepath.Dir(path)), number: number}
			byPath[base] = run
		}
		run.bytes += info.Size()
		run.failed = run.failed || strings.HasSuffix(d.Name(), failed)
		if info.ModTime().After(run.last) {
			run.last = info.ModTime()
		}
		return nil
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	var runs []keptRun
	for _, run := range byPath {
		if l.open[run.flow+"@"+strconv.FormatUint(run.number, 10)] == nil {
			runs = append(runs, *run)
		}
	}
	return runs
}

// surplus picks what is too many, too old or too large.
func (l *Logs) surplus(runs []keptRun) []keptRun {
	slices.SortFunc(runs, func(a, b keptRun) int { // newest first
		return cmp.Or(b.last.Compare(a.last), cmp.Compare(b.number, a.number))
	})
	now := l.Now()
	type group struct {
		flow   string
		failed bool
	}
	count := map[group]int{}
	var total int64
	var out []keptRun
	for _, run := range runs {
		age := l.MaxAge
		if run.failed {
			age *= failedLonger
		}
		g := group{run.flow, run.failed}
		count[g]++
		total += run.bytes
		if count[g] > l.KeepRuns || now.Sub(run.last) > age || total > l.MaxBytes {
			out = append(out, run)
		}
	}
	return out
}
