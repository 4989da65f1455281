package server

import (
	"strings"
	"testing"
	"time"
)

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Options)
		text   string // "": fine
	}{
		{"defaults", func(*Options) {}, ""},
		{"any port", func(o *Options) { o.Listen, o.AdminListen = "localhost:0", "[::1]:0" }, ""},
		{"no admin listener", func(o *Options) { o.AdminListen = "" }, ""},
		{"no API", func(o *Options) { o.Listen = "" }, "--listen is empty"},
		{"no port", func(o *Options) { o.Listen = "127.0.0.1" }, "host:port"},
		{"everywhere", func(o *Options) { o.Listen = ":7420" }, "--tls-cert"},
		{"everywhere, v4", func(o *Options) { o.Listen = "0.0.0.0:7420" }, "--insecure-listen-anywhere"},
		{"everywhere, v6", func(o *Options) { o.Listen = "[::]:7420" }, "--tls-cert"},
		{"mapped loopback", func(o *Options) { o.Listen = "[::ffff:127.0.0.1]:7420" }, ""},
		{"a name", func(o *Options) { o.Listen = "example.com:7420" }, "--tls-cert"},
		{"everywhere with TLS", func(o *Options) { o.Listen, o.TLSCert, o.TLSKey = ":7420", "c", "k" }, ""},
		{"everywhere on purpose", func(o *Options) { o.Listen, o.AdminListen, o.ListenAnywhere = ":7420", ":7422", true }, ""},
		{"admin everywhere", func(o *Options) { o.AdminListen, o.TLSCert, o.TLSKey = ":7422", "c", "k" }, "--admin-listen"},
		{"half of TLS", func(o *Options) { o.TLSCert = "c" }, "--tls-key"},
		{"clients' certificates without TLS", func(o *Options) { o.TLSClientCA = "ca" }, "--tls-client-ca"},
		{"grace", func(o *Options) { o.Grace = -time.Second }, "--grace"},
		{"no grace", func(o *Options) { o.Grace = 0 }, ""},
		{"kill time", func(o *Options) { o.KillTime = 0 }, "--kill-time"},
		{"drain delay", func(o *Options) { o.DrainDelay = -1 }, "--drain-delay"},
		{"due age", func(o *Options) { o.MaxDueAge = -1 }, "--max-due-age"},
		{"watch age", func(o *Options) { o.WatchAge = 0 }, "--watch-age"},
		{"connection age", func(o *Options) { o.ConnectionAge = 0 }, "--connection-age"},
		{"runs", func(o *Options) { o.MaxConcurrentRuns = 0 }, "--max-concurrent-runs"},
		{"streams", func(o *Options) { o.MaxStreams = 0 }, "--max-streams"},
		{"small requests", func(o *Options) { o.MaxRequestSize = 1 }, "--max-request-size"},
		{"large requests", func(o *Options) { o.MaxRequestSize = 2 << 30 }, "--max-request-size"},
		{"cache", func(o *Options) { o.CacheSize = 0 }, "--cache-size"},
		{"memtable", func(o *Options) { o.MemtableSize = 5 << 30 }, "--memtable-size"},
	} {
		o := Defaults()
		c.change(&o)
		err := o.Validate()
		if c.text == "" && err != nil || c.text != "" && (err == nil || !strings.Contains(err.Error(), c.text)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// All that is wrong at once.
	o := Defaults()
	o.Grace, o.MaxStreams, o.TLSCert = -1, 0, "c"
	if err := o.Validate(); strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("%v", err)
	}
}
