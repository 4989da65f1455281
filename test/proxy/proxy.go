// Package proxy is a TCP proxy for tests that does what bad networks do: it resets connections, cuts idle ones, and delays
// what passes.
package proxy

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy stands between a client and a target. It is safe for concurrent use.
type Proxy struct {
	Address string
	target  string
	idle    atomic.Int64 // nanoseconds after which a silent connection is cut; 0: never
	delay   atomic.Int64 // nanoseconds that everything takes longer
	cuts    atomic.Int64 // connections cut so far

	mu       sync.Mutex
	conns    map[*net.TCPConn]bool
	listener net.Listener
	all      sync.WaitGroup
}

// New serves until the test ends.
func New(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Address: l.Addr().String(), target: target, listener: l, conns: map[*net.TCPConn]bool{}}
	p.all.Go(p.serve)
	t.Cleanup(func() {
		l.Close()
		p.Reset()
		p.all.Wait()
	})
	return p
}

// CutIdle cuts connections on which nothing passes for so long.
func (p *Proxy) CutIdle(after time.Duration) { p.idle.Store(int64(after)) }

// Delay lets everything take longer.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// Cuts is how many connections were cut.
func (p *Proxy) Cuts() int { return int(p.cuts.Load()) }

// Reset breaks all connections at once, so that both sides see a reset.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		cut(c)
	}
	p.cuts.Add(int64(len(p.conns) / 2))
}

func cut(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}

func (p *Proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			cut(client.(*net.TCPConn))
			continue
		}
		p.join(client.(*net.TCPConn), server.(*net.TCPConn))
	}
}

func (p *Proxy) join(a, b *net.TCPConn) {
	p.mu.Lock()
	p.conns[a], p.conns[b] = true, true
	p.mu.Unlock()
	var passed atomic.Int64 // when something passed last, in either direction
	passed.Store(time.Now().UnixNano())
	var both sync.WaitGroup
	both.Go(func() { p.pump(a, b, &passed) })
	both.Go(func() { p.pump(b, a, &passed) })
	p.all.Go(func() {
		both.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, a)
		delete(p.conns, b)
	})
}

// pump passes on what comes from one side, until either is closed.
func (p *Proxy) pump(from, to *net.TCPConn, passed *atomic.Int64) {
	defer cut(from)
	defer cut(to)
	buffer := make([]byte, 32<<10)
	for {
		from.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		n, err := from.Read(buffer)
		if n > 0 {
			passed.Store(time.Now().UnixNano())
			time.Sleep(time.Duration(p.delay.Load()))
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
			if idle := p.idle.Load(); idle > 0 && time.Now().UnixNano()-passed.Load() > idle {
				p.cuts.Add(1)
				return
			}
		} else if err != nil {
			return
		}
	}
}
