package schedule

import (
	"errors"
	"fmt"
)

// Kinds of errors that a caller may want to tell apart with errors.Is.
var (
	// ErrNever marks a schedule without any fire time, such as 30 February.
	ErrNever = errors.New("never fires")
	// ErrPast marks a Once that had passed when it was created.
	ErrPast = errors.New("lies in the past")
)

// Error is one fault of a Spec. Compile joins all that it finds; errors.As
// finds the first.
type Error struct {
	Field  string // path in the Spec as flows files spell it: "cron", "any_of[1].daily.at"
	Msg    string // what is wrong and what is allowed
	Offset int    // byte offset in the text of Field, -1 if the whole field is meant

	kind error // ErrNever, ErrPast or nil
}

func (e *Error) Error() string {
	if e.Offset >= 0 {
		return fmt.Sprintf("%s: column %d: %s", e.Field, e.Offset+1, e.Msg)
	}
	if e.Field == "" {
		return e.Msg
	}
	return e.Field + ": " + e.Msg
}

// Unwrap gives ErrNever or ErrPast where one applies.
func (e *Error) Unwrap() error { return e.kind }
