package exec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// capture keeps the beginning of what is written through it.
type capture struct {
	out   io.Writer
	limit int    // bytes of a result; 0: nothing is kept
	kept  []byte // up to a character more, so that the limit cuts no character in two
	total int64
}

func (c *capture) Write(p []byte) (int, error) {
	if c.limit > 0 {
		c.kept = append(c.kept, p[:min(c.limit+utf8.UTFMax-len(c.kept), len(p))]...)
		c.total += int64(len(p))
	}
	return c.out.Write(p)
}

// text is what was written, as text without the line ends at its end, as $(…) gives it to a shell.
func (c *capture) text() (text string, truncated bool) {
	text = strings.ToValidUTF8(string(c.kept), "\uFFFD")
	truncated = c.total > int64(len(c.kept))
	if !truncated {
		text = strings.TrimRight(text, "\r\n")
	}
	if len(text) <= c.limit {
		return text, truncated
	}
	end := c.limit
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end], true
}

// json is what was written, as one JSON value.
func (c *capture) json() (value any, err error) {
	if c.total > int64(c.limit) {
		return nil, fmt.Errorf("it has %d bytes, and a result holds %d: write it to a file and print the file's name", c.total, c.limit)
	}
	if len(bytes.TrimSpace(c.kept)) == 0 {
		return nil, errors.New("it is empty, and should be one JSON value")
	}
	if err := json.Unmarshal(c.kept, &value); err != nil {
		return nil, fmt.Errorf("it is not one JSON value: %w", err)
	}
	return value, nil
}
