package http

import (
	nethttp "net/http"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"":                                0,
		"0":                               0,
		"120":                             2 * time.Minute,
		" 7 ":                             7 * time.Second,
		"86400":                           24 * time.Hour,
		"86401":                           24 * time.Hour,
		"18446744073709551615":            24 * time.Hour,
		"-1":                              0,
		"1.5":                             0,
		"soon":                            0,
		"Tue, 01 Jan 2030 12:00:30 GMT":   30 * time.Second,
		"Tue, 01 Jan 2030 11:00:00 GMT":   0,
		"Wed, 01 Jan 2031 12:00:00 GMT":   24 * time.Hour,
		"Tuesday, 01-Jan-30 12:00:01 GMT": time.Second, // the obsolete formats of RFC 9110, section 5.6.7
		"Tue Jan  1 12:00:02 2030":        2 * time.Second,
	} {
		if got := retryAfter(value, now); got != want {
			t.Errorf("%q: got %v, want %v", value, got, want)
		}
	}
}

func TestIsJSON(t *testing.T) {
	for contentType, want := range map[string]bool{
		"application/json": true, "Application/JSON; charset=utf-8": true, "application/problem+json": true, "text/json": true,
		"": false, "text/plain": false, "application/jsonp": false, "application/x-ndjson": false, "application/json; charset": true, ";": false,
	} {
		r := &nethttp.Response{Header: nethttp.Header{"Content-Type": {contentType}}}
		if got := isJSON(mediaType(r)); got != want {
			t.Errorf("%q: got %v", contentType, got)
		}
	}
}

func TestShortened(t *testing.T) {
	for _, test := range []struct {
		text string
		most int
		want string
		cut  bool
	}{{"abc", 3, "abc", false}, {"abcd", 3, "abc", true}, {"éé", 3, "é", true}, {"€", 2, "", true}} {
		if got, cut := shortened(test.text, test.most); got != test.want || cut != test.cut {
			t.Errorf("%q in %d: got %q, %v", test.text, test.most, got, cut)
		}
	}
}
