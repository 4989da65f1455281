package http

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/schedulerd/schedulerd/internal/core/resource"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/task"
	"github.com/schedulerd/schedulerd/internal/task/kindtest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func config() task.Config {
	return task.Config{Resources: map[string]string{"api": "http", "guard": "store"}}
}

// serve serves until the test ends.
func serve(t *testing.T, handler nethttp.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(func() {
		direct.CloseIdleConnections()
		s.Close()
	})
	return s
}

// run runs the http task with the given fields, in JSON, and with the target "api" if there are resources.
func run(t *testing.T, call *kindtest.Call, fields string) (map[string]any, error) {
	t.Helper()
	definition := `{"http": {` + fields + `}}`
	if call.Resources != nil {
		definition = `{"http": {` + fields + `}, "target": "api"}`
	}
	result, err := kindtest.Task(t, Kind, config(), definition).Run(t.Context(), call.Invocation)
	if err != nil {
		return nil, err
	}
	return result.Value.(map[string]any), nil
}

func targetOf(t *testing.T, definition string) *resource.Set {
	t.Helper()
	return kindtest.SetUp(t, ResourceKind, map[string]string{"api": `{"http": ` + definition + `}`})
}

// seen is what a server saw of a request.
type seen struct {
	Method, URI, Host, Body string
	Header                  nethttp.Header
}

// recorder answers with nothing and keeps the last request.
func recorder(last *seen) nethttp.HandlerFunc {
	var mu sync.Mutex
	return func(_ nethttp.ResponseWriter, r *nethttp.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		*last = seen{r.Method, r.RequestURI, r.Host, string(body), r.Header}
	}
}

func TestRequest(t *testing.T) {
	t.Setenv("TOKEN", "s3cr3t-token")
	var got seen
	s := serve(t, recorder(&got))
	for name, test := range map[string]struct {
		fields string
		want   seen
	}{
		"default": {`"url": "URL/a?b=c"`, seen{"GET", "/a?b=c", "", "", nethttp.Header{}}},
		"text": {
			`"url": "URL/${params.name}", "method": "POST", "text": "hello ${params.name}"`,
			seen{"POST", "/Ada", "", "hello Ada", nethttp.Header{"Content-Type": {"text/plain; charset=utf-8"}, "Content-Length": {"9"}}},
		},
		"JSON": {
			`"url": "URL", "method": "PUT", "json": {"n": "${params.n}", "list": ["<${params.name}>"]}`,
			seen{"PUT", "/", "", `{"list":["<Ada>"],"n":3}`, nethttp.Header{"Content-Type": {"application/json"}, "Content-Length": {"24"}}},
		},
		"JSON null": {
			`"url": "URL", "method": "PUT", "json": null`,
			seen{"PUT", "/", "", `null`, nethttp.Header{"Content-Type": {"application/json"}, "Content-Length": {"4"}}},
		},
		"headers": {
			`"url": "URL", "method": "POST", "text": "<a/>", "headers": {"content-type": "application/xml", "Authorization": "Bearer ${env('TOKEN')}", "X-Name": "${params.name}", "host": "other.example", "user-agent": "mine", "Idempotency-Key": "own"}`,
			seen{"POST", "/", "other.example", "<a/>", nethttp.Header{"Content-Type": {"application/xml"}, "Content-Length": {"4"}, "Authorization": {"Bearer s3cr3t-token"}, "X-Name": {"Ada"}, "User-Agent": {"mine"}, "Idempotency-Key": {"own"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := run(t, kindtest.NewCall(), strings.ReplaceAll(test.fields, "URL", s.URL)); err != nil {
				t.Fatal(err)
			}
			want := test.want
			if want.Host == "" {
				want.Host = s.Listener.Addr().String()
			}
			for header, value := range map[string]string{"Accept-Encoding": "gzip", "User-Agent": "schedulerd", "Idempotency-Key": "i1/flow@7/work/1"} {
				if want.Header.Get(header) == "" {
					want.Header.Set(header, value)
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("the server saw %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestTarget(t *testing.T) {
	t.Setenv("TOKEN", "s3cr3t-token")
	var got seen
	s := serve(t, recorder(&got))
	call := kindtest.NewCall()
	call.Resources = targetOf(t, `{"base_url": "`+s.URL+`/v1", "headers": {"authorization": "${env('TOKEN')}", "X-Api": "target's"}}`)
	if _, err := run(t, call, `"url": "/orders/${params.n}", "headers": {"x-api": "task's"}`); err != nil {
		t.Fatal(err)
	}
	if got.URI != "/v1/orders/3" || got.Header.Get("Authorization") != "s3cr3t-token" || got.Header.Get("X-Api") != "task's" {
		t.Errorf("the server saw %+v", got)
	}
	_, err := run(t, call, `"url": "https://elsewhere.example/"`)
	if failure := kindtest.Failure(t, err); failure.Class != "request" || !failure.Permanent || !strings.Contains(err.Error(), "not of the target's own origin") {
		t.Errorf("elsewhere: %+v", failure)
	}
	call.Resources = targetOf(t, `{}`)
	if _, err := run(t, call, `"url": "`+s.URL+`/whole"`); err != nil || got.URI != "/whole" || got.Header.Get("Authorization") != "" {
		t.Errorf("a target without a base address: %v", err)
	}
	_, err = run(t, call, `"url": "/relative"`)
	if failure := kindtest.Failure(t, err); failure.Class != "request" || !strings.Contains(err.Error(), "or a target that has a base address") {
		t.Errorf("relative to nothing: %+v", failure)
	}
	call.Resources = nil
	guarded := kindtest.Task(t, Kind, config(), `{"http": {"url": "`+s.URL+`/guarded"}, "target": "guard"}`)
	if _, err := guarded.Run(t.Context(), call.Invocation); err != nil || got.URI != "/guarded" {
		t.Errorf("a target of another kind, which is a guard only: %v", err)
	}
	built := kindtest.Task(t, Kind, config(), `{"http": {"url": "/"}, "target": "api"}`)
	if _, err := built.Run(t.Context(), call.Invocation); kindtest.Failure(t, err).Class != "target" {
		t.Errorf("without the resource: %v", err)
	}
}

func TestTraceContext(t *testing.T) {
	type key struct{}
	var got seen
	s := serve(t, recorder(&got))
	kind := KindWith(func(ctx context.Context, h nethttp.Header) {
		if parent, ok := ctx.Value(key{}).(string); ok {
			h.Set("Traceparent", parent)
		}
	})
	built := kindtest.Task(t, kind, config(), `{"http": {"url": "`+s.URL+`"}}`)
	if _, err := built.Run(context.WithValue(t.Context(), key{}, "00-aa-bb-01"), kindtest.NewCall().Invocation); err != nil {
		t.Fatal(err)
	}
	if got.Header.Get("Traceparent") != "00-aa-bb-01" {
		t.Errorf("the server saw %v", got.Header)
	}
}

func TestResult(t *testing.T) {
	respond := func(status int, contentType, body string) nethttp.HandlerFunc {
		return func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			w.Header()["Date"] = nil
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	type object = map[string]any
	long := strings.Repeat("é", maxBody)
	for name, test := range map[string]struct {
		handler nethttp.HandlerFunc
		fields  string
		want    object
	}{
		"JSON": {
			respond(200, "application/json", `{"a": [1, null, "x"]}`), "",
			object{"status": 200.0, "headers": object{"content-type": "application/json"}, "json": object{"a": []any{1.0, nil, "x"}}},
		},
		"problem": {
			respond(404, "application/problem+json; charset=utf-8", `"x"`), `, "success_statuses": [200, 404]`,
			object{"status": 404.0, "headers": object{"content-type": "application/problem+json; charset=utf-8"}, "json": "x"},
		},
		"text":     {respond(201, "text/plain", "hello"), "", object{"status": 201.0, "headers": object{"content-type": "text/plain"}, "body": "hello", "truncated": false}},
		"no body":  {respond(204, "application/json", ""), "", object{"status": 204.0, "headers": object{"content-type": "application/json"}, "body": "", "truncated": false}},
		"HEAD":     {respond(200, "application/json", "{}"), `, "method": "HEAD"`, object{"status": 200.0, "headers": object{"content-type": "application/json"}, "body": "", "truncated": false}},
		"binary":   {respond(200, "image/png", "\x89PNG\x00"), "", object{"status": 200.0, "headers": object{"content-type": "image/png"}, "body_base64": "iVBORwA=", "truncated": false}},
		"long":     {respond(200, "text/plain", "x"+long), "", object{"status": 200.0, "headers": object{"content-type": "text/plain"}, "body": "x" + long[:maxBody-2], "truncated": true}},
		"redirect": {respond(304, "", ""), `, "success_statuses": [304]`, object{"status": 304.0, "headers": object{}, "body": "", "truncated": false}},
		"headers": {func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			for header, value := range map[string]string{
				"Date": "Tue, 01 Jan 2030 12:00:30 GMT", "Content-Type": "text/plain", "ETag": `"v1"`, "X-Request-Id": "r1",
				"Set-Cookie": "session=secret", "X-Internal": "secret", "Link": strings.Repeat("long", maxHeader), "Location": "/orders/7",
			} {
				w.Header().Set(header, value)
			}
		}, "", object{"status": 200.0, "body": "", "truncated": false, "headers": object{
			"date": "Tue, 01 Jan 2030 12:00:30 GMT", "content-type": "text/plain", "etag": `"v1"`, "x-request-id": "r1", "location": "/orders/7",
		}}},
		"gzip": {func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			w.Header()["Date"] = nil
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Content-Type", "text/plain")
			z := gzip.NewWriter(w)
			_, _ = io.WriteString(z, "hello")
			_ = z.Close()
		}, "", object{"status": 200.0, "headers": object{"content-type": "text/plain"}, "body": "hello", "truncated": false}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, test.handler)
			got, err := run(t, kindtest.NewCall(), `"url": "`+s.URL+`"`+test.fields)
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %.300v, %v\nwant %.300v", got, err, test.want)
			}
			if text, err := json.Marshal(got); err != nil || len(text) > workflow.MaxResultBytes {
				t.Errorf("a result of %d bytes, %v", len(text), err)
			}
		})
	}
}

func TestStatuses(t *testing.T) {
	s := serve(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		status, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		w.Header().Set("Retry-After", "7")
		w.Header().Set("Content-Type", r.URL.Query().Get("type"))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, r.URL.Query().Get("body"))
	})
	for _, test := range []struct {
		address   string
		permanent bool
		want      string
	}{
		{"/302", true, "status 302 Found"},
		{"/400?type=text/plain&body=+no%0A+such++field", true, "status 400 Bad Request: no such field"},
		{"/401?type=application/json&body={\"e\":1}", true, `status 401 Unauthorized: {"e":1}`},
		{"/404?type=text/html&body=<html>", true, "status 404 Not Found"},
		{"/404?type=text/plain&body=%FF", true, "status 404 Not Found"},
		{"/408", false, "status 408 Request Timeout"},
		{"/409", true, "status 409 Conflict"},
		{"/425", false, "status 425 Too Early"},
		{"/429", false, "status 429 Too Many Requests"},
		{"/500?type=text/plain&body=" + strings.Repeat("x", 500), false, "status 500 Internal Server Error: " + strings.Repeat("x", maxExcerpt) + "…"},
		{"/503", false, "status 503 Service Unavailable"},
		{"/599", false, "status 599"},
	} {
		_, err := run(t, kindtest.NewCall(), `"method": "POST", "no_redirects": true, "url": `+strconv.Quote(s.URL+test.address))
		failure := kindtest.Failure(t, err)
		class := "http:" + test.address[1:4]
		retryAfter := 7 * time.Second
		if test.permanent {
			retryAfter = 0
		}
		want := "POST " + s.URL + test.address[:4] + ": " + test.want
		if failure.Class != class || failure.Permanent != test.permanent || failure.RetryAfter != retryAfter || err.Error() != want {
			t.Errorf("%s: got %+v: %v\nwant %s", test.address, failure, err, want)
		}
	}
	_, err := run(t, kindtest.NewCall(), `"success_statuses": [418], "url": "`+s.URL+`/200"`)
	if failure := kindtest.Failure(t, err); failure.Class != "http:200" || !failure.Permanent {
		t.Errorf("200 where 418 is success: %+v", failure)
	}
}

// What env("NAME") gave is nowhere, whatever the server does with it.
func TestSecretsStaySecret(t *testing.T) {
	const secret = "s3cr3t-t0ken"
	t.Setenv("TOKEN", secret)
	echo := func(w nethttp.ResponseWriter, r *nethttp.Request) {
		token := r.Header.Get("Authorization")
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.Header().Set("Content-Type", r.URL.Query().Get("type"))
		w.Header().Set("Location", "/?token="+strings.TrimPrefix(token, "Bearer "))
		w.Header().Set("X-Request-Id", token)
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"you sent": %q, %q: ["Authorization: %s"]}`, token, token, token)
	}
	s := serve(t, echo)
	for _, query := range []string{
		"status=200&type=text/plain", "status=200&type=application/json", "status=400&type=text/plain", "status=500&type=application/json",
		"status=200&type=application/x-octets",
	} {
		call := kindtest.NewCall()
		result, err := run(t, call, `"url": "`+s.URL+`?`+query+`", "headers": {"Authorization": "Bearer ${env('TOKEN')}"}`)
		if text := fmt.Sprint(result, err, call.Logged, call.Written.Lines()); strings.Contains(text, secret) || !strings.Contains(text, "[secret]") {
			t.Errorf("%s: got %s", query, text)
		}
	}

	for name, fields := range map[string]string{
		"line end":       `"url": "` + s.URL + `", "headers": {"Authorization": "${env('TOKEN')}\r\nX-More: 1"}`,
		"no connection":  `"url": "http://127.0.0.1:1/?x=${params.name}", "headers": {"Authorization": "${env('TOKEN')}"}`,
		"not an address": `"url": "http://127.0.0.1:${params.name}/?x", "headers": {"Authorization": "${env('TOKEN')}"}`,
		"not set":        `"url": "` + s.URL + `", "headers": {"Authorization": "${env('TOKEN') + env('NOT_SET')}"}`,
		"not a number":   `"url": "` + s.URL + `", "headers": {"Authorization": "${int(env('TOKEN'))}"}`,
	} {
		_, err := run(t, kindtest.NewCall(), fields)
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestRedirects(t *testing.T) {
	t.Setenv("TOKEN", "s3cr3t-token")
	var got seen
	record := recorder(&got)
	elsewhere := serve(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if back := r.URL.Query().Get("back"); back != "" {
			nethttp.Redirect(w, r, back, nethttp.StatusFound)
			return
		}
		record(w, r)
	})
	s := serve(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		switch r.URL.Path {
		case "/same":
			nethttp.Redirect(w, r, "/end", nethttp.StatusFound)
		case "/same307":
			nethttp.Redirect(w, r, "/end", nethttp.StatusTemporaryRedirect)
		case "/away":
			nethttp.Redirect(w, r, elsewhere.URL+"/end", nethttp.StatusTemporaryRedirect)
		case "/away-and-back":
			nethttp.Redirect(w, r, elsewhere.URL+"/?back=http://"+r.Host+"/end", nethttp.StatusFound)
		case "/forever":
			nethttp.Redirect(w, r, "/forever", nethttp.StatusFound)
		case "/file":
			nethttp.Redirect(w, r, "file:///etc/passwd", nethttp.StatusFound)
		case "/nowhere":
			w.WriteHeader(nethttp.StatusFound)
		default:
			record(w, r)
		}
	})
	const fields = `"method": "POST", "text": "body", "headers": {"Authorization": "Bearer ${env('TOKEN')}", "X-Api-Key": "key", "Content-Type": "text/x-mine"}`
	for _, test := range []struct {
		path, method, body string
		known              bool // the configured headers arrived
	}{
		{"/end", "POST", "body", true},
		{"/same", "GET", "", true},
		{"/same307", "POST", "body", true},
		{"/away", "POST", "body", false},
		{"/away-and-back", "GET", "", false},
	} {
		call := kindtest.NewCall()
		call.Resources = targetOf(t, `{"base_url": "`+s.URL+`", "headers": {"X-Target-Key": "key"}}`)
		if _, err := run(t, call, `"url": "`+test.path+`?token=in-the-query", `+fields); err != nil {
			t.Errorf("%s: %v", test.path, err)
			continue
		}
		known := map[bool]string{true: "yes", false: ""}[test.known]
		for _, header := range []string{"Authorization", "X-Api-Key", "X-Target-Key"} {
			if value := got.Header.Get(header); (value != "") != test.known {
				t.Errorf("%s: %s is %q, want %q", test.path, header, value, known)
			}
		}
		if got.Method != test.method || got.Body != test.body || test.body != "" && got.Header.Get("Content-Type") != "text/x-mine" {
			t.Errorf("%s: the server saw %+v", test.path, got)
		}
		if referer := got.Header.Get("Referer"); !test.known && referer != "" {
			t.Errorf("%s: the other host saw where it came from: %s", test.path, referer)
		}
	}
	for _, test := range []struct{ fields, class, want string }{
		{`"url": "` + s.URL + `/forever"`, "redirect", "redirected more than 5 times"},
		{`"url": "` + s.URL + `/forever", "max_redirects": 2`, "redirect", "redirected more than 2 times"},
		{`"url": "` + s.URL + `/same", "no_redirects": true`, "http:302", "status 302 Found"},
		{`"url": "` + s.URL + `/file"`, "redirect", "redirected to an address that is not http or https"},
		{`"url": "` + s.URL + `/nowhere"`, "http:302", "status 302 Found"},
	} {
		_, err := run(t, kindtest.NewCall(), test.fields)
		if failure := kindtest.Failure(t, err); failure.Class != test.class || !strings.Contains(err.Error(), test.want) || !failure.Permanent {
			t.Errorf("%s: got %+v, want %s: %s", test.fields, failure, test.class, test.want)
		}
	}
	if result, err := run(t, kindtest.NewCall(), `"url": "`+s.URL+`/same", "max_redirects": 1`); err != nil || result["status"] != 200.0 {
		t.Errorf("one redirect of one: %v, %v", result, err)
	}
}

func TestLimits(t *testing.T) {
	s := serve(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		switch r.URL.Path {
		case "/exact":
			_, _ = io.WriteString(w, strings.Repeat("x", 1000))
		case "/more":
			_, _ = io.WriteString(w, strings.Repeat("x", 1001))
		case "/endless", "/endless-failure":
			if r.URL.Path == "/endless-failure" {
				w.WriteHeader(nethttp.StatusInternalServerError)
			}
			for chunk := []byte(strings.Repeat("x", 1<<10)); ; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			for chunk := make([]byte, 1<<20); ; {
				if _, err := z.Write(chunk); err != nil {
					return
				}
			}
		case "/headers":
			w.Header().Set("X-Long", strings.Repeat("x", 1<<20))
		case "/json":
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"a": `)
		}
	})
	if result, err := run(t, kindtest.NewCall(), `"max_response_bytes": "1000", "url": "`+s.URL+`/exact"`); err != nil || len(result["body"].(string)) != 1000 {
		t.Errorf("exactly as much as allowed: %v", err)
	}
	for path, test := range map[string]struct {
		class, want string
		permanent   bool
	}{
		"/more":            {"response", "the response has more than the 1000 bytes that max_response_bytes allows", true},
		"/endless":         {"response", "the response has more than the 1000 bytes that max_response_bytes allows", true},
		"/bomb":            {"response", "the response has more than the 1000 bytes that max_response_bytes allows", true},
		"/endless-failure": {"http:500", "status 500 Internal Server Error: xxx", false},
		"/headers":         {"network", "server response headers exceeded", false},
		"/json":            {"response", "the response says it is JSON, and is not: unexpected end of JSON input", true},
	} {
		_, err := run(t, kindtest.NewCall(), `"max_response_bytes": "1000", "url": "`+s.URL+path+`"`)
		if failure := kindtest.Failure(t, err); failure.Class != test.class || failure.Permanent != test.permanent || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %+v, want %s: %s", path, failure, test.class, test.want)
		}
	}
}

// raw serves connections by hand until the test ends.
func raw(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	wait.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
			wait.Go(func() {
				defer conn.Close()
				handle(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		for _, conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		wait.Wait()
		direct.CloseIdleConnections()
	})
	return listener.Addr().String()
}

// request reads the head of a request.
func request(conn net.Conn) {
	buffer := make([]byte, 4096)
	for text := ""; !strings.Contains(text, "\r\n\r\n"); {
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		text += string(buffer[:n])
	}
}

func silence(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

func TestBrokenServers(t *testing.T) {
	for name, test := range map[string]struct {
		scheme      string
		handle      func(net.Conn)
		fields      string
		class, want string
	}{
		"no handshake": {"https", silence, `, "connect_timeout": "0.050s"`, "timeout", "there was no connection within 50ms"},
		"no answer":    {"http", silence, `, "header_timeout": "0.050s"`, "timeout", "there was no answer within 50ms"},
		"half a header": {"http", func(c net.Conn) {
			request(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX-Slow: ")
			silence(c)
		}, `, "header_timeout": "0.050s"`, "timeout", "there was no answer within 50ms"},
		"half a body": {"http", func(c net.Conn) {
			request(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
			silence(c)
		}, `, "header_timeout": "0.050s"`, "timeout", "the response did not go on within 50ms"},
		"cut at once":           {"http", func(net.Conn) {}, "", "network", ""},
		"cut before the answer": {"http", request, "", "network", "EOF"},
		"cut in the body": {"http", func(c net.Conn) {
			request(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
		}, "", "network", "the response was cut off: unexpected EOF"},
		"cut in a chunk": {"http", func(c net.Conn) {
			request(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel")
		}, "", "network", "the response was cut off: unexpected EOF"},
		"nonsense": {"http", func(c net.Conn) {
			request(c)
			_, _ = io.WriteString(c, "SSH-2.0-OpenSSH\r\n\r\n")
		}, "", "network", "malformed HTTP"},
		"no TLS": {"https", func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
			silence(c)
		}, "", "network", "HTTP response to HTTPS client"},
		"failure without end": {"http", func(c net.Conn) {
			request(c)
			_, _ = io.WriteString(c, "HTTP/1.1 503 Busy\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\nhalf")
			silence(c)
		}, "", "http:503", "status 503 Service Unavailable: half"},
	} {
		t.Run(name, func(t *testing.T) {
			address := raw(t, test.handle)
			_, err := run(t, kindtest.NewCall(), `"method": "POST", "url": "`+test.scheme+`://`+address+`/"`+test.fields)
			failure := kindtest.Failure(t, err)
			if failure.Class != test.class || failure.Permanent || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %+v, want %s: %s", failure, test.class, test.want)
			}
		})
	}
	_, err := run(t, kindtest.NewCall(), `"url": "http://127.0.0.1:1/"`)
	if failure := kindtest.Failure(t, err); failure.Class != "network" || failure.Permanent || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("where no one listens: %+v", failure)
	}
}

func TestCancel(t *testing.T) {
	asked := make(chan struct{})
	address := raw(t, func(c net.Conn) {
		request(c)
		close(asked)
		silence(c)
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("no longer wanted")
	go func() {
		<-asked
		cancel(reason)
	}()
	built := kindtest.Task(t, Kind, config(), `{"http": {"url": "http://`+address+`/x"}}`)
	_, err := built.Run(ctx, kindtest.NewCall().Invocation)
	if want := "GET http://" + address + "/x was not finished"; !errors.Is(err, reason) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestConnectionsAreReused(t *testing.T) {
	for name, status := range map[string]int{"success": 200, "failure": 503} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			connections := 0
			s := httptest.NewUnstartedServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, _ *nethttp.Request) {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, strings.Repeat("x", 10_000))
			}))
			s.Config.ConnState = func(_ net.Conn, state nethttp.ConnState) {
				if state == nethttp.StateNew {
					mu.Lock()
					connections++
					mu.Unlock()
				}
			}
			s.Start()
			defer s.Close()
			call := kindtest.NewCall()
			call.Resources = targetOf(t, `{"base_url": "`+s.URL+`"}`)
			for range 5 { // each a task of its own
				_, err := run(t, call, `"url": "/"`)
				if (err == nil) != (status == 200) {
					t.Fatal(err)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if connections != 1 {
				t.Errorf("%d connections for 5 calls", connections)
			}
		})
	}
}

func TestNoProxyFromTheEnvironment(t *testing.T) {
	call := kindtest.NewCall()
	call.Resources = targetOf(t, `{"base_url": "http://127.0.0.1"}`)
	if direct.Proxy != nil || call.Resources.Get("api").(*Target).client.Proxy != nil {
		t.Error("a proxy is used")
	}
}

func TestExpressions(t *testing.T) {
	for fields, want := range map[string]string{
		`"url": "http://x/${params.missing}"`:                         "url: params.missing: ",
		`"url": "http://x/", "text": "${params.missing}"`:             "text: params.missing: ",
		`"url": "http://x/", "json": {"a": "${params.missing}"}`:      "json: params.missing: ",
		`"url": "http://x/", "headers": {"X-A": "${params.missing}"}`: `headers["X-A"]: params.missing: `,
		`"url": "http://x/", "headers": {"X-A": "${env('NOT_SET')}"}`: `headers["X-A"]: `,
	} {
		_, err := run(t, kindtest.NewCall(), fields)
		if failure := kindtest.Failure(t, err); failure.Class != "expression" || !failure.Permanent || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %+v", fields, failure)
		}
	}
}

func TestInvalid(t *testing.T) {
	for definition, want := range map[string]string{
		`{"http": {"url": "/relative"}}`:                                           "http.url: it needs http:// or https://",
		`{"http": {"url": "http://a b/"}}`:                                         "http.url: it is not an address",
		`{"http": {"url": "%zz"}, "target": "api"}`:                                "http.url: it is not an address",
		`{"http": {"url": "http://a/${nope}"}}`:                                    "http.url: column 12: ",
		`{"http": {"url": "http://a/${env('HOME')}"}}`:                             "http.url: column 12: ",
		`{"http": {"url": "http://a/", "text": "${nope}"}}`:                        "http.text: column 3: ",
		`{"http": {"url": "http://a/", "json": ["${nope}"]}}`:                      "http.json[0]: column 3: ",
		`{"http": {"url": "http://a/", "headers": {"A B": "x"}}}`:                  `http.headers["A B"]: "A B" cannot be the name of a header`,
		`{"http": {"url": "http://a/", "headers": {"content-length": "1"}}}`:       `http.headers["content-length"]: Content-Length is set by the connection itself`,
		`{"http": {"url": "http://a/", "headers": {"X-A": "1", "x-a": "2"}}}`:      `http.headers["x-a"]: X-A is there twice`,
		`{"http": {"url": "http://a/", "headers": {"X-A": "1\n2"}}}`:               `http.headers["X-A"]: the value has characters`,
		`{"http": {"url": "http://a/", "headers": {"X-A": "${nope}"}}}`:            `http.headers["X-A"]: column 3: `,
		`{"http": {"url": "http://a/", "connect_timeout": "61s"}}`:                 "http.connect_timeout: it must be more than 0 and at most 1m0s, not 1m1s",
		`{"http": {"url": "http://a/", "header_timeout": "0s"}}`:                   "http.header_timeout: it must be more than 0",
		`{"http": {"url": "http://a/", "no_redirects": true, "max_redirects": 1}}`: "http.no_redirects: no_redirects and max_redirects are both set",
	} {
		if _, err := kindtest.Compile(t, Kind, config(), definition); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s…", definition, err, want)
		}
	}
	for definition, want := range map[string]string{
		`{"http": {"base_url": "orders.example"}}`:                             "http.base_url: write the whole address",
		`{"http": {"headers": {"X": "1"}}}`:                                    "http.base_url: headers and tls need a base address",
		`{"http": {"tls": {"ca_file": "x"}}}`:                                  "http.base_url: headers and tls need a base address",
		`{"http": {"base_url": "https://a", "headers": {"X": "${params.x}"}}}`: `http.headers["X"]: column 3: `,
		`{"http": {"base_url": "https://a", "tls": {"insecure": true}}}`:       "http.tls.insecure: the base address is https",
		`{"http": {"base_url": "http://a", "tls": {"ca_file": "x"}}}`:          "http.tls: the base address is http",
		`{"http": {"base_url": "https://a", "tls": {"cert_file": "x"}}}`:       "http.tls: cert_file and key_file belong together",
	} {
		if _, err := kindtest.CompileResource(t, ResourceKind, task.Config{}, definition); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s…", definition, err, want)
		}
	}
}
