package definition

import (
	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/fault"
	"github.com/schedulerd/schedulerd/internal/task"
)

// resources compiles a list of resources and adds their kinds to kinds. Their rules were checked already, into faults.
func (c *Compiler) resources(path string, list []*schedulerdv1.Resource, kinds map[string]string, o Options, faults *fault.List) []resource.Declaration {
	first := map[string]string{}
	var declarations []resource.Declaration
	rules := *faults
	for i, r := range list {
		at := fault.Index(path, i)
		if other, twice := first[r.GetName()]; twice {
			*faults = append(*faults, fault.Fault{
				Field: fault.Field(at, "name"), Offset: -1,
				Message: "resource " + r.GetName() + " is declared twice", Other: fault.Field(other, "name"),
			})
		} else {
			first[r.GetName()] = at
		}
		kinds[r.GetName()] = task.KindOf(r)
		if (&compilation{rules: rules}).broken(at) {
			continue
		}
		env := task.NewEnv(at, 0, task.Config{AllowExec: o.AllowExec}, faults)
		declarations = append(declarations, resource.Declaration{
			Name:            r.GetName(),
			Resource:        c.kinds.Resource(r, env),
			SetupTimeout:    r.GetSetupTimeout().AsDuration(),
			TeardownTimeout: r.GetTeardownTimeout().AsDuration(),
			Guard:           guard(r),
		})
	}
	return declarations
}

// resourceKey is the same for equal resources; empty for none.
func resourceKey(list []*schedulerdv1.Resource) string {
	if len(list) == 0 {
		return ""
	}
	return Digest(&schedulerdv1.Flow{Resources: list})
}

// guard makes the guard of a resource; nil if it has neither circuit breaker nor rate limit.
func guard(r *schedulerdv1.Resource) resource.Guard {
	var gate resource.Gate
	if b := r.GetCircuitBreaker(); b != nil {
		gate.Breaker = resource.NewBreaker(resource.BreakerPolicy{
			FailureThreshold: int(b.GetFailureThreshold()),
			ResetTimeout:     b.GetResetTimeout().AsDuration(),
			HalfOpenCalls:    int(b.GetHalfOpenCalls()),
		})
	}
	if l := r.GetRateLimit(); l != nil {
		gate.Limiter = resource.NewLimiter(resource.Rate{
			Calls: int(l.GetCalls()),
			Per:   l.GetPer().AsDuration(),
			Burst: int(l.GetBurst()),
		})
	}
	if gate.Breaker == nil && gate.Limiter == nil {
		return nil
	}
	return &gate
}
