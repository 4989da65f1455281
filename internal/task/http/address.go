package http

import (
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
)

// resolve gives the address of a call from what its definition says. With a base, that is relative to it: joined to its path,
// with or without a slash in front, and below it. An address of the base's own origin is allowed too, such as a link to the
// next page; one of another is not, for it would get the target's headers.
func resolve(base *url.URL, text string) (*url.URL, error) {
	ref, err := parse(text)
	if err != nil {
		return nil, err
	}
	ref.Fragment, ref.RawFragment = "", ""
	if base == nil {
		if ref.Scheme != "http" && ref.Scheme != "https" || ref.Host == "" {
			return nil, errors.New("it needs http:// or https:// and a host, or a target that has a base address")
		}
		return ref, nil
	}
	if ref.Scheme != "" || ref.Host != "" {
		if ref.Scheme == "" {
			ref.Scheme = base.Scheme
		}
		if !sameOrigin(base, ref) || ref.User != nil {
			return nil, errors.New("it is not of the target's own origin: leave the target out, or give a path")
		}
		return ref, nil
	}
	if slices.Contains(strings.Split(ref.Path, "/"), "..") {
		return nil, errors.New("it leads up from the target's base address (..)")
	}
	u := *base
	if ref.Path != "" {
		u = *base.JoinPath(ref.EscapedPath())
	}
	if ref.RawQuery != "" {
		u.RawQuery = strings.TrimPrefix(base.RawQuery+"&"+ref.RawQuery, "&")
	}
	return &u, nil
}

// sameOrigin says whether two addresses have the same scheme, host and port (RFC 6454, section 5).
func sameOrigin(a, b *url.URL) bool {
	return strings.EqualFold(a.Scheme, b.Scheme) && hostPort(a) == hostPort(b)
}

// hostPort is the host and the port of an address, as a dialer sees them.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "443"
		if strings.EqualFold(u.Scheme, "http") {
			port = "80"
		}
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// label names an address in messages: as the definition wrote it, for what expressions gave may not be fit to be told. What
// is secret in a text without expressions, as a password, is taken out.
func label(source string, constant bool) string {
	if u, err := url.Parse(source); constant && err == nil {
		u.RawQuery, u.Fragment = "", ""
		source = u.Redacted()
	}
	const most = 120
	if runes := []rune(source); len(runes) > most {
		source = string(runes[:most-1]) + "…"
	}
	return source
}
