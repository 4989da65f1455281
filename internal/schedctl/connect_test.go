package schedctl

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

func TestParseTarget(t *testing.T) {
	tests := []struct {
		server, target string
		local          bool
	}{
		{"127.0.0.1:7420", "127.0.0.1:7420", true},
		{"127.9.9.9", "127.9.9.9:7420", true},
		{"localhost", "localhost:7420", true},
		{"localhost:1", "localhost:1", true},
		{"::1", "[::1]:7420", true},
		{"[::1]:99", "[::1]:99", true},
		{"[::1]", "[::1]:7420", true},
		{"2001:db8::1", "[2001:db8::1]:7420", false},
		{"example.com", "example.com:7420", false},
		{"example.com:443", "example.com:443", false},
		{"10.0.0.1:7420", "10.0.0.1:7420", false},
		{"unix:///run/schedulerd.sock", "unix:///run/schedulerd.sock", true},
		{"unix:relative.sock", "unix:relative.sock", true},
		{"unix-abstract:name", "unix-abstract:name", true},
		{"dns:///example.com:7420", "dns:///example.com:7420", false},
		{"dns:///localhost:7420", "dns:///localhost:7420", true},
		{"dns://8.8.8.8/127.0.0.1:7420", "dns://8.8.8.8/127.0.0.1:7420", true},
		{"xds:///schedulerd", "xds:///schedulerd", false},
		{"localhost.example.com", "localhost.example.com:7420", false},
	}
	for _, test := range tests {
		if target, local := parseTarget(test.server); target != test.target || local != test.local {
			t.Errorf("parseTarget(%q) = %q, %v, want %q, %v", test.server, target, local, test.target, test.local)
		}
	}
}

// authority signs certificates for tests.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	a.key = key
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.write(t, "ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) write(t *testing.T, name, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(a.file(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// issue writes NAME.pem and NAME.key and returns them.
func (a *authority) issue(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	a.write(t, name+".pem", "CERTIFICATE", der)
	a.write(t, name+".key", "PRIVATE KEY", keyDER)
	pair, err := tls.LoadX509KeyPair(a.file(name+".pem"), a.file(name+".key"))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func TestTLS(t *testing.T) {
	ca := newAuthority(t)
	server := ca.issue(t, "schedulerd.test")
	ca.issue(t, "client.test")
	other := newAuthority(t)
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	plain := []grpc.ServerOption(nil)
	oneSided := []grpc.ServerOption{grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{server}}))}
	mutual := []grpc.ServerOption{grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{server}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}))}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	far := "--server=passthrough:///schedulerd.test:7420" // not on this machine
	tests := []struct {
		name    string
		server  []grpc.ServerOption
		args    []string
		code    int
		message string
	}{
		{"plain on loopback", plain, nil, ExitOK, ""},
		{"plain elsewhere by itself", plain, []string{far}, ExitUnavailable, "does not speak TLS"},
		{"plain elsewhere on demand", plain, []string{far, "--insecure"}, ExitOK, ""},
		{"TLS elsewhere by itself", oneSided, []string{far, "--ca", ca.file("ca.pem")}, ExitOK, ""},
		{"TLS on loopback", oneSided, []string{"--ca", ca.file("ca.pem"), "--server-name", "schedulerd.test"}, ExitOK, ""},
		{"TLS on loopback, not asked for", oneSided, nil, ExitUnavailable, "--tls"},
		{"certificate for another name", oneSided, []string{"--ca", ca.file("ca.pem"), "--server-name", "example.com"}, ExitUnavailable, "example.com"},
		{"unknown authority", oneSided, []string{far, "--ca", other.file("ca.pem")}, ExitUnavailable, "--ca"},
		{"the system's authorities do not know it", oneSided, []string{far, "--tls"}, ExitUnavailable, "--ca"},
		{"mutual", mutual, []string{far, "--ca", ca.file("ca.pem"), "--cert", ca.file("client.test.pem"), "--key", ca.file("client.test.key")}, ExitOK, ""},
		{"mutual without a certificate", mutual, []string{far, "--ca", ca.file("ca.pem")}, ExitUnavailable, ""},
		{"token over TLS", oneSided, []string{far, "--ca", ca.file("ca.pem"), "--token-file", token}, ExitOK, ""},
		{"token on loopback", plain, []string{"--token-file", token}, ExitOK, ""},
		{"token in clear text", plain, []string{far, "--insecure", "--token-file", token}, ExitUsage, "clear text"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t)
			r.stop()
			r.serve(r.fake, test.server...)
			got := r.run(append([]string{"list"}, test.args...)...)
			if got.code != test.code || !strings.Contains(got.err, test.message) {
				t.Errorf("exit code %d, want %d and %q: %s", got.code, test.code, test.message, got.err)
			}
			for _, call := range r.received("List") {
				sent := strings.Join(call.metadata.Get("authorization"), "")
				if want := map[bool]string{true: "Bearer secret"}[strings.HasPrefix(test.name, "token")]; sent != want {
					t.Errorf("authorization %q, want %q", sent, want)
				}
			}
		})
	}
}

func TestReadToken(t *testing.T) {
	for text, want := range map[string]string{"abc\n": "abc", " a.b-c ": "a.b-c", "": "", "\n": "", "two words": "", "ä": "", "a\x00b": ""} {
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readToken(file); got != want || (err == nil) != (want != "") {
			t.Errorf("token file %q: %q, %v", text, got, err)
		}
	}
}

func TestEnvironment(t *testing.T) {
	r := newSampleRig(t)
	r.env = map[string]string{"SCHEDCTL_SERVER": "localhost:1", "SCHEDCTL_OUTPUT": "name", "SCHEDCTL_STATUS": "tripped"}
	if got := r.run("list"); got.out != "backup\nexport\nflaky\nhealth\nsync\n" {
		t.Errorf("SCHEDCTL_OUTPUT=name, and SCHEDCTL_STATUS is not a global flag: %q %s", got.out, got.err)
	}
	if got := r.run("info", "-o", "table"); !strings.Contains(got.out, "localhost:1") {
		t.Errorf("SCHEDCTL_SERVER: %q", got.out)
	}
	if got := r.run("info", "-o", "table", "--server", "localhost:2"); !strings.Contains(got.out, "localhost:2") {
		t.Errorf("the flag wins over SCHEDCTL_SERVER: %q", got.out)
	}
	r.env = map[string]string{"SCHEDCTL_TIMEOUT": "soon"}
	if got := r.run("list"); got.code != ExitUsage || !strings.Contains(got.err, "SCHEDCTL_TIMEOUT") {
		t.Errorf("a bad value: exit code %d, %s", got.code, got.err)
	}
}

// Calls that may be repeated are, with the same request id; others are not.
func TestRetries(t *testing.T) {
	gone := status.Error(codes.Unavailable, "the proxy lost it")
	tests := []struct {
		method string
		args   []string
		calls  int
		code   int
	}{
		{"List", []string{"list"}, 3, ExitOK},
		{"Trigger", []string{"trigger", "health"}, 3, ExitOK},
		{"ResetFlow", []string{"reset", "flaky"}, 3, ExitOK},
		{"PauseFlow", []string{"pause", "flaky"}, 3, ExitOK},
		{"ResumeFlow", []string{"resume", "flaky"}, 3, ExitOK},
		{"CancelFlow", []string{"cancel", "backup"}, 3, ExitOK},
		{"ApplyFlows", []string{"apply", "testdata/flows"}, 3, ExitOK},
		{"DeleteFlow", []string{"delete", "export"}, 3, ExitOK},
		{"Stop", []string{"stop"}, 1, ExitUnavailable},
	}
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	for _, test := range tests {
		t.Run(test.method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newBubbleRig(t, sampleFlows()...)
				r.fail[test.method] = []error{gone, gone}
				got := r.run(test.args...)
				r.stop()
				calls := r.received(test.method)
				if got.code != test.code || len(calls) != test.calls {
					t.Fatalf("exit code %d after %d calls, want %d after %d: %s", got.code, len(calls), test.code, test.calls, got.err)
				}
				for _, call := range calls {
					field := call.request.ProtoReflect().Descriptor().Fields().ByName("request_id")
					if field == nil {
						continue
					}
					id := call.request.ProtoReflect().Get(field).String()
					if first := calls[0].request.ProtoReflect().Get(field).String(); id != first || !uuid.MatchString(id) {
						t.Errorf("request id %q, first %q: not one and the same UUID", id, first)
					}
				}
			})
		})
	}
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t)
		r.stop()
		r.serve(deaf{})
		begun := time.Now()
		got := r.run("list")
		if got.code != ExitUnavailable || time.Since(begun) != defaultTimeout {
			t.Errorf("exit code %d after %s: %s", got.code, time.Since(begun), got.err)
		}
		begun = time.Now()
		if got := r.run("list", "--timeout", "100ms"); time.Since(begun) != 100*time.Millisecond || !strings.Contains(got.err, "--timeout") {
			t.Errorf("after %s: %s", time.Since(begun), got.err)
		}
		r.stop()
	})
}

// deaf is a server that takes calls and never answers.
type deaf struct {
	pb.UnimplementedSchedulerServiceServer
}

func (deaf) List(ctx context.Context, _ *pb.ListRequest) (*pb.ListResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestPaging(t *testing.T) {
	r := newRig(t)
	const total = 2*pageSize + 7
	for i := range total {
		r.set(&pb.FlowInfo{Id: "flow-" + string(rune('a'+i%26)) + strings.Repeat("x", i/26)})
	}
	for limit, calls := range map[string]int{"0": 3, "1": 1, "500": 1, "501": 2, "5000": 3} {
		r.calls = nil
		got := r.run("list", "-o", "name", "--limit", limit)
		lines := strings.Count(got.out, "\n")
		want := map[string]int{"0": total, "1": 1, "500": 500, "501": 501, "5000": total}[limit]
		if lines != want || len(r.calls) != calls {
			t.Errorf("--limit %s: %d flows in %d calls, want %d in %d", limit, lines, len(r.calls), want, calls)
		}
	}
}
