package schedctl

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/manifest"
)

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestSources(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "b.yaml", "b")
	write(t, dir, "a.yml", "a")
	write(t, dir, "sub/c.json", "folders inside are left out, as by the daemon")
	write(t, dir, "notes.txt", "no")
	write(t, dir, ".hidden.yaml", "no")
	write(t, dir, ".git/x.yaml", "no")
	r := newRig(t)
	r.in = "from stdin"
	if got := r.run("validate", dir, "-"); got.code != ExitOK {
		t.Fatal(got.err)
	}
	var names []string
	for _, source := range r.received("ValidateFlows")[0].request.(*pb.ValidateFlowsRequest).GetSources() {
		names = append(names, strings.TrimPrefix(source.GetName(), dir)+"="+source.GetContent())
	}
	if want := []string{"/a.yml=a", "/b.yaml=b", "<stdin>=from stdin"}; !slices.Equal(names, want) {
		t.Errorf("sent %q, want %q", names, want)
	}
}

func TestSourcesRefused(t *testing.T) {
	dir := t.TempDir()
	tests := []struct {
		name, text string
		code       int
		want       string
	}{
		{"large.yaml", strings.Repeat("#", manifest.MaxFileBytes+1), ExitInvalid, "larger than 4 MiB"},
		{"binary.yaml", "a: \xff", ExitInvalid, "not text in UTF-8"},
	}
	for _, test := range tests {
		r := newRig(t)
		got := r.run("validate", write(t, dir, test.name, test.text))
		if got.code != test.code || !strings.Contains(got.err, test.want) || len(r.calls) != 0 {
			t.Errorf("%s: exit code %d, %s", test.name, got.code, got.err)
		}
	}
}

func TestFaults(t *testing.T) {
	file := write(t, t.TempDir(), "flows.yaml", "flows:\n  - id: a\n    schedul: {daily: {at: ä25:00}}\n")
	faults := []*pb.Fault{
		{Source: file, Line: 3, Column: 5, Field: "flows[0].schedul", Message: "unknown field; did you mean schedule?"},
		{Source: file, Line: 3, Column: 28, Field: "flows[0]", Message: "flows[0].schedule.daily.at: no such time"},
		{Source: file, Line: 99, Column: 1, Message: "beyond the end"},
		{Source: file, Message: "somewhere"},
		{Source: file, Line: 2, Column: 1, Message: "with a picture\n  of its own"},
	}
	for _, command := range []string{"validate", "apply", "plan"} {
		r := newRig(t)
		r.faults = faults
		got := r.run(command, file)
		if got.code != ExitInvalid {
			t.Errorf("%s: exit code %d", command, got.code)
		}
		// The folder's name differs from run to run.
		golden(t, "faults", transcript("… flows.yaml", result{got.code, got.out, strings.ReplaceAll(got.err, file, "flows.yaml")}))
	}
	r := newRig(t)
	r.faults = faults
	if got := r.run("validate", file, "-o", "json"); got.code != ExitInvalid || strings.Count(got.out, `"message"`) != len(faults) {
		t.Errorf("json: exit code %d, %s", got.code, got.out)
	}
}

// What get prints, apply takes, and graph draws.
func TestDefinitionsGoRound(t *testing.T) {
	r := newSampleRig(t)
	printed := r.run("get", "backup")
	if printed.code != ExitOK {
		t.Fatal(printed.err)
	}
	r.in = printed.out
	if got := r.run("apply", "-"); got.code != ExitOK {
		t.Error(got.err)
	}
	if sent := r.received("ApplyFlows")[0].request.(*pb.ApplyFlowsRequest).GetSources()[0].GetContent(); sent != printed.out {
		t.Errorf("sent %q", sent)
	}
	stored := r.run("graph", "backup")
	r.stop() // a file needs no server
	for _, args := range [][]string{{"graph", "-"}, {"graph", "-", "--flow", "backup"}, {"graph", write(t, t.TempDir(), "f.yaml", printed.out)}} {
		if got := r.run(args...); got.out != stored.out || got.code != ExitOK {
			t.Errorf("%v: exit code %d\n%s%s", args, got.code, got.out, got.err)
		}
		r.in = printed.out
	}
	if got := r.run("graph", "-", "--flow", "nope"); got.code != ExitNotFound {
		t.Errorf("a flow that is not in the file: exit code %d", got.code)
	}
	if got := r.run("graph", "testdata/flows", "--format", "dot"); got.code != ExitOK || !strings.HasPrefix(got.out, "digraph") {
		t.Errorf("dot: exit code %d, %s", got.code, got.err)
	}
	r.in = "flows: [{id: [}"
	if got := r.run("graph", "-"); got.code != ExitInvalid {
		t.Errorf("not YAML: exit code %d, %s", got.code, got.err)
	}
	r.in = "flows: 7"
	if got := r.run("graph", "-"); got.code != ExitInvalid {
		t.Errorf("not flows: exit code %d, %s", got.code, got.err)
	}
}

func TestParams(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "params.yaml", "day: 2027-03-28\nlist: [1, 2.5, yes]\nnested: {a: null}\nover: file\n")
	r := newRig(t)
	for i, args := range [][]string{
		{"--params-file", file, "--param", "over=true", "--param-text", "n=3", "--param", "s=a=b", "--param", "zeros=007", "--param", `q="x"`, "-p", `o={"a":[1]}`, "--param", "empty="},
		{"--params-file", "-"},
		nil,
	} {
		r.set(flow("a", idle))
		r.in = "x: 1"
		if got := r.run(append([]string{"trigger", "a"}, args...)...); got.code != ExitOK {
			t.Fatal(got.err)
		}
		want := []string{
			`day="2027-03-28" empty="" list=[1,2.5,"yes"] n="3" nested={"a":null} o={"a":[1]} over=true q="x" s="a=b" zeros="007"`,
			"x=1",
			"",
		}[i]
		if got := params(r.received("Trigger")[i].request.(*pb.TriggerRequest).GetParams()); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	for text, want := range map[string]string{
		"[1]": "object", "a: [": "yaml", "1: x\nb: .nan": "object", strings.Repeat("#", maxParamsBytes+1): "larger", "a: &x [*x]": "object",
	} {
		r.set(flow("a", idle))
		got := r.run("trigger", "a", "--params-file", write(t, dir, "bad.yaml", text))
		if got.code != ExitInvalid && got.code != ExitUsage || !strings.Contains(got.err, want) {
			t.Errorf("%.20q: exit code %d, %s", text, got.code, got.err)
		}
	}
}

func TestRequestID(t *testing.T) {
	r := newRig(t, flow("a", idle))
	const id = "0d7f1f0e-1111-4222-8333-444455556666"
	first, second := r.run("trigger", "a", "--request-id", id), r.run("trigger", "a", "--request-id", id)
	if first != second || first.code != ExitOK || first.out != "started a@1\n" {
		t.Errorf("the same request id gave %v, then %v", first, second)
	}
}

func TestStopThatIsNotClean(t *testing.T) {
	flow := flow("a", running)
	flow.CurrentRun = &pb.CurrentRun{RunId: "a@1", Cancelling: true}
	got := newRig(t, flow).run("stop")
	golden(t, "stop-unclean", transcript("stop", got))
	if got.code != ExitOther {
		t.Errorf("exit code %d", got.code)
	}
}

func TestCompletionOfFlows(t *testing.T) {
	r := newSampleRig(t)
	if got := r.run("__complete", "trigger", "f"); !strings.HasPrefix(got.out, "flaky\n:4") {
		t.Errorf("completions: %q %s", got.out, got.err)
	}
	if got := r.run("__complete", "list", "--status", ""); !strings.HasPrefix(got.out, "IDLE\n") {
		t.Errorf("completions: %q %s", got.out, got.err)
	}
	r.stop()
	if got := r.run("__complete", "trigger", ""); !strings.Contains(got.out, ":1") {
		t.Errorf("completions without a server: %q", got.out)
	}
}
