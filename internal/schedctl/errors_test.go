package schedctl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

// TestErrors holds what each error on the wire means to a user: the exit code, and words with the fix.
func TestErrors(t *testing.T) {
	backup := map[string]string{"flow": "backup", "run": "backup@12", "streak": "3"}
	tests := []struct {
		name string
		err  error
		code int
		want string
	}{
		{"unknown flow", refusal(codes.NotFound, "FLOW_NOT_FOUND", "no", backup), ExitNotFound, "there is no flow backup; run: schedctl list"},
		{"unknown run", refusal(codes.NotFound, "RUN_NOT_FOUND", "no", backup), ExitNotFound, "there is no run backup@12, or it is no longer kept; run: schedctl runs backup"},
		{"unknown run without metadata", refusal(codes.NotFound, "RUN_NOT_FOUND", "run x is not kept", nil), ExitNotFound, "run x is not kept; run: schedctl runs FLOW"},
		{"running", refusal(codes.FailedPrecondition, "FLOW_RUNNING", "no", backup), ExitRefused, "flow backup is running (backup@12); wait for it, or run: schedctl cancel backup"},
		{"running, run unknown", refusal(codes.FailedPrecondition, "FLOW_RUNNING", "no", map[string]string{"flow": "backup"}), ExitRefused, "flow backup is running; wait for it, or run: schedctl cancel backup"},
		{"tripped", refusal(codes.FailedPrecondition, "FLOW_TRIPPED", "no", backup), ExitRefused, "flow backup has tripped after 3 failures; run: schedctl reset backup"},
		{"tripped without metadata", refusal(codes.FailedPrecondition, "FLOW_TRIPPED", "it has tripped; reset it first", nil), ExitRefused, "it has tripped; reset it first"},
		{"tripped, as somebody else says it", status.Error(codes.FailedPrecondition, "no"), ExitRefused, "no"},
		{
			"invalid", refusal(codes.InvalidArgument, "INVALID", "the request is invalid", nil, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
				{Field: "flow_id", Description: "must not be empty"}, {Field: "page_size", Description: "must not be\nnegative"},
			}}),
			ExitInvalid, "the request is invalid\n  flow_id: must not be empty\n  page_size: must not be\n  negative",
		},
		{"stopping", refusal(codes.Unavailable, "STOPPING", "no", nil), ExitUnavailable, "the scheduler is stopping"},
		{
			"not ready", refusal(codes.Unavailable, "NOT_READY", "no", nil, &errdetails.RetryInfo{RetryDelay: durationpb.New(3 * time.Second)}),
			ExitUnavailable, "the scheduler is still loading; try again in a moment; the server asks to wait 3s",
		},
		{"store failed", refusal(codes.Unavailable, "STORE_FAILED", "disk full", nil), ExitUnavailable, "disk full; nothing was changed; look at the daemon's log and disk"},
		{"limit", refusal(codes.ResourceExhausted, "LIMIT", "1000 runs are on their way", nil), ExitRefused, "1000 runs are on their way; try again later, or trigger with --wait-for-slot"},
		{"conflict", refusal(codes.Aborted, "CONFLICT", "the etag does not match", nil), ExitRefused, "the etag does not match; look again (schedctl plan, schedctl get), then repeat it with the new etag, or with another request id"},
		{"compacted", refusal(codes.OutOfRange, "COMPACTED", "too old", nil), ExitOther, "too old; list again: schedctl list"},
		{"not allowed", refusal(codes.PermissionDenied, "NOT_ALLOWED", "exec over the API is off", nil), ExitOther, "exec over the API is off"},
		{"not permitted", status.Error(codes.PermissionDenied, "viewers may not trigger"), ExitOther, "viewers may not trigger; your role does not allow it"},
		{"who are you", status.Error(codes.Unauthenticated, "no token"), ExitOther, "no token; say who you are with --token-file, or with --cert and --key"},
		{"older daemon", status.Error(codes.Unimplemented, "unknown method"), ExitOther, "unknown method; the daemon is older than this schedctl: compare schedctl info and schedctl version"},
		{"defect", refusal(codes.Internal, "INTERNAL", "it broke", nil), ExitOther, "it broke; this is a defect; the daemon's log has more"},
		{"a reason newer than this client", refusal(codes.FailedPrecondition, "FLOW_ON_FIRE", "the flow burns", nil), ExitRefused, "the flow burns"},
		{"the same reason of somebody else", func() error {
			st, _ := status.New(codes.FailedPrecondition, "no").WithDetails(&errdetails.ErrorInfo{Domain: "example.com", Reason: "FLOW_TRIPPED", Metadata: backup})
			return st.Err()
		}(), ExitRefused, "no"},
		{"no answer", status.Error(codes.DeadlineExceeded, "context deadline exceeded"), ExitUnavailable, "no answer from here:1 in time; --timeout allows more"},
		{"no message", status.Error(codes.DataLoss, ""), ExitOther, "DataLoss"},
		{"braces in metadata", refusal(codes.NotFound, "FLOW_NOT_FOUND", "no", map[string]string{"flow": "{flow}["}), ExitNotFound, "there is no flow {flow}[; run: schedctl list"},
		{"interrupted", status.FromContextError(context.Canceled).Err(), ExitInterrupted, "context canceled"},
		{"wrapped", fmt.Errorf("max retries exhausted: %w", refusal(codes.NotFound, "FLOW_NOT_FOUND", "no", backup)), ExitNotFound, "there is no flow backup; run: schedctl list"},
		{"our own", usagef("--count must not be negative"), ExitUsage, "--count must not be negative"},
		{"out of time", context.DeadlineExceeded, ExitOther, "not done within --timeout"},
		{"anything", errors.New("disk full"), ExitOther, "disk full"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := exitCode(test.err); got != test.code {
				t.Errorf("exit code %d, want %d", got, test.code)
			}
			if got := explain(test.err, "here:1"); got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

// Every reason that the API can give has a rule, under the code it comes with.
func TestEveryReasonHasARule(t *testing.T) {
	for number, name := range pb.ErrorReason_name {
		if number == 0 {
			continue
		}
		covered := false
		for _, r := range rules {
			covered = covered || r.reason == pb.ErrorReason(number) || r.reason == 0 && r.code == codes.InvalidArgument && strings.HasSuffix(name, "_INVALID")
		}
		if !covered {
			t.Errorf("no rule for %s", name)
		}
	}
}

func TestUnreachable(t *testing.T) {
	tests := []struct{ message, want string }{
		{
			`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:7420: connect: connection refused"`,
			"cannot reach here:1: dial tcp 127.0.0.1:7420: connect: connection refused; is schedulerd running there? --server or SCHEDCTL_SERVER names another address",
		},
		{
			`connection error: desc = "transport: authentication handshake failed: tls: first record does not look like a TLS handshake"`,
			"cannot reach here:1: authentication handshake failed: tls: first record does not look like a TLS handshake; the server does not speak TLS: leave --tls out, or add --insecure",
		},
		{
			`connection error: desc = "error reading server preface: EOF"`,
			"cannot reach here:1: error reading server preface: EOF; the server may want TLS: add --tls, and --ca if its certificate is your own",
		},
		{
			`connection error: desc = "error reading from server: remote error: tls: certificate required"`,
			"cannot reach here:1: error reading from server: remote error: tls: certificate required; the server wants a certificate: --cert and --key",
		},
	}
	for _, test := range tests {
		if got := explain(status.Error(codes.Unavailable, test.message), "here:1"); got != test.want {
			t.Errorf("got  %q\nwant %q", got, test.want)
		}
	}
}

func TestExpand(t *testing.T) {
	tests := []struct {
		words string
		want  string
		ok    bool
	}{
		{"", "", false},
		{"plain", "plain", true},
		{"flow {flow}", "flow backup", true},
		{"flow {nope}", "flow ", false},
		{"a[ ({nope})] b", "a b", true},
		{"a[ ({flow})] b", "a (backup) b", true},
	}
	for _, test := range tests {
		if got, ok := expand(test.words, map[string]string{"flow": "backup"}); got != test.want || ok != test.ok {
			t.Errorf("expand(%q) = %q, %v", test.words, got, ok)
		}
	}
}

// TestUsage holds that what is wrong with a command line is found before anything is sent.
func TestUsage(t *testing.T) {
	tests := []struct {
		args string
		want string // in the message
	}{
		{"frobnicate", "unknown command"},
		{"list extra", "unknown command"},
		{"list --nope", "unknown flag"},
		{"list -o xml", "table|wide|json|yaml|name"},
		{"list --status happy", "idle, running, completed, backoff, tripped"},
		{"list -l =x", "has no key"},
		{"list --timeout -1s", "must not be negative"},
		{"list --limit -1", "invalid argument"},
		{"status", "schedctl status --help"},
		{"status a b", "accepts 1 arg"},
		{"trigger a --param nope", "KEY=VALUE"},
		{"trigger a --param-text =x", "KEY=VALUE"},
		{"trigger a --params-file /nonexistent", "no such file"},
		{"reset", "requires at least 1 arg"},
		{"resume a --catch-up sometimes", "skip, last, all"},
		{"resume a --catch-up skip,all", "one value"},
		{"stop --grace -5s", "must not be negative"},
		{"validate /nonexistent", "no such file"},
		{"validate testdata/empty", "no flows files in this folder"},
		{"list --server dns:///%%%", "--server"},
		{"list --cert x", "--cert and --key go together"},
		{"list --ca /nonexistent", "no such file"},
		{"list --ca main_test.go", "no certificate in PEM"},
		{"list --insecure --tls", "exclude each other"},
		{"list --token-file /nonexistent", "no such file"},
		{"preview", "what shall be previewed"},
		{"preview a --cron *", "exclude each other"},
		{"preview a --zone UTC", "not with a FLOW"},
		{"preview --daily 09:00 --every 5s", "[daily every]"},
		{"preview --every 5s --from yesterday", "not an instant"},
		{"preview --every 5s --count -1", "must not be negative"},
		{"graph a --format png", "neither mermaid nor dot"},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			r := newSampleRig(t)
			got := r.run(strings.Fields(test.args)...)
			if got.code != ExitUsage || !strings.Contains(got.err, test.want) || got.out != "" {
				t.Errorf("exit code %d, want %d and %q in %q; %s", got.code, ExitUsage, test.want, got.err, got.out)
			}
			if len(r.calls) != 0 {
				t.Errorf("%d calls were made", len(r.calls))
			}
		})
	}
}
