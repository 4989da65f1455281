package http

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	nethttp "net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/schedulerd/schedulerd/internal/task/kindtest"
)

// serveTLS serves with the test certificate of httptest, which is for example.com and 127.0.0.1, until the test ends. It gives
// the file of the root too.
func serveTLS(t *testing.T, handler nethttp.HandlerFunc) (s *httptest.Server, ca string) {
	t.Helper()
	s = httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(func() {
		direct.CloseIdleConnections()
		s.Close()
	})
	ca = filepath.Join(t.TempDir(), "ca.pem")
	write(t, ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	return s, ca
}

// who answers with the name in the client's certificate and the protocol.
func who(w nethttp.ResponseWriter, r *nethttp.Request) {
	name := "nobody"
	if len(r.TLS.PeerCertificates) > 0 {
		name = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	fmt.Fprintf(w, "%s over %s", name, r.Proto)
}

func write(t *testing.T, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// client makes a client's certificate and key, in two files.
func client(t *testing.T, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	certDER, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	write(t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certDER}))
	write(t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	return cert, key
}

func TestTLS(t *testing.T) {
	s, ca := serveTLS(t, who)
	cert, key := client(t, "schedulerd")
	byName := strings.Replace(s.URL, "127.0.0.1", "localhost", 1) // which is not in the certificate
	for name, test := range map[string]struct {
		definition, want string
	}{
		"own root":    {`{"base_url": "` + s.URL + `", "tls": {"ca_file": "` + ca + `"}}`, "nobody over HTTP/2.0"},
		"client":      {`{"base_url": "` + s.URL + `", "tls": {"ca_file": "` + ca + `", "cert_file": "` + cert + `", "key_file": "` + key + `"}}`, "schedulerd over HTTP/2.0"},
		"server name": {`{"base_url": "` + byName + `", "tls": {"ca_file": "` + ca + `", "server_name": "example.com"}}`, "nobody over HTTP/2.0"},
	} {
		t.Run(name, func(t *testing.T) {
			call := kindtest.NewCall()
			call.Resources = targetOf(t, test.definition)
			got, err := run(t, call, `"url": "/"`)
			if err != nil || got["body"] != test.want {
				t.Errorf("got %v, %v; want %s", got, err, test.want)
			}
		})
	}
	for name, definition := range map[string]string{
		"unknown root": `{"base_url": "` + s.URL + `"}`,
		"another name": `{"base_url": "` + byName + `", "tls": {"ca_file": "` + ca + `"}}`,
		"wrong name":   `{"base_url": "` + s.URL + `", "tls": {"ca_file": "` + ca + `", "server_name": "other.example"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			call := kindtest.NewCall()
			call.Resources = targetOf(t, definition)
			_, err := run(t, call, `"url": "/"`)
			if failure := kindtest.Failure(t, err); failure.Class != "tls" || !failure.Permanent || !strings.Contains(err.Error(), "the server's certificate is not accepted: x509: ") {
				t.Errorf("got %+v", failure)
			}
		})
	}
	_, err := run(t, kindtest.NewCall(), `"url": "`+s.URL+`"`)
	if failure := kindtest.Failure(t, err); failure.Class != "tls" || !failure.Permanent {
		t.Errorf("without a target: got %+v", failure)
	}
}

func TestTLSFilesAreNeededAtSetup(t *testing.T) {
	built, err := kindtest.CompileResource(t, ResourceKind, kindtest.Config(), `{"http": {"base_url": "https://a.example", "tls": {"ca_file": "/no/such/file"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	if err := built.Setup(t.Context()); err == nil || !strings.Contains(err.Error(), "/no/such/file") {
		t.Errorf("got %v", err)
	}
}

// A redirect that leaves the target sees neither its roots nor its certificate.
func TestRedirectLeavesTLSBehind(t *testing.T) {
	elsewhere, _ := serveTLS(t, who)
	s, ca := serveTLS(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if r.URL.Path == "/down" {
			nethttp.Redirect(w, r, "http://127.0.0.1:1/", nethttp.StatusFound)
			return
		}
		nethttp.Redirect(w, r, elsewhere.URL, nethttp.StatusFound)
	})
	cert, key := client(t, "schedulerd")
	call := kindtest.NewCall()
	call.Resources = targetOf(t, `{"base_url": "`+s.URL+`", "tls": {"ca_file": "`+ca+`", "cert_file": "`+cert+`", "key_file": "`+key+`"}}`)
	_, err := run(t, call, `"url": "/away"`) // it has the same certificate, so the target's roots would do
	if failure := kindtest.Failure(t, err); failure.Class != "tls" {
		t.Errorf("got %+v", failure)
	}
	_, err = run(t, call, `"url": "/down"`)
	if failure := kindtest.Failure(t, err); failure.Class != "redirect" || !strings.Contains(err.Error(), "redirected from https to http at 127.0.0.1:1, which is refused") {
		t.Errorf("got %+v", failure)
	}
}
