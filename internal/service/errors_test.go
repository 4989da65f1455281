package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/fault"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// told is what a client can tell of an error.
type told struct {
	code     codes.Code
	reason   string
	message  string
	metadata map[string]string
	fields   []string
	retry    bool
	infos    int
}

func tell(err error) told {
	st := status.Convert(err)
	out := told{code: st.Code(), message: st.Message()}
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			out.infos++
			if d.GetDomain() == Domain {
				out.reason, out.metadata = d.GetReason(), d.GetMetadata()
			}
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				out.fields = append(out.fields, v.GetField())
			}
		case *errdetails.RetryInfo:
			out.retry = d.GetRetryDelay().AsDuration() > 0
		}
	}
	return out
}

func TestErrors(t *testing.T) {
	tripped := testInfo("backup", flow.Tripped)
	tripped.Streak, tripped.NextEligible = 3, at(90)
	secret := errors.New("open /var/lib/schedulerd/000123.log: permission denied")

	for _, c := range []struct {
		err      error
		code     codes.Code
		reason   string
		message  string // contained
		metadata map[string]string
		fields   []string
		retry    bool
	}{
		{
			err:  &core.FlowError{Err: core.ErrFlowNotFound, Flow: "x"},
			code: codes.NotFound, reason: "FLOW_NOT_FOUND", message: `flow "x": no such flow; List`, metadata: map[string]string{"flow": "x"},
		},
		{
			err:  &core.FlowError{Err: core.ErrRunNotFound, Flow: "x", Run: "x@9"},
			code: codes.NotFound, reason: "RUN_NOT_FOUND", message: `run "x@9"`, metadata: map[string]string{"flow": "x", "run": "x@9"},
		},
		{
			err:  &core.FlowError{Err: core.ErrFlowRunning, Flow: "backup", Run: "backup@7", Info: testInfo("backup", flow.Running)},
			code: codes.FailedPrecondition, reason: "FLOW_RUNNING", message: "wait for its end or cancel it",
			metadata: map[string]string{"flow": "backup", "run": "backup@7", "streak": "0"},
		},
		{
			err:  fmt.Errorf("trigger: %w", &core.FlowError{Err: core.ErrFlowTripped, Flow: "backup", Info: tripped}),
			code: codes.FailedPrecondition, reason: "FLOW_TRIPPED", message: "reset it first",
			metadata: map[string]string{"flow": "backup", "streak": "3", "next_eligible": "2027-01-15T08:01:30Z"},
		},
		{err: fmt.Errorf("logs: %w", errNoData), code: codes.FailedPrecondition, reason: "NOT_ALLOWED", message: "--data-dir"},
		{err: fmt.Errorf("exec: %w", errNotAllowed), code: codes.PermissionDenied, reason: "NOT_ALLOWED"},
		{
			err:  fmt.Errorf("%w: no such task", core.ErrBroken),
			code: codes.FailedPrecondition, reason: "INVALID", message: "no such task; apply it again",
		},
		{err: invalid("page_token", "bad"), code: codes.InvalidArgument, reason: "INVALID", message: "page_token: bad", fields: []string{"page_token"}},
		{err: fmt.Errorf("%w: half a flow", core.ErrInvalid), code: codes.InvalidArgument, reason: "INVALID", message: "half a flow", fields: []string{""}},
		{
			err: invalidRequest(violations("schedule", fault.List{
				{Field: "cron", Offset: 4, Message: "what is this"}, {Field: "time_zone", Offset: -1, Message: "no such zone"},
			})),
			code: codes.InvalidArgument, reason: "INVALID", message: "schedule.cron: column 5: what is this; schedule.time_zone",
			fields: []string{"schedule.cron", "schedule.time_zone"},
		},
		{err: core.ErrStopping, code: codes.Unavailable, reason: "STOPPING", retry: true},
		{err: core.ErrNotReady, code: codes.Unavailable, reason: "NOT_READY", retry: true},
		{err: core.ErrLimit, code: codes.ResourceExhausted, reason: "LIMIT", retry: true},
		{err: core.ErrConflict, code: codes.Aborted, reason: "CONFLICT"},
		{err: core.ErrCompacted, code: codes.OutOfRange, reason: "COMPACTED", message: "list again"},
		{err: fmt.Errorf("%w: %w", core.ErrStore, secret), code: codes.Unavailable, reason: "STORE_FAILED", message: "was not made", retry: true},
		{err: secret, code: codes.Internal, reason: "INTERNAL", message: "reference"},
		// A status inside is another server's answer, not ours.
		{err: fmt.Errorf("task: %w", status.Error(codes.Unauthenticated, "who?")), code: codes.Internal, reason: "INTERNAL"},
	} {
		t.Run(fmt.Sprint(c.reason, " ", c.err), func(t *testing.T) {
			log := &logBuffer{}
			got := tell(statusOf(t.Context(), slog.New(slog.NewTextHandler(log, nil)), "/x/Y", c.err))
			if got.code != c.code || got.reason != c.reason || got.retry != c.retry || got.infos != 1 {
				t.Errorf("got %+v, want %v %s retry %v, one ErrorInfo", got, c.code, c.reason, c.retry)
			}
			if !strings.Contains(got.message, c.message) {
				t.Errorf("message %q does not contain %q", got.message, c.message)
			}
			if !maps.Equal(got.metadata, c.metadata) {
				t.Errorf("metadata %v, want %v", got.metadata, c.metadata)
			}
			if fmt.Sprint(got.fields) != fmt.Sprint(c.fields) {
				t.Errorf("violations of %q, want %q", got.fields, c.fields)
			}
			hidden := strings.Contains(got.message, "reference")
			if strings.Contains(got.message, "permission denied") || strings.Contains(got.message, "who?") {
				t.Errorf("the cause leaked: %q", got.message)
			}
			if lines := strings.Count(log.String(), "\n"); hidden && lines != 1 || !hidden && lines != 0 {
				t.Errorf("%d lines logged: %s", lines, log)
			}
			if hidden {
				reference := regexp.MustCompile(`reference ([A-Z0-9]+)`).FindStringSubmatch(got.message)
				if reference == nil || !strings.Contains(log.String(), reference[1]) {
					t.Errorf("message %q and log %q share no reference", got.message, log)
				}
			}
		})
	}
}

func TestOwnErrorsOfCalls(t *testing.T) {
	for _, c := range []struct {
		err  error
		code codes.Code
	}{
		{nil, codes.OK},
		{context.Canceled, codes.Canceled},
		{fmt.Errorf("waiting: %w", context.DeadlineExceeded), codes.DeadlineExceeded},
		{status.Error(codes.Unavailable, "transport is closing"), codes.Unavailable},
	} {
		if got := status.Code(statusOf(t.Context(), slog.New(slog.DiscardHandler), "/x/Y", c.err)); got != c.code {
			t.Errorf("%v: got %v, want %v", c.err, got, c.code)
		}
	}
}

// However much is wrong, what tells of it fits into the trailers that clients take.
func TestErrorsAreSmall(t *testing.T) {
	var all invalidRequest
	for range 1000 {
		all = append(all, &errdetails.BadRequest_FieldViolation{Field: strings.Repeat("f", 500), Description: strings.Repeat("d\xff", 500)})
	}
	err := statusOf(t.Context(), slog.New(slog.DiscardHandler), "/x/Y", all)
	if size := proto.Size(status.Convert(err).Proto()); size > 6<<10 { // 8 KiB once it is in base64
		t.Errorf("%d bytes", size)
	}
	if got := tell(err); len(got.fields) != maxViolations+1 || got.code != codes.InvalidArgument {
		t.Errorf("%d violations, %v", len(got.fields), got.code)
	}
}

// docs/errors.md has a row for each reason, with the code it comes with.
func TestErrorsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	type pair struct{ reason, code string }
	documented := map[pair]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\| `([A-Z_]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		documented[pair{m[1], m[2]}] = true
	}
	// What no part of this program answers yet, but clients may meet later.
	want := map[pair]bool{{"SHARD_MOVING", "UNAVAILABLE"}: true, {"INTERNAL", "INTERNAL"}: true}
	for _, r := range table {
		want[pair{strings.TrimPrefix(r.reason.String(), "ERROR_REASON_"), canonical(r.code)}] = true
	}
	if !maps.Equal(documented, want) {
		t.Errorf("docs/errors.md has %v, the table %v", documented, want)
	}
	reasons := map[string]bool{}
	for p := range documented {
		reasons[p.reason] = true
	}
	for number, name := range pb.ErrorReason_name {
		if reason := strings.TrimPrefix(name, "ERROR_REASON_"); number != 0 && !reasons[reason] {
			t.Errorf("docs/errors.md does not tell of %s", reason)
		}
	}
}

// canonical is the name of a code as protocols spell it: NOT_FOUND, not NotFound.
func canonical(c codes.Code) string {
	return strings.ToUpper(regexp.MustCompile("([a-z])([A-Z])").ReplaceAllString(c.String(), "${1}_${2}"))
}
