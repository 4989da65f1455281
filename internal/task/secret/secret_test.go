package secret

import (
	"reflect"
	"testing"
)

func TestScrub(t *testing.T) {
	var s Texts
	s.Add("Bearer tok-12345")
	s.Add("abc") // too short to be told from anything else
	got := s.ScrubValue(map[string]any{
		"tok-12345": "no", "list": []any{"Bearer tok-12345!", 1.0, nil}, "deep": map[string]any{"x": "abc tok-12345 abc"},
	})
	want := map[string]any{
		"[secret]": "no", "list": []any{"[secret]!", 1.0, nil}, "deep": map[string]any{"x": "abc [secret] abc"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := Texts(nil).ScrubValue("tok-12345"); got != "tok-12345" {
		t.Errorf("without secrets: %v", got)
	}
}

func TestScrubHeaders(t *testing.T) {
	var s Texts
	s.Add("Bearer abcdef123")
	s.Add("x=1") // too short to search for
	s.Add("")
	got := s.ScrubValue(map[string]any{
		"abcdef123": []any{"is abcdef123.", 1.0, nil, map[string]any{"header": "Bearer abcdef123", "x=1": "x=1"}},
	})
	want := map[string]any{
		"[secret]": []any{"is [secret].", 1.0, nil, map[string]any{"header": "[secret]", "x=1": "x=1"}},
	}
	if !reflect.DeepEqual(got, any(want)) {
		t.Errorf("got %v, want %v", got, want)
	}
}
