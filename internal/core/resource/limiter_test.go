package resource

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(Rate{Calls: 2, Per: time.Second, Burst: 3})
		begin := time.Now()
		var at []time.Duration
		take := func(n int) {
			for range n {
				if err := l.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				at = append(at, time.Since(begin))
			}
		}
		take(5)
		time.Sleep(time.Hour) // no more than the burst is saved up
		begin = time.Now()
		take(4)
		if got := fmt.Sprint(at); got != "[0s 0s 0s 500ms 1s 0s 0s 0s 500ms]" {
			t.Error(got)
		}
	})
}

func TestLimiterDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		l := NewLimiter(Rate{})
		for range 3 {
			if err := l.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took != 2*time.Second { // one a second
			t.Errorf("took %v", took)
		}
	})
}

func TestLimiterWaitsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(Rate{Calls: 1, Per: time.Second})
		_ = l.Wait(t.Context())
		var mu sync.Mutex
		var order []int
		for i := range 5 {
			go func() {
				_ = l.Wait(t.Context())
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
			}()
			synctest.Wait()
		}
		if s := l.Status(); s.Waiting != 5 || s.Tokens != 0 {
			t.Errorf("status %+v", s)
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if got := fmt.Sprint(order); got != "[0 1 2 3 4]" {
			t.Error(got)
		}
		if s := l.Status(); s.Waiting != 0 || s.Tokens != 1 {
			t.Errorf("status %+v", s)
		}
	})
}

func TestLimiterDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(Rate{Calls: 1, Per: time.Minute})
		_ = l.Wait(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), 59*time.Second)
		defer cancel()
		begin := time.Now()
		err := l.Wait(ctx)
		var refused *Refused
		if !errors.As(err, &refused) || refused.Class != "rate_limited" || refused.RetryAfter != time.Minute || time.Since(begin) != 0 {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		if s := l.Status(); s.Refused != 1 || s.Waiting != 0 {
			t.Errorf("status %+v", s)
		}
		// It did not take a token from anyone.
		if err := l.Wait(t.Context()); err != nil || time.Since(begin) != time.Minute {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
	})
}

func TestLimiterCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(Rate{Calls: 1, Per: time.Minute})
		_ = l.Wait(t.Context())
		cause := errors.New("cancelled by ada")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(10*time.Second, func() { cancel(cause) })
		begin := time.Now()
		if err := l.Wait(ctx); !errors.Is(err, cause) {
			t.Error(err)
		}
		if err := l.Wait(ctx); !errors.Is(err, cause) {
			t.Error(err)
		}
		if err := l.Wait(t.Context()); err != nil || time.Since(begin) != time.Minute { // its token came back
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
	})
}

// In no window are more calls admitted than the burst and what flows in.
func TestLimiterBound(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := Rate{
			Calls: rapid.IntRange(1, 20).Draw(rt, "calls"),
			Per:   time.Duration(rapid.IntRange(1, 5000).Draw(rt, "ms")) * time.Millisecond,
			Burst: rapid.IntRange(1, 20).Draw(rt, "burst"),
		}
		pauses := rapid.SliceOfN(rapid.IntRange(0, 3000), 1, 40).Draw(rt, "pauses")
		var at []time.Duration
		synctest.Test(t, func(t *testing.T) {
			l := NewLimiter(r)
			begin := time.Now()
			for _, ms := range pauses {
				time.Sleep(time.Duration(ms) * time.Millisecond)
				if err := l.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				at = append(at, time.Since(begin))
			}
		})
		for i := range at {
			for j := i; j < len(at); j++ {
				window := at[j] - at[i]
				most := float64(r.Burst) + float64(window)/float64(r.Per)*float64(r.Calls)
				if float64(j-i+1) > most+0.001 {
					rt.Fatalf("%+v: %d calls within %v, at most %.2f are allowed", r, j-i+1, window, most)
				}
			}
		}
	})
}

func TestGateOfBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{
			Breaker: NewBreaker(BreakerPolicy{FailureThreshold: 1, ResetTimeout: time.Minute}),
			Limiter: NewLimiter(Rate{Calls: 1, Per: time.Hour, Burst: 10}),
		}
		done, err := g.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done(CallFailed)
		for range 5 { // refused calls cost no tokens
			if _, err := g.Acquire(t.Context()); err == nil {
				t.Fatal("admitted")
			}
		}
		if s := g.Status(); s.Limiter.Tokens > 9.01 || s.Limiter.Tokens < 8.99 || s.Breaker.State != Open || s.Breaker.Refused != 5 {
			t.Errorf("status %+v %+v", s.Breaker, s.Limiter)
		}
	})
}

// An open breaker refuses at once: nobody waits for a token that would be of no use.
func TestOpenGateDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{
			Breaker: NewBreaker(BreakerPolicy{FailureThreshold: 1, ResetTimeout: time.Hour}),
			Limiter: NewLimiter(Rate{Calls: 1, Per: time.Minute}),
		}
		done, err := g.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done(CallFailed)
		begin := time.Now()
		if _, err := g.Acquire(t.Context()); err == nil || time.Since(begin) != 0 {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
	})
}

// A call that waited for its token while the breaker opened is refused and gives its token back.
func TestGateThatOpensWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{
			Breaker: NewBreaker(BreakerPolicy{FailureThreshold: 1, ResetTimeout: time.Hour}),
			Limiter: NewLimiter(Rate{Calls: 1, Per: time.Minute}),
		}
		first, err := g.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { first(CallFailed) })
		if _, err := g.Acquire(t.Context()); err == nil {
			t.Fatal("admitted")
		}
		if s := g.Limiter.Status(); s.Tokens != 1 || s.Waiting != 0 {
			t.Errorf("status %+v", s)
		}
	})
}
