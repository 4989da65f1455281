package workflow

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/resource"
	"pgregory.net/rapid"
)

// flaky fails some times, then succeeds, and notes when it was called.
func flaky(failures int, err error, times *[]time.Duration) TaskFunc {
	begin := time.Now()
	return func(context.Context, *Invocation) (Result, error) {
		*times = append(*times, time.Since(begin))
		if len(*times) <= failures {
			return Result{}, err
		}
		return Result{}, nil
	}
}

func TestRetry(t *testing.T) {
	again := errors.New("again")
	class := func(c string) error { return &Error{Err: again, Class: c} }
	const ms = time.Millisecond
	exponential := DefaultRetry
	exponential.Jitter = 0
	tests := []struct {
		name     string
		retry    Retry
		failures int
		err      error
		calls    []time.Duration // when
		outcome  Outcome
	}{
		{"none", Retry{}, 9, again, []time.Duration{0}, Failed},
		{"fixed", FixedRetry(2, 50*ms), 9, again, []time.Duration{0, 50 * ms, 100 * ms}, Failed},
		{"fixed, then fine", FixedRetry(2, 50*ms), 2, again, []time.Duration{0, 50 * ms, 100 * ms}, Succeeded},
		{"fixed without delay", FixedRetry(2, 0), 9, again, []time.Duration{0, 0, 0}, Failed},
		{"exponential", exponential, 9, again, []time.Duration{0, 100 * ms, 300 * ms, 700 * ms}, Failed},
		{"capped", Retry{Retries: 4, Initial: 100 * ms, Multiplier: 3, MaxDelay: 500 * ms}, 9, again, []time.Duration{0, 100 * ms, 400 * ms, 900 * ms, 1400 * ms}, Failed},
		{"permanent", exponential, 9, &Error{Err: again, Permanent: true}, []time.Duration{0}, Failed},
		{"permanent inside", exponential, 9, fmt.Errorf("wrapped: %w", &Error{Err: again, Permanent: true}), []time.Duration{0}, Failed},
		{"retry after", exponential, 1, &Error{Err: again, RetryAfter: time.Second}, []time.Duration{0, time.Second}, Succeeded},
		{"retry after less than the delay", exponential, 1, &Error{Err: again, RetryAfter: ms}, []time.Duration{0, 100 * ms}, Succeeded},
		{"retry_on", Retry{Retries: 1, Multiplier: 1, On: []string{"exit:75"}}, 1, class("exit:75"), []time.Duration{0, 0}, Succeeded},
		{"not in retry_on", Retry{Retries: 1, Multiplier: 1, On: []string{"exit:75"}}, 1, class("exit:1"), []time.Duration{0}, Failed},
		{"in no_retry_on", Retry{Retries: 1, Multiplier: 1, NotOn: []string{"exit:1"}}, 1, class("exit:1"), []time.Duration{0}, Failed},
		{"in both", Retry{Retries: 1, Multiplier: 1, On: []string{"exit"}, NotOn: []string{"exit:1"}}, 1, class("exit:1"), []time.Duration{0}, Failed},
		{"no class", Retry{Retries: 1, Multiplier: 1, On: []string{"error"}}, 1, again, []time.Duration{0, 0}, Succeeded},
		{"permanent in retry_on", Retry{Retries: 1, Multiplier: 1, On: []string{"http"}}, 1, &Error{Err: again, Class: "http:404", Permanent: true}, []time.Duration{0}, Failed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls []time.Duration
				end, journal := run(t, t.Context(), line(does(&Step{Task: flaky(test.failures, test.err, &calls), Retry: &test.retry})), &Run{})
				wantOutcome(t, end, test.outcome)
				if fmt.Sprint(calls) != fmt.Sprint(test.calls) {
					t.Errorf("called at %v, want %v", calls, test.calls)
				}
				if journal.count(AttemptStarted) != len(calls) || journal.count(RetryScheduled) != len(calls)-1 {
					t.Errorf("events %v", journal.trace())
				}
				if test.outcome == Failed {
					var failed *StateError
					if !errors.As(end.Err, &failed) || failed.Attempts != len(calls) || failed.State != "s1" || !errors.Is(end.Err, again) {
						t.Errorf("error %#v", end.Err)
					}
				}
			})
		})
	}
}

func TestDefaultRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		end, journal := run(t, t.Context(), line(does(&Step{Task: fails("always")})), &Run{})
		wantOutcome(t, end, Failed)
		wantError(t, end.Err, `state "s1": after 4 attempts: always`)
		if took := time.Since(begin); took < 630*time.Millisecond || took > 770*time.Millisecond {
			t.Errorf("took %v, want 700ms with a tenth of jitter", took)
		}
		wantTrace(t, journal.trace(), `enter s1, start s1 1, fail s1 1, retry s1 2, start s1 2, fail s1 2, retry s1 3,
			start s1 3, fail s1 3, retry s1 4, start s1 4, fail s1 4`)
	})
}

// A panic is an attempt that failed.
func TestPanicIsRetried(t *testing.T) {
	calls := 0
	end, journal := run(t, t.Context(), line(does(&Step{Retry: again(3), Task: TaskFunc(func(context.Context, *Invocation) (Result, error) {
		if calls++; calls < 3 {
			panic("boom")
		}
		return Result{}, nil
	})})), &Run{})
	wantOutcome(t, end, Succeeded)
	if calls != 3 || journal.events[2].Detail != "panic" {
		t.Errorf("%d calls, events %+v", calls, journal.events)
	}
}

func TestAttemptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		step := &Step{Task: after(time.Hour, noop), Timeout: 10 * time.Second, Retry: &Retry{Retries: 1, Multiplier: 1, Initial: time.Second, MaxDelay: time.Second, On: []string{"timeout"}}}
		end, journal := run(t, t.Context(), line(does(step)), &Run{})
		wantOutcome(t, end, Failed)
		wantError(t, end.Err, `state "s1": after 2 attempts: the attempt took longer than its timeout of 10s`)
		if took := time.Since(begin); took != 21*time.Second {
			t.Errorf("took %v: each attempt has its own timeout", took)
		}
		if e := journal.events[2]; e.Type != AttemptFailed || e.Detail != "timeout" || e.Duration != 10*time.Second {
			t.Errorf("event %+v", e)
		}
	})
	t.Run("a result that comes late counts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			late := TaskFunc(func(context.Context, *Invocation) (Result, error) {
				time.Sleep(time.Minute)
				return Result{Value: "late"}, nil
			})
			end, _ := run(t, t.Context(), line(does(&Step{Task: late, Timeout: time.Second})), &Run{})
			wantOutcome(t, end, Succeeded)
		})
	})
	t.Run("a bound the task set itself", func(t *testing.T) {
		own := TaskFunc(func(context.Context, *Invocation) (Result, error) { return Result{}, context.DeadlineExceeded })
		end, journal := run(t, t.Context(), line(does(&Step{Task: own, Retry: &Retry{}})), &Run{})
		wantOutcome(t, end, Failed) // the run has not timed out
		if e := journal.events[2]; e.Detail != "timeout" {
			t.Errorf("event %+v", e)
		}
	})
	t.Run("a cancellation the task made up", func(t *testing.T) {
		own := TaskFunc(func(context.Context, *Invocation) (Result, error) { return Result{}, context.Canceled })
		end, _ := run(t, t.Context(), line(does(&Step{Task: own, Retry: &Retry{}})), &Run{})
		wantOutcome(t, end, Failed)
	})
}

func TestCancelWhileWaitingForARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		begin := time.Now()
		step := &Step{Task: fails("down"), Retry: &Retry{Retries: 5, Multiplier: 1, Initial: time.Hour, MaxDelay: time.Hour}}
		end, journal := run(t, ctx, line(does(step)), &Run{})
		wantOutcome(t, end, Cancelled)
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("took %v", took)
		}
		wantTrace(t, journal.trace(), "enter s1, start s1 1, fail s1 1, retry s1 2")
	})
}

func TestErrorTexts(t *testing.T) {
	if got := (&Error{Class: "exit:1"}).Error(); got != "failed with exit:1" {
		t.Error(got)
	}
	inner := errors.New("inner")
	if err := (&Error{Err: inner}); err.Error() != "inner" || !errors.Is(err, inner) {
		t.Error(err)
	}
}

func TestMatchClass(t *testing.T) {
	for _, test := range []struct {
		pattern, class string
		want           bool
	}{
		{"timeout", "timeout", true},
		{"Timeout", "timeout", true},
		{"exit:75", "exit:75", true},
		{"exit:7", "exit:75", false},
		{"exit", "exit:75", true},
		{"exit", "exited", false},
		{"exit:7x", "exit:75", false}, // only HTTP statuses have families of digits
		{"http:503", "http:503", true},
		{"http:5xx", "http:503", true},
		{"HTTP:5XX", "http:503", true},
		{"http:5xx", "http:404", false},
		{"http:50x", "http:503", true},
		{"http:xxx", "http:404", true},
		{"http:5x", "http:503", false},
		{"http", "http:503", true},
		{"grpc:UNAVAILABLE", "grpc:UNAVAILABLE", true},
		{"grpc:unavailable", "grpc:UNAVAILABLE", true},
		{"grpc:UNAVAILABLE", "grpc:UNKNOWN", false},
		{"", "error", false},
		{"error", "", false},
		{"http:", "http:", true},
		{"htt", "htt", true},
	} {
		if got := matchClass(test.pattern, test.class); got != test.want {
			t.Errorf("matchClass(%q, %q) is %t", test.pattern, test.class, got)
		}
	}
}

func TestRetryDelay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Retry{
			Initial:    time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "initial")),
			Multiplier: rapid.Float64Range(1, 1000).Draw(t, "multiplier"),
			Jitter:     rapid.Float64Range(0, 1).Draw(t, "jitter"),
		}
		r.MaxDelay = r.Initial + time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, "more"))
		n := rapid.IntRange(1, math.MaxInt32).Draw(t, "n")
		delay := r.delay(n)
		if delay < 0 || delay > r.MaxDelay {
			t.Fatalf("delay %d is %v, outside [0, %v]", n, delay, r.MaxDelay)
		}
		base := math.Min(float64(r.Initial)*math.Pow(r.Multiplier, float64(n-1)), float64(r.MaxDelay))
		if low, high := base*(1-r.Jitter), base*(1+r.Jitter); float64(delay) < low*0.999-1000 || float64(delay) > high*1.001+1000 {
			t.Fatalf("delay %d is %v, outside the jitter of [%v, %v]", n, delay, time.Duration(low), time.Duration(high))
		}
	})
}

func TestTarget(t *testing.T) {
	guarded := func(t *testing.T, gate resource.Guard) *resource.Set {
		set, err := resource.Setup(t.Context(), []resource.Declaration{{Name: "api", Resource: inert{}, Guard: gate}, {Name: "bare", Resource: inert{}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	t.Run("no guard", func(t *testing.T) {
		end, _ := run(t, t.Context(), line(does(&Step{Task: noop, Target: "bare"})), &Run{Resources: guarded(t, nil)})
		wantOutcome(t, end, Succeeded)
	})
	t.Run("unknown", func(t *testing.T) {
		end, _ := run(t, t.Context(), line(does(&Step{Task: noop, Target: "unknown"})), &Run{Resources: guarded(t, nil)})
		wantOutcome(t, end, Failed)
		wantError(t, end.Err, "no resource", "unknown")
	})
	t.Run("an open breaker is waited for", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			breaker := resource.NewBreaker(resource.BreakerPolicy{FailureThreshold: 2, ResetTimeout: time.Minute})
			set := guarded(t, &resource.Gate{Breaker: breaker})
			var calls []time.Duration
			step := &Step{Task: flaky(2, errors.New("down"), &calls), Target: "api", Retry: again(3)}
			end, journal := run(t, t.Context(), line(does(step)), &Run{Resources: set})
			wantOutcome(t, end, Succeeded)
			if fmt.Sprint(calls) != "[0s 0s 1m0s]" {
				t.Errorf("called at %v", calls)
			}
			if e := journal.events[8]; e.Type != AttemptFailed || e.Detail != "circuit_open" || e.Attempt != 3 {
				t.Errorf("event %+v", e)
			}
			if s := breaker.Status(); s.State != resource.Closed || s.Opened != 1 {
				t.Errorf("status %+v", s)
			}
		})
	})
	t.Run("what counts", func(t *testing.T) {
		for _, test := range []struct {
			name     string
			step     Step
			failures int
		}{
			{"success", Step{Task: noop}, 0},
			{"failure", Step{Task: fails("x")}, 1},
			{"panic", Step{Task: panics("x")}, 1},
			{"timeout", Step{Task: after(time.Minute, noop), Timeout: time.Second}, 1},
			{"permanent", Step{Task: TaskFunc(func(context.Context, *Invocation) (Result, error) {
				return Result{}, &Error{Err: errors.New("bad request"), Permanent: true}
			})}, 0},
			{"cancelled", Step{Task: after(2*time.Hour, noop)}, 0},
		} {
			t.Run(test.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					breaker := resource.NewBreaker(resource.BreakerPolicy{})
					test.step.Target, test.step.Retry = "api", &Retry{}
					_, _ = run(t, t.Context(), line(does(&test.step)), &Run{Resources: guarded(t, &resource.Gate{Breaker: breaker}), Timeout: time.Hour})
					if s := breaker.Status(); s.Failures != test.failures {
						t.Errorf("%d failures, want %d", s.Failures, test.failures)
					}
				})
			})
		}
	})
	// Losers of a hedged call must not open the breaker of a healthy target.
	t.Run("losers of a split do not count", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			breaker := resource.NewBreaker(resource.BreakerPolicy{FailureThreshold: 1})
			slow := &Step{Task: after(time.Minute, noop), Target: "api"}
			w := line(does(&Split{Branches: []Branch{{Work: slow}, {Work: &Step{Task: noop, Target: "api"}}, {Work: slow}}, Join: Join{Strategy: JoinAny}}))
			end, _ := run(t, t.Context(), w, &Run{Resources: guarded(t, &resource.Gate{Breaker: breaker})})
			wantOutcome(t, end, Succeeded)
			if s := breaker.Status(); s.State != resource.Closed || s.Failures != 0 {
				t.Errorf("status %+v", s)
			}
		})
	})
	t.Run("branches share a breaker", func(t *testing.T) {
		breaker := resource.NewBreaker(resource.BreakerPolicy{FailureThreshold: 4})
		down := &Step{Task: fails("down"), Target: "api", Retry: &Retry{}}
		w := line(does(&Split{Branches: []Branch{{Work: down}, {Work: down}, {Work: down}, {Work: down}}, Join: Join{Strategy: JoinAll, WaitAll: true}}))
		end, _ := run(t, t.Context(), w, &Run{Resources: guarded(t, &resource.Gate{Breaker: breaker})})
		wantOutcome(t, end, Failed)
		if s := breaker.Status(); s.State != resource.Open {
			t.Errorf("status %+v", s)
		}
	})
	t.Run("a rate limit is waited for, outside of the attempt's timeout", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			limiter := resource.NewLimiter(resource.Rate{Calls: 1, Per: time.Minute})
			step := &Step{Task: noop, Target: "api", Timeout: time.Second}
			end, _ := run(t, t.Context(), line(does(step), does(step), does(step)), &Run{Resources: guarded(t, &resource.Gate{Limiter: limiter})})
			wantOutcome(t, end, Succeeded)
			if took := time.Since(begin); took != 2*time.Minute {
				t.Errorf("took %v", took)
			}
		})
	})
	t.Run("a rate limit beyond the run's time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			limiter := resource.NewLimiter(resource.Rate{Calls: 1, Per: time.Hour})
			step := &Step{Task: noop, Target: "api", Retry: &Retry{}}
			end, journal := run(t, t.Context(), line(does(step), does(step)), &Run{Timeout: time.Minute, Resources: guarded(t, &resource.Gate{Limiter: limiter})})
			wantOutcome(t, end, Failed)
			wantError(t, end.Err, `target "api": the rate limit has no call left before the time is up: try again in 1h0m0s`)
			if time.Since(begin) != 0 || journal.events[len(journal.events)-1].Detail != "rate_limited" {
				t.Errorf("after %v: %+v", time.Since(begin), journal.events)
			}
		})
	})
}

// inert is a resource without a life.
type inert struct{}

func (inert) Setup(context.Context) error    { return nil }
func (inert) Teardown(context.Context) error { return nil }
