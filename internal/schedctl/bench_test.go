package schedctl

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestBench(t *testing.T) {
	for args, want := range map[string]struct {
		code    int
		refused bool // all of the calls, else none
		err     string
	}{
		"bench --for 50ms":                               {code: ExitOK},
		"bench --for 50ms --callers 3 backup":            {code: ExitOK},
		"bench --for 50ms --trigger backup":              {code: ExitOK, refused: true}, // it runs already
		"bench --for 50ms nope":                          {code: ExitNotFound, err: "nope"},
		"bench --trigger":                                {code: ExitUsage, err: "name the flows"},
		"bench --callers 0":                              {code: ExitUsage, err: "--callers"},
		"bench --for 0s":                                 {code: ExitUsage, err: "--for"},
		"bench --for 50ms --callers 2 --trigger nothing": {code: ExitNotFound, err: "nothing"},
	} {
		t.Run(args, func(t *testing.T) {
			r := newSampleRig(t)
			got := r.run(strings.Fields(args + " -o json")...)
			if got.code != want.code || !strings.Contains(got.err, want.err) {
				t.Fatalf("%+v", got)
			}
			if want.code != ExitOK {
				return
			}
			var told struct {
				Calls, Refused int
				Rate           float64 `json:"calls_per_second"`
				P50            float64 `json:"p50_seconds"`
				Longest        float64 `json:"max_seconds"`
			}
			if err := json.Unmarshal([]byte(got.out), &told); err != nil {
				t.Fatalf("%v: %s", err, got.out)
			}
			if told.Calls < 1 || told.Rate <= 0 || told.P50 <= 0 || told.P50 > told.Longest || want.refused != (told.Refused == told.Calls) {
				t.Errorf("%+v", told)
			}
		})
	}
}

func TestBenchForPeople(t *testing.T) {
	got := newSampleRig(t).run("bench", "--for", "50ms", "--trigger", "backup")
	for _, want := range []string{"calls a second", "p99", "refused"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("%q is not in %s", want, got.out)
		}
	}
}
