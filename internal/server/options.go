package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/store"
	"github.com/schedulerd/schedulerd/internal/store/pebble"
	"github.com/schedulerd/schedulerd/internal/task"
)

// Options say what a server does. Begin with Defaults; docs/configuration.md describes the flags that set them.
type Options struct {
	Version string
	Log     *slog.Logger // nil: discarded

	Flows        []string // flows files, and folders of them
	AllowAPIExec bool     // flows that come over the API may run commands

	Listen         string // address of the API; port 0 takes any free one
	AdminListen    string // address of the admin listener; empty: none
	ListenAnywhere bool   // an address other than loopback is allowed without TLS
	TLSCert        string // PEM file of the API's certificate chain; empty: no TLS
	TLSKey         string // PEM file of its key
	TLSClientCA    string // PEM file of the roots that clients' certificates must go back to; empty: clients need none

	DataDir      string // empty: everything is in memory
	CacheSize    int64  // bytes
	MemtableSize int64  // bytes

	MaxConcurrentRuns int
	Grace             time.Duration // how long runs may take to finish at a stop
	KillTime          time.Duration // how long cancelled runs may take to end at a stop
	DrainDelay        time.Duration // from NOT_SERVING to the end of the API at a stop, for load balancers to notice
	MaxDueAge         time.Duration // a due fire time that waits longer makes the server NOT_SERVING; 0: never

	MaxRequestSize int64         // bytes of one request
	MaxStreams     uint32        // calls at once on one connection
	WatchAge       time.Duration // greatest age of a watch
	ConnectionAge  time.Duration // greatest age of a connection that gets new calls

	// For tests, in place of the program's kinds of tasks and resources, and of the store.
	registry *task.Registry
	store    store.Store
}

// Defaults are the options of a daemon that is started without any.
func Defaults() Options {
	return Options{
		Listen:            "127.0.0.1:7420",
		AdminListen:       "127.0.0.1:7422",
		CacheSize:         pebble.DefaultCacheBytes,
		MemtableSize:      pebble.DefaultMemtableBytes,
		MaxConcurrentRuns: core.DefaultMaxConcurrentRuns,
		Grace:             core.DefaultGrace,
		KillTime:          core.DefaultKillTime,
		MaxDueAge:         time.Minute,
		MaxRequestSize:    8 << 20,
		MaxStreams:        10_000,
		WatchAge:          time.Hour,
		ConnectionAge:     30 * time.Minute,
	}
}

// Validate tells all that is wrong, in words of the flags.
func (o Options) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check((o.TLSCert == "") == (o.TLSKey == ""), "--tls-cert and --tls-key belong together: set both or none")
	check(o.TLSClientCA == "" || o.TLSCert != "", "--tls-client-ca needs --tls-cert and --tls-key")
	check(o.Listen != "", "--listen is empty")
	if o.Listen != "" {
		errs = append(errs, o.checkAddress("--listen", o.Listen, o.TLSCert != ""))
	}
	if o.AdminListen != "" {
		errs = append(errs, o.checkAddress("--admin-listen", o.AdminListen, false))
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
		least time.Duration
	}{
		{"--grace", o.Grace, 0},
		{"--kill-time", o.KillTime, time.Millisecond},
		{"--drain-delay", o.DrainDelay, 0},
		{"--max-due-age", o.MaxDueAge, 0},
		{"--watch-age", o.WatchAge, time.Second},
		{"--connection-age", o.ConnectionAge, time.Second},
	} {
		check(d.value >= d.least, "%s must be at least %v, not %v", d.flag, d.least, d.value)
	}
	check(o.MaxConcurrentRuns >= 1, "--max-concurrent-runs must be at least 1, not %d", o.MaxConcurrentRuns)
	check(o.MaxStreams >= 1, "--max-streams must be at least 1, not %d", o.MaxStreams)
	check(o.MaxRequestSize >= 64<<10 && o.MaxRequestSize <= 1<<30, "--max-request-size must be from 64 KiB to 1 GiB, not %d", o.MaxRequestSize)
	check(o.CacheSize >= 1<<20, "--cache-size must be at least 1 MiB, not %d", o.CacheSize)
	check(o.MemtableSize >= 1<<20 && o.MemtableSize <= 1<<30, "--memtable-size must be from 1 MiB to 1 GiB, not %d", o.MemtableSize)
	return errors.Join(errs...)
}

// checkAddress refuses an address that strangers could reach unprotected.
func (o Options) checkAddress(flag, address string, protected bool) error {
	host, _, err := net.SplitHostPort(address)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %q is not host:port: %w", flag, address, err)
	case protected || o.ListenAnywhere || loopback(host):
		return nil
	case flag == "--listen":
		return fmt.Errorf("%s: %s can be reached from other machines, by anybody: set --tls-cert and --tls-key, or --insecure-listen-anywhere if something else protects it", flag, address)
	}
	return fmt.Errorf("%s: %s can be reached from other machines, by anybody: set --insecure-listen-anywhere if something else protects it", flag, address)
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
