package schedctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

func TestRelative(t *testing.T) {
	c := clock{now: func() time.Time { return noon }, zone: noon.Location()}
	tests := []struct {
		d    time.Duration
		want string
	}{
		{0, "now"},
		{999 * time.Millisecond, "now"},
		{-12 * time.Second, "12s ago"},
		{4 * time.Minute, "in 4m"},
		{4*time.Minute + 7*time.Second, "in 4m7s"},
		{-14*time.Minute - 7*time.Second, "14m ago"},
		{90 * time.Minute, "in 1h30m"},
		{-23*time.Hour - 59*time.Minute, "23h ago"},
		{24 * time.Hour, "2027-01-16 12:00"},
		{-400 * 24 * time.Hour, "2025-12-11 12:00"},
	}
	for _, test := range tests {
		if got := c.relative(at(test.d)); got != test.want {
			t.Errorf("%s: %q, want %q", test.d, got, test.want)
		}
	}
	if got := c.relative(nil) + c.exact(nil); got != none+none {
		t.Errorf("no time is %q", got)
	}
	if got := c.exact(timestamppb.New(noon.Add(-time.Minute))); got != "2027-01-15 11:59:00 CET (1m ago)" {
		t.Errorf("exact: %q", got)
	}
	if got := coarse(100 * 24 * time.Hour); got != "100d" {
		t.Errorf("coarse: %q", got)
	}
}

func TestShortDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 35 * time.Millisecond: "35ms", 1234567 * time.Microsecond: "1.23s", 12345 * time.Millisecond: "12.3s", 999 * time.Nanosecond: "999ns",
		1234 * time.Microsecond: "1.23ms", 2 * time.Minute: "2m", 83 * time.Second: "1m23s", time.Hour: "1h0m", -1234 * time.Millisecond: "-1.23s",
	} {
		if got := shortDuration(d); got != want {
			t.Errorf("%d: %q, want %q", d, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	tests := []struct {
		text    string
		columns int
		want    string
	}{
		{"abc", 3, "abc"},
		{"abcd", 3, "ab…"},
		{"abcd", 1, "…"},
		{"abcd", 0, ""},
		{"日本語", 6, "日本語"},
		{"日本語", 5, "日本…"},
		{"日本語", 4, "日…"},
		{"e\u0301a", 2, "e\u0301a"},
	}
	for _, test := range tests {
		if got := cut(test.text, test.columns); got != test.want {
			t.Errorf("cut(%q, %d) = %q, want %q", test.text, test.columns, got, test.want)
		}
	}
}

// TestTable lays out any texts: no line is wider than the canvas, none has a control character, and columns begin one under the other.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.IntRange(1, 60).Draw(t, "width")
		columns := rapid.IntRange(1, 5).Draw(t, "columns")
		var rows [][]cell
		for range rapid.IntRange(0, 6).Draw(t, "rows") {
			rows = append(rows, cells(rapid.SliceOfN(rapid.String(), columns, columns).Draw(t, "row")...))
		}
		for _, line := range (canvas{width: width}).table(rows) {
			if textWidth(line) > width {
				t.Fatalf("%q is wider than %d", line, width)
			}
			if strings.ContainsFunc(line, unicode.IsControl) {
				t.Fatalf("control characters in %q", line)
			}
		}
	})
	lines := canvas{color: true}.table([][]cell{{{"a", red}, {"b", plain}}, {{"日本", plain}, {"c", plain}}})
	if want := []string{"\x1b[31ma\x1b[0m     b", "日本  c"}; !reflect.DeepEqual(lines, want) {
		t.Errorf("got %q, want %q", lines, want)
	}
}

// TestYAML writes any JSON as YAML: read again it is the same, and in the same order.
func TestYAML(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := anyJSON(3).Draw(t, "value")
		document, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		text, err := yamlOf(document)
		if err != nil {
			t.Fatal(err)
		}
		again, err := jsonOf(text)
		if err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		if !bytes.Equal(again, document) {
			t.Fatalf("%s became %s over:\n%s", document, again, text)
		}
	})
	text, err := yamlOf([]byte(`{"z": 1, "a": "no", "t": "12:30", "d": "2027-01-01", "f": 1.50, "e": [], "o": {}, "n": null, "b": true, "m": "two\nlines\n"}`))
	if err != nil {
		t.Fatal(err)
	}
	want := "z: 1\na: \"no\"\nt: \"12:30\"\nd: \"2027-01-01\"\nf: 1.50\ne: []\no: {}\n\"n\": null\nb: true\nm: |\n  two\n  lines\n"
	if string(text) != want {
		t.Errorf("got:\n%s\nwant:\n%s", text, want)
	}
}

func anyJSON(depth int) *rapid.Generator[any] {
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		"no", "~", "null", "1e3", "0x1f", "12:30", "- a", "a: b", "#", "'", "\"", "|", "&a", "*a", "!t", "%", "@", "`", " a", "a ", "\n", "a\n\n", "\ta", "2027-01-01", "\u0085", "\ufeff", "<<", "=", "---", "...",
	}))
	scalar := rapid.OneOf(
		rapid.Map(text, func(s string) any { return s }),
		rapid.Map(rapid.Int32(), func(i int32) any { return i }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Just(any(nil)),
	)
	if depth == 0 {
		return scalar
	}
	inner := anyJSON(depth - 1)
	return rapid.OneOf(
		scalar,
		rapid.Map(rapid.SliceOfN(inner, 0, 4), func(s []any) any { return append([]any{}, s...) }),
		rapid.Map(rapid.MapOfN(text, inner, 0, 4), func(m map[string]any) any { return m }),
	)
}

func FuzzJSONOf(f *testing.F) {
	for _, seed := range []string{"a: 1", "a: &x [1]\nb: *x", "a: &x [*x]", "<<: {a: 1}", "? [a]\n: b", "2027-01-01", "\x00", "a: .nan"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		document, err := jsonOf(text)
		if err == nil && !json.Valid(document) {
			t.Errorf("%q became %q", text, document)
		}
	})
}

func TestEnumNames(t *testing.T) {
	for got, want := range map[string]string{
		short(pb.FlowStatus_FLOW_STATUS_RUNNING): "RUNNING",
		short(pb.FlowStatus(99)):                 "UNKNOWN(99)",
		words(pb.Outcome_OUTCOME_TIMED_OUT):      "timed out",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	var flag enumFlag[pb.Outcome]
	if err := flag.Set("failed, Timed-Out"); err != nil || flag.String() != "FAILED,TIMED_OUT" {
		t.Errorf("%v, %v", flag.String(), err)
	}
	for _, bad := range []string{"", "unspecified", "x", "failed,"} {
		if err := flag.Set(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestGuardFields(t *testing.T) {
	tokens := 2.5
	got := guardFields(clock{now: func() time.Time { return time.Unix(1000, 0) }, zone: time.UTC}, []*pb.GuardInfo{
		{Resource: "a", Breaker: pb.BreakerState_BREAKER_STATE_CLOSED, Failures: 2},
		{Resource: "b", Breaker: pb.BreakerState_BREAKER_STATE_HALF_OPEN, Tokens: &tokens, Waiting: 4},
		{Resource: "c", Breaker: pb.BreakerState_BREAKER_STATE_OPEN, OpenUntil: timestamppb.New(time.Unix(1030, 0)), BreakerRefused: 9},
	})
	text := fmt.Sprint(got)
	for _, want := range []string{"Target a closed, 2 failures in a row", "Target b half-open, trying, 2.5 calls free, 4 waiting", "Target c open until 1970-01-01 00:17:10", "9 calls refused"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s lacks %q", text, want)
		}
	}
}
