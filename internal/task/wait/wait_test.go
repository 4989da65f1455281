package wait

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/schedulerd/schedulerd/internal/task/kindtest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWait(t *testing.T) {
	// In a synctest bubble it is 2000-01-01 00:00:00 UTC.
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		definition string
		entered    time.Time
		want       time.Duration
	}{
		"duration":               {`"duration": "90s"`, now, 90 * time.Second},
		"nothing":                {`"duration": "0s"`, now, 0},
		"a month":                {`"duration": "2592000s"`, now, 30 * 24 * time.Hour},
		"the rest":               {`"duration": "90s"`, now.Add(-time.Minute), 30 * time.Second},
		"long over":              {`"duration": "90s"`, now.Add(-time.Hour), 0},
		"time":                   {`"time": "2000-01-01T00:05:00.5Z"`, now, 5*time.Minute + 500*time.Millisecond},
		"time, after a restart":  {`"time": "2000-01-01T00:05:00Z"`, now.Add(-time.Hour), 5 * time.Minute},
		"past time":              {`"time": "1999-12-31T23:59:59Z"`, now, 0},
		"expression: duration":   {`"expression": "duration(params.name == 'Ada' ? '3s' : '4s')"`, now, 3 * time.Second},
		"expression: timestamp":  {`"expression": "timestamp('2000-01-01T01:00:00+01:00') + duration('2s')"`, now, 2 * time.Second},
		"expression: text":       {`"expression": "'1.5s'"`, now, 1500 * time.Millisecond},
		"expression: the rest":   {`"expression": "duration('1h')"`, now.Add(-59 * time.Minute), time.Minute},
		"expression: of the run": {`"expression": "run.fire_time + duration('1h')"`, now, time.Hour + time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				task := kindtest.Task(t, Kind, kindtest.Config(), `{"wait": {`+test.definition+`}}`)
				call := kindtest.NewCall()
				call.Entered = test.entered
				call.FireTime = now.Add(time.Millisecond)
				start := time.Now()
				result, err := task.Run(t.Context(), call.Invocation)
				if took := time.Since(start); err != nil || took != test.want {
					t.Errorf("took %v, %v; want %v", took, err, test.want)
				}
				end, err := time.Parse(time.RFC3339Nano, result.Value.(map[string]any)["until"].(string))
				if err != nil || test.want > 0 && !end.Equal(start.Add(test.want)) {
					t.Errorf("until %v, %v", end, err)
				}
			})
		})
	}
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		task := kindtest.Task(t, Kind, kindtest.Config(), `{"wait": {"duration": "3600s"}}`)
		call := kindtest.NewCall()
		call.Entered = time.Now()
		ctx, cancel := context.WithCancelCause(t.Context())
		reason := errors.New("stopping")
		time.AfterFunc(time.Minute, func() { cancel(reason) })
		start := time.Now()
		_, err := task.Run(ctx, call.Invocation)
		if took := time.Since(start); !errors.Is(err, reason) || took != time.Minute {
			t.Errorf("took %v, %v", took, err)
		}
	})
}

func TestFailure(t *testing.T) {
	for _, expression := range []string{"params.n", "params.name", "params.missing"} {
		task := kindtest.Task(t, Kind, kindtest.Config(), `{"wait": {"expression": "`+expression+`"}}`)
		_, err := task.Run(t.Context(), kindtest.NewCall().Invocation)
		if failure := kindtest.Failure(t, err); failure.Class != "expression" || !failure.Permanent || !strings.Contains(err.Error(), expression) {
			t.Errorf("%s: got %+v", expression, failure)
		}
	}
}

func TestInvalid(t *testing.T) {
	for definition, want := range map[string]string{
		`"duration": "-1s"`:           "wait.duration: a wait cannot be negative: -1s",
		`"expression": "1 + 1"`:       "wait.expression: ",
		`"expression": "env('HOME')"`: "wait.expression: ",
	} {
		if _, err := kindtest.Compile(t, Kind, kindtest.Config(), `{"wait": {`+definition+`}}`); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s…", definition, err, want)
		}
	}
}
