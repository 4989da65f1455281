package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/schedulerd/schedulerd/test/daemon"
)

// TestExamples runs the example flows and looks at what they have made.
func TestExamples(t *testing.T) {
	d := daemon.New(t, "--flows", "examples/flows", "--data-dir", "data/store")
	if err := os.CopyFS(filepath.Join(d.Dir, "examples"), os.DirFS(filepath.Join(daemon.Root(), "examples"))); err != nil {
		t.Fatal(err)
	}
	d.Start()

	// trigger runs a flow to its end and gives its result.
	trigger := func(flow string, params ...string) map[string]any {
		t.Helper()
		args := []string{"trigger", flow, "--wait", "-o", "json"}
		for _, p := range params {
			args = append(args, "--param", p)
		}
		r := d.Ctl(args...)
		if r.Code != 0 {
			t.Fatalf("trigger %s: exit code %d\n%s%s", flow, r.Code, r.Out, r.Err)
		}
		id := d.Ctl("runs", flow, "--limit", "1", "-o", "name")
		run := d.Ctl("run", strings.TrimSpace(id.Out), "-o", "json")
		var answer struct {
			Run struct {
				Result map[string]any `json:"result"`
			} `json:"run"`
		}
		if err := json.Unmarshal([]byte(run.Out), &answer); err != nil {
			t.Fatalf("run of %s: %v\n%s%s", flow, err, run.Out, run.Err)
		}
		return answer.Run.Result
	}
	read := func(pattern string) string {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(d.Dir, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no file %s: %v", pattern, err)
		}
		content, err := os.ReadFile(files[len(files)-1])
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}

	t.Run("mapreduce", func(t *testing.T) {
		if r := d.Ctl("trigger", "word-count-total", "--wait"); r.Code != 6 || !strings.Contains(r.Out+r.Err, "trigger word-count-a") {
			t.Errorf("a fold of nothing: exit code %d\n%s%s", r.Code, r.Out, r.Err)
		}
		for _, flow := range []string{"word-count-a", "word-count-b"} { // both on their way at once
			if r := d.Ctl("trigger", flow); r.Code != 0 {
				t.Fatal(r.Out, r.Err)
			}
		}
		words := 0
		texts, err := filepath.Glob(filepath.Join(daemon.Root(), "examples/data/texts/*.txt"))
		if err != nil || len(texts) != 6 {
			t.Fatalf("texts %v: %v", texts, err)
		}
		for _, text := range texts {
			content, err := os.ReadFile(text)
			if err != nil {
				t.Fatal(err)
			}
			words += len(strings.Fields(string(content)))
		}
		d.Await("word-count-a", "COMPLETED")
		d.Await("word-count-b", "COMPLETED")
		if got := trigger("word-count-total"); got["words"] != float64(words) || got["batches"] != 2.0 {
			t.Errorf("total %v, want %d words of 2 batches", got, words)
		}
	})
	t.Run("backup", func(t *testing.T) {
		for range 2 {
			trigger("daily-backup", "keep=1", "archives=data/backups")
			time.Sleep(1100 * time.Millisecond) // archives are named by the second
		}
		files, _ := filepath.Glob(filepath.Join(d.Dir, "data/backups/*"))
		if len(files) != 1 {
			t.Fatalf("archives %v, want the newest one", files)
		}
		list := daemon.Run(t, d.Dir, nil, "tar", "-tzf", files[0])
		if list.Code != 0 || !strings.Contains(list.Out, "examples/data/orders.csv") {
			t.Errorf("the archive holds %s%s", list.Out, list.Err)
		}
	})
	t.Run("report", func(t *testing.T) {
		trigger("weekly-report")
		if report := read("data/examples/weekly-report.txt"); !strings.Contains(report, "60 orders") || !strings.Contains(report, "north") {
			t.Errorf("report:\n%s", report)
		}
	})
	t.Run("health check and export", func(t *testing.T) {
		trigger("health-check", "url=http://"+d.Admin+"/healthz")
		trigger("emergency-export")
		if csv := read("data/examples/checks.csv"); !strings.HasPrefix(csv, "time,status\n") || !strings.Contains(csv, ",200\n") {
			t.Errorf("export:\n%s", csv)
		}
	})
	t.Run("sync", func(t *testing.T) {
		d.Await("data-sync", "COMPLETED")
		if got := read("data/examples/mirror/prices.csv"); !strings.Contains(got, "bolt") {
			t.Errorf("mirrored %q", got)
		}
	})
	t.Run("flaky", func(t *testing.T) {
		d.Await("flaky", "TRIPPED")
		if r := d.Ctl("trigger", "flaky"); r.Code != 4 || !strings.Contains(r.Err, "schedctl reset flaky") {
			t.Errorf("trigger of a tripped flow: exit code %d, %s", r.Code, r.Err)
		}
		if r := d.Ctl("reset", "flaky"); r.Code != 0 {
			t.Errorf("reset: %s", r.Err)
		}
	})
	if r := d.Ctl("stop", "--grace", "5s"); r.Code != 0 {
		t.Errorf("stop: %s%s", r.Out, r.Err)
	}
	if code := d.Wait(); code != 0 {
		t.Errorf("the daemon stopped with exit code %d", code)
	}
}
