// Package fault tells what is wrong in a definition: which field, where in it, and what to do.
//
// A field is named by its path from the message that was checked, in the spelling protovalidate uses too:
//
//	flows[2].workflow.states["fetch"].transitions[0].when
package fault

import (
	"fmt"
	"strings"
)

// Fault is one thing wrong.
type Fault struct {
	Field   string // path; empty: the whole
	Offset  int    // byte offset in the text of Field where it goes wrong; -1: all of it
	Name    bool   // the name of the field, or the key of the map entry, is what is wrong
	Message string // what is wrong and what to do
	Other   string // path of a second place that has to do with it, such as the first of two with the same name
}

// Error gives path and message.
func (f Fault) Error() string {
	text := f.Message
	if f.Other != "" {
		text += "; see " + f.Other
	}
	if f.Offset > 0 {
		text = fmt.Sprintf("column %d: %s", f.Offset+1, text)
	}
	if f.Field != "" {
		text = f.Field + ": " + text
	}
	return text
}

// List is everything wrong, in the order it was found. An empty List is not an error: see Err.
type List []Fault

// Add adds a fault of a whole field.
func (l *List) Add(field, format string, args ...any) {
	*l = append(*l, Fault{Field: field, Offset: -1, Message: fmt.Sprintf(format, args...)})
}

// Error gives one fault per line.
func (l List) Error() string {
	lines := make([]string, len(l))
	for i, f := range l {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// Err is l as an error: nil if nothing is wrong.
func (l List) Err() error {
	if len(l) == 0 {
		return nil
	}
	return l
}
