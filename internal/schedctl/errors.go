package schedctl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

// The exit codes.
const (
	ExitOK          = 0
	ExitOther       = 1   // anything without a code of its own
	ExitUsage       = 2   // the command line was wrong; nothing was sent
	ExitNotFound    = 3   // no such flow or run
	ExitRefused     = 4   // the state of the flow or of the server forbids it
	ExitUnavailable = 5   // no answer, or none in time
	ExitRunFailed   = 6   // the run waited for did not succeed
	ExitInvalid     = 7   // the server, or a check before it, found the input invalid
	ExitInterrupted = 130 // ended by SIGINT or SIGTERM before its time
)

// rule says what an error means to the user. In words, {key} stands for a value of
// the ErrorInfo's metadata; a part in [brackets] is left out where a value is missing,
// and so are the words as a whole: the server's message is shown then.
type rule struct {
	code   codes.Code
	reason pb.ErrorReason // UNSPECIFIED: any
	exit   int
	words  string
	hint   string // follows the server's message where there are no words
}

// rules is the one table from errors on the wire to exit codes and words. The first that fits is taken.
var rules = []rule{
	{codes.NotFound, pb.ErrorReason_ERROR_REASON_FLOW_NOT_FOUND, ExitNotFound, "there is no flow {flow}; run: schedctl list", "run: schedctl list"},
	{codes.NotFound, pb.ErrorReason_ERROR_REASON_RUN_NOT_FOUND, ExitNotFound, "there is no run {run}, or it is no longer kept; run: schedctl runs {flow}", "run: schedctl runs FLOW"},
	{codes.NotFound, 0, ExitNotFound, "", ""},
	{codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_FLOW_RUNNING, ExitRefused, "flow {flow} is running[ ({run})]; wait for it, or run: schedctl cancel {flow}", ""},
	{codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_FLOW_TRIPPED, ExitRefused, "flow {flow} has tripped[ after {streak} failures]; run: schedctl reset {flow}", ""},
	{codes.FailedPrecondition, 0, ExitRefused, "", ""},
	{codes.AlreadyExists, 0, ExitRefused, "", ""},
	{codes.Aborted, pb.ErrorReason_ERROR_REASON_CONFLICT, ExitRefused, "", "look again (schedctl plan, schedctl get), then repeat it with the new etag, or with another request id"},
	{codes.Aborted, 0, ExitRefused, "", ""},
	{codes.ResourceExhausted, pb.ErrorReason_ERROR_REASON_LIMIT, ExitRefused, "", "try again later, or trigger with --wait-for-slot"},
	{codes.ResourceExhausted, 0, ExitRefused, "", ""},
	{codes.OutOfRange, pb.ErrorReason_ERROR_REASON_COMPACTED, ExitOther, "", "list again: schedctl list"},
	{codes.InvalidArgument, 0, ExitInvalid, "", ""},
	{codes.Unavailable, pb.ErrorReason_ERROR_REASON_STOPPING, ExitUnavailable, "the scheduler is stopping", ""},
	{codes.Unavailable, pb.ErrorReason_ERROR_REASON_NOT_READY, ExitUnavailable, "the scheduler is still loading; try again in a moment", ""},
	{codes.Unavailable, pb.ErrorReason_ERROR_REASON_SHARD_MOVING, ExitUnavailable, "flow {flow} is moving to another replica; try again in a moment", "try again in a moment"},
	{codes.Unavailable, pb.ErrorReason_ERROR_REASON_STORE_FAILED, ExitUnavailable, "", "nothing was changed; look at the daemon's log and disk"},
	{codes.Unavailable, 0, ExitUnavailable, "", ""},
	{codes.DeadlineExceeded, 0, ExitUnavailable, "", ""},
	{codes.PermissionDenied, pb.ErrorReason_ERROR_REASON_NOT_ALLOWED, ExitOther, "", ""},
	{codes.PermissionDenied, 0, ExitOther, "", "your role does not allow it"},
	{codes.Unauthenticated, 0, ExitOther, "", "say who you are with --token-file, or with --cert and --key"},
	{codes.Unimplemented, 0, ExitOther, "", "the daemon is older than this schedctl: compare schedctl info and schedctl version"},
	{codes.Canceled, 0, ExitInterrupted, "", ""},
	{codes.Internal, pb.ErrorReason_ERROR_REASON_INTERNAL, ExitOther, "", "this is a defect; the daemon's log has more"},
}

func ruleFor(code codes.Code, reason pb.ErrorReason) rule {
	for _, r := range rules {
		if r.code == code && (r.reason == reason || r.reason == 0) {
			return r
		}
	}
	return rule{exit: ExitOther}
}

// exitError is an error of schedctl's own with its exit code.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func failf(code int, format string, args ...any) error {
	return &exitError{code, fmt.Errorf(format, args...)}
}

// usagef is a fault of the command line.
func usagef(format string, args ...any) error { return failf(ExitUsage, format, args...) }

// errSilent ends a command whose output has said what went wrong.
var errSilent = errors.New("already reported")

// exitCode is the exit code that an error leads to.
func exitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	if own := (*exitError)(nil); errors.As(err, &own) {
		return own.code
	}
	if st := wireStatus(err); st != nil {
		return ruleFor(st.Code(), reasonOf(err)).exit
	}
	if errors.Is(err, context.Canceled) {
		return ExitInterrupted
	}
	return ExitOther
}

// explain puts an error into words: what happened, and what to do. server is the address that was called.
func explain(err error, server string) string {
	st := wireStatus(err)
	if own := (*exitError)(nil); st == nil || errors.As(err, &own) {
		if errors.Is(err, context.DeadlineExceeded) {
			return "not done within --timeout"
		}
		return err.Error()
	}
	info := errorInfo(st)
	r := ruleFor(st.Code(), reasonOf(err))
	text, complete := expand(r.words, info.GetMetadata())
	switch {
	case complete:
	case st.Code() == codes.Unavailable && info == nil:
		cause, hint := unreachable(st.Message())
		text = fmt.Sprintf("cannot reach %s: %s; %s", server, cause, hint)
	case st.Code() == codes.DeadlineExceeded:
		text = fmt.Sprintf("no answer from %s in time; --timeout allows more", server)
	default:
		if text = st.Message(); text == "" {
			text = st.Code().String()
		}
		if r.hint != "" {
			text += "; " + r.hint
		}
	}
	for _, detail := range st.Details() {
		switch detail := detail.(type) {
		case *errdetails.RetryInfo:
			if delay := detail.GetRetryDelay().AsDuration(); delay > 0 {
				text += fmt.Sprintf("; the server asks to wait %s", shortDuration(delay))
			}
		case *errdetails.BadRequest:
			for _, violation := range detail.GetFieldViolations() {
				line := violation.GetField() + ": " + violation.GetDescription()
				if !strings.Contains(text, violation.GetDescription()) {
					text += "\n  " + strings.ReplaceAll(line, "\n", "\n  ")
				}
			}
		}
	}
	return text
}

// unreachable makes readable what gRPC says when there is no connection, and tells what may help.
func unreachable(message string) (cause, hint string) {
	cause = message
	if _, after, found := strings.Cut(cause, `desc = "`); found {
		cause = strings.TrimSuffix(after, `"`)
	}
	cause = strings.TrimPrefix(cause, "transport: ")
	cause = strings.TrimPrefix(cause, "Error while dialing: ")
	hint = "is schedulerd running there? --server or SCHEDCTL_SERVER names another address"
	switch {
	case strings.Contains(cause, "first record does not look like a TLS handshake"):
		hint = "the server does not speak TLS: leave --tls out, or add --insecure"
	case strings.Contains(cause, "server preface"), strings.Contains(cause, "malformed HTTP response"):
		hint = "the server may want TLS: add --tls, and --ca if its certificate is your own"
	case strings.Contains(cause, "certificate signed by unknown authority"):
		hint = "name the authority's certificate with --ca"
	case strings.Contains(cause, "certificate required"), strings.Contains(cause, "bad certificate"):
		hint = "the server wants a certificate: --cert and --key"
	}
	return cause, hint
}

// explainLoss says why a stream broke that goes on by itself.
func explainLoss(err error, server string) string {
	if st := wireStatus(err); st != nil && st.Code() == codes.Unavailable && errorInfo(st) == nil {
		cause, _ := unreachable(st.Message())
		return fmt.Sprintf("connection to %s lost: %s; trying again", server, cause)
	}
	return explain(err, server) + "; trying again"
}

// expand fills words from metadata; ok is false if a value outside of brackets is missing or there are no words.
func expand(words string, metadata map[string]string) (text string, ok bool) {
	before, rest, _ := strings.Cut(words, "[")
	optional, after, _ := strings.Cut(rest, "]")
	text, ok = fill(before, metadata)
	if filled, complete := fill(optional, metadata); complete {
		text += filled
	}
	filled, complete := fill(after, metadata)
	return text + filled, ok && complete && words != ""
}

// fill replaces each {key}; complete is false if a value is missing.
func fill(words string, metadata map[string]string) (text string, complete bool) {
	complete = true
	for {
		before, rest, found := strings.Cut(words, "{")
		text += before
		if !found {
			return text, complete
		}
		key, after, _ := strings.Cut(rest, "}")
		complete = complete && metadata[key] != ""
		text += metadata[key]
		words = after
	}
}

// wireStatus is the status of an error that came from a call, or nil. Unlike
// status.FromError it keeps the message as the server wrote it.
func wireStatus(err error) *status.Status {
	var carrier interface{ GRPCStatus() *status.Status }
	if errors.As(err, &carrier) {
		return carrier.GRPCStatus()
	}
	return nil
}

// errorInfo is the ErrorInfo that schedulerd put into a status, or nil.
func errorInfo(st *status.Status) *errdetails.ErrorInfo {
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == "schedulerd" {
			return info
		}
	}
	return nil
}

// reasonOf is schedulerd's reason for an error, UNSPECIFIED if it gave none.
func reasonOf(err error) pb.ErrorReason {
	st := wireStatus(err)
	if st == nil {
		return pb.ErrorReason_ERROR_REASON_UNSPECIFIED
	}
	return pb.ErrorReason(pb.ErrorReason_value["ERROR_REASON_"+errorInfo(st).GetReason()])
}
