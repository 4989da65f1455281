// Package failure has the failures that the kinds of tasks have in common.
package failure

import (
	"fmt"

	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

// Permanent is a failure that no retry can mend.
func Permanent(class, format string, args ...any) error {
	return &workflow.Error{Err: fmt.Errorf(format, args...), Class: class, Permanent: true}
}

// Retryable is a failure that the retry policy decides on.
func Retryable(class, format string, args ...any) error {
	return &workflow.Error{Err: fmt.Errorf(format, args...), Class: class}
}

// Expression is the failure of an expression in a field. What it is computed from does not change, so it is permanent.
func Expression(field string, err error) error {
	return Permanent("expression", "%s: %w", field, err)
}
