package schedctl

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"pgregory.net/rapid"
)

// TestPreview computes without a server: there is none to call.
func TestPreview(t *testing.T) {
	const from = "--from 2027-03-27T00:00:00Z"
	tests := []struct {
		args  string
		times string // separated by blanks
		note  string
	}{
		{"--cron 0_30_2_*_*_* --zone Europe/Berlin --count 3 " + from, "2027-03-27T01:30:00Z 2027-03-28T01:00:00Z 2027-03-29T00:30:00Z", "02:30 does not exist"},
		{"--every 90s --count 2 " + from, "2027-03-27T00:01:30Z 2027-03-27T00:03:00Z", ""},
		{"--every 1ms --count 1 " + from, "2027-03-27T00:00:00.001Z", ""},
		{"--daily 09:00 --zone America/New_York --count 1 " + from, "2027-03-27T13:00:00Z", ""},
		{"--weekly MON,friday@09:00:30 --count 3 " + from, "2027-03-29T09:00:30Z 2027-04-02T09:00:30Z 2027-04-05T09:00:30Z", ""},
		{"--monthly -1@23:30 --count 2 " + from, "2027-03-31T23:30:00Z 2027-04-30T23:30:00Z", ""},
		{"--monthly 31@08:00 --count 2 " + from, "2027-03-31T08:00:00Z 2027-05-31T08:00:00Z", "skipped"},
		{"--monthly 31@08:00 --short-month last-day --count 2 " + from, "2027-03-31T08:00:00Z 2027-04-30T08:00:00Z", ""},
		{"--once 2027-04-01T00:00:00+02:00 " + from, "2027-03-31T22:00:00Z", ""},
		{"--once 2027-03-28T02:30:00 --zone Europe/Berlin " + from, "2027-03-28T01:00:00Z", "02:30"},
		{"--once 2020-01-01T00:00:00Z " + from, "", "never fires again"},
		{"--cron 0_0_0_1_1_*_2020 " + from, "", "never fires again"},
		{"--cron @daily --count 0", strings.Repeat("x ", defaultFireTimes), ""},
		{"--cron @daily --count 100000", strings.Repeat("x ", maxFireTimes), ""},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			r := newRig(t)
			r.stop()
			got := r.run(append([]string{"preview", "-o", "json"}, fields(test.args)...)...)
			if got.code != ExitOK {
				t.Fatalf("exit code %d: %s", got.code, got.err)
			}
			var answer map[string]any
			if err := json.Unmarshal([]byte(got.out), &answer); err != nil {
				t.Fatal(err)
			}
			times, isList := answer["fire_times"].([]any)
			notes, isListToo := answer["notes"].([]any)
			description, isText := answer["description"].(string)
			if len(answer) != 3 || !isList || !isListToo || !isText || description == "" {
				t.Fatalf("not description, fire_times and notes: %s", got.out)
			}
			want := strings.Fields(test.times)
			if len(times) != len(want) {
				t.Fatalf("%d fire times, want %d: %s", len(times), len(want), got.out)
			}
			for i := range want {
				if want[i] != "x" && times[i] != want[i] {
					t.Errorf("fire time %d is %s, want %s", i, times[i], want[i])
				}
			}
			var text strings.Builder
			for _, note := range notes {
				text.WriteString(note.(string) + "\n")
			}
			if !strings.Contains(text.String(), test.note) {
				t.Errorf("no note about %q in %q", test.note, text.String())
			}
		})
	}
}

// fields splits arguments at blanks; '_' stands for a blank inside of one.
func fields(text string) []string {
	args := strings.Fields(text)
	for i, arg := range args {
		if strings.Contains(arg, "*") || strings.HasPrefix(arg, "0_") {
			args[i] = strings.ReplaceAll(arg, "_", " ")
		}
	}
	return args
}

func TestPreviewInvalid(t *testing.T) {
	tests := []struct{ args, want string }{
		{"--cron 0_61_*_*_*_*", "0 61 * * * *\n  "}, // the expression, and a caret under it
		{"--cron nonsense", "cron"},
		{"--cron 0_0_0_30_2_*", "never fires"},
		{"--every -5s", "every"},
		{"--every 0s", "every"},
		{"--daily 25:00", "daily"},
		{"--daily 9", "daily"},
		{"--weekly MON", "DAYS@TIME"},
		{"--weekly FOO@09:00", "not a weekday"},
		{"--weekly @09:00", "not a weekday"},
		{"--monthly 32@09:00", "monthly"},
		{"--monthly first@09:00", "not a number"},
		{"--monthly 1", "DAY@TIME"},
		{"--monthly 31@09:00 --short-month maybe", "neither skip nor last-day"},
		{"--once tomorrow", "once"},
		{"--daily 09:00 --zone Mars/Olympus", "Mars/Olympus"},
		{"--daily 09:00 --zone Local", "Local"},
	}
	for _, test := range tests {
		r := newRig(t)
		r.stop()
		got := r.run(append([]string{"preview"}, fields(test.args)...)...)
		if got.code != ExitInvalid || !strings.Contains(got.err, test.want) || got.out != "" {
			t.Errorf("%s: exit code %d, want %d and %q: %s%s", test.args, got.code, ExitInvalid, test.want, got.err, got.out)
		}
	}
}

func TestPreviewTable(t *testing.T) {
	r := newRig(t)
	args := "preview --daily 02:30 --zone Europe/Berlin --from 2027-03-26T12:00:00Z --count 3"
	golden(t, "preview", transcript(args, r.run(strings.Fields(args)...)))
	args = "preview --once 2027-03-26T12:00:00Z --utc"
	golden(t, "preview-utc", transcript(args, r.run(strings.Fields(args)...)))
}

func TestWeekdays(t *testing.T) {
	all := rapid.SampledFrom([]time.Weekday{0, 1, 2, 3, 4, 5, 6})
	rapid.Check(t, func(t *rapid.T) {
		days := rapid.SliceOfN(all, 1, 7).Draw(t, "days")
		names := make([]string, len(days))
		for i, day := range days {
			names[i] = rapid.SampledFrom([]string{
				day.String(), strings.ToUpper(day.String()[:3]), " " + strings.ToLower(day.String()[:3]) + " ",
			}).Draw(t, "name")
		}
		got, err := weekdays(strings.Join(names, ","))
		if err != nil || len(got) != len(days) {
			t.Fatalf("%q: %v, %v", names, got, err)
		}
		for i := range days {
			if got[i] != days[i] {
				t.Fatalf("%q: %v, want %v", names, got, days)
			}
		}
	})
}
