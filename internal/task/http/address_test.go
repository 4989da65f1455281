package http

import (
	"net/url"
	"strings"
	"testing"
)

func TestResolve(t *testing.T) {
	for _, test := range []struct{ base, text, want, err string }{
		{"", "https://a.example/b?c=d#e", "https://a.example/b?c=d", ""},
		{"", "http://a.example", "http://a.example", ""},
		{"", "/b", "", "it needs http:// or https:// and a host"},
		{"", "ftp://a.example/", "", "it needs http:// or https:// and a host"},
		{"", "https://", "", "it needs http:// or https:// and a host"},
		{"", "https://a b/", "", "it is not an address: "},
		{"https://a.example/v1", "orders", "https://a.example/v1/orders", ""},
		{"https://a.example/v1", "/orders", "https://a.example/v1/orders", ""},
		{"https://a.example/v1/", "/orders/", "https://a.example/v1/orders/", ""},
		{"https://a.example", "orders", "https://a.example/orders", ""},
		{"https://a.example/v1", "?page=2", "https://a.example/v1?page=2", ""},
		{"https://a.example/v1?key=k", "orders?page=2", "https://a.example/v1/orders?key=k&page=2", ""},
		{"https://a.example/v1?key=k", "orders", "https://a.example/v1/orders?key=k", ""},
		{"https://a.example/v1", "a%2Fb", "https://a.example/v1/a%2Fb", ""},
		{"https://a.example/v1", "é?ö=ü", "https://a.example/v1/%C3%A9?ö=ü", ""},
		{"https://a.example/v1", "./orders", "https://a.example/v1/orders", ""},
		{"https://a.example/v1", "../admin", "", "it leads up"},
		{"https://a.example/v1", "orders/%2e%2e/%2E%2E/admin", "", "it leads up"},
		{"https://a.example/v1", "https://a.example/v1/orders?page=2", "https://a.example/v1/orders?page=2", ""},
		{"https://a.example/v1", "https://A.example:443/next", "https://A.example:443/next", ""},
		{"https://a.example/v1", "//a.example/next", "https://a.example/next", ""},
		{"https://a.example/v1", "https://b.example/v1", "", "it is not of the target's own origin"},
		{"https://a.example/v1", "http://a.example/v1", "", "it is not of the target's own origin"},
		{"https://a.example/v1", "https://a.example:8443/v1", "", "it is not of the target's own origin"},
		{"https://a.example/v1", "https://me@a.example/v1", "", "it is not of the target's own origin"},
		{"https://a.example/v1", "//b.example/", "", "it is not of the target's own origin"},
		{"https://a.example/v1", "mailto:x", "", "it is not of the target's own origin"},
	} {
		var base *url.URL
		if test.base != "" {
			var err error
			if base, err = parseBase(test.base); err != nil {
				t.Fatal(err)
			}
		}
		got, err := resolve(base, test.text)
		if test.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("%q on %q: got %v, %v; want the error %s…", test.text, test.base, got, err, test.err)
			}
		} else if err != nil || got.String() != test.want || !strings.HasPrefix(got.RequestURI(), "/") {
			t.Errorf("%q on %q: got %v, %v; want %s", test.text, test.base, got, err, test.want)
		}
	}
}

func FuzzResolve(f *testing.F) {
	for _, text := range []string{"orders", "/a/../b", "//b.example", "https://a.example/x", "%2e%2e/", `\\b.example`, "?q", ".", "a:b", ":80", "@b.example/"} {
		f.Add(text)
	}
	base, err := parseBase("https://a.example/v1/")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := resolve(base, text)
		if err != nil {
			return
		}
		// What goes over the wire is what counts.
		wire, err := url.Parse(got.String())
		if err != nil {
			t.Fatalf("%q became %q, which is no address: %v", text, got, err)
		}
		if !sameOrigin(base, wire) || wire.User != nil {
			t.Fatalf("%q leads to %q", text, wire)
		}
		ref, _ := url.Parse(text)
		if path := wire.EscapedPath(); ref.Host == "" && path != "/v1" && !strings.HasPrefix(path, "/v1/") {
			t.Fatalf("%q leads to %q, which is not below the base address", text, wire)
		}
	})
}

func TestParseBase(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "write the whole address",
		"orders.example.com/v1": "write the whole address",
		"ftp://a.example":       "write the whole address",
		"https:///v1":           "write the whole address",
		"https://a.example/#x":  "an address with a fragment",
		"https://a.example:x/":  "it is not an address: ",
		"http://[::1":           "it is not an address: ",
	} {
		if u, err := parseBase(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, %v; want %s…", text, u, err, want)
		}
	}
}

func TestLabel(t *testing.T) {
	for _, test := range []struct {
		source   string
		constant bool
		want     string
	}{
		{"https://a.example/b?key=k#f", true, "https://a.example/b"},
		{"https://me:secret@a.example/b", true, "https://me:xxxxx@a.example/b"},
		{"/orders?page=2", true, "/orders"},
		{"https://a.example/${params.id}?x=${params.y}", false, "https://a.example/${params.id}?x=${params.y}"},
		{strings.Repeat("é", 200), true, strings.Repeat("%C3%A9", 19) + "%C3%A…"},
		{strings.Repeat("é", 200), false, strings.Repeat("é", 119) + "…"},
	} {
		if got := label(test.source, test.constant); got != test.want {
			t.Errorf("%q: got %q, want %q", test.source, got, test.want)
		}
	}
}
