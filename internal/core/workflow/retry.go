package workflow

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/flow"
)

// classify gives what the retry policy needs to know of an error.
func classify(err error) *Error {
	e, ok := errors.AsType[*Error](err)
	switch {
	case ok && e.Class != "":
		return e
	case ok:
		copied := *e
		copied.Class = "error"
		return &copied
	case errors.Is(err, context.DeadlineExceeded):
		// The task set itself a bound, such as a client's timeout.
		return &Error{Err: err, Class: classTimeout}
	}
	return &Error{Err: err, Class: "error"}
}

// repeats says whether an error is worth another attempt.
func (r *Retry) repeats(e *Error) bool {
	in := func(patterns []string) bool {
		return slices.ContainsFunc(patterns, func(pattern string) bool { return matchClass(pattern, e.Class) })
	}
	return !e.Permanent && !in(r.NotOn) && (len(r.On) == 0 || in(r.On))
}

// matchClass says whether a pattern of a retry policy means a class: the same text in any case ("exit:75"), a family
// ("http", "grpc"), or an HTTP status with x for any digit ("http:5xx").
func matchClass(pattern, class string) bool {
	if family, _, _ := strings.Cut(class, ":"); strings.EqualFold(pattern, family) {
		return true
	}
	if strings.EqualFold(pattern, class) {
		return true
	}
	const http = "http:"
	if len(pattern) != len(class) || !strings.EqualFold(pattern[:min(len(http), len(pattern))], http) || !strings.HasPrefix(class, http) {
		return false
	}
	for i := len(http); i < len(class); i++ {
		if pattern[i] != class[i] && pattern[i] != 'x' && pattern[i] != 'X' {
			return false
		}
	}
	return true
}

// delay is how long to wait before retry n, from 1.
func (r *Retry) delay(n int) time.Duration {
	if r.Initial <= 0 {
		return 0
	}
	p := flow.Policy{Initial: r.Initial, Multiplier: r.Multiplier, MaxDelay: r.MaxDelay, Jitter: r.Jitter}
	return p.Delay(uint32(n), symmetric())
}

// symmetric is a random number in [-1, 1).
func symmetric() float64 { return 2*rand.Float64() - 1 }
