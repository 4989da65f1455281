package http

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	nethttp "net/http"
	"net/url"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/expr"
	"github.com/schedulerd/schedulerd/internal/task"
	"github.com/schedulerd/schedulerd/internal/task/clienttls"
)

// ResourceKind is a target of http tasks.
var ResourceKind = task.ResourceKind{Field: "http", New: newTarget}

// Target is a base address with what all calls to it have in common. Without one it is but a guard of the calls that name it.
type Target struct {
	base    *url.URL // nil: none
	headers map[string]*expr.Template
	tls     *clienttls.Source
	client  *nethttp.Transport
}

func newTarget(r *schedulerdv1.Resource, env *task.Env) (resource.Resource, error) {
	h := r.GetHttp()
	if h.GetBaseUrl() == "" {
		if len(h.GetHeaders()) > 0 || h.GetTls() != nil {
			env.Faultf("http.base_url", "headers and tls need a base address: they are for no other")
		}
		return &Target{tls: &clienttls.Source{}}, nil
	}
	base, err := parseBase(h.GetBaseUrl())
	if err != nil {
		env.Faultf("http.base_url", "%v", err)
		return nil, nil
	}
	source, err := clienttls.New(h.GetTls())
	switch {
	case err != nil:
		env.Faultf("http.tls", "%v", err)
	case h.GetTls().GetInsecure() && base.Scheme == "https":
		env.Faultf("http.tls.insecure", "the base address is https: write http there for no transport security")
	case h.GetTls() != nil && !h.GetTls().GetInsecure() && base.Scheme == "http":
		env.Faultf("http.tls", "the base address is http, which has no transport security: write https there")
	}
	return &Target{base: base, headers: headers(env, "http.headers", h.GetHeaders()), tls: source}, nil
}

// Setup reads the files of the transport security.
func (t *Target) Setup(context.Context) error {
	if _, err := t.tls.Config(); err != nil {
		return err
	}
	t.client = newTransport()
	t.client.DialTLSContext = t.dialTLS
	return nil
}

// Teardown closes the connections.
func (t *Target) Teardown(context.Context) error {
	t.client.CloseIdleConnections()
	return nil
}

// dialTLS makes a connection with the files as they are now. Another host, reached by a redirect, sees no client certificate.
func (t *Target) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.base != nil && address == hostPort(t.base) {
		current, err := t.tls.Config()
		if err != nil {
			return nil, err
		}
		config = current.Clone()
	}
	config.NextProtos = []string{"h2", "http/1.1"}
	ctx, cancel := context.WithTimeout(ctx, maxConnectTimeout)
	defer cancel()
	return (&tls.Dialer{Config: config}).DialContext(ctx, network, address)
}

// direct is what calls without a target have in common.
var direct = newTransport()

// newTransport gives a transport without bounds for single calls: those differ from call to call.
func newTransport() *nethttp.Transport {
	return &nethttp.Transport{
		DialContext:            (&net.Dialer{Timeout: maxConnectTimeout}).DialContext,
		TLSHandshakeTimeout:    maxConnectTimeout,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           256,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
	}
}

func parseBase(text string) (*url.URL, error) {
	base, err := parse(text)
	switch {
	case err != nil:
		return nil, err
	case base.Scheme != "http" && base.Scheme != "https" || base.Host == "":
		return nil, errors.New("write the whole address, such as https://orders.example.com/v1")
	case base.Fragment != "":
		return nil, errors.New("an address with a fragment (#…) cannot be called")
	}
	if base.Path == "" {
		base.Path = "/" // or paths joined to it would have no slash in front
	}
	return base, nil
}

// parse parses an address. The error does not repeat it.
func parse(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if e, ok := errors.AsType[*url.Error](err); ok {
		return nil, fmt.Errorf("it is not an address: %w", e.Err)
	}
	return u, err
}
