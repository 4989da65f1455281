package http

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	nethttp "net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/task/failure"
	"github.com/schedulerd/schedulerd/internal/task/secret"
)

// Bounds of what is taken from a response.
const (
	// maxBody bounds the body in the result: a state's result with the rest of the object around it.
	maxBody       = workflow.MaxResultBytes - 8<<10
	maxHeader     = 512 // bytes of a header's value in the result
	maxExcerpt    = 300 // bytes of a body in an error
	maxDrain      = 64 << 10
	maxRetryAfter = 24 * time.Hour
)

// told are the headers of a response that are in the result.
var told = []string{"Content-Type", "Date", "Etag", "Last-Modified", "Link", "Location", "Retry-After", "X-Request-Id"}

// receive makes a result of a response.
func (c *call) receive(r *nethttp.Response, hidden secret.Texts) (map[string]any, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, c.maxResponseBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the response was cut off: %w", err)
	case int64(len(body)) > c.maxResponseBytes:
		return nil, failure.Permanent("response", "the response has more than the %d bytes that max_response_bytes allows", c.maxResponseBytes)
	}
	headers := map[string]any{}
	for _, name := range told {
		if value := strings.Join(r.Header.Values(name), ", "); value != "" && len(value) <= maxHeader && utf8.ValidString(value) {
			headers[strings.ToLower(name)] = hidden.Scrub(value)
		}
	}
	result := map[string]any{"status": float64(r.StatusCode), "headers": headers}
	switch {
	case len(body) > 0 && isJSON(mediaType(r)):
		var value any
		if err := json.Unmarshal(body, &value); err != nil {
			return nil, failure.Permanent("response", "the response says it is JSON, and is not: %w", err)
		}
		result["json"] = hidden.ScrubValue(value)
	case utf8.Valid(body):
		text := hidden.Scrub(string(body))
		result["body"], result["truncated"] = shortened(text, maxBody)
	default:
		const most = maxBody / 4 * 3
		result["body_base64"], result["truncated"] = base64.StdEncoding.EncodeToString(body[:min(most, len(body))]), len(body) > most
	}
	return result, nil
}

func (c *call) succeeded(status int) bool {
	if len(c.statuses) > 0 {
		return slices.Contains(c.statuses, int32(status))
	}
	return status >= 200 && status <= 299
}

// failed is the failure that a response stands for.
func failed(r *nethttp.Response, hidden secret.Texts) error {
	text := fmt.Sprintf("status %d %s", r.StatusCode, nethttp.StatusText(r.StatusCode))
	body, _ := io.ReadAll(io.LimitReader(r.Body, maxDrain)) // all of a short one, so that the connection can be used again
	if excerpt := excerptOf(mediaType(r), body, hidden); excerpt != "" {
		text += ": " + excerpt
	}
	e := &workflow.Error{
		Err: errors.New(strings.TrimSpace(text)), Class: "http:" + strconv.Itoa(r.StatusCode),
		Permanent: !retryable(r.StatusCode),
	}
	if !e.Permanent {
		e.RetryAfter = retryAfter(r.Header.Get("Retry-After"), time.Now())
	}
	return e
}

// retryable says whether a status may be another one later.
func retryable(status int) bool {
	switch status {
	case nethttp.StatusRequestTimeout, nethttp.StatusTooEarly, nethttp.StatusTooManyRequests:
		return true
	}
	return status >= 500
}

// retryAfter reads the header of that name: seconds or a date (RFC 9110, section 10.2.3). What cannot be read is 0.
func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64); err == nil {
		return time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second
	}
	if date, err := nethttp.ParseTime(value); err == nil {
		return min(max(0, date.Sub(now)), maxRetryAfter)
	}
	return 0
}

// isJSON says whether a media type is JSON (RFC 6839, section 3.1, for the suffix).
func isJSON(media string) bool {
	return media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json")
}

// mediaType is that of a response, without parameters, which may be wrong.
func mediaType(r *nethttp.Response) string {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return ""
	}
	return media
}

// excerptOf is the beginning of a body that tells a reader something, in one line.
func excerptOf(media string, body []byte, hidden secret.Texts) string {
	if !isJSON(media) && media != "text/plain" || !utf8.Valid(body) {
		return "" // a page of HTML says less than its status
	}
	text := strings.Join(strings.Fields(hidden.Scrub(string(body))), " ")
	if short, cut := shortened(text, maxExcerpt); cut {
		return short + "…"
	}
	return text
}

// shortened gives at most so many bytes of a text, in whole characters.
func shortened(text string, most int) (short string, cut bool) {
	if len(text) <= most {
		return text, false
	}
	for !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most], true
}
