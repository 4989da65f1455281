// Package stream splits what a command writes into lines, in constant memory, whatever the command writes.
package stream

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
)

// Bounds of what is handed on.
const (
	MaxLine  = 64 << 10 // bytes of one line
	MaxTail  = 300      // bytes of the last line that are remembered
	LineCost = 64       // bytes that a line takes of the budget beside its text: to keep it takes more than that
)

// Budget is the number of bytes that one or more streams may hand on together. What comes after is read, counted and dropped,
// so that a command never blocks on its output. What is cut off a long line does not count.
type Budget struct {
	limit int64
	used  atomic.Int64
}

// NewBudget gives a budget of so many bytes.
func NewBudget(bytes int64) *Budget { return &Budget{limit: bytes} }

// take says whether there is room for a line of n bytes, and counts it either way.
func (b *Budget) take(n int64) bool { return b.used.Add(n+LineCost) <= b.limit }

func (b *Budget) exhausted() bool { return b.used.Load() > b.limit }

// Stream is an io.Writer that hands on what is written to it, line by line. It is for one goroutine.
type Stream struct {
	emit    func(line string)
	budget  *Budget
	line    []byte // the line that has not ended yet, at most MaxLine of it; when skipping, the last bytes written
	cut     int64  // bytes of that line beyond MaxLine
	tail    []byte // the beginning of the last line that is not blank
	dropped int64
	// Once the budget is exhausted, lines are not looked for any more: what comes is only counted, which is cheap.
	skipping bool
}

// recent is how many of the last bytes are kept when skipping, to find the last line in.
const recent = 4 << 10

// New gives a stream that calls emit with each line: without its end, in valid UTF-8, and cut with a mark if it is too long.
func New(budget *Budget, emit func(line string)) *Stream {
	return &Stream{emit: emit, budget: budget}
}

// Write takes the next bytes. It never fails.
func (s *Stream) Write(p []byte) (int, error) {
	if s.skipping || s.budget.exhausted() {
		s.skip(p)
		return len(p), nil
	}
	for rest := p; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			s.add(rest)
			break
		}
		s.add(rest[:end])
		s.endLine(1)
		rest = rest[end+1:]
	}
	return len(p), nil
}

// Close hands on a last line that has no end.
func (s *Stream) Close() {
	if s.skipping {
		s.remember(lastLine(s.line))
	} else if len(s.line) > 0 {
		s.endLine(0)
	}
	s.line = nil
}

// Tail is the beginning of the last line that was not blank, also if it was dropped. It is known after Close.
func (s *Stream) Tail() string { return strings.TrimSpace(valid(s.tail)) }

// Dropped is the number of bytes that were not handed on for want of budget, line ends included.
func (s *Stream) Dropped() int64 { return s.dropped }

func (s *Stream) add(p []byte) {
	room := min(MaxLine-len(s.line), len(p))
	s.line = append(s.line, p[:room]...)
	s.cut += int64(len(p) - room)
}

// endLine hands on the line, whose end has so many bytes.
func (s *Stream) endLine(end int64) {
	s.remember(s.line)
	if s.budget.take(int64(len(s.line))) {
		text := valid(bytes.TrimSuffix(s.line, []byte{'\r'}))
		if s.cut > 0 {
			text += fmt.Sprintf("… [%d bytes more were cut]", s.cut)
		}
		s.emit(text)
	} else {
		s.dropped += int64(len(s.line)) + s.cut + end
	}
	s.line, s.cut = s.line[:0], 0
}

// skip counts bytes.
func (s *Stream) skip(p []byte) {
	if !s.skipping {
		s.skipping = true
		s.dropped += int64(len(s.line)) + s.cut
	}
	s.dropped += int64(len(p))
	s.line = append(s.line, p[max(0, len(p)-recent):]...)
	s.line = s.line[:copy(s.line, s.line[max(0, len(s.line)-recent):])]
}

func (s *Stream) remember(line []byte) {
	if len(bytes.TrimSpace(line)) > 0 {
		s.tail = append(s.tail[:0], line[:min(MaxTail, len(line))]...)
	}
}

// lastLine is the last line that is not blank.
func lastLine(text []byte) []byte {
	text = bytes.TrimSpace(text)
	return text[bytes.LastIndexByte(text, '\n')+1:]
}

func valid(text []byte) string { return strings.ToValidUTF8(string(text), "\uFFFD") }
