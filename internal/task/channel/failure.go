package channel

import (
	"fmt"
	"strings"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	maxMessage    = 1000 // bytes of a status' message in an error
	maxRetryAfter = 24 * time.Hour
)

// Failure is what the retry policy makes of a status: the class "grpc:CODE", and permanent unless another attempt may end
// otherwise. That is so for UNAVAILABLE, RESOURCE_EXHAUSTED, ABORTED, DEADLINE_EXCEEDED and CANCELLED, for UNKNOWN and
// INTERNAL, which is how servers tell of an exception that nobody caught, and for any code that comes with a RetryInfo.
// Tasks get the same idempotency key again, so that a repetition does no harm.
func Failure(err error) *workflow.Error {
	st := status.Convert(err)
	name := CodeName(st.Code())
	e := &workflow.Error{Class: "grpc:" + name, Permanent: !retryable(st.Code())}
	text := st.Message()
	if tooLarge(text) {
		e.Permanent = true // the size of a message does not change by waiting
	}
	for _, detail := range st.Details() {
		switch detail := detail.(type) {
		case *errdetails.RetryInfo:
			e.Permanent = false
			e.RetryAfter = min(max(0, detail.GetRetryDelay().AsDuration()), maxRetryAfter)
		case *errdetails.BadRequest:
			for i, v := range detail.GetFieldViolations() {
				if i < 5 {
					text += fmt.Sprintf("; %s: %s", v.GetField(), v.GetDescription())
				}
			}
		}
	}
	e.Err = fmt.Errorf("%s: %s", name, shortened(text))
	return e
}

func retryable(c codes.Code) bool {
	switch c {
	case codes.Unavailable, codes.ResourceExhausted, codes.Aborted, codes.DeadlineExceeded, codes.Canceled, codes.Unknown, codes.Internal:
		return true
	}
	return false
}

// tooLarge finds the messages of gRPC's own implementations about a message over a limit: Go; C++, Python and others; Java.
func tooLarge(message string) bool {
	message = strings.ToLower(message)
	return strings.Contains(message, "message larger than max") ||
		strings.Contains(message, "after decompression larger than max") ||
		strings.Contains(message, "message exceeds maximum size")
}

// CodeName is the name of a code as the gRPC specification writes it, such as "NOT_FOUND".
func CodeName(c codes.Code) string {
	if name, known := code.Code_name[int32(c)]; known {
		return name
	}
	return fmt.Sprintf("CODE_%d", c)
}

// shortened is the beginning of a text, in whole characters.
func shortened(text string) string {
	if len(text) <= maxMessage {
		return strings.ToValidUTF8(text, "\uFFFD")
	}
	return strings.ToValidUTF8(text[:maxMessage], "") + "…"
}
