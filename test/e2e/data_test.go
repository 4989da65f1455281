package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/test/daemon"
)

// ok fails the test unless a command ended well, and gives what it wrote.
func ok(t *testing.T, r daemon.Result) string {
	t.Helper()
	if r.Code != 0 {
		t.Fatalf("exit code %d\n%s%s", r.Code, r.Out, r.Err)
	}
	return r.Out
}

// refused fails the test unless a command ended with a code, and said what is expected.
func refused(t *testing.T, r daemon.Result, code int, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if r.Code != code || !strings.Contains(r.Out+r.Err, text) {
			t.Errorf("exit code %d, want %d and %q\n%s%s", r.Code, code, text, r.Out, r.Err)
		}
	}
}

// eventually waits until a condition holds, at most half a minute.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within half a minute: %s", what)
		}
	}
}

// inspection is what schedulerd inspect writes.
type inspection struct {
	Instance string
	Schema   uint64
	Revision uint64
	Counts   struct {
		Flows    int
		OpenRuns int `json:"open_runs"`
		KeptRuns int `json:"kept_runs"`
	}
	Flows []map[string]any
}

func inspect(t *testing.T, d *daemon.Daemon, dir string) inspection {
	t.Helper()
	var i inspection
	if err := json.Unmarshal([]byte(ok(t, d.Schedulerd("inspect", "--data-dir", dir))), &i); err != nil {
		t.Fatal(err)
	}
	return i
}

const sampleFlows = `
flows:
- {id: hello, task: {log: {message: 'hello ${params.who}'}}, params: {who: world}, labels: {team: ops}}
- {id: bad, task: {fail: {message: 'on purpose'}}, backoff: {initial: 1h, max_delay: 1h}}
- {id: long, task: {wait: {duration: 1h}}}
- {id: often, schedule: {every: {interval: 1h}}, task: {set: {values: {a: 1}}}}
`

// sample starts a daemon with flows in every state there is.
func sample(t *testing.T, args ...string) *daemon.Daemon {
	d := daemon.New(t, append([]string{"--flows", "flows.yaml", "--data-dir", "data"}, args...)...)
	d.Write("flows.yaml", sampleFlows)
	d.Start()
	ok(t, d.Ctl("trigger", "hello", "--param", "who=you", "--wait"))
	ok(t, d.Ctl("trigger", "hello", "--wait"))
	refused(t, d.Ctl("trigger", "bad", "--wait"), 6, "on purpose")
	ok(t, d.Ctl("trigger", "long"))
	ok(t, d.Ctl("pause", "often"))
	return d
}

func TestInspect(t *testing.T) {
	d := sample(t)
	refused(t, d.Schedulerd("inspect", "--data-dir", "data"), 4, "in use by another process", fmt.Sprint(d.Pid()))
	d.Kill()
	i := inspect(t, d, "data")
	if i.Schema == 0 || i.Instance == "" || i.Revision == 0 || i.Counts.Flows != 4 || i.Counts.OpenRuns != 1 || i.Counts.KeptRuns < 3 || len(i.Flows) != 4 {
		t.Errorf("%+v", i)
	}
	byID := map[string]map[string]any{}
	for _, f := range i.Flows {
		byID[f["id"].(string)] = f
	}
	if f := byID["long"]; f["status"] != "RUNNING" || f["open_run"].(map[string]any)["id"] != "long@1" {
		t.Errorf("long: %v", f)
	}
	if f := byID["bad"]; f["status"] != "BACKOFF" || f["failure_streak"] != 1.0 || f["next_eligible"] == nil {
		t.Errorf("bad: %v", f)
	}
	if f := byID["often"]; f["paused"] != true || f["next_fire"] == nil || f["anchor"] == nil {
		t.Errorf("often: %v", f)
	}
	var one struct {
		ID         string
		Definition struct {
			Params map[string]any
		}
		Runs []struct {
			ID     string
			Events []map[string]any
		}
	}
	if err := json.Unmarshal([]byte(ok(t, d.Schedulerd("inspect", "--data-dir", "data", "--flow", "hello"))), &one); err != nil {
		t.Fatal(err)
	}
	if one.ID != "hello" || one.Definition.Params["who"] != "world" || len(one.Runs) != 2 || one.Runs[0].ID != "hello@2" || len(one.Runs[0].Events) == 0 {
		t.Errorf("%+v", one)
	}
	refused(t, d.Schedulerd("inspect", "--data-dir", "data", "--flow", "nobody"), 1, `no flow "nobody"`)
	refused(t, d.Schedulerd("inspect", "--data-dir", "nowhere"), 4, "nowhere")
	refused(t, d.Schedulerd("inspect"), 2, "--data-dir")
	if before, after := i.Revision, inspect(t, d, "data").Revision; before != after {
		t.Errorf("looking changed revision %d to %d", before, after)
	}
	d.Start() // and a daemon can still use it
}

func TestBackupAndRestore(t *testing.T) {
	d := sample(t)
	ok(t, d.Ctl("backup", "backup.tar"))
	ok(t, d.Ctl("trigger", "hello", "--wait")) // not in the backup
	want := ok(t, d.Ctl("runs", "hello", "-o", "json"))
	d.Kill()

	out := ok(t, d.Schedulerd("restore", "backup.tar", "--data-dir", "restored"))
	if !strings.Contains(out, "4 flows") || !strings.Contains(out, "1 runs that were on their way") {
		t.Error(out)
	}
	here, there := inspect(t, d, "data"), inspect(t, d, "restored")
	if here.Instance == there.Instance || there.Revision >= here.Revision {
		t.Errorf("backed up: %s at %d, restored: %s at %d", here.Instance, here.Revision, there.Instance, there.Revision)
	}
	refused(t, d.Schedulerd("restore", "backup.tar", "--data-dir", "restored"), 4, "is not empty")
	refused(t, d.Schedulerd("restore", "nothing.tar", "--data-dir", "new"), 2, "nothing.tar")

	archive, err := os.ReadFile(filepath.Join(d.Dir, "backup.tar"))
	if err != nil {
		t.Fatal(err)
	}
	broken := bytes.Clone(archive)
	broken[len(broken)/2] ^= 1
	for name, content := range map[string][]byte{"cut.tar": archive[:len(archive)/2], "flipped.tar": broken, "empty.tar": nil} {
		d.Write(name, string(content))
		refused(t, d.Schedulerd("restore", name, "--data-dir", "other"), 4, name, "damaged")
		if entries, err := os.ReadDir(filepath.Join(d.Dir, "other")); err != nil || len(entries) != 0 {
			t.Errorf("%s: left %v, %v", name, entries, err)
		}
	}
	ok(t, d.Schedulerd("restore", "backup.tar", "--data-dir", "other")) // as if nothing had been

	r := daemon.New(t, "--flows", "flows.yaml", "--data-dir", filepath.Join(d.Dir, "restored"))
	r.Write("flows.yaml", sampleFlows)
	r.Start()
	_, client := r.Connect()
	list, err := client.List(t.Context(), &schedulerdv1.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range list.Flows {
		got = append(got, fmt.Sprintf("%s %s paused=%v runs=%d streak=%d", f.Id, strings.TrimPrefix(f.Status.String(), "FLOW_STATUS_"), f.Paused, f.RunCount, f.FailureStreak))
	}
	if want := []string{
		"bad BACKOFF paused=false runs=1 streak=1", "hello COMPLETED paused=false runs=2 streak=0",
		"long RUNNING paused=false runs=1 streak=0", "often COMPLETED paused=true runs=1 streak=0",
	}; !slices.Equal(got, want) {
		t.Errorf("restored\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	var before, after struct{ Runs []map[string]any }
	if err := json.Unmarshal([]byte(want), &before); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(ok(t, r.Ctl("runs", "hello", "-o", "json"))), &after); err != nil {
		t.Fatal(err)
	}
	if len(before.Runs) != 3 || fmt.Sprint(before.Runs[1:]) != fmt.Sprint(after.Runs) {
		t.Errorf("kept runs before\n%v\nand after\n%v", before.Runs, after.Runs)
	}
	run, err := client.GetRun(t.Context(), &schedulerdv1.GetRunRequest{RunId: "long@1"})
	if err != nil || run.Run.Resumed != 1 {
		t.Errorf("the run on its way: %v, %v", run, err)
	}
}

func TestSecondDaemon(t *testing.T) {
	d := sample(t)
	second := daemon.New(t, "--data-dir", filepath.Join(d.Dir, "data"))
	second.Launch()
	code := second.Wait()
	if log := second.Log(); code != 4 || !strings.Contains(log, "in use by another process") || !strings.Contains(log, fmt.Sprint(d.Pid())) {
		t.Errorf("exit code %d\n%s", code, log)
	}
	ok(t, d.Ctl("trigger", "hello", "--wait"))
}

// contents is all files below a folder.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		files[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A damaged store is not started from, and not touched.
func TestDamagedStore(t *testing.T) {
	d := sample(t)
	for range 2 { // so that there are tables beside the log
		d.Kill()
		d.Start()
		ok(t, d.Ctl("trigger", "hello", "--wait"))
	}
	d.Kill()
	whole := filepath.Join(d.Dir, "data", "store")
	damage := map[string]func([]byte) []byte{
		"cut short": func(b []byte) []byte { return b[:len(b)/2] },
		"flipped": func(b []byte) []byte {
			b = bytes.Clone(b)
			for i := len(b) / 4; i < len(b); i += max(len(b)/8, 1) {
				b[i] ^= 0x10
			}
			return b
		},
	}
	markers, err := filepath.Glob(filepath.Join(whole, "marker.manifest.*.MANIFEST-*"))
	if err != nil || len(markers) == 0 {
		t.Fatalf("%v, %v", markers, err)
	}
	manifest := strings.TrimPrefix(filepath.Ext(markers[len(markers)-1]), ".") // there may be older ones, which nobody reads
	damaged := 0
	for path, content := range contents(t, whole) {
		name := filepath.Base(path)
		if len(content) == 0 || filepath.Ext(name) != ".log" && filepath.Ext(name) != ".sst" && name != manifest {
			continue
		}
		for how, change := range damage {
			t.Run(name+" "+how, func(t *testing.T) {
				dir := t.TempDir()
				if err := os.CopyFS(filepath.Join(dir, "store"), os.DirFS(whole)); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, "store", name), change([]byte(content)), 0o600); err != nil {
					t.Fatal(err)
				}
				before := contents(t, dir)
				x := daemon.New(t, "--flows", "flows.yaml", "--data-dir", dir)
				x.Write("flows.yaml", sampleFlows)
				x.Launch()
				code := x.Wait()
				if log := x.Log(); code != 4 || !strings.Contains(log, "the store is damaged") {
					t.Errorf("exit code %d\n%s", code, log)
				}
				for path, was := range before {
					if now, err := os.ReadFile(path); err != nil || string(now) != was {
						t.Errorf("%s was changed: %v", path, err)
					}
				}
			})
			damaged++
		}
	}
	if damaged < 3 {
		t.Errorf("only %d ways of damage were tried", damaged)
	}
	d.Start() // the original is as it was
}

func TestReadOnlyDirectory(t *testing.T) {
	d := daemon.New(t, "--data-dir", "/proc/schedulerd") // nobody, not even root, can write there
	d.Launch()
	if code, log := d.Wait(), d.Log(); code != 4 || !strings.Contains(log, "/proc/schedulerd") {
		t.Errorf("exit code %d\n%s", code, log)
	}
}

// A disk that is full: a limit on the size of files has the same effect and needs no privileges.
func TestDiskFull(t *testing.T) {
	d := daemon.New(t, "--flows", "flows.yaml", "--data-dir", "data", "--drain-delay", "3s", "--grace", "1s")
	d.Write("flows.yaml", `
flows:
- {id: big, task: {set: {values: {a: 1}}}}
- {id: tick, schedule: {every: {interval: 100ms}}, keep_runs: 0, task: {exec: {shell: 'echo . >> ticks'}}}
`)
	d.Prefix = []string{"bash", "-c", `trap "" XFSZ; ulimit -f 2048; exec "$0" "$@"`} // KiB
	d.Start()
	conn, client := d.Connect()
	defer conn.Close()
	value := structpb.NewStringValue(strings.Repeat("x", 60<<10))
	var err error
	answered := 0
	for err == nil || status.Code(err) == codes.FailedPrecondition {
		if _, err = client.Trigger(t.Context(), &schedulerdv1.TriggerRequest{FlowId: "big", Params: map[string]*structpb.Value{"fill": value}}); err == nil {
			answered++
		}
		if answered > 1000 {
			t.Fatal("the disk does not become full")
		}
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("trigger: %v", err)
	}
	ticks := func() int {
		text, err := os.ReadFile(filepath.Join(d.Dir, "ticks"))
		if err != nil {
			t.Fatal(err)
		}
		return len(text)
	}
	eventually(t, "NOT_SERVING", func() bool {
		h, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
		return err == nil && h.Status == healthpb.HealthCheckResponse_NOT_SERVING
	})
	if r, err := http.Get("http://" + d.Admin + "/readyz"); err != nil || r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("readyz: %v, %v", r, err)
	} else {
		r.Body.Close()
	}
	time.Sleep(300 * time.Millisecond) // runs on their way end
	before := ticks()
	time.Sleep(500 * time.Millisecond)
	if after := ticks(); after != before {
		t.Errorf("%d runs started though nothing could be recorded", (after-before)/2)
	}
	shown, err := client.Status(t.Context(), &schedulerdv1.StatusRequest{FlowId: "big"})
	if err != nil || int(shown.Flow.RunCount) != answered {
		t.Errorf("%d triggers were answered; status: %v, %v", answered, shown, err)
	}
	if code := d.Wait(); code != 4 {
		t.Errorf("exit code %d\n%s", code, d.Log())
	}
	if log := d.Log(); !strings.Contains(log, "the store cannot write") || !strings.Contains(log, "file too large") {
		t.Errorf("the log does not say what happened:\n%s", log)
	}

	d.Prefix = nil
	d.Start()
	if shown, err = client.Status(t.Context(), &schedulerdv1.StatusRequest{FlowId: "big"}); err != nil || int(shown.Flow.RunCount) < answered {
		t.Errorf("%d triggers were answered; status after the restart: %v, %v", answered, shown, err)
	}
	before = ticks()
	eventually(t, "ticks go on", func() bool { return ticks() > before })
	eventually(t, "a trigger is taken", func() bool { return d.Ctl("trigger", "big", "--wait").Code == 0 })
}
