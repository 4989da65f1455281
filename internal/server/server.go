package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/schedule"
	"github.com/schedulerd/schedulerd/internal/core/store"
	"github.com/schedulerd/schedulerd/internal/definition"
	"github.com/schedulerd/schedulerd/internal/runlog"
	"github.com/schedulerd/schedulerd/internal/service"
	"github.com/schedulerd/schedulerd/internal/store/pebble"
	"github.com/schedulerd/schedulerd/internal/task/channel"
	"github.com/schedulerd/schedulerd/internal/task/exec/process"
	"github.com/schedulerd/schedulerd/internal/worker"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
)

// Server is one schedulerd in this process. There may be others beside it.
type Server struct {
	options   Options
	log       *slog.Logger
	compiler  *definition.Compiler
	metrics   *metrics
	readiness *readiness
	service   *service.Service
	files     *flowsFiles
	running   *core.Running
	workers   *worker.Hub
	reloading sync.Mutex

	api       *grpc.Server
	apiListen net.Listener
	admin     *http.Server // nil: none
	adminRPC  *grpc.Server
	adminAddr net.Addr

	draining context.Context // done when open streams shall end
	drain    context.CancelFunc
	hurry    context.Context // done when the stop shall not wait any longer
	hurryUp  context.CancelFunc
	stopOnce sync.Once
	called   chan struct{} // closed when the Stop call was made
	callOnce sync.Once
	lost     chan struct{} // closed when a listener stopped serving without being told to
	loseOnce sync.Once
	failure  error // of that listener; set before lost is closed
	done     chan struct{}
	err      error // of the stop; set before done is closed

	cleanups []cleanup // newest last
	serving  sync.WaitGroup
}

// cleanup releases what a step of the start took.
type cleanup struct {
	name string
	run  func() error
}

// How long calls may take to end at a stop. Those that were told to end need it if their client does not read, or is far away.
const (
	drainTimeout = 5 * time.Second
	hurryTimeout = 500 * time.Millisecond
)

// Start starts a server. When it returns, flows are dispatched and the API answers. If anything fails, all that was done is
// undone; the error is of one of the kinds above where one fits.
func Start(ctx context.Context, o Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, of{ErrOptions, err}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		options: o, log: o.Log, metrics: newMetrics(o.Version, runtime.Version()), readiness: newReadiness(o.MaxDueAge),
		called: make(chan struct{}), lost: make(chan struct{}), done: make(chan struct{}),
	}
	s.draining, s.drain = context.WithCancel(context.Background())
	s.hurry, s.hurryUp = context.WithCancel(context.Background())
	if err := s.start(ctx); err != nil {
		s.drain()
		s.hurryUp()
		return nil, errors.Join(err, s.cleanUp())
	}
	go s.stopWhenOver()
	return s, nil
}

func (s *Server) start(ctx context.Context) error {
	kept, err := s.openData()
	if err != nil {
		return err
	}
	pool := &channel.Pool{}
	s.onStop("connections of tasks", pool.Close)
	s.workers = worker.New(worker.Options{StreamAge: s.options.WatchAge, Log: s.log.With("part", "workers")})
	s.onStop("workers", func() error { s.workers.Close(); return nil })
	s.compiler = definition.New(s.options.kinds(kept.owner, pool, s.workers))
	if s.files, err = readFlows(s.options.Flows, s.compiler, stored(ctx, kept.store), nil); err != nil {
		return err
	}
	if err := s.newService(kept); err != nil {
		return err
	}
	if err := s.listen(); err != nil {
		return err
	}
	if err := s.schedule(ctx, kept); err != nil {
		return err
	}
	s.announce(kept)
	return nil
}

// data is where a server keeps what it must not forget. All but the store are nil if that is in memory.
type data struct {
	store store.Store
	disk  *pebble.Store
	logs  *runlog.Logs
	owner string // marks the commands it runs
}

// openData opens the data directory: the store, and beside it the output of runs.
func (s *Server) openData() (*data, error) {
	dir := s.options.DataDir
	if dir == "" {
		memory := s.options.store
		if memory == nil {
			memory = store.NewMemory()
		}
		s.onStop("store", memory.Close)
		return &data{store: memory}, nil
	}
	disk, err := pebble.Open(pebble.Options{
		Dir:           filepath.Join(dir, storeDir),
		CacheBytes:    s.options.CacheSize,
		MemtableBytes: s.options.MemtableSize,
		Logger:        s.log.With("part", "store"),
	})
	if err != nil {
		return nil, of{ErrStore, err}
	}
	s.onStop("store", disk.Close)
	logs, err := runlog.Open(runlog.Options{Dir: filepath.Join(dir, outputDir)})
	if err != nil {
		return nil, of{ErrStore, err}
	}
	s.background(func(ctx context.Context) { logs.Keep(ctx, time.Hour) })
	// The store is ours, so whatever command still runs was left behind by a daemon that crashed. It must end before its run
	// goes on.
	owner, err := filepath.Abs(dir)
	if err != nil {
		return nil, of{ErrStore, err}
	}
	killed, err := process.KillLeft(owner)
	if err != nil {
		s.log.Warn("commands that a crash left behind may still run", "error", err)
	}
	for _, group := range killed {
		s.log.Warn("a command that a crash left behind was killed", "run", group.RunID, "group", group.ID)
	}
	return &data{store: disk, disk: disk, logs: logs, owner: owner}, nil
}

func (s *Server) newService(kept *data) (err error) {
	config := service.Config{
		Log:         s.log,
		Version:     s.options.Version,
		Compiler:    s.compiler,
		SharedKinds: s.files.Kinds,
		AllowExec:   s.options.AllowAPIExec,
		Stop:        s.stopByCall,
		WatchAge:    s.options.WatchAge,
	}
	if kept.disk != nil {
		config.Logs, config.Backup = kept.logs, kept.disk
	}
	s.service, err = service.New(config)
	return err
}

// callOptions are what every gRPC server of the process has.
func (s *Server) callOptions() []grpc.ServerOption {
	calls := newCallLog(s.log)
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(calls.unary, s.service.Unary),
		grpc.ChainStreamInterceptor(calls.stream, s.service.Stream),
		grpc.StatsHandler(s.metrics.calls),
		grpc.MaxRecvMsgSize(int(s.options.MaxRequestSize)),
		grpc.MaxHeaderListSize(64 << 10),
		grpc.WaitForHandlers(true),
	}
}

// Transport is how the API's connections are run, without what is done with the calls.
func Transport(o Options) []grpc.ServerOption {
	return []grpc.ServerOption{
		// A client that vanished without a word is noticed within 40 s; one that asks more often than every 10 s is not welcome.
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time:             30 * time.Second,
			Timeout:          10 * time.Second,
			MaxConnectionAge: o.ConnectionAge,
			// Streams end by themselves, with a last response; the connection must not end before them.
			MaxConnectionAgeGrace: o.WatchAge + time.Minute,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.ConnectionTimeout(20 * time.Second),
		grpc.MaxConcurrentStreams(o.MaxStreams),
		// Measured: workers save the growth of a fresh stack per call, and a window of 1 MiB lets a large request come at once.
		grpc.NumStreamWorkers(64),
		grpc.InitialWindowSize(1 << 20),
		grpc.InitialConnWindowSize(1 << 20),
	}
}

// apiOptions are the API's besides.
func (s *Server) apiOptions() ([]grpc.ServerOption, error) {
	options := append(s.callOptions(), Transport(s.options)...)
	if s.options.TLSCert == "" {
		return options, nil
	}
	certificates, err := newCertificates(s.options.TLSCert, s.options.TLSKey, s.options.TLSClientCA, s.log)
	if err != nil {
		return nil, of{ErrOptions, err}
	}
	return append(options, grpc.Creds(credentials.NewTLS(certificates.serverConfig()))), nil
}

// listen opens the listeners and serves them. Until the scheduler has started they answer NOT_READY.
func (s *Server) listen() error {
	options, err := s.apiOptions()
	if err != nil {
		return err
	}
	if s.apiListen, err = listenOn("--listen", s.options.Listen); err != nil {
		return err
	}
	s.onStop("API listener", closeAnyway(s.apiListen))
	s.api = grpc.NewServer(options...)
	s.onStop("API server", func() error { s.api.Stop(); return nil })
	pb.RegisterSchedulerServiceServer(s.api, s.service)
	pb.RegisterWorkerServiceServer(s.api, s.workers)
	healthpb.RegisterHealthServer(s.api, healthService{s.readiness.grpc, s.draining.Done()})
	s.metrics.calls.know(s.api.GetServiceInfo())

	if s.options.AdminListen != "" {
		adminListen, err := listenOn("--admin-listen", s.options.AdminListen)
		if err != nil {
			return err
		}
		s.onStop("admin listener", closeAnyway(adminListen))
		s.adminAddr = adminListen.Addr()
		s.adminRPC = s.adminGRPC()
		s.metrics.calls.know(s.adminRPC.GetServiceInfo())
		s.admin = s.adminHTTP(s.adminRPC)
		s.serving.Go(func() { s.served("admin", s.admin.Serve(adminListen)) })
		s.onStop("admin server", s.stopAdmin)
	}
	s.serving.Go(func() { s.served("API", s.api.Serve(s.apiListen)) })
	s.log.Info("listening", "api", s.Addr().String(), "admin", s.adminText(), "tls", s.options.TLSCert != "")
	return nil
}

func listenOn(flag, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, of{ErrListen, fmt.Errorf("%s %s: %w", flag, address, err)}
	}
	return l, nil
}

// closeAnyway closes a listener that its server may have closed already.
func closeAnyway(l net.Listener) func() error {
	return func() error {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	}
}

// served tells when a server stops serving without being told to.
func (s *Server) served(name string, err error) {
	if err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, grpc.ErrServerStopped) {
		s.loseOnce.Do(func() {
			s.failure = fmt.Errorf("the %s listener failed: %w", name, err)
			close(s.lost)
		})
	}
}

func (s *Server) stopAdmin() error {
	ctx, cancel := context.WithTimeout(s.hurry, time.Second)
	defer cancel()
	err := s.admin.Shutdown(ctx)
	if err != nil { // a profile or a stream on its way
		err = s.admin.Close()
	}
	s.adminRPC.Stop()
	return err
}

// schedule starts the scheduler with the flows of the files.
func (s *Server) schedule(ctx context.Context, kept *data) error {
	config := core.Config{
		Store:             kept.store,
		Shared:            s.files.Shared,
		MaxConcurrentRuns: s.options.MaxConcurrentRuns,
		Grace:             s.options.Grace,
		KillTime:          s.options.KillTime,
		Logger:            s.log,
		Observer:          s.metrics.engine,
		Basis:             s.options.Version + " tzdata " + schedule.TZDataVersion(),
		Describe:          definition.Describe,
		Compile: func(source []byte, origin core.Origin) (*core.Flow, error) {
			return s.compiler.CompileSource(source, definition.Options{
				Shared:    s.files.Kinds,
				AllowExec: origin == core.FromFile || s.options.AllowAPIExec,
				Origin:    origin,
			})
		},
	}
	if kept.logs != nil {
		config.Output = kept.logs.Run
	}
	scheduler := core.New(config)
	for _, f := range s.files.Flows {
		if err := scheduler.Add(f); err != nil {
			return of{ErrFlows, err}
		}
	}
	s.files.Flows = nil // the scheduler has them
	running, err := scheduler.Start(ctx)
	if err != nil {
		if isStore(err) {
			err = of{ErrStore, err}
		}
		return fmt.Errorf("starting the scheduler: %w", err)
	}
	s.running = running
	s.service.Attach(service.Engine{Running: running})
	s.readiness.started(running.Info)
	s.metrics.reloaded.SetToCurrentTime()
	s.metrics.pulled.attach(figures{
		info: running.Info, list: running.List, watchers: s.service.Watchers, guards: running.Guards,
		ready: func() bool { return s.readiness.look() == "" },
		store: storeFiguresOf(kept.disk),
	})
	s.background(s.readiness.run)
	s.background(func(context.Context) { debug.FreeOSMemory() }) // reading a hundred thousand flows takes ten times what they are
	return nil
}

// isStore reports whether an error of a start is about the store.
func isStore(err error) bool {
	for _, kind := range []error{store.ErrFenced, store.ErrLocked, store.ErrCorrupt, store.ErrSchema, store.ErrClosed, store.ErrReadOnly, store.ErrIO} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

func (s *Server) announce(kept *data) {
	info := s.running.Info()
	s.log.Info("schedulerd runs", "version", s.options.Version, "flows", info.Flows,
		"store", info.Store, "instance", info.Instance, "data_dir", s.options.DataDir)
	if !kept.store.Durable() {
		s.log.Warn("everything is in memory and lost at the end of the process; set --data-dir to keep it")
	}
	if info.Flows == 0 {
		s.log.Warn("there are no flows; give some with --flows, or apply them over the API")
	}
}

func (s *Server) adminText() string {
	if s.adminAddr == nil {
		return "off"
	}
	return s.adminAddr.String()
}

// Addr is where the API listens.
func (s *Server) Addr() net.Addr { return s.apiListen.Addr() }

// AdminAddr is where the admin listener listens; nil if there is none.
func (s *Server) AdminAddr() net.Addr { return s.adminAddr }

// Done is closed when the server has stopped.
func (s *Server) Done() <-chan struct{} { return s.done }

// Wait blocks until the server has stopped, without stopping it, and tells what went wrong with that.
func (s *Server) Wait() error {
	<-s.done
	return s.err
}

// onStop adds a cleanup: the newest runs first.
func (s *Server) onStop(name string, run func() error) {
	s.cleanups = append(s.cleanups, cleanup{name, run})
}

// background runs work until the stop.
func (s *Server) background(work func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		work(ctx)
	}()
	s.onStop("background work", func() error {
		cancel()
		<-ended
		return nil
	})
}

// cleanUp runs all cleanups, newest first, none skipped.
func (s *Server) cleanUp() error {
	var errs []error
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		if err := s.cleanups[i].run(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.cleanups[i].name, err))
		}
	}
	s.cleanups = nil
	s.serving.Wait()
	return errors.Join(errs...)
}
