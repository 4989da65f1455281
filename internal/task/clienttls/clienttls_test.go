package clienttls

import (
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
	"strings"
	"testing"
	"testing/synctest"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

// pair makes a certificate and its key, in PEM.
func pair(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	der8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der8})
}

// write writes a file with a time of its own: two writes within a tick of the file system's clock are two changes.
func write(t *testing.T, name string, text []byte, age time.Duration) {
	t.Helper()
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).Add(age)
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(name, at, at); err != nil {
		t.Fatal(err)
	}
}

func holder(t *testing.T, config *tls.Config) string {
	t.Helper()
	leaf, err := x509.ParseCertificate(config.Certificates[0].Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return leaf.Subject.CommonName
}

func TestFilesAreFollowed(t *testing.T) {
	dir := t.TempDir()
	ca, cert, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	first, firstKey := pair(t, "first")
	second, secondKey := pair(t, "second")
	synctest.Test(t, func(t *testing.T) {
		s, err := New(&schedulerdv1.ClientTls{CaFile: ca, CertFile: cert, KeyFile: key, ServerName: "orders.internal"})
		if err != nil {
			t.Fatal(err)
		}
		if config, err := s.Config(); err == nil {
			t.Fatalf("without files: %v", config)
		}
		write(t, ca, first, 0)
		write(t, cert, first, 0)
		write(t, key, firstKey, 0)
		config, err := s.Config()
		if err != nil {
			t.Fatal(err)
		}
		if holder(t, config) != "first" || config.ServerName != "orders.internal" || config.RootCAs == nil || config.MinVersion != tls.VersionTLS12 {
			t.Errorf("got %+v", config)
		}

		write(t, cert, second, time.Second)
		if now, err := s.Config(); err != nil || now != config {
			t.Errorf("looked at the files again at once: %v", err)
		}
		time.Sleep(lookEvery)
		if now, err := s.Config(); err != nil || now != config {
			t.Errorf("in the middle of a rotation: %v", err)
		}
		write(t, key, secondKey, time.Second)
		time.Sleep(lookEvery)
		now, err := s.Config()
		if err != nil || holder(t, now) != "second" {
			t.Errorf("after the rotation: %v", err)
		}
		if err := os.Remove(ca); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lookEvery)
		if last, err := s.Config(); err != nil || last != now {
			t.Errorf("without the file of roots: %v", err)
		}
	})
}

func TestInvalid(t *testing.T) {
	for _, test := range []struct {
		tls  *schedulerdv1.ClientTls
		want string
	}{
		{&schedulerdv1.ClientTls{CertFile: "a"}, "cert_file and key_file belong together"},
		{&schedulerdv1.ClientTls{KeyFile: "a"}, "cert_file and key_file belong together"},
		{&schedulerdv1.ClientTls{Insecure: true, CaFile: "a"}, "insecure means no transport security at all"},
	} {
		if _, err := New(test.tls); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%v: got %v, want %s…", test.tls, err, test.want)
		}
	}
	file := filepath.Join(t.TempDir(), "junk.pem")
	write(t, file, []byte("junk"), 0)
	for _, test := range []struct {
		tls  *schedulerdv1.ClientTls
		want string
	}{
		{&schedulerdv1.ClientTls{CaFile: file}, "ca_file: there is no certificate in " + file},
		{&schedulerdv1.ClientTls{CertFile: file, KeyFile: file}, "cert_file and key_file: "},
	} {
		s, err := New(test.tls)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Config(); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%v: got %v, want %s…", test.tls, err, test.want)
		}
	}
}

func TestDefault(t *testing.T) {
	s, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	if config, err := s.Config(); err != nil || config.RootCAs != nil || len(config.Certificates) > 0 || config.InsecureSkipVerify {
		t.Errorf("got %+v, %v", config, err)
	}
}
