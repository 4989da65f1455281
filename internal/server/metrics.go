package server

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/store/pebble"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// metrics are the figures of one server, in a registry of its own. docs/metrics.md is for people what this is for the
// program; a test compares them.
type metrics struct {
	registry *prometheus.Registry
	calls    *callMetrics
	engine   *engineMetrics
	pulled   *pulled
	reloads  *prometheus.CounterVec
	reloaded prometheus.Gauge
}

func newMetrics(version, goVersion string) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	m.calls, m.engine, m.pulled = newCallMetrics(m.registry), newEngineMetrics(m.registry), &pulled{}
	m.reloads = register(m.registry, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "schedulerd_reloads_total", Help: "Times the flows files were read again, by result.",
	}, []string{"result"}))
	m.reloads.WithLabelValues("ok")
	m.reloads.WithLabelValues("failed")
	m.reloaded = register(m.registry, prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "schedulerd_last_reload_timestamp_seconds", Help: "When the flows files in use were read, in seconds since 1970.",
	}))
	info := register(m.registry, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "schedulerd_build_info", Help: "Always 1; the labels tell what runs.",
	}, []string{"version", "goversion"}))
	info.WithLabelValues(version, goVersion).Set(1)
	m.registry.MustRegister(m.pulled, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// register registers a collector that is the registry's first of its name.
func register[C prometheus.Collector](registry *prometheus.Registry, c C) C {
	registry.MustRegister(c)
	return c
}

// engineMetrics is what the engine tells; see core.Observer. Its methods run in the engine's goroutine, so all they need was
// looked up before.
type engineMetrics struct {
	started    map[flow.Cause]prometheus.Counter
	ended      map[flow.Outcome]prometheus.Counter
	duration   map[flow.Outcome]prometheus.Observer
	skipped    map[flow.SkipReason]prometheus.Counter
	lateness   prometheus.Histogram
	commits    prometheus.Histogram
	changes    prometheus.Counter
	clockJumps prometheus.Counter
}

var _ core.Observer = (*engineMetrics)(nil)

// Buckets from a millisecond on; runs may take hours.
var (
	latenessBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	commitBuckets   = []float64{.00001, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	runBuckets      = []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 600, 1800, 3600, 4 * 3600, 24 * 3600}
)

func newEngineMetrics(registry *prometheus.Registry) *engineMetrics {
	counter := func(name, help string, label ...string) *prometheus.CounterVec {
		return register(registry, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, label))
	}
	histogram := func(name, help string, buckets []float64, label ...string) *prometheus.HistogramVec {
		return register(registry, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, label))
	}
	started := counter("schedulerd_runs_started_total", "Runs started, by cause.", "cause")
	ended := counter("schedulerd_runs_ended_total", "Runs ended, by outcome.", "outcome")
	duration := histogram("schedulerd_run_duration_seconds", "How long runs took, by outcome.", runBuckets, "outcome")
	skipped := counter("schedulerd_fire_times_skipped_total", "Fire times that did not become runs, by reason.", "reason")
	m := &engineMetrics{
		started: map[flow.Cause]prometheus.Counter{}, ended: map[flow.Outcome]prometheus.Counter{},
		duration: map[flow.Outcome]prometheus.Observer{}, skipped: map[flow.SkipReason]prometheus.Counter{},
		lateness: histogram("schedulerd_start_lateness_seconds", "From the fire time to the start of its run, without the schedule's jitter.",
			latenessBuckets).With(nil).(prometheus.Histogram),
		commits:    histogram("schedulerd_commit_duration_seconds", "How long the store took to make a group of changes durable.", commitBuckets).With(nil).(prometheus.Histogram),
		changes:    counter("schedulerd_committed_changes_total", "Changes made durable.").With(nil),
		clockJumps: counter("schedulerd_clock_jumps_total", "Times the wall clock was set, or the machine was suspended.").With(nil),
	}
	for c := flow.BySchedule; c <= flow.ByCatchUp; c++ {
		m.started[c] = started.WithLabelValues(c.String())
	}
	for o := flow.Succeeded; o <= flow.Lost; o++ {
		label := strings.ToLower(o.String())
		m.ended[o], m.duration[o] = ended.WithLabelValues(label), duration.WithLabelValues(label)
	}
	for r := flow.SkipOverlap; r < flow.SkipReasons; r++ {
		m.skipped[r] = skipped.WithLabelValues(strings.ToLower(r.String()))
	}
	return m
}

// RunStarted counts a run.
func (m *engineMetrics) RunStarted(cause flow.Cause, lateness time.Duration) {
	m.started[cause].Inc()
	if cause == flow.BySchedule {
		m.lateness.Observe(lateness.Seconds())
	}
}

// RunEnded counts the end of a run.
func (m *engineMetrics) RunEnded(outcome flow.Outcome, duration time.Duration) {
	m.ended[outcome].Inc()
	m.duration[outcome].Observe(duration.Seconds())
}

// FireTimesSkipped counts fire times that did not become runs.
func (m *engineMetrics) FireTimesSkipped(reason flow.SkipReason, count uint64) {
	m.skipped[reason].Add(float64(count))
}

// Committed counts a commit.
func (m *engineMetrics) Committed(changes int, took time.Duration) {
	m.commits.Observe(took.Seconds())
	m.changes.Add(float64(changes))
}

// ClockJumped counts a jump.
func (m *engineMetrics) ClockJumped(time.Duration) { m.clockJumps.Inc() }

// pulled is the figures that are asked for when somebody looks.
type pulled struct {
	mu      sync.Mutex
	source  *figures // nil until the server has started
	counted time.Time
	flows   [flow.Tripped + 1]int
	paused  int
}

// figures is where pulled asks.
type figures struct {
	info     func() core.ServerInfo
	list     func(core.ListOptions) ([]*core.Info, bool, uint64)
	watchers func() int
	ready    func() bool
	guards   func(flow string) []resource.GuardStatus
	store    func() storeFigures // nil: the store has none
}

// storeFigures tells how a store on disk is doing.
type storeFigures struct {
	disk, log, debt float64 // bytes
	stalls          float64
}

// storeFiguresOf asks the store on disk; nil if there is none.
func storeFiguresOf(disk *pebble.Store) func() storeFigures {
	if disk == nil {
		return nil
	}
	return func() storeFigures {
		m := disk.Metrics()
		return storeFigures{disk: float64(m.DiskBytes), log: float64(m.LogBytes), debt: float64(m.DebtBytes), stalls: float64(m.Stalls)}
	}
}

// countEvery is how old the numbers of flows by status may be: with a million flows, counting takes a fraction of a second.
const countEvery = 5 * time.Second

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	flowsDesc    = gauge("schedulerd_flows", "Flows, by status.", "status")
	pausedDesc   = gauge("schedulerd_flows_paused", "Flows that are paused.")
	runningDesc  = gauge("schedulerd_runs_running", "Runs on their way.")
	limitDesc    = gauge("schedulerd_runs_limit", "Runs that may be on their way at once.")
	oldestDesc   = gauge("schedulerd_oldest_due_age_seconds", "Age of the oldest due fire time that neither ran nor was counted as skipped.")
	revisionDesc = gauge("schedulerd_revision", "The newest commit.")
	watchersDesc = gauge("schedulerd_watch_streams", "Open watches of flows.")
	readyDesc    = gauge("schedulerd_ready", "1 if the server is ready, as its health says, else 0.")
	breakerDesc  = gauge("schedulerd_breaker_open", "Circuit breaker of a shared resource: 0 closed, 0.5 half-open, 1 open.", "resource")
	refusedDesc  = gauge("schedulerd_breaker_refused_total", "Calls that the circuit breaker of a shared resource has refused.", "resource")
	waitingDesc  = gauge("schedulerd_rate_limit_waiting", "Calls that wait for the rate limit of a shared resource.", "resource")
	diskDesc     = gauge("schedulerd_store_disk_bytes", "Size of the store's files.")
	logDesc      = gauge("schedulerd_store_log_bytes", "Size of the part of the store that a start after a crash reads again.")
	debtDesc     = gauge("schedulerd_store_compaction_debt_bytes", "What the store has still to compact.")
	stallsDesc   = gauge("schedulerd_store_stalls_total", "Times that commits had to wait for the disk to keep up.")
)

// attach begins to ask.
func (p *pulled) attach(f figures) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.source = &f
}

// Describe tells nothing: what there is depends on the store.
func (p *pulled) Describe(chan<- *prometheus.Desc) {}

// Collect asks.
func (p *pulled) Collect(out chan<- prometheus.Metric) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.source == nil {
		out <- prometheus.MustNewConstMetric(readyDesc, prometheus.GaugeValue, 0)
		return
	}
	number := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	info := p.source.info()
	if now := time.Now(); now.Sub(p.counted) >= countEvery {
		p.count()
		p.counted = now
	}
	for s := flow.Idle; s <= flow.Tripped; s++ {
		number(flowsDesc, float64(p.flows[s]), strings.ToLower(s.String()))
	}
	number(pausedDesc, float64(p.paused))
	number(runningDesc, float64(info.Running))
	number(limitDesc, float64(info.MaxConcurrentRuns))
	number(oldestDesc, info.OldestDue.Seconds())
	number(revisionDesc, float64(info.Revision))
	number(watchersDesc, float64(p.source.watchers()))
	ready := 0.0
	if p.source.ready() {
		ready = 1
	}
	number(readyDesc, ready)
	for _, g := range p.source.guards("") { // the shared ones: their number is small and fixed
		if b := g.Breaker; b != nil {
			number(breakerDesc, map[resource.BreakerState]float64{resource.HalfOpen: 0.5, resource.Open: 1}[b.State], g.Resource)
			out <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(b.Refused), g.Resource)
		}
		if l := g.Limiter; l != nil {
			number(waitingDesc, float64(l.Waiting), g.Resource)
		}
	}
	if p.source.store != nil {
		f := p.source.store()
		number(diskDesc, f.disk)
		number(logDesc, f.log)
		number(debtDesc, f.debt)
		out <- prometheus.MustNewConstMetric(stallsDesc, prometheus.CounterValue, f.stalls)
	}
}

// count counts the flows by status.
func (p *pulled) count() {
	p.flows, p.paused = [flow.Tripped + 1]int{}, 0
	for after, more := "", true; more; {
		var page []*core.Info
		page, more, _ = p.source.list(core.ListOptions{After: after, Limit: 1000})
		for _, info := range page {
			p.flows[info.Status]++
			if info.Paused {
				p.paused++
			}
			after = info.Flow.ID
		}
	}
}

// callMetrics are the server's per-call metrics of gRFC A66 (https://github.com/grpc/proposal/blob/master/A66-otel-stats.md),
// as Prometheus spells names. It is a stats.Handler.
type callMetrics struct {
	started  *prometheus.CounterVec
	duration *prometheus.HistogramVec
	sent     *prometheus.HistogramVec
	received *prometheus.HistogramVec
	methods  map[string]*methodMetrics // by full method name
	other    *methodMetrics            // of methods that no service has: names a client made up must not become labels
}

// methodMetrics are one method's, looked up before. Those by status are made when first needed.
type methodMetrics struct {
	name    string
	started prometheus.Counter
	ended   [codes.Unauthenticated + 1]atomic.Pointer[endMetrics]
}

type endMetrics struct {
	duration, sent, received prometheus.Observer
}

// The buckets that gRFC A66 gives.
var (
	callBuckets = []float64{
		0, .00001, .00005, .0001, .0003, .0006, .0008, .001, .002, .003, .004, .005, .006, .008, .01, .013, .016, .02, .025, .03,
		.04, .05, .065, .08, .1, .13, .16, .2, .25, .3, .4, .5, .65, .8, 1, 2, 5, 10, 20, 50, 100,
	}
	sizeBuckets = []float64{0, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30, 4 << 30}
)

func newCallMetrics(registry *prometheus.Registry) *callMetrics {
	ended := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return register(registry, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"grpc_method", "grpc_status"}))
	}
	m := &callMetrics{
		started: register(registry, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grpc_server_call_started_total", Help: "Calls started.",
		}, []string{"grpc_method"})),
		duration: ended("grpc_server_call_duration_seconds", "How long calls took, from the first byte of the request to the last of the answer.", callBuckets),
		sent:     ended("grpc_server_call_sent_total_compressed_message_size_bytes", "Bytes of all answers of a call.", sizeBuckets),
		received: ended("grpc_server_call_rcvd_total_compressed_message_size_bytes", "Bytes of all requests of a call.", sizeBuckets),
		methods:  map[string]*methodMetrics{},
	}
	m.other = m.method("other")
	return m
}

// know makes a label of each method of the server's services. It is called before the server serves.
func (m *callMetrics) know(services map[string]grpc.ServiceInfo) {
	for service, info := range services {
		for _, method := range info.Methods {
			name := service + "/" + method.Name
			if m.methods["/"+name] == nil {
				m.methods["/"+name] = m.method(name)
			}
		}
	}
}

func (m *callMetrics) method(name string) *methodMetrics {
	return &methodMetrics{name: name, started: m.started.WithLabelValues(name)}
}

func (m *callMetrics) end(method *methodMetrics, code codes.Code) *endMetrics {
	if int(code) >= len(method.ended) {
		code = codes.Unknown
	}
	if e := method.ended[code].Load(); e != nil {
		return e
	}
	label := codeName(code)
	e := &endMetrics{
		duration: m.duration.WithLabelValues(method.name, label),
		sent:     m.sent.WithLabelValues(method.name, label),
		received: m.received.WithLabelValues(method.name, label),
	}
	method.ended[code].Store(e)
	return e
}

// codeName is a code as protocols spell it: DEADLINE_EXCEEDED.
func codeName(c codes.Code) string {
	var out strings.Builder
	name := c.String()
	for i, r := range name {
		if i > 0 && r >= 'A' && r <= 'Z' && name[i-1] >= 'a' {
			out.WriteByte('_')
		}
		out.WriteRune(r)
	}
	if c == codes.Canceled {
		return "CANCELLED"
	}
	return strings.ToUpper(out.String())
}

// callFigures are one call's.
type callFigures struct {
	method         *methodMetrics
	sent, received atomic.Int64
}

type callFiguresKey struct{}

// TagRPC begins a call.
func (m *callMetrics) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	method := m.methods[info.FullMethodName]
	if method == nil {
		method = m.other
	}
	return context.WithValue(ctx, callFiguresKey{}, &callFigures{method: method})
}

// HandleRPC counts what happens in a call.
func (m *callMetrics) HandleRPC(ctx context.Context, event stats.RPCStats) {
	call, ok := ctx.Value(callFiguresKey{}).(*callFigures)
	if !ok {
		return
	}
	switch event := event.(type) {
	case *stats.Begin:
		call.method.started.Inc()
	case *stats.InPayload:
		call.received.Add(int64(event.CompressedLength))
	case *stats.OutPayload:
		call.sent.Add(int64(event.CompressedLength))
	case *stats.End:
		e := m.end(call.method, status.Code(event.Error))
		e.duration.Observe(event.EndTime.Sub(event.BeginTime).Seconds())
		e.sent.Observe(float64(call.sent.Load()))
		e.received.Observe(float64(call.received.Load()))
	}
}

// TagConn does nothing.
func (m *callMetrics) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn does nothing.
func (m *callMetrics) HandleConn(context.Context, stats.ConnStats) {}
