package service

import (
	"bytes"
	"encoding/base64"
	"testing"

	pb "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

func TestPageTokens(t *testing.T) {
	list := func(status pb.FlowStatus) proto.Message {
		return &pb.ListRequest{Filter: &pb.FlowFilter{Statuses: []pb.FlowStatus{status}, Labels: map[string]string{"a": "1", "b": "2"}}}
	}
	mine := pages{"here", list(pb.FlowStatus_FLOW_STATUS_IDLE)}
	rapid.Check(t, func(t *rapid.T) {
		cursor := rapid.SliceOfN(rapid.Byte(), 1, 128).Draw(t, "cursor")
		token, err := mine.token(cursor)
		if err != nil {
			t.Fatal(err)
		}
		if len(token) > 1024 {
			t.Fatalf("%d bytes are more than a request takes", len(token))
		}
		got, err := mine.cursor(token)
		if err != nil || !bytes.Equal(got, cursor) {
			t.Fatalf("%q, %v", got, err)
		}
		for name, other := range map[string]pages{
			"other server":    {"there", list(pb.FlowStatus_FLOW_STATUS_IDLE)},
			"other arguments": {"here", list(pb.FlowStatus_FLOW_STATUS_RUNNING)},
			"other method":    {"here", &pb.ListRunsRequest{}},
		} {
			if _, err := other.cursor(token); tell(statusOf(t.Context(), nil, "", err)).reason != "INVALID" {
				t.Fatalf("%s took the token: %v", name, err)
			}
		}
		// Any change of any character makes it another token.
		i := rapid.IntRange(0, len(token)-1).Draw(t, "i")
		raw, _ := base64.RawURLEncoding.DecodeString(token[:i] + string("AB"[token[i]&1^1]) + token[i+1:])
		if same, _ := base64.RawURLEncoding.DecodeString(token); !bytes.Equal(raw, same) {
			if _, err := mine.cursor(base64.RawURLEncoding.EncodeToString(raw)); err == nil {
				t.Fatal("took a token that was changed")
			}
		}
	})
}

func TestResumeTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		revision, instance := rapid.Uint64().Draw(t, "revision"), rapid.StringN(1, 40, 40).Draw(t, "instance")
		token := resumeToken(instance, revision)
		if got, err := resumeFrom(instance, token); got != revision || err != nil {
			t.Fatalf("%d, %v", got, err)
		}
		if _, err := resumeFrom(instance+"x", token); err == nil {
			t.Fatal("took a token of another server")
		}
	})
	page, err := pages{"here", &pb.ListRequest{}}.token([]byte("a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := resumeFrom("here", page); err == nil {
		t.Error("took a page's token")
	}
}

// A token is whatever a client sends.
func FuzzTokens(f *testing.F) {
	mine := pages{"here", &pb.ListRequest{}}
	if token, err := mine.token([]byte("flow")); err == nil {
		f.Add(token)
	}
	f.Add(resumeToken("here", 1))
	f.Add("")
	f.Add("%%%")
	f.Fuzz(func(t *testing.T, token string) {
		if cursor, err := mine.cursor(token); err == nil && token != "" {
			again, err := mine.token(cursor)
			if raw, _ := base64.RawURLEncoding.DecodeString(token); err != nil || base64.RawURLEncoding.EncodeToString(raw) != again {
				t.Errorf("took %q, which it did not make", token)
			}
		}
		if revision, err := resumeFrom("here", token); err == nil && token != "" {
			raw, _ := base64.RawURLEncoding.DecodeString(token)
			if base64.RawURLEncoding.EncodeToString(raw) != resumeToken("here", revision) {
				t.Errorf("took %q, which it did not make", token)
			}
		}
	})
}
