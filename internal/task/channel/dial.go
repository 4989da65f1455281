package channel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/task/clienttls"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/health" // health checks that a service config asks for
	"google.golang.org/grpc/keepalive"
)

// MaxResponseBytes bounds one message of a response.
const MaxResponseBytes = 4 << 20

var (
	dialer = net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 2}}
	pings  = keepalive.ClientParameters{Time: 5*time.Minute + 30*time.Second, Timeout: 10 * time.Second}
)

// dial prepares a connection; the first call opens it.
func dial(target string, security *schedulerdv1.ClientTls, serviceConfig string) (*grpc.ClientConn, *clienttls.Source, error) {
	source, err := clienttls.New(security)
	if err != nil {
		return nil, nil, fmt.Errorf("tls: %w", err)
	}
	var transport credentials.TransportCredentials = followed{source, security.GetServerName()}
	if security.GetInsecure() || security == nil && local(target) {
		transport, source = insecure.NewCredentials(), nil
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithContextDialer(connect),
		grpc.WithKeepaliveParams(pings),
		grpc.WithUserAgent("schedulerd"),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxResponseBytes)),
		// A retry policy asks again within a second: a target that is back should be found by then.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 10 * time.Second},
			MinConnectTimeout: 10 * time.Second,
		}),
	}
	if serviceConfig != "" {
		options = append(options, grpc.WithDefaultServiceConfig(serviceConfig), grpc.WithDisableServiceConfig())
	}
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, nil, errors.New(strings.TrimPrefix(err.Error(), "grpc: "))
	}
	return conn, source, nil
}

// connect opens a connection to an address that a resolver gave.
func connect(ctx context.Context, address string) (net.Conn, error) {
	network := "tcp"
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		network, address = "unix", path
	} else if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
	} else if name, ok := strings.CutPrefix(address, "\x00"); ok {
		network, address = "unix", "@"+name
	}
	return dialer.DialContext(ctx, network, address)
}

// local says whether a target stays on this machine, so that it needs no transport security.
func local(target string) bool {
	scheme, rest, found := strings.Cut(target, ":")
	switch {
	case found && (scheme == "unix" || scheme == "unix-abstract"):
		return true
	case strings.HasPrefix(rest, "//"): // dns://[authority]/host:port and the like
		_, endpoint, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "/")
		return loopback(endpoint)
	case found && (scheme == "dns" || scheme == "passthrough"):
		return loopback(rest)
	}
	return loopback(target)
}

func loopback(address string) bool {
	host := address
	if h, _, err := net.SplitHostPort(address); err == nil {
		host = h
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// followed is transport security with files that are read again when they change, for each new connection.
type followed struct {
	source     *clienttls.Source
	serverName string
}

func (f followed) current() (credentials.TransportCredentials, error) {
	config, err := f.source.Config()
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(config), nil
}

func (f followed) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	now, err := f.current()
	if err != nil {
		return nil, nil, err
	}
	return now.ClientHandshake(ctx, authority, raw)
}

func (f followed) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these are a client's credentials")
}

// Info must be there before any file can be read: gRPC takes the authority of calls from it.
func (f followed) Info() credentials.ProtocolInfo {
	return credentials.NewTLS(&tls.Config{ServerName: f.serverName, MinVersion: tls.VersionTLS12}).Info()
}

func (f followed) Clone() credentials.TransportCredentials { return f }

func (f followed) OverrideServerName(string) error {
	return errors.New("the name is set with server_name")
}

// cleanTarget tells what cannot be a target, without asking any resolver.
func cleanTarget(target string) error {
	scheme, _, _ := strings.Cut(target, "://")
	switch {
	case target == "":
		return errors.New("it is empty")
	case strings.ContainsAny(target, " \t\r\n"):
		return errors.New("it has blanks")
	case scheme == "http" || scheme == "https":
		return fmt.Errorf("%s is the scheme of an HTTP address; a gRPC target is host:port, dns:///host:port or unix:///path", scheme)
	}
	return nil
}
