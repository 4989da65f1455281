package schedctl

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

func newSampleRig(t *testing.T) *rig {
	t.Helper()
	flows, runs := sampleRig()
	r := newRig(t, flows...)
	for _, run := range runs {
		r.setRun(run)
	}
	r.definitions["backup"] = &pb.Flow{
		Id:       "backup",
		Schedule: &pb.Schedule{Kind: &pb.Schedule_Cron{Cron: "0 0 3 * * *"}, TimeZone: "Europe/Berlin"},
		Work: &pb.Flow_Task{Task: &pb.Task{Kind: &pb.Task_Exec{Exec: &pb.ExecTask{
			Command: []string{"tar", "-czf", "backup: \"daily\".tar", "data"}, Env: map[string]string{"YES": "no", "N": "1e3"},
		}}}},
		Timeout: durationpb.New(90 * time.Second),
	}
	return r
}

// TestGolden holds what commands print. Each file has the command line, the exit code and both outputs.
func TestGolden(t *testing.T) {
	tests := []struct{ name, args string }{
		{"list", "list"},
		{"list-wide", "list -o wide"},
		{"list-utc", "list --utc"},
		{"list-json", "list -o json --status tripped"},
		{"list-yaml", "list -o yaml -l team=ops -l tier"},
		{"list-name", "list -o name"},
		{"list-none", "list -l nobody -o json"},
		{"list-limit", "list --limit 2 -o name"},
		{"status", "status backup"},
		{"status-tripped", "status flaky"},
		{"status-json", "status flaky -o json"},
		{"status-missing", "status nope"},
		{"runs", "runs backup"},
		{"runs-wide", "runs backup -o wide --outcome succeeded,failed"},
		{"runs-json", "runs backup -o json --outcome failed"},
		{"run", "run backup@11"},
		{"run-running", "run backup@12"},
		{"run-json", "run backup@10 -o json"},
		{"run-missing", "run backup@99"},
		{"trigger", "trigger health"},
		{"trigger-running", "trigger backup"},
		{"trigger-tripped", "trigger flaky"},
		{"reset", "reset flaky sync"},
		{"reset-some-missing", "reset nope flaky"},
		{"cancel", "cancel backup"},
		{"cancel-run", "cancel backup@12"},
		{"cancel-idle", "cancel export"},
		{"pause", "pause health sync -o name"},
		{"pause-yaml", "pause export export -o yaml"},
		{"resume", "resume export --catch-up last"},
		{"info", "info"},
		{"info-json", "info -o json"},
		{"get", "get backup"},
		{"get-json", "get backup -o json"},
		{"delete", "delete export"},
		{"plan", "plan testdata/flows/valid.yaml --prune"},
		{"apply", "apply testdata/flows -o wide"},
		{"apply-conflict", "apply testdata/flows --etag e0"},
		{"apply-json", "apply testdata/flows -o json"},
		{"apply-name", "apply testdata/flows -o name"},
		{"validate", "validate testdata/flows"},
		{"preview-flow", "preview health --count 3"},
		{"stop", "stop --grace 5s"},
		{"graph", "graph backup"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newSampleRig(t)
			got := r.run(strings.Fields(test.args)...)
			golden(t, test.name, transcript(test.args, got))
		})
	}
}

func transcript(args string, r result) string {
	text := "$ schedctl " + args + "\n" + r.out
	if r.err != "" {
		text += "--- standard error\n" + r.err
	}
	return text + "--- exit code " + strconv.Itoa(r.code) + "\n"
}
