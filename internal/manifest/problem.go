package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/schedulerd/schedulerd/internal/fault"
)

// Problem is something wrong in a flows file.
type Problem struct {
	Source  string // name of the file
	Line    int    // from 1; 0: the file as a whole
	Column  int    // from 1, in characters
	Field   string // path, such as flows[0].schedule.cron
	Message string // what is wrong and what to do
	Excerpt string // the line, and a mark below the place; empty if there is none
}

// Error gives the place, what is wrong there, and the line with a mark.
func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Source)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
	}
	b.WriteString(": ")
	if field := fault.Last(p.Field); field != "" {
		const most = 80
		if cut := len(field) - most; cut > 0 {
			field = "…" + strings.ToValidUTF8(field[cut:], "")
		}
		b.WriteString(field + ": ")
	}
	b.WriteString(p.Message)
	if p.Excerpt != "" {
		b.WriteString("\n" + p.Excerpt)
	}
	return b.String()
}

// Problems is all that is wrong, in the order of files and lines.
type Problems []Problem

// Error gives one problem after the other.
func (p Problems) Error() string {
	texts := make([]string, len(p))
	for i := range p {
		texts[i] = p[i].Error()
	}
	return strings.Join(texts, "\n")
}

// Err is p as an error: nil if nothing is wrong.
func (p Problems) Err() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

// maxProblems bounds what is told at once.
const maxProblems = 100

// told puts problems in the order of sources and lines, drops repetitions (what an alias repeats is wrong in one place), and
// leaves out those that nobody would read.
func (p Problems) told(order map[string]int) Problems {
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(order[a.Source], order[b.Source]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	p = slices.CompactFunc(p, func(a, b Problem) bool {
		a.Field, b.Field = "", ""
		return a == b
	})
	if len(p) > maxProblems {
		last := p[maxProblems]
		p = append(p[:maxProblems], Problem{Source: last.Source, Line: last.Line, Column: last.Column, Message: "here and below are more problems; repair those above first"})
	}
	return p
}

// shownWidth is how much of a long line is shown.
const shownWidth = 100

// excerpt shows a line with a mark below a column. Tabs stay tabs in both, so that the mark stands where it should.
func excerpt(number, column int, line string) string {
	line = strings.TrimRight(line, "\r\n")
	// Only the part that is shown is looked at: a line can be as long as a file.
	begin := max(0, column-1-shownWidth*2/3)
	rest := skip(line, begin)
	shown := []rune(rest[:len(rest)-len(skip(rest, shownWidth))])
	at := min(column-1-begin, len(shown))
	head, tail := "", ""
	if begin > 0 {
		head = "…"
	}
	if len(string(shown)) < len(rest) {
		tail = "…"
	}
	label := fmt.Sprintf("%5d | ", number)
	var b strings.Builder
	b.WriteString(label + head + string(shown) + tail + "\n")
	b.WriteString(strings.Repeat(" ", len(label)-2) + "| " + strings.Repeat(" ", len([]rune(head))))
	for _, r := range shown[:at] {
		if r == '\t' {
			b.WriteRune('\t')
		} else {
			b.WriteRune(' ')
		}
	}
	b.WriteByte('^')
	return b.String()
}
