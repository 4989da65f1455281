package channel

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/schedulerd/schedulerd/internal/task/kindtest"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLocal(t *testing.T) {
	for target, want := range map[string]bool{
		"localhost:1": true, "127.0.0.1:1": true, "127.8.9.1": true, "[::1]:1": true, "unix:/run/x": true, "unix:///run/x": true,
		"unix-abstract:x": true, "dns:///localhost:1": true, "dns://8.8.8.8/localhost:1": true, "dns:localhost:1": true,
		"passthrough:///127.0.0.1:1": true,
		"orders:1":                   false, "10.0.0.1:1": false, "dns:///orders:1": false, "localhost.example.com:1": false,
		"dns://127.0.0.1/orders:1": false, "xds:///orders": false, "": false,
	} {
		if got := local(target); got != want {
			t.Errorf("%s: %v", target, got)
		}
	}
}

func TestFailure(t *testing.T) {
	for _, c := range []codes.Code{codes.Unavailable, codes.ResourceExhausted, codes.Aborted, codes.DeadlineExceeded, codes.Canceled, codes.Unknown, codes.Internal} {
		if e := Failure(status.Error(c, "x")); e.Permanent || e.Class != "grpc:"+CodeName(c) {
			t.Errorf("%v: %v %v", c, e.Class, e.Permanent)
		}
	}
	for _, c := range []codes.Code{codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented, codes.DataLoss, 99} {
		if e := Failure(status.Error(c, "x")); !e.Permanent || e.Class != "grpc:"+CodeName(c) {
			t.Errorf("%v: %v %v", c, e.Class, e.Permanent)
		}
	}
	for _, text := range []string{ // of grpc-go, grpc-core and grpc-java
		"grpc: received message larger than max (5 vs. 4)", "CLIENT: Received message larger than max (5 vs 4)", "gRPC message exceeds maximum size 4194304: 5000000",
	} {
		if e := Failure(status.Error(codes.ResourceExhausted, text)); !e.Permanent {
			t.Errorf("%s may be repeated", text)
		}
	}
	for delay, want := range map[time.Duration]time.Duration{time.Minute: time.Minute, -time.Minute: 0, 48 * time.Hour: maxRetryAfter} {
		st, err := status.New(codes.NotFound, "x").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
		if err != nil {
			t.Fatal(err)
		}
		if e := Failure(st.Err()); e.Permanent || e.RetryAfter != want {
			t.Errorf("%v: %v %v", delay, e.Permanent, e.RetryAfter)
		}
	}
	if e := Failure(status.Error(codes.Internal, strings.Repeat("ü", 5000))); len(e.Error()) > maxMessage+50 || strings.ContainsRune(e.Error(), '\uFFFD') {
		t.Errorf("%d bytes: %s", len(e.Error()), e)
	}
}

func TestWrongResources(t *testing.T) {
	for definition, want := range map[string]string{
		`{"name": "c", "channel": {"target": "https://orders:1"}}`:                                                              "scheme of an HTTP address",
		`{"name": "c", "channel": {"target": "dns:///%zz"}}`:                                                                    "channel: ",
		`{"name": "c", "channel": {"target": "or ders:1"}}`:                                                                     "blanks",
		`{"name": "c", "channel": {"target": "orders:1", "service_config": "{"}}`:                                               "service config",
		`{"name": "c", "channel": {"target": "orders:1", "service_config": "{\"loadBalancingConfig\": [{\"nonsense\": {}}]}"}}`: "nonsense",
		`{"name": "c", "channel": {"target": "orders:1", "tls": {"cert_file": "x"}}}`:                                           "belong together",
		`{"name": "c", "channel": {"target": "orders:1", "metadata": {"te": "x"}}}`:                                             "set by the call itself",
	} {
		_, err := kindtest.CompileResource(t, ResourceKind, kindtest.Config(), definition)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", definition, err, want)
		}
	}
	good := `{"name": "c", "channel": {"target": "dns:///orders:1", "tls": {"insecure": true}, "service_config": "{\"loadBalancingConfig\": [{\"round_robin\": {}}], \"healthCheckConfig\": {\"serviceName\": \"\"}}"}}`
	if _, err := kindtest.CompileResource(t, ResourceKind, kindtest.Config(), good); err != nil {
		t.Error(err)
	}
}

// serve serves health until the test ends.
func serve(t *testing.T, l net.Listener, options ...grpc.ServerOption) *health.Server {
	t.Helper()
	server, service := grpc.NewServer(options...), health.NewServer()
	healthpb.RegisterHealthServer(server, service)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return service
}

func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// check calls the target of a channel resource.
func check(t *testing.T, definition string) error {
	t.Helper()
	set := kindtest.SetUp(t, ResourceKind, map[string]string{"c": definition})
	_, err := healthpb.NewHealthClient(set.Get("c").(*Channel).conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	return err
}

func TestSockets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	serve(t, listen(t, "unix", path))
	abstract := fmt.Sprintf("schedulerd-test-%d", os.Getpid())
	serve(t, listen(t, "unix", "@"+abstract))
	t.Chdir(filepath.Dir(path))
	for _, target := range []string{"unix://" + path, "unix:socket", "unix-abstract:" + abstract} {
		if err := check(t, fmt.Sprintf(`{"name": "c", "channel": {"target": %q}}`, target)); err != nil {
			t.Errorf("%s: %v", target, err)
		}
	}
}

// A backend that says it is not well gets no calls, if the service config asks for health checks.
func TestHealthChecks(t *testing.T) {
	l := listen(t, "tcp", "127.0.0.1:0")
	service := serve(t, l)
	service.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	set := kindtest.SetUp(t, ResourceKind, map[string]string{"c": fmt.Sprintf(`{"name": "c", "channel": {"target": "dns:///%s",
		"service_config": "{\"loadBalancingConfig\": [{\"round_robin\": {}}], \"healthCheckConfig\": {\"serviceName\": \"\"}}"}}`, l.Addr())})
	client := healthpb.NewHealthClient(set.Get("c").(*Channel).conn)
	if _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("called although it is not well: %v", err)
	}
	service.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
	if _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Error(err)
	}
}

// authority makes a certificate authority and certificates for localhost.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t, cert, key}
}

func (a *authority) issue(name string) (cert, key []byte) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return encode64("CERTIFICATE", der), encode64("PRIVATE KEY", pkcs8)
}

func encode64(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func write(t *testing.T, name string, parts ...[]byte) string {
	t.Helper()
	if err := os.WriteFile(name, bytes.Join(parts, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// New connections use the files as they are then.
func TestTLSFilesAreFollowed(t *testing.T) {
	old, current := newAuthority(t), newAuthority(t)
	cert, key := current.issue("orders")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AddCert(current.cert)
	l := listen(t, "tcp", "127.0.0.1:0")
	serve(t, l, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients})))
	dir := t.TempDir()
	ca, certFile, keyFile := filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	cert, key = old.issue("me")
	write(t, ca, encode64("CERTIFICATE", old.cert.Raw))
	write(t, certFile, cert)
	write(t, keyFile, key)
	set := kindtest.SetUp(t, ResourceKind, map[string]string{"c": fmt.Sprintf(`{"name": "c", "channel": {"target": %q,
		"tls": {"ca_file": %q, "cert_file": %q, "key_file": %q, "server_name": "orders"}}}`, l.Addr(), ca, certFile, keyFile)})
	client := healthpb.NewHealthClient(set.Get("c").(*Channel).conn)
	if _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{}); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "unknown authority") {
		t.Fatalf("with the wrong authority: %v", err)
	}
	cert, key = current.issue("me")
	write(t, ca, encode64("CERTIFICATE", old.cert.Raw), encode64("CERTIFICATE", current.cert.Raw))
	write(t, certFile, cert, []byte("\n"))
	write(t, keyFile, key)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Errorf("after the files changed: %v", err)
	}
}

func TestMissingFile(t *testing.T) {
	built, err := kindtest.CompileResource(t, ResourceKind, kindtest.Config(), `{"name": "c", "channel": {"target": "orders:1", "tls": {"ca_file": "/nowhere/ca.pem"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	if err := built.Setup(t.Context()); err == nil || !strings.Contains(err.Error(), "/nowhere/ca.pem") {
		t.Errorf("%v", err)
	}
}

// A server of stock settings allows two pings in five minutes. A call that takes an hour must outlive that.
func TestLongCallOnStockServer(t *testing.T) {
	for _, test := range []struct {
		pings keepalive.ClientParameters
		want  codes.Code
	}{
		{pings, codes.OK},
		{keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}, codes.Unavailable}, // why it is not this
	} {
		synctest.Test(t, func(t *testing.T) {
			l := bufconn.Listen(1 << 16)
			server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
				select {
				case <-time.After(time.Hour):
					return next(ctx, request)
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}))
			healthpb.RegisterHealthServer(server, health.NewServer())
			go func() { _ = server.Serve(l) }()
			conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithKeepaliveParams(test.pings),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
			if err != nil {
				t.Fatal(err)
			}
			_, err = healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
			if status.Code(err) != test.want {
				t.Errorf("pings every %v: %v", test.pings.Time, err)
			}
			conn.Close()
			server.Stop()
		})
	}
}

func TestPool(t *testing.T) {
	pool := &Pool{}
	defer pool.Close()
	acquire := func(i int) (*grpc.ClientConn, func()) {
		conn, release, err := pool.acquire(fmt.Sprintf("localhost:%d", i))
		if err != nil {
			t.Fatal(err)
		}
		return conn, release
	}
	busy, keep := acquire(0)
	again, release := acquire(0)
	if busy != again {
		t.Error("two connections to one address")
	}
	release()
	release() // a second time does nothing
	for i := range 2 * maxKept {
		_, release := acquire(1 + i)
		release()
	}
	if n := len(pool.byKey); n != maxKept+1 {
		t.Errorf("%d connections are kept", n)
	}
	if again, release := acquire(0); again != busy {
		t.Error("a connection in use was dropped")
	} else {
		release()
	}
	keep()
	if n := len(pool.byKey); n != maxKept {
		t.Errorf("%d connections are kept, and none is in use", n)
	}
}
