package service

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/fault"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Domain is the domain of every ErrorInfo.
const Domain = "schedulerd"

// Refusals of the service itself.
var (
	errNotAllowed = errors.New("switched off on this server")
	errNoData     = errors.New("this server keeps no data")
)

// row says how errors of a kind are told.
type row struct {
	kind   error
	code   codes.Code
	reason pb.ErrorReason
	retry  time.Duration // RetryInfo: when trying again may help; 0: it does not
	advice string        // what to do, where the error does not say it
	hidden string        // told instead of the error, whose text is for the log only
}

// table maps kinds of errors to what clients see. The first row that fits is taken; an error that none fits is a defect.
// docs/errors.md is for people what this is for the program; a test compares them.
var table = []row{
	{kind: core.ErrFlowNotFound, code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_FLOW_NOT_FOUND, advice: "List shows the flows there are"},
	{kind: core.ErrRunNotFound, code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_RUN_NOT_FOUND, advice: "ListRuns shows the runs that are kept"},
	{kind: core.ErrFlowRunning, code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_FLOW_RUNNING},
	{kind: core.ErrFlowTripped, code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_FLOW_TRIPPED},
	{kind: core.ErrBroken, code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_INVALID, advice: "apply it again, corrected"},
	{kind: errNoData, code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_NOT_ALLOWED, advice: "start schedulerd with --data-dir"},
	{kind: errNotAllowed, code: codes.PermissionDenied, reason: pb.ErrorReason_ERROR_REASON_NOT_ALLOWED},
	{kind: core.ErrInvalid, code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_INVALID},
	{kind: core.ErrStopping, code: codes.Unavailable, reason: pb.ErrorReason_ERROR_REASON_STOPPING, retry: time.Second, advice: "try again when it is back"},
	{kind: core.ErrNotReady, code: codes.Unavailable, reason: pb.ErrorReason_ERROR_REASON_NOT_READY, retry: time.Second, advice: "try again in a moment"},
	{kind: core.ErrLimit, code: codes.ResourceExhausted, reason: pb.ErrorReason_ERROR_REASON_LIMIT, retry: time.Second},
	{kind: core.ErrConflict, code: codes.Aborted, reason: pb.ErrorReason_ERROR_REASON_CONFLICT},
	{kind: core.ErrCompacted, code: codes.OutOfRange, reason: pb.ErrorReason_ERROR_REASON_COMPACTED, advice: "list again, or watch without a token"},
	{kind: core.ErrStore, code: codes.Unavailable, reason: pb.ErrorReason_ERROR_REASON_STORE_FAILED, retry: time.Second, hidden: "the store could not record the change, so it was not made"},
}

// Error details travel in HTTP/2 trailers, of which many clients take 8 KiB at most.
const (
	maxMessage    = 1024 // bytes
	maxViolations = 10
	maxViolation  = 160 // bytes of a violation's text, and of its field
)

// statusOf is err as clients see it. What they must not see is logged here, once, under a reference that they do see.
func statusOf(ctx context.Context, log *slog.Logger, method string, err error) error {
	if err == nil {
		return nil
	}
	// gRPC's own errors, of a broken stream, and the status of health and reflection are what they shall be. Only err
	// itself counts: a status that it wraps is some other server's answer.
	if _, ok := err.(interface{ GRPCStatus() *status.Status }); ok { //nolint:errorlint // see above
		return err
	}
	for _, r := range table {
		if errors.Is(err, r.kind) {
			if r.hidden == "" {
				return r.status(err, withAdvice(oneLine(err), r.advice))
			}
			return r.status(err, fmt.Sprintf("%s; try again (reference %s in the server's log)", r.hidden, logHidden(ctx, log, method, err)))
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, "the call was cancelled")
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "the call's deadline passed")
	}
	return internalError(logHidden(ctx, log, method, err))
}

// internalError is what clients see of a defect.
func internalError(reference string) error {
	r := row{code: codes.Internal, reason: pb.ErrorReason_ERROR_REASON_INTERNAL}
	return r.status(nil, "internal error; the server's log has more under reference "+reference)
}

func logHidden(ctx context.Context, log *slog.Logger, method string, err error) (reference string) {
	reference = newReference()
	log.ErrorContext(ctx, "call failed", "rpc", method, "reference", reference, "error", err)
	return reference
}

func newReference() string { return rand.Text()[:10] }

func withAdvice(message, advice string) string {
	if advice == "" {
		return message
	}
	return message + "; " + advice
}

// status is the row's answer to err, which may be nil.
func (r row) status(err error, message string) error {
	info := &errdetails.ErrorInfo{
		Domain:   Domain,
		Reason:   strings.TrimPrefix(r.reason.String(), "ERROR_REASON_"),
		Metadata: metadata(err),
	}
	details := []protoadapt.MessageV1{info}
	if r.code == codes.InvalidArgument {
		details = append(details, badRequest(err))
	}
	if r.retry > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(r.retry)})
	}
	plain := status.New(r.code, cut(message, maxMessage))
	full, failed := plain.WithDetails(details...)
	if failed != nil { // cannot be: none of the details is of unknown type
		return plain.Err()
	}
	return full.Err()
}

// metadata tells what the error is about, for programs.
func metadata(err error) map[string]string {
	about := (*core.FlowError)(nil)
	if !errors.As(err, &about) {
		return nil
	}
	m := map[string]string{}
	if about.Flow != "" {
		m["flow"] = cut(about.Flow, maxViolation)
	}
	if about.Run != "" {
		m["run"] = cut(about.Run, maxViolation)
	}
	if info := about.Info; info != nil {
		m["streak"] = strconv.FormatUint(uint64(info.Streak), 10)
		if at := info.NextEligible.Time(); !at.IsZero() {
			m["next_eligible"] = at.Format(time.RFC3339Nano)
		}
	}
	return m
}

// invalidRequest is what is wrong with a request, by field.
type invalidRequest []*errdetails.BadRequest_FieldViolation

// invalid is a request with one field that is wrong.
func invalid(field, format string, args ...any) error {
	return invalidRequest{violation(field, fmt.Sprintf(format, args...))}
}

func violation(field, text string) *errdetails.BadRequest_FieldViolation {
	return &errdetails.BadRequest_FieldViolation{Field: field, Description: text}
}

func (e invalidRequest) Error() string {
	texts := make([]string, 0, len(e))
	for _, v := range e {
		if v.Field == "" {
			texts = append(texts, v.Description)
		} else {
			texts = append(texts, v.Field+": "+v.Description)
		}
	}
	return strings.Join(texts, "; ")
}

// Is makes it an error of kind core.ErrInvalid.
func (e invalidRequest) Is(kind error) bool { return kind == core.ErrInvalid }

// badRequest tells what is wrong with a request, as much of it as fits.
func badRequest(err error) *errdetails.BadRequest {
	var all invalidRequest
	var faults fault.List
	switch {
	case errors.As(err, &all):
	case errors.As(err, &faults):
		all = violations("", faults)
	default:
		all = invalidRequest{violation("", oneLine(err))}
	}
	shown := &errdetails.BadRequest{}
	for i, v := range all {
		if i == maxViolations {
			shown.FieldViolations = append(shown.FieldViolations, violation("", fmt.Sprintf("and %d more", len(all)-i)))
			break
		}
		shown.FieldViolations = append(shown.FieldViolations, violation(cut(v.Field, maxViolation), cut(v.Description, maxViolation)))
	}
	return shown
}

// violations are faults of the part of a request that is called path.
func violations(path string, faults fault.List) invalidRequest {
	out := make(invalidRequest, len(faults))
	for i, f := range faults {
		text := f.Message
		if f.Offset > 0 {
			text = fmt.Sprintf("column %d: %s", f.Offset+1, text)
		}
		out[i] = violation(fault.Field(path, f.Field), text)
	}
	return out
}

// oneLine is an error's text; errors.Join writes one line for each.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// cut shortens s to limit bytes and a mark, and makes it fit for protobuf.
func cut(s string, limit int) string {
	whole := len(s) <= limit
	s = text(s[:min(len(s), limit)])
	if whole && len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:min(len(s), limit)], "") + "…"
}
