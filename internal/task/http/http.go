package http

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	nethttp "net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/expr"
	"github.com/schedulerd/schedulerd/internal/fault"
	"github.com/schedulerd/schedulerd/internal/task"
	"github.com/schedulerd/schedulerd/internal/task/failure"
	"github.com/schedulerd/schedulerd/internal/task/secret"
	"golang.org/x/net/http/httpguts"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Limits and defaults of a call.
const (
	DefaultMaxRedirects     = 5
	DefaultMaxResponseBytes = 1 << 20
	DefaultConnectTimeout   = 10 * time.Second
	DefaultHeaderTimeout    = 30 * time.Second
	maxConnectTimeout       = time.Minute
)

// Kind calls HTTP endpoints, without trace context.
var Kind = KindWith(nil)

// KindWith calls HTTP endpoints. Inject adds the trace context in ctx to the headers of a call.
func KindWith(inject func(context.Context, nethttp.Header)) task.Kind {
	return task.Kind{Field: "http", New: func(t *schedulerdv1.Task, env *task.Env) (workflow.Task, error) {
		return newTask(t, env, inject)
	}}
}

type call struct {
	method           string
	url              *expr.Template
	label            string // the url in messages
	target           string // name of the http resource; empty: none
	headers          map[string]*expr.Template
	text             *expr.Template      // the body; nil: it is not a text
	json             *expr.TemplateValue // the body; nil: it is not JSON
	statuses         []int32
	maxRedirects     int
	maxResponseBytes int64
	connectTimeout   time.Duration
	headerTimeout    time.Duration
	inject           func(context.Context, nethttp.Header)
}

func newTask(t *schedulerdv1.Task, env *task.Env, inject func(context.Context, nethttp.Header)) (workflow.Task, error) {
	h := t.GetHttp()
	c := &call{
		method:           h.GetMethod(),
		url:              env.Template("http.url", h.GetUrl()),
		headers:          headers(env, "http.headers", h.GetHeaders()),
		statuses:         h.GetSuccessStatuses(),
		maxRedirects:     int(h.GetMaxRedirects()),
		maxResponseBytes: int64(h.GetMaxResponseBytes()),
		connectTimeout:   timeout(env, "http.connect_timeout", h.GetConnectTimeout(), DefaultConnectTimeout, maxConnectTimeout),
		headerTimeout:    timeout(env, "http.header_timeout", h.GetHeaderTimeout(), DefaultHeaderTimeout, 24*time.Hour),
		inject:           inject,
	}
	if c.method == "" {
		c.method = nethttp.MethodGet
	}
	if c.maxResponseBytes == 0 {
		c.maxResponseBytes = DefaultMaxResponseBytes
	}
	switch {
	case h.GetNoRedirects() && c.maxRedirects > 0:
		env.Faultf("http.no_redirects", "no_redirects and max_redirects are both set: keep one")
	case !h.GetNoRedirects() && c.maxRedirects == 0:
		c.maxRedirects = DefaultMaxRedirects
	}
	switch body := h.GetBody().(type) {
	case *schedulerdv1.HttpTask_Text:
		c.text = env.Template("http.text", body.Text)
	case *schedulerdv1.HttpTask_Json:
		c.json = env.Value("http.json", body.Json)
	}
	if env.Resources[t.GetTarget()] == "http" { // any other resource is a guard only
		c.target = t.GetTarget()
	}
	text, constant := c.url.Constant()
	if constant && c.target == "" {
		if _, err := resolve(nil, text); err != nil {
			env.Faultf("http.url", "%v", err)
		}
	} else if constant {
		if _, err := parse(text); err != nil {
			env.Faultf("http.url", "%v", err)
		}
	}
	c.label = c.method + " " + label(h.GetUrl(), constant)
	if c.target != "" {
		c.label += " of target " + c.target
	}
	return c, nil
}

// ofTheConnection are the headers that the transport sets.
var ofTheConnection = []string{"Connection", "Content-Length", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// headers compiles headers, by their canonical names.
func headers(env *task.Env, field string, texts map[string]string) map[string]*expr.Template {
	compiled := env.SecretTemplates(field, texts)
	canonical := make(map[string]*expr.Template, len(texts))
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		key := nethttp.CanonicalHeaderKey(name)
		_, twice := canonical[key]
		value, constant := compiled[name].Constant()
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			env.Faultf(fault.Key(field, name), "%q cannot be the name of a header", name)
		case slices.Contains(ofTheConnection, key):
			env.Faultf(fault.Key(field, name), "%s is set by the connection itself: leave it out", key)
		case twice:
			env.Faultf(fault.Key(field, name), "%s is there twice, in another case", key)
		case constant && !httpguts.ValidHeaderFieldValue(value):
			env.Faultf(fault.Key(field, name), "the value has characters that a header cannot have, such as a line end")
		}
		canonical[key] = compiled[name]
	}
	return canonical
}

func timeout(env *task.Env, field string, d *durationpb.Duration, byDefault, most time.Duration) time.Duration {
	if d == nil {
		return byDefault
	}
	if t := d.AsDuration(); t <= 0 || t > most {
		env.Faultf(field, "it must be more than 0 and at most %v, not %v", most, t)
	}
	return d.AsDuration()
}

// stoppedError is a call that ended because its context did.
type stoppedError struct {
	label string
	cause error
}

func (e *stoppedError) Error() string { return e.label + " was not finished" }

func (e *stoppedError) Unwrap() error { return e.cause }

// Run makes the call.
func (c *call) Run(ctx context.Context, in *workflow.Invocation) (workflow.Result, error) {
	result, err := c.call(ctx, in)
	switch e, classified := errors.AsType[*workflow.Error](err); {
	case err == nil:
		return workflow.Result{Value: result}, nil
	case ctx.Err() != nil:
		return workflow.Result{}, &stoppedError{c.label, context.Cause(ctx)}
	case classified:
		return workflow.Result{}, &workflow.Error{Err: fmt.Errorf("%s: %w", c.label, err), Class: e.Class, Permanent: e.Permanent, RetryAfter: e.RetryAfter}
	default:
		return workflow.Result{}, failure.Retryable("network", "%s: %w", c.label, err)
	}
}

func (c *call) call(ctx context.Context, in *workflow.Invocation) (map[string]any, error) {
	var target *Target
	transport := direct
	if c.target != "" {
		var ok bool
		if target, ok = in.Resources.Get(c.target).(*Target); !ok {
			return nil, failure.Permanent("target", "there is no http resource %q", c.target)
		}
		transport = target.client
	}
	request, hidden, err := c.request(ctx, in, target)
	if err != nil {
		return nil, err
	}
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	phases := &phases{cancel: cancel, connect: c.connectTimeout, header: c.headerTimeout}
	defer phases.end()
	client := &nethttp.Client{Transport: transport, CheckRedirect: func(next *nethttp.Request, via []*nethttp.Request) error {
		phases.end()
		return c.redirect(next, via, target)
	}}
	result, err := func() (map[string]any, error) {
		response, err := client.Do(request.WithContext(phases.trace(within)))
		if err != nil {
			return nil, explain(err)
		}
		defer response.Body.Close()
		if !c.succeeded(response.StatusCode) {
			phases.begin(excerptTime, "")
			return nil, failed(response, hidden)
		}
		response.Body = phases.body(response.Body)
		return c.receive(response, hidden)
	}()
	if _, classified := errors.AsType[*workflow.Error](err); err != nil && !classified {
		if late, ok := errors.AsType[*lateError](context.Cause(within)); ok {
			return nil, failure.Retryable("timeout", "%w", late)
		}
	}
	return result, err
}

// request gives the request of a call, and the secrets in it.
func (c *call) request(ctx context.Context, in *workflow.Invocation, target *Target) (*nethttp.Request, secret.Texts, error) {
	text, err := c.url.String(in.Scope)
	if err != nil {
		return nil, nil, failure.Expression("url", err)
	}
	var base *url.URL
	if target != nil {
		base = target.base
	}
	address, err := resolve(base, text)
	if err != nil {
		return nil, nil, failure.Permanent("request", "url: %w", err)
	}
	body, contentType, err := c.body(in.Scope)
	if err != nil {
		return nil, nil, err
	}
	request, err := nethttp.NewRequestWithContext(ctx, c.method, "", bytes.NewReader(body))
	if err != nil {
		return nil, nil, failure.Permanent("request", "%w", err)
	}
	request.URL, request.Host = address, ""
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	request.Header.Set("User-Agent", "schedulerd")
	if in.IdempotencyKey != "" {
		request.Header.Set("Idempotency-Key", in.IdempotencyKey)
	}
	if c.inject != nil {
		c.inject(ctx, request.Header)
	}
	hidden := secret.Texts{}
	set := func(templates map[string]*expr.Template, scope *workflow.Scope) error {
		for _, name := range slices.Sorted(maps.Keys(templates)) {
			value, err := templates[name].String(scope)
			if err != nil {
				return failure.Expression(fault.Key("headers", name), err)
			}
			if !httpguts.ValidHeaderFieldValue(value) {
				return failure.Permanent("request", "%s has characters that a header cannot have, such as a line end", fault.Key("headers", name))
			}
			if templates[name].Secret() {
				hidden.Add(value)
			}
			if name == "Host" {
				request.Host = value
			} else {
				request.Header.Set(name, value)
			}
		}
		return nil
	}
	if target != nil {
		if err := set(target.headers, nil); err != nil {
			return nil, nil, err
		}
	}
	return request, hidden, set(c.headers, in.Scope)
}

func (c *call) body(scope *workflow.Scope) (body []byte, contentType string, err error) {
	switch {
	case c.text != nil:
		text, err := c.text.String(scope)
		if err != nil {
			return nil, "", failure.Expression("text", err)
		}
		return []byte(text), "text/plain; charset=utf-8", nil
	case c.json != nil:
		value, err := c.json.Eval(scope)
		if err != nil {
			return nil, "", failure.Expression("json", err)
		}
		var b bytes.Buffer
		encoder := json.NewEncoder(&b)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(value); err != nil {
			return nil, "", failure.Permanent("request", "json: %w", err)
		}
		return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), "application/json", nil
	}
	return nil, "", nil
}

// redirect decides about the next request.
func (c *call) redirect(next *nethttp.Request, via []*nethttp.Request, target *Target) error {
	if c.maxRedirects == 0 {
		return nethttp.ErrUseLastResponse
	}
	if len(via) > c.maxRedirects {
		return failure.Permanent("redirect", "redirected more than %d times; raise max_redirects, or call the last address", c.maxRedirects)
	}
	first := via[0].URL
	if first.Scheme == "https" && next.URL.Scheme != "https" {
		return failure.Permanent("redirect", "redirected from https to %s at %s, which is refused", next.URL.Scheme, next.URL.Host)
	}
	// Once away, it does not matter where the way leads: another host has had its hand in it.
	away := func(hop *nethttp.Request) bool { return !sameOrigin(first, hop.URL) }
	if !away(next) && !slices.ContainsFunc(via, away) {
		return nil
	}
	configured := slices.Collect(maps.Keys(c.headers))
	if target != nil {
		configured = slices.AppendSeq(configured, maps.Keys(target.headers))
	}
	for _, name := range configured {
		if !slices.Contains(harmless, name) {
			next.Header.Del(name)
		}
	}
	next.Header.Del("Referer") // with what was in the query
	next.Host = ""
	return nil
}

// harmless are the headers that may be sent to another host than the one they were meant for.
var harmless = []string{"Accept", "Accept-Language", "Content-Type", "User-Agent"}

// explain says what went wrong on the way, without the address, which may hold what is not to be told.
func explain(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if _, decided := errors.AsType[*workflow.Error](err); decided {
		return err
	}
	if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return failure.Permanent("tls", "the server's certificate is not accepted: %w", e.Err)
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return failure.Permanent("tls", "the server's certificate is not accepted: %w", err)
	}
	if strings.Contains(err.Error(), "unsupported protocol scheme") {
		return failure.Permanent("redirect", "redirected to an address that is not http or https")
	}
	return err
}
