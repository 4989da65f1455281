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

// sorted puts problems in the order of sources and lines, and drops repetitions.
func (p Problems) sorted(order map[string]int) Problems {
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(order[a.Source], order[b.Source]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return slices.Compact(p)
}

// shownWidth is how much of a long line is shown.
const shownWidth = 100

// excerpt shows a line with a mark below a column. Tabs stay tabs in both, so that the mark stands where it should.
func excerpt(number, column int, line string) string {
	runes := []rune(strings.TrimRight(line, "\r\n"))
	at := min(max(column-1, 0), len(runes))
	begin := max(0, at-shownWidth*2/3)
	end := min(len(runes), begin+shownWidth)
	head, tail := "", ""
	if begin > 0 {
		head = "…"
	}
	if end < len(runes) {
		tail = "…"
	}
	label := fmt.Sprintf("%5d | ", number)
	var b strings.Builder
	b.WriteString(label + head + string(runes[begin:end]) + tail + "\n")
	b.WriteString(strings.Repeat(" ", len(label)-2) + "| " + strings.Repeat(" ", len([]rune(head))))
	for _, r := range runes[begin:at] {
		if r == '\t' {
			b.WriteRune('\t')
		} else {
			b.WriteRune(' ')
		}
	}
	b.WriteByte('^')
	return b.String()
}
