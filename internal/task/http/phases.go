package http

import (
	"context"
	"fmt"
	"io"
	"net/http/httptrace"
	"sync"
	"time"
)

// phases bounds the phases of a call: getting a connection and getting the headers of the response, once for each redirect,
// and then each piece of the body.
type phases struct {
	cancel          context.CancelCauseFunc
	connect, header time.Duration

	mu    sync.Mutex
	timer *time.Timer
}

// excerptTime bounds the wait for the body of a failure, which is of use but not needed.
const excerptTime = 2 * time.Second

// lateError is why a call was given up.
type lateError struct {
	what  string
	limit time.Duration
}

func (e *lateError) Error() string { return fmt.Sprintf("%s within %v", e.what, e.limit) }

// trace gives a context whose requests report to p.
func (p *phases) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { p.begin(p.connect, "there was no connection") },
		GotConn: func(httptrace.GotConnInfo) { p.begin(p.header, "there was no answer") },
	})
}

// begin begins a phase, and ends the one before.
func (p *phases) begin(limit time.Duration, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.timer = time.AfterFunc(limit, func() { p.cancel(&lateError{what, limit}) })
}

func (p *phases) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
}

// body bounds the wait for each piece of a body.
func (p *phases) body(body io.ReadCloser) io.ReadCloser { return &boundedBody{body, p} }

type boundedBody struct {
	io.ReadCloser
	phases *phases
}

func (b *boundedBody) Read(buffer []byte) (int, error) {
	b.phases.begin(b.phases.header, "the response did not go on")
	return b.ReadCloser.Read(buffer)
}
