package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// docs/metrics.md has a row for each metric, with its type, labels and words.
func TestMetricsAreDocumented(t *testing.T) {
	flows := filepath.Join(t.TempDir(), "flows.yaml")
	guarded := "resources:\n- {name: api, temp_dir: {}, circuit_breaker: {}, rate_limit: {calls: 1}}\nflows:\n- {id: f, task: {log: {message: m}}}\n"
	if err := os.WriteFile(flows, []byte(guarded), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, func(o *Options) { o.DataDir, o.Flows = filepath.Join(t.TempDir(), "data"), []string{flows} })
	c := pb.NewSchedulerServiceClient(dial(t, s.Addr().String()))
	if _, err := c.List(t.Context(), &pb.ListRequest{}); err != nil {
		t.Fatal(err)
	}
	// The call's figures are there once its end was counted, which the client does not wait for.
	served := map[string]string{}
	eventually(t, "the figures of a call", func() bool {
		families, err := s.metrics.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			name := f.GetName()
			if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
				continue
			}
			var labels []string
			for _, l := range f.GetMetric()[0].GetLabel() {
				labels = append(labels, "`"+l.GetName()+"`")
			}
			served[name] = fmt.Sprintf("| `%s` | %s | %s | %s |", name, strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp())
		}
		return served["grpc_server_call_duration_seconds"] != "" && served["grpc_server_call_sent_total_compressed_message_size_bytes"] != "" &&
			served["grpc_server_call_rcvd_total_compressed_message_size_bytes"] != ""
	})
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `((?:schedulerd|grpc)_[a-z_]+)` \\|.*\\|$").FindAllStringSubmatch(string(page), -1) {
		documented[m[1]] = m[0]
	}
	for _, name := range slices.Sorted(maps.Keys(served)) {
		if documented[name] != served[name] {
			t.Errorf("docs/metrics.md has\n%s\nand should have\n%s", documented[name], served[name])
		}
		delete(documented, name)
	}
	if len(documented) > 0 {
		t.Errorf("docs/metrics.md tells of metrics that are not there: %v", documented)
	}
}

func TestEngineMetrics(t *testing.T) {
	m := newMetrics("v", "go")
	e := m.engine
	e.RunStarted(flow.BySchedule, 20*time.Millisecond)
	e.RunStarted(flow.ByTrigger, 0)
	e.RunEnded(flow.TimedOut, 2*time.Second)
	e.FireTimesSkipped(flow.SkipOverlap, 3)
	e.Committed(7, time.Millisecond)
	e.ClockJumped(time.Hour)
	want := map[string]float64{
		`schedulerd_runs_started_total{cause="schedule"}`:       1,
		`schedulerd_runs_started_total{cause="trigger"}`:        1,
		`schedulerd_runs_started_total{cause="catch_up"}`:       0,
		`schedulerd_runs_ended_total{outcome="timed_out"}`:      1,
		`schedulerd_fire_times_skipped_total{reason="overlap"}`: 3,
		`schedulerd_fire_times_skipped_total{reason="limit"}`:   0,
		`schedulerd_start_lateness_seconds`:                     1, // a trigger is never late
		`schedulerd_run_duration_seconds{outcome="timed_out"}`:  1,
		`schedulerd_commit_duration_seconds`:                    1,
		`schedulerd_committed_changes_total`:                    7,
		`schedulerd_clock_jumps_total`:                          1,
		`schedulerd_ready`:                                      0,
		`schedulerd_build_info{goversion="go",version="v"}`:     1,
		`grpc_server_call_started_total{grpc_method="other"}`:   0,
		`schedulerd_reloads_total{result="failed"}`:             0,
	}
	got := gather(t, m)
	for name, value := range want {
		if v, ok := got[name]; !ok || v != value {
			t.Errorf("%s is %v, %v, not %v", name, v, ok, value)
		}
	}
}

// gather gives the values of a registry: of histograms, the counts.
func gather(t *testing.T, m *metrics) map[string]float64 {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			name := f.GetName()
			var labels []string
			for _, l := range metric.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			out[name] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return out
}

// Flows are counted page by page, and not more often than need be.
func TestFlowsAreCounted(t *testing.T) {
	m := newMetrics("v", "go")
	lists := 0
	m.pulled.attach(figures{
		info: func() core.ServerInfo {
			return core.ServerInfo{Running: 2, MaxConcurrentRuns: 9, Revision: 5, OldestDue: 1500 * time.Millisecond}
		},
		list: func(o core.ListOptions) ([]*core.Info, bool, uint64) {
			lists++
			info := func(id string, s flow.Status, paused bool) *core.Info {
				return &core.Info{Flow: core.Define(&core.Flow{ID: id}), State: flow.State{Status: s, Paused: paused}}
			}
			if o.After == "" {
				return []*core.Info{info("a", flow.Idle, true), info("b", flow.Tripped, false)}, true, 0
			}
			return []*core.Info{info("c", flow.Idle, false)}, false, 0
		},
		watchers: func() int { return 3 },
		ready:    func() bool { return true },
		guards: func(string) []resource.GuardStatus {
			return []resource.GuardStatus{{Resource: "api", Breaker: &resource.BreakerStatus{State: resource.HalfOpen, Refused: 4}, Limiter: &resource.LimiterStatus{Waiting: 2}}}
		},
	})
	for range 3 {
		got := gather(t, m)
		for name, value := range map[string]float64{
			`schedulerd_flows{status="idle"}`: 2, `schedulerd_flows{status="tripped"}`: 1, `schedulerd_flows{status="running"}`: 0,
			`schedulerd_flows_paused`: 1, `schedulerd_runs_running`: 2, `schedulerd_runs_limit`: 9, `schedulerd_revision`: 5,
			`schedulerd_oldest_due_age_seconds`: 1.5, `schedulerd_watch_streams`: 3, `schedulerd_ready`: 1,
			`schedulerd_breaker_open{resource="api"}`: 0.5, `schedulerd_breaker_refused_total{resource="api"}`: 4, `schedulerd_rate_limit_waiting{resource="api"}`: 2,
		} {
			if got[name] != value {
				t.Errorf("%s is %v, not %v", name, got[name], value)
			}
		}
	}
	if lists != 2 {
		t.Errorf("%d pages were asked for", lists)
	}
}

func TestCallMetrics(t *testing.T) {
	m := newMetrics("v", "go")
	call := func(method string, err error) {
		ctx := m.calls.TagRPC(context.Background(), &stats.RPCTagInfo{FullMethodName: method})
		m.calls.HandleRPC(ctx, &stats.Begin{})
		m.calls.HandleRPC(ctx, &stats.InPayload{CompressedLength: 10})
		m.calls.HandleRPC(ctx, &stats.OutPayload{CompressedLength: 20})
		m.calls.HandleRPC(ctx, &stats.End{Error: err})
	}
	m.calls.know(start(t, nil).api.GetServiceInfo())
	call("/schedulerd.v1.SchedulerService/List", nil)
	call("/schedulerd.v1.SchedulerService/List", status.Error(codes.DeadlineExceeded, ""))
	call("/made.up/Method", errors.New("what"))
	call("/made.up/Another", status.Error(77, "what"))
	m.calls.HandleRPC(context.Background(), &stats.End{}) // a call that was never tagged
	got := gather(t, m)
	for name, value := range map[string]float64{
		`grpc_server_call_started_total{grpc_method="schedulerd.v1.SchedulerService/List"}`:                                                            2,
		`grpc_server_call_started_total{grpc_method="other"}`:                                                                                          2,
		`grpc_server_call_duration_seconds{grpc_method="schedulerd.v1.SchedulerService/List",grpc_status="OK"}`:                                        1,
		`grpc_server_call_duration_seconds{grpc_method="schedulerd.v1.SchedulerService/List",grpc_status="DEADLINE_EXCEEDED"}`:                         1,
		`grpc_server_call_sent_total_compressed_message_size_bytes{grpc_method="schedulerd.v1.SchedulerService/List",grpc_status="DEADLINE_EXCEEDED"}`: 1,
		`grpc_server_call_rcvd_total_compressed_message_size_bytes{grpc_method="other",grpc_status="UNKNOWN"}`:                                         2,
	} {
		if got[name] != value {
			t.Errorf("%s is %v, not %v", name, got[name], value)
		}
	}
}

func TestCodeNames(t *testing.T) {
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		var parsed codes.Code
		if err := parsed.UnmarshalJSON([]byte(`"` + codeName(code) + `"`)); err != nil || parsed != code {
			t.Errorf("%v is called %s: %v", code, codeName(code), err)
		}
	}
}
