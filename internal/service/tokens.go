package service

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"google.golang.org/protobuf/proto"
)

// Tokens are opaque to clients. Each begins with a checksum over what it belongs to, so that one from elsewhere, or from a
// request with other arguments, is told from a valid one. It is no secret and guards nothing: whoever may list may list anything.

const checksumSize = 12

func checksum(parts ...[]byte) []byte {
	h := sha256.New()
	for _, p := range parts { // length first, so that no two lists of parts look the same
		h.Write(binary.AppendUvarint(nil, uint64(len(p))))
		h.Write(p)
	}
	return h.Sum(nil)[:checksumSize]
}

func encodeToken(sum, content []byte) string {
	return base64.RawURLEncoding.EncodeToString(append(sum, content...))
}

func decodeToken(token string) (sum, content []byte, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) < checksumSize {
		return nil, nil, false
	}
	return raw[:checksumSize], raw[checksumSize:], true
}

// pages makes and reads the page tokens of one request: instance is the store's, arguments are the request without its
// page_size and page_token, which may change from page to page.
type pages struct {
	instance  string
	arguments proto.Message
}

func (p pages) checksum(cursor []byte) ([]byte, error) {
	arguments, err := proto.MarshalOptions{Deterministic: true}.Marshal(p.arguments)
	if err != nil {
		return nil, err
	}
	name := p.arguments.ProtoReflect().Descriptor().FullName()
	return checksum([]byte("page"), []byte(p.instance), []byte(name), arguments, cursor), nil
}

// token is the token of the page after cursor.
func (p pages) token(cursor []byte) (string, error) {
	sum, err := p.checksum(cursor)
	if err != nil {
		return "", err
	}
	return encodeToken(sum, cursor), nil
}

// cursor is where the page of a token begins; nil for the first page.
func (p pages) cursor(token string) ([]byte, error) {
	if token == "" {
		return nil, nil
	}
	if sum, cursor, ok := decodeToken(token); ok {
		want, err := p.checksum(cursor)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(sum, want) {
			return cursor, nil
		}
	}
	return nil, invalid("page_token", "not a token of this list: it belongs to other arguments or to another server; begin without one")
}

// Page sizes. A page also ends, early, at maxPageBytes: gRPC clients take 4 MiB by default.
const (
	defaultPageSize = 100
	maxPageSize     = 1000
	maxPageBytes    = 2 << 20
)

func pageSize(asked int32) int {
	if asked == 0 {
		return defaultPageSize
	}
	return int(min(asked, maxPageSize))
}

// resumeToken is the token of a watch that has seen everything up to revision.
func resumeToken(instance string, revision uint64) string {
	content := append(binary.AppendUvarint(nil, revision), instance...)
	return encodeToken(checksum([]byte("watch"), content), content)
}

// resumeFrom is the revision of a watch's token; 0 if there is none.
func resumeFrom(instance, token string) (uint64, error) {
	if token == "" {
		return 0, nil
	}
	sum, content, ok := decodeToken(token)
	if !ok || !bytes.Equal(sum, checksum([]byte("watch"), content)) {
		return 0, invalid("resume_token", "not a token of WatchStatus; watch without one")
	}
	revision, n := binary.Uvarint(content)
	if n <= 0 || string(content[n:]) != instance {
		return 0, invalid("resume_token", "a token of another server, whose revisions are not ours; watch without one")
	}
	return revision, nil
}
