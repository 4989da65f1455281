package channel

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"

	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/expr"
	"github.com/schedulerd/schedulerd/internal/fault"
	"github.com/schedulerd/schedulerd/internal/task"
	"github.com/schedulerd/schedulerd/internal/task/failure"
	"github.com/schedulerd/schedulerd/internal/task/secret"
	"google.golang.org/grpc/metadata"
)

// pairs is metadata of a definition. The value of a key that ends in -bin is base64.
type pairs map[string]*expr.Template

// ofTheCall are keys that the call itself sets.
var ofTheCall = []string{"content-type", "te", "user-agent", "host", "connection", idempotencyKey, traceparent}

const (
	idempotencyKey = "idempotency-key"
	traceparent    = "traceparent"
)

func compileMetadata(env *task.Env, field string, texts map[string]string) pairs {
	compiled := env.SecretTemplates(field, texts)
	p := make(pairs, len(texts))
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		key := strings.ToLower(name)
		value, constant := compiled[name].Constant()
		_, twice := p[key]
		switch {
		case name == "" || strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "":
			env.Faultf(fault.Key(field, name), "%q cannot be a key of metadata: letters, digits, '-', '_' and '.' can be in one", name)
		case strings.HasPrefix(key, "grpc-") || slices.Contains(ofTheCall, key):
			env.Faultf(fault.Key(field, name), "%s is set by the call itself: leave it out", key)
		case twice:
			env.Faultf(fault.Key(field, name), "%s is there twice, in another case", key)
		case constant:
			if _, problem := encode(key, value); problem != "" {
				env.Faultf(fault.Key(field, name), "%s", problem)
			}
		}
		p[key] = compiled[name]
	}
	return p
}

// encode gives the value as gRPC takes it, and what is wrong with it.
func encode(key, value string) (encoded, problem string) {
	if strings.HasSuffix(key, "-bin") {
		raw, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			return "", "the value of a key that ends in -bin must be base64"
		}
		return string(raw), ""
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", "the value may have printable ASCII characters only; end the key in -bin and write base64 for others"
	}
	return value, ""
}

// eval adds the metadata to md, and the secrets in it to hidden.
func (p pairs) eval(scope *workflow.Scope, md metadata.MD, hidden *secret.Texts) error {
	for _, key := range slices.Sorted(maps.Keys(p)) {
		value, err := p[key].String(scope)
		if err != nil {
			return failure.Expression(fault.Key("metadata", key), err)
		}
		if p[key].Secret() {
			hidden.Add(value)
		}
		encoded, problem := encode(key, value)
		if problem != "" {
			return failure.Permanent("request", "%s: %s", fault.Key("metadata", key), problem)
		}
		md.Set(key, encoded)
	}
	return nil
}
