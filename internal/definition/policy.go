package definition

import (
	"encoding/json"
	"strings"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/fault"
	"google.golang.org/protobuf/types/known/structpb"
)

// backoff translates a backoff policy. A missing one is the default.
func (x *compilation) backoff(path string, b *schedulerdv1.BackoffPolicy) flow.Policy {
	p := flow.DefaultPolicy
	if b == nil {
		return p
	}
	if b.Initial != nil {
		p.Initial = b.GetInitial().AsDuration()
		p.MaxDelay = max(p.MaxDelay, p.Initial) // who sets a long initial alone means no shorter one
	}
	if b.Multiplier != nil {
		p.Multiplier = b.GetMultiplier()
	}
	if b.MaxDelay != nil {
		p.MaxDelay = b.GetMaxDelay().AsDuration()
	}
	if b.Jitter != nil {
		p.Jitter = b.GetJitter()
	}
	p.TripAfter = b.GetTripAfter()
	p.RetryAfterTrip = b.GetRetryAfterTrip().AsDuration()
	for _, err := range each(p.Validate()) {
		field, rest, _ := strings.Cut(err.Error(), " ") // the message begins with the name of the field
		x.faults.Add(fault.Field(path, field), "%s", rest)
	}
	return p
}

// retry translates a retry policy. Nil is the default.
func (x *compilation) retry(path string, r *schedulerdv1.RetryPolicy) *workflow.Retry {
	if r == nil {
		return nil
	}
	retry := workflow.DefaultRetry
	switch mode := r.GetMode().(type) {
	case *schedulerdv1.RetryPolicy_None:
		retry = workflow.Retry{}
	case *schedulerdv1.RetryPolicy_Fixed:
		retry = workflow.FixedRetry(int(mode.Fixed.GetRetries()), mode.Fixed.GetDelay().AsDuration())
	case *schedulerdv1.RetryPolicy_Exponential:
		e := mode.Exponential
		if e.Retries != nil {
			retry.Retries = int(e.GetRetries())
		}
		if e.Initial != nil {
			retry.Initial = e.GetInitial().AsDuration()
			retry.MaxDelay = max(retry.MaxDelay, retry.Initial)
		}
		if e.Multiplier != nil {
			retry.Multiplier = e.GetMultiplier()
		}
		if e.MaxDelay != nil {
			retry.MaxDelay = e.GetMaxDelay().AsDuration()
		}
		if e.Jitter != nil {
			retry.Jitter = e.GetJitter()
		}
		if retry.MaxDelay < retry.Initial {
			x.faults.Add(fault.Field(path, "exponential.max_delay"), "must be at least initial (%v), not %v", retry.Initial, retry.MaxDelay)
		}
	}
	retry.On, retry.NotOn = r.GetRetryOn(), r.GetNoRetryOn()
	for i, class := range retry.On {
		x.errorClass(fault.Index(fault.Field(path, "retry_on"), i), class)
	}
	for i, class := range retry.NotOn {
		x.errorClass(fault.Index(fault.Field(path, "no_retry_on"), i), class)
	}
	return &retry
}

// errorClasses are the classes of errors that workflows and tasks give, without what follows a colon. Tasks may have more.
var errorClasses = []string{
	"error", "timeout", "panic", "target", "result", "expression", "circuit_open", "rate_limited",
	"exit", "signal", "start", "output", "http", "network", "tls", "redirect", "request", "response", "grpc", "fail", "store",
	"no_worker", "worker_lost", "queue_full", "cancelled",
}

// errorClass finds misspelt error classes, which would never match. One that is more than a letter away is taken for a class
// of a task's own.
func (x *compilation) errorClass(path, class string) {
	name, _, _ := strings.Cut(strings.ToLower(class), ":")
	if meant := fault.Near(name, errorClasses, 1); meant != "" && meant != name {
		x.faults.Add(path, "there is no error class %q; did you mean %s?", class, meant)
	}
}

// params translates the default parameters of a flow's runs.
func (x *compilation) params(path string, params map[string]*structpb.Value) map[string]any {
	if len(params) == 0 {
		return nil
	}
	values := make(map[string]any, len(params))
	for name, value := range params {
		values[name] = value.AsInterface()
	}
	if text, err := json.Marshal(values); err != nil {
		x.faults.Add(path, "they cannot be written as JSON: a number is not finite")
	} else if len(text) > workflow.MaxResultBytes {
		x.faults.Add(path, "they take %d bytes as JSON; at most %d are allowed", len(text), workflow.MaxResultBytes)
	}
	return values
}
