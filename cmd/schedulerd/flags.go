package main

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// flags defines the flags. docs/configuration.md has a row for each; a test compares them.
func (c *config) flags(f *pflag.FlagSet) {
	f.SortFlags = false
	f.StringArrayVar(&c.Flows, "flows", c.Flows, "flows `file`, or folder of them; may be given more than once")
	f.StringVar(&c.DataDir, "data-dir", c.DataDir, "`folder` that keeps state, runs and output; without it all is in memory")
	f.BoolVar(&c.check, "check", false, "check the flows files and exit")

	f.StringVar(&c.Listen, "listen", c.Listen, "`address` of the API")
	f.StringVar(&c.AdminListen, "admin-listen", c.AdminListen, "`address` of health, metrics, reflection and profiles; empty: none")
	f.BoolVar(&c.ListenAnywhere, "insecure-listen-anywhere", c.ListenAnywhere, "allow addresses other than loopback without TLS")
	f.StringVar(&c.TLSCert, "tls-cert", c.TLSCert, "PEM `file` of the API's certificate chain")
	f.StringVar(&c.TLSKey, "tls-key", c.TLSKey, "PEM `file` of its key")
	f.StringVar(&c.TLSClientCA, "tls-client-ca", c.TLSClientCA, "PEM `file` of the roots of clients' certificates; clients without one are refused")
	f.BoolVar(&c.AllowAPIExec, "allow-api-exec", c.AllowAPIExec, "let flows that come over the API run commands")

	f.IntVar(&c.MaxConcurrentRuns, "max-concurrent-runs", c.MaxConcurrentRuns, "`number` of runs on their way at once")
	f.DurationVar(&c.MaxDueAge, "max-due-age", c.MaxDueAge, "how long a due fire time may wait before health says NOT_SERVING; 0: for ever")
	f.DurationVar(&c.Grace, "grace", c.Grace, "how long runs may take to finish at a stop")
	f.DurationVar(&c.KillTime, "kill-time", c.KillTime, "how long cancelled runs may take to end at a stop")
	f.DurationVar(&c.DrainDelay, "drain-delay", c.DrainDelay, "from NOT_SERVING to the end of the API at a stop, for load balancers to notice")

	f.Var((*size)(&c.CacheSize), "cache-size", "of the store's cache of what it read")
	f.Var((*size)(&c.MemtableSize), "memtable-size", "of what the store gathers in memory before it is sorted to disk")
	f.Var((*size)(&c.MaxRequestSize), "max-request-size", "of one request")
	f.Uint32Var(&c.MaxStreams, "max-streams", c.MaxStreams, "`number` of calls at once on one connection")
	f.DurationVar(&c.WatchAge, "watch-age", c.WatchAge, "greatest age of a watch: it ends between half of it and all of it, and its client resumes")
	f.DurationVar(&c.ConnectionAge, "connection-age", c.ConnectionAge, "age at which a client is asked for a new connection")

	f.TextVar(&c.logLevel, "log-level", c.logLevel, "least `level` of what is logged: DEBUG, INFO, WARN, ERROR")
	f.Var((*format)(&c.logFormat), "log-format", "of the log: text or json")
}

// envPrefix begins the names of variables that set flags.
const envPrefix = "SCHEDULERD_"

// variable is the name of the variable that sets a flag.
func variable(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment sets the flags that the command line did not. An empty variable is none.
func fromEnvironment(flags *pflag.FlagSet, env []string) error {
	values := map[string]string{}
	for _, pair := range env {
		if name, value, ok := strings.Cut(pair, "="); ok && value != "" && strings.HasPrefix(name, envPrefix) {
			values[name] = value
		}
	}
	var failed error
	flags.VisitAll(func(f *pflag.Flag) {
		value, ok := values[variable(f.Name)]
		if !ok || f.Changed || failed != nil {
			return
		}
		parts := []string{value}
		if f.Value.Type() == "stringArray" {
			parts = filepath.SplitList(value)
		}
		for _, part := range parts {
			if err := flags.Set(f.Name, part); err != nil {
				failed = fmt.Errorf("%s in the environment: %w", variable(f.Name), err)
				return
			}
		}
	})
	return failed
}

// size is a number of bytes, written with a unit or without.
type size int64

var units = []struct {
	name  string
	bytes int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}}

func (s *size) Set(text string) error {
	unit := int64(1)
	number := strings.TrimSpace(text)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return fmt.Errorf("%q is no size; write a number of bytes, or one with KiB, MiB or GiB", text)
	}
	*s = size(n * unit)
	return nil
}

func (s *size) String() string {
	for _, u := range []int{2, 1, 0} {
		if n := int64(*s); n > 0 && n%units[u].bytes == 0 {
			return strconv.FormatInt(n/units[u].bytes, 10) + units[u].name
		}
	}
	return strconv.FormatInt(int64(*s), 10) + "B"
}

func (*size) Type() string { return "size" }

// format is "text" or "json".
type format string

func (f *format) Set(text string) error {
	if text != "text" && text != "json" {
		return fmt.Errorf("%q is no log format; write text or json", text)
	}
	*f = format(text)
	return nil
}

func (f *format) String() string { return string(*f) }
func (*format) Type() string     { return "format" }
