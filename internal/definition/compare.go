package definition

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/fault"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Digest is a short text that changes with the definition, for etags. It is the same for equal definitions in all processes
// of the same version; another version may give another one.
func Digest(f *schedulerdv1.Flow) string {
	text, _ := proto.MarshalOptions{Deterministic: true}.Marshal(f) // fails on text that is not UTF-8 only, which no flow has
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// Diff lists the paths of the fields that differ between two definitions, sorted. Where an entry of a list was added or
// removed it is the list's path.
func Diff(old, new *schedulerdv1.Flow) []string {
	var paths []string
	diffMessage("", old.ProtoReflect(), new.ProtoReflect(), &paths)
	slices.Sort(paths)
	return paths
}

func diffMessage(path string, old, new protoreflect.Message, paths *[]string) {
	fields := old.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		at := fault.Field(path, string(field.Name()))
		if old.Has(field) != new.Has(field) {
			*paths = append(*paths, at)
			continue
		}
		if !old.Has(field) {
			continue
		}
		a, b := old.Get(field), new.Get(field)
		switch {
		case field.IsMap():
			diffMap(at, field, a.Map(), b.Map(), paths)
		case field.IsList() && a.List().Len() != b.List().Len():
			*paths = append(*paths, at)
		case field.IsList():
			for i := range a.List().Len() {
				diffValue(fault.Index(at, i), field, a.List().Get(i), b.List().Get(i), paths)
			}
		default:
			diffValue(at, field, a, b, paths)
		}
	}
}

func diffMap(path string, field protoreflect.FieldDescriptor, old, new protoreflect.Map, paths *[]string) {
	old.Range(func(key protoreflect.MapKey, a protoreflect.Value) bool {
		at := fault.Key(path, key.String())
		if !new.Has(key) {
			*paths = append(*paths, at)
		} else {
			diffValue(at, field.MapValue(), a, new.Get(key), paths)
		}
		return true
	})
	new.Range(func(key protoreflect.MapKey, _ protoreflect.Value) bool {
		if !old.Has(key) {
			*paths = append(*paths, fault.Key(path, key.String()))
		}
		return true
	})
}

func diffValue(path string, field protoreflect.FieldDescriptor, old, new protoreflect.Value, paths *[]string) {
	message := field.Message()
	if message == nil {
		if !old.Equal(new) {
			*paths = append(*paths, path)
		}
		return
	}
	// A duration, a time or a JSON value is one thing to whoever wrote it.
	if strings.HasPrefix(string(message.FullName()), "google.protobuf.") {
		if !proto.Equal(old.Message().Interface(), new.Message().Interface()) {
			*paths = append(*paths, path)
		}
		return
	}
	diffMessage(path, old.Message(), new.Message(), paths)
}
