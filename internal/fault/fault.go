// Package fault tells what is wrong in a definition: which field, where in it, and what to do.
//
// A field is named by its path from the message that was checked, in the spelling protovalidate uses too:
//
//	flows[2].workflow.states["fetch"].transitions[0].when
package fault

import (
	"fmt"
	"strconv"
	"strings"
)

// Fault is one thing wrong.
type Fault struct {
	Field   string // path; empty: the whole
	Offset  int    // byte offset in the text of Field where it goes wrong; -1: all of it
	Name    bool   // the name of the field, or the key of the map entry, is what is wrong
	Message string // what is wrong and what to do
}

// Error gives path and message.
func (f Fault) Error() string {
	if f.Field == "" {
		return f.Message
	}
	if f.Offset > 0 {
		return fmt.Sprintf("%s: column %d: %s", f.Field, f.Offset+1, f.Message)
	}
	return f.Field + ": " + f.Message
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

// Field is the path of a field of the message at path.
func Field(path, name string) string {
	if path == "" {
		return name
	}
	if name == "" || name[0] == '[' {
		return path + name
	}
	return path + "." + name
}

// Index is the path of an entry of the list at path.
func Index(path string, i int) string {
	return path + "[" + strconv.Itoa(i) + "]"
}

// Key is the path of an entry of the map at path.
func Key(path, key string) string {
	return path + "[" + strconv.Quote(key) + "]"
}
