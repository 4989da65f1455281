// Package clienttls is the transport security of the targets that tasks call: a ClientTls message as a tls.Config whose files
// are read again when they change.
package clienttls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
)

// lookEvery is how long a change of the files may go unnoticed.
const lookEvery = time.Second

// Source gives the configs of new connections. It is safe for concurrent use.
type Source struct {
	ca, cert, key string // files
	serverName    string

	mu     sync.Mutex
	config *tls.Config
	stamp  string    // of the files that config was made from
	looked time.Time // when the files were looked at last
}

// New gives the Source of a message; nil is the system's roots and no certificate. Files are read by Config.
func New(t *schedulerdv1.ClientTls) (*Source, error) {
	switch {
	case (t.GetCertFile() == "") != (t.GetKeyFile() == ""):
		return nil, errors.New("cert_file and key_file belong together: set both or none")
	case t.GetInsecure() && (t.GetCaFile() != "" || t.GetCertFile() != "" || t.GetServerName() != ""):
		return nil, errors.New("insecure means no transport security at all: the other fields must be empty")
	}
	return &Source{ca: t.GetCaFile(), cert: t.GetCertFile(), key: t.GetKeyFile(), serverName: t.GetServerName()}, nil
}

// Config is the config for a connection that is made now. It must not be changed. Once there is one, files that changed and
// cannot be used leave it as it is: they may be in the middle of a rotation.
func (s *Source) Config() (*tls.Config, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.config != nil && time.Since(s.looked) < lookEvery {
		return s.config, nil
	}
	stamp, err := s.stampOf()
	if err == nil && (s.config == nil || stamp != s.stamp) {
		var config *tls.Config
		if config, err = s.load(); err == nil {
			s.config, s.stamp = config, stamp
		}
	}
	if s.config == nil {
		return nil, err
	}
	s.looked = time.Now()
	return s.config, nil
}

func (s *Source) load() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.serverName}
	if s.ca != "" {
		pem, err := os.ReadFile(s.ca)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca_file: there is no certificate in %s", s.ca)
		}
	}
	if s.cert != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return nil, fmt.Errorf("cert_file and key_file: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// stampOf changes when the files do.
func (s *Source) stampOf() (string, error) {
	stamp := ""
	for _, name := range []string{s.ca, s.cert, s.key} {
		if name == "" {
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return "", err
		}
		stamp += fmt.Sprintf("%d %d/", info.ModTime().UnixNano(), info.Size())
	}
	return stamp, nil
}
