package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// authority is a certificate authority of a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert, a.key = a.issue(t, template)
	return a
}

func (a *authority) issue(t *testing.T, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// files writes a certificate for 127.0.0.1 and its key, and gives the pair.
func (a *authority) files(t *testing.T, dir, name string, serial int64) (certFile, keyFile string, pair tls.Certificate) {
	t.Helper()
	cert, key := a.issue(t, &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	writePEM(t, certFile, "CERTIFICATE", cert.Raw)
	writePEM(t, keyFile, "PRIVATE KEY", secret)
	return certFile, keyFile, tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

func writePEM(t *testing.T, name, kind string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func withTLS(config *tls.Config) grpc.DialOption {
	return grpc.WithTransportCredentials(credentials.NewTLS(config))
}

func TestTLS(t *testing.T) {
	dir, ca := t.TempDir(), newAuthority(t)
	cert, key, _ := ca.files(t, dir, "server", 2)
	roots := filepath.Join(dir, "roots.pem")
	writePEM(t, roots, "CERTIFICATE", ca.cert.Raw)
	_, _, clientPair := ca.files(t, dir, "client", 3)
	_, _, strangerPair := newAuthority(t).files(t, dir, "stranger", 4)

	s := start(t, func(o *Options) { o.TLSCert, o.TLSKey = cert, key })
	list := func(s *Server, address string, options ...grpc.DialOption) error {
		_, err := pb.NewSchedulerServiceClient(dial(t, address, options...)).List(t.Context(), &pb.ListRequest{})
		return err
	}
	address := s.Addr().String()
	if err := list(s, address, withTLS(&tls.Config{RootCAs: ca.pool()})); err != nil {
		t.Errorf("with TLS: %v", err)
	}
	if err := list(s, address); status.Code(err) != codes.Unavailable {
		t.Errorf("without TLS: %v", err)
	}
	if err := list(s, address, withTLS(&tls.Config{RootCAs: newAuthority(t).pool()})); status.Code(err) != codes.Unavailable {
		t.Errorf("to a server that it does not trust: %v", err)
	}

	m := start(t, func(o *Options) { o.TLSCert, o.TLSKey, o.TLSClientCA = cert, key, roots })
	address = m.Addr().String()
	if err := list(m, address, withTLS(&tls.Config{RootCAs: ca.pool(), Certificates: []tls.Certificate{clientPair}})); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	if err := list(m, address, withTLS(&tls.Config{RootCAs: ca.pool()})); status.Code(err) != codes.Unavailable {
		t.Errorf("without a certificate: %v", err)
	}
	if err := list(m, address, withTLS(&tls.Config{RootCAs: ca.pool(), Certificates: []tls.Certificate{strangerPair}})); status.Code(err) != codes.Unavailable {
		t.Errorf("with a stranger's certificate: %v", err)
	}
	// The admin listener is no way around the certificates.
	if err := list(m, m.AdminAddr().String()); status.Code(err) != codes.Unimplemented {
		t.Errorf("over the admin listener: %v", err)
	}
}

// A changed certificate is used without a restart, and one that is wrong is not.
func TestCertificatesRotate(t *testing.T) {
	dir, ca := t.TempDir(), newAuthority(t)
	cert, key, _ := ca.files(t, dir, "server", 2)
	log := &testLog{}
	synctest.Test(t, func(t *testing.T) {
		c, err := newCertificates(cert, key, "", log.logger(slog.LevelInfo))
		if err != nil {
			t.Fatal(err)
		}
		serial := func() int64 {
			t.Helper()
			config, err := c.serverConfig().GetConfigForClient(nil)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := x509.ParseCertificate(config.Certificates[0].Certificate[0])
			if err != nil {
				t.Fatal(err)
			}
			return parsed.SerialNumber.Int64()
		}
		later := time.Now()
		touch := func() { // the clock of the files is not the test's
			later = later.Add(time.Minute)
			for _, name := range []string{cert, key} {
				if err := os.Chtimes(name, later, later); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(certificateCheck)
		}
		if serial() != 2 {
			t.Error("not the first one")
		}
		ca.files(t, dir, "server", 5)
		touch()
		if serial() != 5 {
			t.Error("not the second one")
		}
		if err := os.WriteFile(key, []byte("half a file"), 0o600); err != nil {
			t.Fatal(err)
		}
		touch()
		if serial() != 5 || !strings.Contains(log.String(), "stay in use") {
			t.Errorf("a wrong key: %s", log)
		}
		if err := os.Remove(key); err != nil {
			t.Fatal(err)
		}
		time.Sleep(certificateCheck)
		if serial() != 5 {
			t.Error("a key that is gone")
		}
		ca.files(t, dir, "server", 6)
		touch()
		if serial() != 6 {
			t.Error("not the third one")
		}
	})
}

func TestCertificatesThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	cert, key, _ := newAuthority(t).files(t, dir, "server", 2)
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][3]string{
		{"none.pem", key, ""}, {cert, "none.key", ""}, {cert, cert, ""}, {cert, key, "none-ca.pem"}, {cert, key, empty},
	} {
		if _, err := newCertificates(c[0], c[1], c[2], slog.New(slog.DiscardHandler)); err == nil || !strings.HasPrefix(err.Error(), "TLS: ") {
			t.Errorf("%q: %v", c, err)
		}
	}
}
