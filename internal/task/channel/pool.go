package channel

import (
	"sync"

	"google.golang.org/grpc"
)

// maxKept is how many connections to addresses are kept while no call is on them.
const maxKept = 64

// Pool keeps the connections to addresses, which tasks that name the same one share. The zero Pool is ready, and safe for
// concurrent use.
type Pool struct {
	mu    sync.Mutex
	byKey map[string]*pooled
	idle  []*pooled // longest unused first
}

type pooled struct {
	address string
	conn    *grpc.ClientConn
	calls   int
}

// acquire gives the connection to an address until release is called.
func (p *Pool) acquire(address string) (conn *grpc.ClientConn, release func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.byKey[address]
	if c == nil {
		if conn, _, err = dial(address, nil, ""); err != nil {
			return nil, nil, err
		}
		c = &pooled{address: address, conn: conn}
		if p.byKey == nil {
			p.byKey = map[string]*pooled{}
		}
		p.byKey[address] = c
	} else if c.calls == 0 {
		p.take(c)
	}
	c.calls++
	return c.conn, sync.OnceFunc(func() { p.release(c) }), nil
}

func (p *Pool) take(c *pooled) {
	for i, other := range p.idle {
		if other == c {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			return
		}
	}
}

func (p *Pool) release(c *pooled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.calls--; c.calls > 0 {
		return
	}
	p.idle = append(p.idle, c)
	if len(p.idle) > maxKept {
		oldest := p.idle[0]
		p.idle = p.idle[1:]
		delete(p.byKey, oldest.address)
		oldest.conn.Close()
	}
}

// Close closes all connections. Calls on them end with an error.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.byKey {
		c.conn.Close()
	}
	p.byKey, p.idle = nil, nil
	return nil
}
