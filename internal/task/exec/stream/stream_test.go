package stream

import (
	"bytes"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// lines are the lines of a text that is written in pieces.
func lines(s *Stream, pieces ...string) {
	for _, piece := range pieces {
		if n, err := s.Write([]byte(piece)); n != len(piece) || err != nil {
			panic("Write failed")
		}
	}
	s.Close()
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", MaxLine)
	for name, test := range map[string]struct {
		pieces, want []string
		tail         string
	}{
		"nothing":        {nil, nil, ""},
		"one line":       {[]string{"a\n"}, []string{"a"}, "a"},
		"no end":         {[]string{"a\nb"}, []string{"a", "b"}, "b"},
		"blank lines":    {[]string{"\n\na\n \n"}, []string{"", "", "a", " "}, "a"},
		"pieces":         {[]string{"a", "b", "\n", "", "c\nd"}, []string{"ab", "c", "d"}, "d"},
		"CRLF":           {[]string{"a\r\nb\r\r\n"}, []string{"a", "b\r"}, "b"},
		"NUL":            {[]string{"a\x00b\n"}, []string{"a\x00b"}, "a\x00b"},
		"Latin-1":        {[]string{"caf\xe9\n"}, []string{"caf\uFFFD"}, "caf\uFFFD"},
		"split rune":     {[]string{"\xe2\x82", "\xac\n"}, []string{"€"}, "€"},
		"longest line":   {[]string{long, "\n"}, []string{long}, long[:MaxTail]},
		"too long":       {[]string{long, "abc", "de\nnext\n"}, []string{long + "… [5 bytes more were cut]", "next"}, "next"},
		"endless at end": {[]string{long + long}, []string{long + "… [65536 bytes more were cut]"}, long[:MaxTail]},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			s := New(NewBudget(1<<20), func(line string) { got = append(got, line) })
			lines(s, test.pieces...)
			if !slices.Equal(got, test.want) {
				t.Errorf("got %.80q, want %.80q", got, test.want)
			}
			if s.Tail() != test.tail || s.Dropped() != 0 {
				t.Errorf("tail %.80q, want %.80q; %d dropped", s.Tail(), test.tail, s.Dropped())
			}
		})
	}
}

func TestBudget(t *testing.T) {
	budget := NewBudget(3 + 3*LineCost)
	var got []string
	emit := func(line string) { got = append(got, line) }
	first, second := New(budget, emit), New(budget, emit)
	lines(first, "ab\n", "\n")
	lines(second, "c\n", "d\nlast words\n")
	if want := []string{"ab", "", "c"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if first.Dropped() != 0 || second.Dropped() != int64(len("d\nlast words\n")) {
		t.Errorf("dropped %d and %d", first.Dropped(), second.Dropped())
	}
	if second.Tail() != "last words" {
		t.Errorf("tail %q: the last line counts also when it is dropped", second.Tail())
	}
}

// endless is n bytes of a pattern.
func endless(pattern string, n int64) io.Reader {
	return io.LimitReader(&repeat{pattern: []byte(strings.Repeat(pattern, 1+4096/len(pattern)))}, n)
}

type repeat struct{ pattern []byte }

func (r *repeat) Read(p []byte) (int, error) { return copy(p, r.pattern), nil }

func TestConstantMemory(t *testing.T) {
	for name, pattern := range map[string]string{"one line": "x", "empty lines": "\n", "lines": "some words\n", "binary": "\xff\x00\x80\n"} {
		t.Run(name, func(t *testing.T) {
			s := New(NewBudget(64<<10), func(string) {})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := io.Copy(struct{ io.Writer }{s}, endless(pattern, 8<<20))
			runtime.ReadMemStats(&after)
			// The line and its growth, its copies as text, io.Copy's buffer; 8 MiB pass through.
			if allocated := after.TotalAlloc - before.TotalAlloc; err != nil || allocated > 1<<20 {
				t.Errorf("%d bytes allocated, %v", allocated, err)
			}
		})
	}
}

// What comes out is what went in, however it was cut into pieces.
func TestPiecesDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.SampledFrom([]byte("ab\n\r\x00\xff\xe2\x82\xac "))).Draw(t, "text")
		var whole, pieces []string
		lines(New(NewBudget(1<<20), func(l string) { whole = append(whole, l) }), string(text))
		s := New(NewBudget(1<<20), func(l string) { pieces = append(pieces, l) })
		for rest := text; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			_, _ = s.Write(rest[:n])
			rest = rest[n:]
		}
		s.Close()
		if !slices.Equal(whole, pieces) {
			t.Fatalf("whole %q, in pieces %q", whole, pieces)
		}
		if want := bytes.Count(text, []byte("\n")) + btoi(len(text) > 0 && text[len(text)-1] != '\n'); len(whole) != want {
			t.Fatalf("%d lines, want %d", len(whole), want)
		}
		for _, line := range whole {
			if !utf8.ValidString(line) || strings.Contains(line, "\n") {
				t.Fatalf("line %q", line)
			}
		}
	})
}

// What comes in is handed on or counted, and its last line is known.
func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		handed, cost := 0, 0
		budget := NewBudget(int64(rapid.IntRange(0, 5*LineCost).Draw(t, "budget")))
		s := New(budget, func(line string) { handed, cost = handed+len(line)+1, cost+len(line)+LineCost })
		written := ""
		for _, piece := range rapid.SliceOf(rapid.StringMatching(`[ab \n]{0,12}`)).Draw(t, "pieces") {
			_, _ = s.Write([]byte(piece))
			written += piece
		}
		s.Close()
		if written != "" && s.Dropped() == 0 && !strings.HasSuffix(written, "\n") {
			handed-- // the end of the last line is not there
		}
		if handed+int(s.Dropped()) != len(written) {
			t.Fatalf("%d handed on, %d dropped of %d", handed, s.Dropped(), len(written))
		}
		if int64(cost) > budget.limit {
			t.Fatalf("lines for %d handed on, more than %d", cost, budget.limit)
		}
		trimmed := strings.TrimSpace(written)
		if want := strings.TrimSpace(trimmed[strings.LastIndexByte(trimmed, '\n')+1:]); s.Tail() != want {
			t.Fatalf("tail %q of %q, want %q", s.Tail(), written, want)
		}
	})
}

func TestSkippingIsCheapAndKnowsTheEnd(t *testing.T) {
	s := New(NewBudget(LineCost), func(string) {})
	lines(s, "0123456789\n", strings.Repeat("y\n", 1<<20), strings.Repeat("z", recent), "\nthe ", "end\n\n")
	if want := int64(11 + 2<<20 + recent + len("\nthe end\n\n")); s.Dropped() != want || s.Tail() != "the end" {
		t.Errorf("dropped %d, want %d; tail %q", s.Dropped(), want, s.Tail())
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
