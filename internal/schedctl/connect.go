package schedctl

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

const (
	defaultServer  = "127.0.0.1:7420"
	defaultPort    = "7420"
	defaultTimeout = 10 * time.Second
	// A page of a thousand flows or a run with all its events is larger than gRPC's default of 4 MiB.
	maxResponseBytes = 64 << 20
)

// serviceConfig is the client service config for schedulerd: which calls may be
// repeated after UNAVAILABLE. Reads, and changes that carry a request_id, are;
// Stop has none, and streams are resumed by whoever reads them. Other clients may use it as it is.
//
//go:embed service_config.json
var serviceConfig string

// connection is where and how to reach the server: the global flags about it.
type connection struct {
	server     string
	timeout    time.Duration
	tls        bool
	insecure   bool
	ca         string
	cert, key  string
	serverName string
	tokenFile  string
}

func (c *connection) register(flags *pflag.FlagSet) {
	flags.StringVarP(&c.server, "server", "s", defaultServer, "address of the daemon: HOST[:PORT], unix:///PATH or any gRPC target")
	flags.DurationVar(&c.timeout, "timeout", defaultTimeout, "longest wait for an answer; for commands that wait or stream, for the whole, and only if set")
	flags.BoolVar(&c.tls, "tls", false, "use TLS (the default unless the address is a loopback one)")
	flags.BoolVar(&c.insecure, "insecure", false, "use no TLS (the default if the address is a loopback one)")
	flags.StringVar(&c.ca, "ca", "", "file with the certificates of the authorities to trust instead of the system's; implies --tls")
	flags.StringVar(&c.cert, "cert", "", "file with the client's certificate, for mutual TLS; implies --tls")
	flags.StringVar(&c.key, "key", "", "file with the key of --cert")
	flags.StringVar(&c.serverName, "server-name", "", "name the server's certificate must be for, if not the address's; implies --tls")
	flags.StringVar(&c.tokenFile, "token-file", "", "file with a bearer token, read anew for each call")
}

// dial prepares the connection; the first call opens it.
func (c *connection) dial(env Env) (*grpc.ClientConn, error) {
	target, local := parseTarget(c.server)
	transport, encrypted, err := c.credentials(local)
	if err != nil {
		return nil, err
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithUserAgent("schedctl/" + env.Version),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponseBytes)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		// Somebody sits in front of it: a daemon that is back is found within seconds.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
	}
	if c.tokenFile != "" {
		if !encrypted && !local {
			return nil, usagef("--token-file would send the token in clear text to %s: leave out --insecure", c.server)
		}
		if _, err := readToken(c.tokenFile); err != nil {
			return nil, usagef("--token-file: %w", err)
		}
		options = append(options, grpc.WithPerRPCCredentials(bearer{file: c.tokenFile, secure: encrypted}))
	}
	conn, err := env.Dial(target, options...)
	if err != nil {
		return nil, usagef("--server %s: %w", c.server, err)
	}
	return conn, nil
}

// parseTarget makes a gRPC target of --server and says whether it stays on this machine.
func parseTarget(server string) (target string, local bool) {
	scheme, rest, hasScheme := strings.Cut(server, ":")
	if hasScheme && (scheme == "unix" || scheme == "unix-abstract") {
		return server, true
	}
	if strings.Contains(server, "://") { // dns://, passthrough://, xds://, …
		host := rest[strings.LastIndex(rest, "/")+1:]
		return server, isLoopback(host)
	}
	if bare := strings.Trim(server, "[]"); net.ParseIP(bare) != nil || !strings.Contains(server, ":") {
		server = net.JoinHostPort(bare, defaultPort)
	}
	return server, isLoopback(server)
}

func isLoopback(hostPort string) bool {
	host := hostPort
	if h, _, err := net.SplitHostPort(hostPort); err == nil {
		host = h
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (c *connection) credentials(local bool) (_ credentials.TransportCredentials, encrypted bool, err error) {
	wantTLS := c.tls || c.ca != "" || c.cert != "" || c.key != "" || c.serverName != ""
	if wantTLS && c.insecure {
		return nil, false, usagef("--insecure and the TLS flags exclude each other")
	}
	if c.insecure || local && !wantTLS {
		return insecure.NewCredentials(), false, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.serverName}
	if c.ca != "" {
		text, err := os.ReadFile(c.ca)
		if err != nil {
			return nil, false, usagef("--ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, false, usagef("--ca: %s holds no certificate in PEM form", c.ca)
		}
	}
	if (c.cert == "") != (c.key == "") {
		return nil, false, usagef("--cert and --key go together")
	}
	if c.cert != "" {
		pair, err := tls.LoadX509KeyPair(c.cert, c.key)
		if err != nil {
			return nil, false, usagef("--cert, --key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(config), true, nil
}

// bearer sends the token in a file with each call; tokens expire and are replaced while a watch runs.
type bearer struct {
	file   string
	secure bool
}

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := readToken(b.file)
	if err != nil {
		return nil, status.Errorf(codes.Unauthenticated, "--token-file: %v", err)
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

func (b bearer) RequireTransportSecurity() bool { return b.secure }

func readToken(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	switch {
	case token == "":
		return "", fmt.Errorf("%s is empty", file)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", errors.New("a token is one word of printable ASCII characters")
	}
	return token, nil
}
