package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificates are a listener's certificate and its clients' roots, read again when their files change.
type certificates struct {
	cert, key, clientCA string // files; clientCA may be empty
	log                 *slog.Logger

	mu      sync.Mutex
	config  *tls.Config
	stamp   string    // of the files that config was made of
	checked time.Time // when the files were last looked at
}

// certificateCheck is how long a change of the files may go unnoticed.
const certificateCheck = time.Second

// newCertificates reads the files; later ones that cannot be read leave the present ones in use.
func newCertificates(cert, key, clientCA string, log *slog.Logger) (*certificates, error) {
	c := &certificates{cert: cert, key: key, clientCA: clientCA, log: log}
	stamp, err := c.stampOf()
	if err != nil {
		return nil, err
	}
	if c.config, err = c.load(); err != nil {
		return nil, err
	}
	c.stamp, c.checked = stamp, time.Now()
	return c, nil
}

// serverConfig is the config for a listener.
func (c *certificates) serverConfig() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current(), nil },
	}
}

func (c *certificates) current() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checked) < certificateCheck {
		return c.config
	}
	c.checked = time.Now()
	stamp, err := c.stampOf()
	if err == nil && stamp == c.stamp {
		return c.config
	}
	config, loadErr := c.load()
	if err = errors.Join(err, loadErr); err != nil {
		// A rotation in the middle of its steps: the next look may find it done.
		c.log.Warn("the changed TLS files cannot be used; the ones before stay in use", "error", err)
		return c.config
	}
	c.config, c.stamp = config, stamp
	c.log.Info("TLS files were read again", "cert", c.cert)
	return c.config
}

// stampOf changes when the files do.
func (c *certificates) stampOf() (string, error) {
	stamp := ""
	for _, name := range []string{c.cert, c.key, c.clientCA} {
		if name == "" {
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return "", fmt.Errorf("TLS: %w", err)
		}
		stamp += fmt.Sprintf("%d %d\n", info.ModTime().UnixNano(), info.Size())
	}
	return stamp, nil
}

func (c *certificates) load() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return nil, fmt.Errorf("TLS: %s and %s: %w", c.cert, c.key, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{pair}}
	if c.clientCA == "" {
		return config, nil
	}
	roots, err := os.ReadFile(c.clientCA)
	if err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(roots) {
		return nil, fmt.Errorf("TLS: %s holds no certificate in PEM", c.clientCA)
	}
	return config, nil
}
