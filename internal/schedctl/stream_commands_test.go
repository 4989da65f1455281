package schedctl

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

// newBubbleRig is a rig on the virtual time of a synctest bubble.
func newBubbleRig(t *testing.T, flows ...*pb.FlowInfo) *rig {
	r := newRig(t, flows...)
	r.now = func() time.Time { return time.Now().UTC() }
	return r
}

func TestWatchLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t, flow("a", idle), flow("b", idle))
		ctx, interrupt := context.WithCancel(t.Context())
		b := r.start(ctx, "watch")
		settle(2 * time.Second)
		r.set(&pb.FlowInfo{Id: "a", Status: running, CurrentRun: &pb.CurrentRun{RunId: "a@1", State: "fetch"}})
		settle(3 * time.Second)
		r.stop()
		settle(0)
		r.serve(r.fake)
		settle(5 * time.Second)
		r.set(&pb.FlowInfo{Id: "a", Status: completed, LastOutcome: pb.Outcome_OUTCOME_SUCCEEDED, NextFire: timestamppb.New(time.Now().Add(90 * time.Second))})
		r.remove("b")
		settle(0)
		interrupt()
		got := b.done()
		golden(t, "watch-lines", transcript("watch", got))
		r.stop()
	})
}

func TestWatchJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t, flow("a", idle))
		ctx, interrupt := context.WithCancel(t.Context())
		b := r.start(ctx, "watch", "-o", "json")
		settle(0)
		r.set(flow("a", running))
		settle(0)
		interrupt()
		got := b.done()
		r.stop()
		lines := strings.Split(strings.TrimSpace(got.out), "\n")
		if got.code != ExitOK || len(lines) != 2 {
			t.Fatalf("exit code %d, %d lines, want 2:\n%s", got.code, len(lines), got.out)
		}
		for _, line := range lines {
			var response struct {
				Changes []struct{ Flow struct{ Status string } }
			}
			if err := json.Unmarshal([]byte(line), &response); err != nil || len(response.Changes) != 1 {
				t.Errorf("line %q: %v", line, err)
			}
		}
	})
}

func TestWatchUntil(t *testing.T) {
	tests := []struct {
		name string
		args []string
		do   func(*rig)
		code int
	}{
		{"at once", []string{"a", "--until", "idle"}, func(*rig) {}, ExitOK},
		{"later", []string{"a", "b", "--until", "completed,tripped"}, func(r *rig) {
			r.set(flow("a", completed))
			settle(time.Second)
			r.set(flow("b", tripped))
		}, ExitOK},
		{"not in time", []string{"a", "--until", "completed", "--timeout", "3s"}, func(*rig) { settle(5 * time.Second) }, ExitOther},
		{"gone", []string{"a", "--until", "completed"}, func(r *rig) { r.remove("a") }, ExitNotFound},
		{"never there", []string{"nope", "--until", "completed"}, func(*rig) {}, ExitNotFound},
		{"never there, no end", []string{"nope"}, func(*rig) {}, ExitNotFound},
		{"not a status", []string{"a", "--until", "done"}, func(*rig) {}, ExitUsage},
		{"with a filter it would never see the end", []string{"a", "--until", "idle", "--status", "running"}, func(*rig) {}, ExitUsage},
		{"server gone", []string{"a", "--until", "completed"}, func(r *rig) {
			r.stop()
			settle(time.Minute)
			r.set(flow("a", completed))
			r.serve(r.fake)
			settle(10 * time.Second)
		}, ExitOK},
		{"time is up without --until", []string{"a", "--timeout", "3s"}, func(*rig) { settle(5 * time.Second) }, ExitOK},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newBubbleRig(t, flow("a", idle), flow("b", idle))
				b := r.start(t.Context(), append([]string{"watch"}, test.args...)...)
				settle(0)
				test.do(r)
				if got := b.done(); got.code != test.code {
					t.Errorf("exit code %d, want %d; %s%s", got.code, test.code, got.out, got.err)
				}
				r.stop()
			})
		})
	}
}

func TestWatchInterrupted(t *testing.T) {
	for _, test := range []struct {
		args []string
		code int
	}{
		{[]string{"watch"}, ExitOK},
		{[]string{"watch", "--until", "completed"}, ExitInterrupted},
		{[]string{"logs", "backup@12", "-f"}, ExitInterrupted},
		{[]string{"run", "backup@12", "-f"}, ExitInterrupted},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newBubbleRig(t, sampleFlows()...)
			r.setRun(&pb.Run{Id: "backup@12", FlowId: "backup", StartTime: timestamppb.Now()})
			ctx, interrupt := context.WithCancel(t.Context())
			b := r.start(ctx, test.args...)
			settle(time.Second)
			interrupt()
			if got := b.done(); got.code != test.code {
				t.Errorf("%v: exit code %d, want %d; %s", test.args, got.code, test.code, got.err)
			}
			r.stop()
		})
	}
}

// TestWatchLive looks at the last frame drawn on a terminal of some sizes.
func TestWatchLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flows := sampleFlows()
		for _, flow := range flows { // around the time in the bubble
			for _, ts := range []*timestamppb.Timestamp{flow.LastRun, flow.LastFinish, flow.NextFire, flow.NextEligible} {
				if ts != nil {
					ts.Seconds += time.Now().Unix() - noon.Unix()
				}
			}
		}
		r := newBubbleRig(t, flows...)
		r.env["NO_COLOR"] = "1"
		r.resize(80, 24)
		ctx, interrupt := context.WithCancel(t.Context())
		b := r.start(ctx, "watch")
		settle(0)
		text := "large window\n" + lastFrame(b.out.String())

		settle(1100 * time.Millisecond)
		text += "a second later, drawn over the first\n" + lastFrame(b.out.String())

		r.resize(50, 7)
		settle(time.Second)
		text += "small window\n" + lastFrame(b.out.String())

		r.stop()
		settle(0)
		text += "connection lost\n" + lastFrame(b.out.String())
		interrupt()
		got := b.done()
		if got.code != ExitOK || !strings.HasSuffix(got.out, showCursor) {
			t.Errorf("exit code %d, cursor given back: %v", got.code, strings.HasSuffix(got.out, showCursor))
		}
		golden(t, "watch-live", text)
	})
}

// lastFrame is what was drawn last, with the control sequences made visible.
func lastFrame(out string) string {
	frames := strings.SplitAfter(out, clearBelow)
	last := frames[len(frames)-2]
	return strings.NewReplacer("\x1b", "ESC", "\r", "CR").Replace(last) + "\n"
}

func TestColours(t *testing.T) {
	for _, test := range []struct {
		name  string
		width int
		env   map[string]string
		args  []string
		want  bool
	}{
		{"a terminal", 120, nil, nil, true},
		{"a pipe", 0, nil, nil, false},
		{"NO_COLOR", 120, map[string]string{"NO_COLOR": "1"}, nil, false},
		{"--no-color", 120, nil, []string{"--no-color"}, false},
		{"json", 120, nil, []string{"-o", "json"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newSampleRig(t)
			r.resize(test.width, 40)
			r.env = test.env
			got := r.run(append([]string{"list"}, test.args...)...)
			if has := strings.Contains(got.out, "\x1b["); has != test.want {
				t.Errorf("colours: %v, want %v", has, test.want)
			}
			for _, line := range strings.Split(got.out, "\n") {
				if plain := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(line, ""); test.width > 0 && test.name != "json" && textWidth(plain) > test.width {
					t.Errorf("line is wider than the terminal: %q", line)
				}
			}
		})
	}
}

func TestTriggerWait(t *testing.T) {
	at := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(time.Now().Add(d)) }
	ended := func(outcome pb.Outcome) func(*rig) {
		return func(r *rig) {
			r.setRun(&pb.Run{
				Id: "a@1", FlowId: "a", StartTime: at(-time.Second), EndTime: at(0), Outcome: outcome, State: "fetch",
				Events: []*pb.RunEvent{{Time: at(-time.Second), Type: pb.RunEventType_RUN_EVENT_TYPE_STATE_ENTERED, State: "fetch"}},
			})
			settle(10 * time.Second)
		}
	}
	tests := []struct {
		name string
		args []string
		do   func(*rig)
		code int
	}{
		{"succeeded", nil, ended(pb.Outcome_OUTCOME_SUCCEEDED), ExitOK},
		{"failed", nil, ended(pb.Outcome_OUTCOME_FAILED), ExitRunFailed},
		{"timed out", nil, ended(pb.Outcome_OUTCOME_TIMED_OUT), ExitRunFailed},
		{"cancelled", nil, ended(pb.Outcome_OUTCOME_CANCELLED), ExitRunFailed},
		{"lost", nil, ended(pb.Outcome_OUTCOME_LOST), ExitRunFailed},
		{"failed, for scripts", []string{"-o", "json"}, ended(pb.Outcome_OUTCOME_FAILED), ExitRunFailed},
		{"over a restart", nil, func(r *rig) {
			r.stop()
			settle(time.Minute)
			r.serve(r.fake)
			settle(10 * time.Second)
			ended(pb.Outcome_OUTCOME_SUCCEEDED)(r)
		}, ExitOK},
		{"over a restart that is slow to get ready", nil, func(r *rig) {
			r.stop()
			settle(0)
			r.mu.Lock()
			for range 5 {
				r.fail["WatchRun"] = append(r.fail["WatchRun"], refusal(codes.Unavailable, "NOT_READY", "loading", nil))
			}
			r.mu.Unlock()
			r.serve(r.fake)
			settle(time.Minute)
			ended(pb.Outcome_OUTCOME_FAILED)(r)
		}, ExitRunFailed},
		{"over a restart that forgets the run", nil, func(r *rig) {
			r.stop()
			settle(0)
			delete(r.runs, "a@1")
			r.serve(r.fake)
			settle(10 * time.Second)
		}, ExitNotFound},
		{"not in time", []string{"--timeout", "5s"}, func(*rig) { settle(10 * time.Second) }, ExitOther},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newBubbleRig(t, flow("a", idle))
				b := r.start(t.Context(), append([]string{"trigger", "a", "--wait"}, test.args...)...)
				settle(0)
				test.do(r)
				if got := b.done(); got.code != test.code {
					t.Errorf("exit code %d, want %d; %s%s", got.code, test.code, got.out, got.err)
				}
				r.stop()
			})
		})
	}
}

// The daemon may die between the answer to Trigger and the first WatchRun.
func TestTriggerWaitOverDeathAfterTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t, flow("a", idle))
		r.fail["WatchRun"] = []error{refusal(codes.Unavailable, "STOPPING", "stopping", nil)}
		b := r.start(t.Context(), "trigger", "a", "--wait")
		settle(time.Second)
		r.setRun(&pb.Run{Id: "a@1", StartTime: timestamppb.Now(), EndTime: timestamppb.Now(), Outcome: pb.Outcome_OUTCOME_SUCCEEDED})
		if got := b.done(); got.code != ExitOK {
			t.Errorf("exit code %d; %s", got.code, got.err)
		}
		r.stop()
	})
}

func TestTriggerWaitInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t, flow("a", idle))
		ctx, interrupt := context.WithCancel(t.Context())
		b := r.start(ctx, "trigger", "a", "--wait")
		settle(time.Second)
		interrupt()
		got := b.done()
		r.stop()
		if got.code != ExitInterrupted || !strings.Contains(got.err, "schedctl cancel a@1") {
			t.Errorf("exit code %d: %s", got.code, got.err)
		}
		if len(r.received("CancelFlow")) != 0 {
			t.Error("the run was cancelled, but only the waiting should end")
		}
	})
}

// TestTriggerWaitOutput holds what is shown of a run on a terminal and in a pipe.
func TestTriggerWaitOutput(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newBubbleRig(t, &pb.FlowInfo{Id: "backup", Status: idle, RunCount: 10})
			name := "trigger-wait"
			if terminal {
				name += "-terminal"
				r.resize(60, 20)
				r.env["NO_COLOR"] = "1"
			}
			b := r.start(t.Context(), "trigger", "backup", "--wait")
			settle(0)
			run := sampleRun()
			for _, event := range run.Events {
				event.Time = timestamppb.New(time.Now().Add(event.Time.AsTime().Sub(noon)))
			}
			run.StartTime = timestamppb.Now()
			run.EndTime = nil
			all := run.Events
			for i := range all {
				run.Events = all[:i+1]
				r.setRun(run)
				settle(700 * time.Millisecond)
			}
			run.EndTime = timestamppb.Now()
			r.setRun(run)
			got := b.done()
			r.stop()
			if strings.Count(got.out, "half of it") < 1 || got.code != ExitOK {
				t.Errorf("exit code %d:\n%s", got.code, got.out)
			}
			golden(t, name, transcript("trigger backup --wait", result{got.code, visible(got.out), got.err}))
		})
	}
}

func visible(out string) string { return strings.NewReplacer("\x1b", "ESC", "\r", "CR").Replace(out) }

func TestFollowRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t)
		r.setRun(sampleRun())
		got := r.run("run", "backup@11", "--follow", "-o", "json")
		r.stop()
		var response struct {
			Events []any
			Run    struct{ Outcome string }
		}
		if err := json.Unmarshal([]byte(got.out), &response); err != nil || got.code != ExitOK {
			t.Fatalf("exit code %d, %v: %s", got.code, err, got.out)
		}
		if len(response.Events) != len(sampleRun().Events) || response.Run.Outcome != "OUTCOME_SUCCEEDED" {
			t.Errorf("got %s", got.out)
		}
	})
}

func line(second int, text string) *pb.LogLine {
	return &pb.LogLine{
		Time: timestamppb.New(time.Date(2000, 1, 1, 0, 0, second, 0, time.UTC)), State: "archive", Attempt: 1, Text: text, Stderr: text == "oops",
	}
}

func TestLogs(t *testing.T) {
	tests := []struct {
		args []string
		want string
	}{
		{nil, "one\noops\n\x1b[1mtwo\n"}, // as it was
		{[]string{"--prefix"}, "archive#1 out| one\narchive#1 err| oops\narchive#1 out| \x1b[1mtwo\n"},
		{[]string{"-t", "--prefix"}, "2000-01-01T00:00:01.000Z archive#1 out| one\n2000-01-01T00:00:01.000Z archive#1 err| oops\n2000-01-01T00:00:02.000Z archive#1 out| \x1b[1mtwo\n"},
		{[]string{"-o", "name"}, "backup@11\nbackup@11\nbackup@11\n"},
	}
	for _, test := range tests {
		r := newRig(t)
		r.now = func() time.Time { return noon.UTC() }
		r.setRun(sampleRun())
		r.addLog("backup@11", line(1, "one"), line(1, "oops"), line(2, "\x1b[1mtwo"))
		if got := r.run(append([]string{"logs", "backup@11"}, test.args...)...); got.out != test.want || got.code != ExitOK {
			t.Errorf("%v: exit code %d, %q, want %q; %s", test.args, got.code, got.out, test.want, got.err)
		}
	}
}

func TestLogsFollowOverRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t)
		r.setRun(&pb.Run{Id: "backup@12", FlowId: "backup", StartTime: timestamppb.Now()})
		r.addLog("backup@12", line(1, "one"), line(1, "one"), line(2, "two"), line(2, "two again"))
		b := r.start(t.Context(), "logs", "backup@12", "-f", "--tail-bytes", "1000")
		settle(time.Second)
		r.stop()
		settle(0)
		r.addLog("backup@12", line(2, "two, late"), line(3, "three"))
		r.serve(r.fake)
		settle(10 * time.Second)
		r.addLog("backup@12", line(4, "four"))
		r.setRun(&pb.Run{Id: "backup@12", StartTime: timestamppb.Now(), EndTime: timestamppb.Now()})
		got := b.done()
		r.stop()
		if want := "one\none\ntwo\ntwo again\ntwo, late\nthree\nfour\n"; got.out != want || got.code != ExitOK {
			t.Errorf("exit code %d: %q, want %q; %s", got.code, got.out, want, got.err)
		}
	})
}

func TestBackup(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "backup.tar")
	r := newRig(t)
	r.archive = [][]byte{[]byte("one "), []byte("two")}

	got := r.run("backup", file)
	if content, err := os.ReadFile(file); got.code != ExitOK || string(content) != "one two" {
		t.Fatalf("exit code %d, %q, %v; %s", got.code, content, err, got.err)
	}
	if got = r.run("backup", file); got.code != ExitUsage || !strings.Contains(got.err, "--force") {
		t.Errorf("over an existing file: exit code %d, %s", got.code, got.err)
	}

	// What breaks off leaves what was there, and nothing else.
	r.archive = [][]byte{[]byte("half of")}
	r.fail["Backup"] = []error{refusal(codes.Unavailable, "STOPPING", "stopping", nil)}
	if got = r.run("backup", file, "--force"); got.code != ExitUnavailable {
		t.Errorf("broken off: exit code %d, %s", got.code, got.err)
	}
	r.archive = nil
	if got = r.run("backup", file, "--force"); got.code != ExitOther || !strings.Contains(got.err, "empty") {
		t.Errorf("an empty archive: exit code %d, %s", got.code, got.err)
	}
	entries, err := os.ReadDir(dir)
	content, _ := os.ReadFile(file)
	if err != nil || len(entries) != 1 || string(content) != "one two" {
		t.Errorf("left behind: %v, %q", entries, content)
	}

	r.archive = [][]byte{[]byte("three")}
	if got = r.run("backup", file, "--force"); got.code != ExitOK || !strings.Contains(got.out, "5 B") {
		t.Errorf("with --force: exit code %d, %s%s", got.code, got.out, got.err)
	}
	if got = r.run("backup", "-"); got.out != "three" || got.code != ExitOK {
		t.Errorf("to standard output: exit code %d, %q", got.code, got.out)
	}
	r.resize(80, 24)
	if got = r.run("backup", "-"); got.code != ExitUsage || got.out != "" {
		t.Errorf("to a terminal: exit code %d, %q", got.code, got.out)
	}
}

func TestByteSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1 << 20: "1 MiB", 1536 << 20: "1.5 GiB", 5 << 50: "5.12e+03 TiB"} {
		if got := byteSize(n); got != want {
			t.Errorf("byteSize(%d) = %q, want %q", n, got, want)
		}
	}
}
