// Package runlog keeps what the tasks of runs write to standard output and standard error: a file a run, under one directory, capped,
// and dropped by count, age and size.
//
// A line of a file is one line of output: time, state, attempt, stream, text, separated by tabs. When a run's file has reached half of
// MaxRunBytes it becomes the ".old" one, in the place of the one before, so the newest output is always kept.
package runlog

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
)

// Options bound what is kept. Zero values are replaced by the defaults.
type Options struct {
	Dir         string
	MaxRunBytes int64         // of one run; default 4 MiB
	KeepRuns    int           // runs kept of each flow; failed ones count apart; default 20
	MaxAge      time.Duration // default 14 days; failed ones four times as long
	MaxBytes    int64         // of all runs; default 1 GiB; the oldest go first
	Now         func() time.Time
}

// Defaults of Options.
const (
	DefaultMaxRunBytes = 4 << 20
	DefaultKeepRuns    = 20
	DefaultMaxAge      = 14 * 24 * time.Hour
	DefaultMaxBytes    = 1 << 30
)

// failedLonger is how many times longer the output of a failed run is kept.
const failedLonger = 4

// maxLine bounds the text of a line.
const maxLine = 64 << 10

// Line is one line of output.
type Line struct {
	Time    time.Time
	State   string
	Attempt int
	Stderr  bool
	Text    string
}

// ErrNotFound is what Tail answers when nothing is kept of a run.
var ErrNotFound = errors.New("no output is kept of this run")

// Logs is a directory of output.
type Logs struct {
	Options
	mu   sync.Mutex
	open map[string]*writer // runs on their way
}

// Open makes the directory if it is not there.
func Open(o Options) (*Logs, error) {
	if o.MaxRunBytes == 0 {
		o.MaxRunBytes = DefaultMaxRunBytes
	}
	if o.KeepRuns == 0 {
		o.KeepRuns = DefaultKeepRuns
	}
	if o.MaxAge == 0 {
		o.MaxAge = DefaultMaxAge
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("the directory for the output of runs: %w", err)
	}
	return &Logs{Options: o, open: map[string]*writer{}}, nil
}

// Run is where the output of a run goes. A run that is resumed goes on in the same file.
func (l *Logs) Run(runID string) core.RunOutput {
	w := &writer{logs: l, id: runID, grown: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[runID] = w
	return w
}

// path is the file of a run: a folder for each flow.
func (l *Logs) path(runID string) (string, error) {
	flowID, number, ok := strings.Cut(runID, "@")
	if _, err := strconv.ParseUint(number, 10, 64); !ok || err != nil || flowID == "" || strings.ContainsAny(flowID, "/\\\x00") || flowID[0] == '.' {
		return "", fmt.Errorf("%w: %q is not a run id", ErrNotFound, runID)
	}
	return filepath.Join(l.Dir, flowID, number), nil
}

// Endings of the files.
const (
	current = ".log"
	older   = ".old.log"
	failed  = ".failed" // beside them, empty: the run failed
)

// writer is the output of a run on its way.
type writer struct {
	logs    *Logs
	id      string
	mu      sync.Mutex
	file    *os.File
	size    int64
	failed  error
	grown   chan struct{} // closed when there is more, or no more will come
	ended   bool
	rotated int
}

// Line keeps one line. A line that cannot be written is lost: a full disk must not fail the run.
func (w *writer) Line(state string, attempt int, stderr bool, text string) {
	stream := "out"
	if stderr {
		stream = "err"
	}
	if len(text) > maxLine {
		text = text[:maxLine]
	}
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\n", " "), "\uFFFD")
	record := fmt.Sprintf("%s\t%s\t%d\t%s\t%s\n", w.logs.Now().UTC().Format(time.RFC3339Nano), state, attempt, stream, text)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.failed != nil {
		return
	}
	if w.failed = w.ready(int64(len(record))); w.failed == nil {
		_, w.failed = w.file.WriteString(record)
		w.size += int64(len(record))
	}
	w.wake()
}

// ready opens the file, or begins a new one when it would grow too large.
func (w *writer) ready(more int64) error {
	path, err := w.logs.path(w.id)
	if err != nil {
		return err
	}
	if w.file != nil && w.size+more > w.logs.MaxRunBytes/2 {
		w.file.Close()
		w.file, w.size = nil, 0
		w.rotated++
		if err := os.Rename(path+current, path+older); err != nil {
			return err
		}
	}
	if w.file != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	w.file, err = os.OpenFile(path+current, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if info, err := w.file.Stat(); err == nil {
		w.size = info.Size()
	}
	return nil
}

// End closes the file and marks it if the run failed.
func (w *writer) End(outcome flow.Outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	if w.file != nil {
		w.file.Close()
		if outcome != flow.Succeeded && outcome != flow.Cancelled {
			if path, err := w.logs.path(w.id); err == nil {
				os.WriteFile(path+failed, nil, 0o600) // without the mark it is only kept shorter
			}
		}
	}
	w.logs.mu.Lock()
	if w.logs.open[w.id] == w {
		delete(w.logs.open, w.id)
	}
	w.logs.mu.Unlock()
	w.wake()
}

func (w *writer) wake() {
	close(w.grown)
	w.grown = make(chan struct{})
}

func (w *writer) watch() (grown <-chan struct{}, rotated int, ended bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.grown, w.rotated, w.ended
}

// Tail calls fn with the lines kept of a run, oldest first, from tailBytes before the end (0: all), and with follow goes on with those
// that come until the run ends.
func (l *Logs) Tail(ctx context.Context, runID string, follow bool, tailBytes int64, fn func([]Line) error) error {
	path, err := l.path(runID)
	if err != nil {
		return err
	}
	l.mu.Lock()
	w := l.open[runID]
	l.mu.Unlock()
	var grown <-chan struct{}
	rotated := 0
	if w != nil {
		grown, rotated, _ = w.watch() // before reading: what comes while we read wakes us
	}
	old, oldErr := os.ReadFile(path + older)
	file, err := os.Open(path + current)
	switch {
	case errors.Is(err, fs.ErrNotExist) && w == nil && oldErr != nil:
		return fmt.Errorf("%w: %s", ErrNotFound, runID)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	reader := &lineReader{fn: fn}
	if file != nil {
		defer func() { file.Close() }()
	}
	if tailBytes > 0 && file != nil {
		if info, err := file.Stat(); err == nil && info.Size() >= tailBytes {
			old = nil
			if _, err := file.Seek(-tailBytes, io.SeekEnd); err != nil {
				return err
			}
			reader.partial = true
		} else if err == nil && int64(len(old)) > tailBytes-info.Size() {
			old = old[int64(len(old))-(tailBytes-info.Size()):]
			reader.partial = true
		}
	}
	if err := reader.read(ctx, strings.NewReader(string(old))); err != nil {
		return err
	}
	for {
		if file == nil {
			if file, err = os.Open(path + current); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if file != nil {
			if err := reader.read(ctx, file); err != nil {
				return err
			}
		}
		if w == nil || !follow {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
		next, now, ended := w.watch()
		grown = next
		if now != rotated && file != nil { // the rest of the file that was read so far, then the new one
			if err := reader.read(ctx, file); err != nil {
				return err
			}
			file.Close()
			file, rotated = nil, now
		}
		if ended {
			w = nil // once more, then no more
		}
	}
}

// lineReader parses what is there and hands it on in pieces.
type lineReader struct {
	fn      func([]Line) error
	rest    string // an unfinished line
	partial bool   // the first line is cut off
}

func (r *lineReader) read(ctx context.Context, from io.Reader) error {
	const piece = 256
	var lines []Line
	buffered := bufio.NewReaderSize(from, 128<<10)
	for {
		text, err := buffered.ReadString('\n')
		r.rest += text
		if strings.HasSuffix(r.rest, "\n") {
			if line, ok := parse(strings.TrimSuffix(r.rest, "\n")); ok && !r.partial {
				lines = append(lines, line)
			}
			r.rest, r.partial = "", false
		}
		if len(lines) == piece || err != nil && len(lines) > 0 {
			if err := errors.Join(ctx.Err(), r.fn(lines)); err != nil {
				return err
			}
			lines = nil
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func parse(record string) (Line, bool) {
	fields := strings.SplitN(record, "\t", 5)
	if len(fields) != 5 {
		return Line{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, fields[0])
	attempt, err2 := strconv.Atoi(fields[2])
	return Line{Time: at, State: fields[1], Attempt: attempt, Stderr: fields[3] == "err", Text: fields[4]}, err == nil && err2 == nil
}
