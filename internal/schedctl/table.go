package schedctl

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// style is how a cell looks on a terminal with colours: the parameters of an SGR sequence.
type style string

const (
	plain  style = ""
	bold   style = "1"
	dim    style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
	cyan   style = "36"
)

type cell struct {
	text  string
	style style
}

// cells are plain cells.
func cells(texts ...string) []cell {
	row := make([]cell, len(texts))
	for i, text := range texts {
		row[i].text = text
	}
	return row
}

// canvas is what lines are laid out for.
type canvas struct {
	width int // columns; 0: as wide as the text is
	color bool
}

// table lays rows out in columns of equal width. Each line is cut at the canvas's width.
func (c canvas) table(rows [][]cell) []string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], textWidth(clean(cell.text)))
		}
	}
	lines := make([]string, len(rows))
	for i, row := range rows {
		lines[i] = c.line(row, widths, "  ")
	}
	return lines
}

// line lays cells out one after the other, each filled up to its width if it has one.
func (c canvas) line(row []cell, widths []int, separator string) string {
	var line strings.Builder
	room := c.width
	write := func(text string, style style) {
		if c.width > 0 {
			text = cut(text, room)
			room -= textWidth(text)
		}
		if c.color && style != plain && text != "" {
			text = "\x1b[" + string(style) + "m" + text + "\x1b[0m"
		}
		line.WriteString(text)
	}
	for i, cell := range row {
		if i > 0 {
			write(separator, plain)
		}
		text := clean(cell.text)
		write(text, cell.style)
		if i < len(row)-1 && i < len(widths) {
			write(strings.Repeat(" ", max(widths[i]-textWidth(text), 0)), plain)
		}
	}
	return strings.TrimRight(line.String(), " ")
}

// fields lays out names and values, one pair a line. Values may have several lines.
func (c canvas) fields(pairs [][2]string) []string {
	var rows [][]cell
	for _, pair := range pairs {
		name := pair[0]
		for value := range strings.SplitSeq(pair[1], "\n") {
			rows = append(rows, []cell{{name, dim}, {value, plain}})
			name = ""
		}
	}
	return c.uncut().table(rows)
}

// uncut is for texts that people need to the end: errors, values to copy.
func (c canvas) uncut() canvas { return canvas{color: c.color} }

// clean replaces what could move the cursor or change the terminal: texts come from tasks and from strangers.
func clean(text string) string {
	if !strings.ContainsFunc(text, unprintable) {
		return text
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', r == '\r':
			return ' '
		case unprintable(r):
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

func unprintable(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}

// cut shortens text to some columns, with an ellipsis at its end.
func cut(text string, columns int) string {
	if textWidth(text) <= columns {
		return text
	}
	used := 0
	for i, r := range text {
		if used += runeWidth(r); used >= columns {
			return text[:i] + strings.Repeat("…", min(columns, 1))
		}
	}
	return text
}

func textWidth(text string) int {
	columns := 0
	for _, r := range text {
		columns += runeWidth(r)
	}
	return columns
}

// runeWidth is the number of columns a terminal gives a character.
func runeWidth(r rune) int {
	if r < 0x300 {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}
