// Package secret keeps what env("NAME") gave out of what is told: errors and results, which are stored and logged.
package secret

import "strings"

// Texts are texts that must not be stored or told.
type Texts []string

// least is the length of the shortest secret that is searched for. Shorter ones are found in everything.
const least = 6

// Add takes a value, and its last word: of "Bearer x" that is what matters.
func (s *Texts) Add(value string) {
	words := strings.Fields(value)
	for _, text := range append([]string{value}, words[max(0, len(words)-1):]...) {
		if len(text) >= least {
			*s = append(*s, text)
		}
	}
}

// Scrub takes the secrets out of a text.
func (s Texts) Scrub(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, "[secret]")
	}
	return text
}

// ScrubValue takes the secrets out of the texts of a JSON-like value. Lists are changed in place.
func (s Texts) ScrubValue(v any) any {
	if len(s) == 0 {
		return v
	}
	switch v := v.(type) {
	case string:
		return s.Scrub(v)
	case []any:
		for i := range v {
			v[i] = s.ScrubValue(v[i])
		}
	case map[string]any:
		object := make(map[string]any, len(v))
		for key, value := range v {
			object[s.Scrub(key)] = s.ScrubValue(value)
		}
		return object
	}
	return v
}
