package grpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schedulerd/schedulerd/internal/fault"
	"github.com/schedulerd/schedulerd/internal/task/channel"
	"github.com/schedulerd/schedulerd/internal/task/failure"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// Bounds of what a server or a file may tell of its services.
const (
	maxFiles       = 1000
	maxSchemaBytes = 16 << 20
	// How long what a server told is believed: a new version of a service is understood that soon.
	believedFor = time.Minute
)

// schema is what is known of services.
type schema struct {
	files *protoregistry.Files
	types *dynamicpb.Types
}

func newSchema(set *descriptorpb.FileDescriptorSet) (*schema, error) {
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return nil, err
	}
	return &schema{files, dynamicpb.NewTypes(files)}, nil
}

// method finds a method that can be called. Failures are permanent.
func (s *schema) method(service, name string) (protoreflect.MethodDescriptor, error) {
	d, err := s.files.FindDescriptorByName(protoreflect.FullName(service))
	found, isService := d.(protoreflect.ServiceDescriptor)
	if err != nil || !isService {
		var all []string
		s.files.RangeFiles(func(f protoreflect.FileDescriptor) bool {
			for i := range f.Services().Len() {
				all = append(all, string(f.Services().Get(i).FullName()))
			}
			return true
		})
		return nil, failure.Permanent("grpc:UNIMPLEMENTED", "there is no service %s%s", service, fault.DidYouMean(service, all))
	}
	m := found.Methods().ByName(protoreflect.Name(name))
	if m == nil {
		var all []string
		for i := range found.Methods().Len() {
			all = append(all, string(found.Methods().Get(i).Name()))
		}
		return nil, failure.Permanent("grpc:UNIMPLEMENTED", "service %s has no method %s%s", service, name, fault.DidYouMean(name, all))
	}
	if m.IsStreamingClient() {
		return nil, failure.Permanent("request", "its requests are a stream; only methods that take one request can be called")
	}
	return m, nil
}

// schemas remembers what servers told.
type schemas struct {
	mu    sync.Mutex
	known map[source]learnt
}

type source struct {
	conn    *grpc.ClientConn
	service string
}

type learnt struct {
	*schema
	until time.Time
}

// byReflection asks the server for what it has about a service.
func (k *schemas) byReflection(ctx context.Context, conn *channel.Conn, service string) (*schema, error) {
	from := source{conn.ClientConn, service}
	k.mu.Lock()
	s, ok := k.known[from]
	k.mu.Unlock()
	if ok && time.Now().Before(s.until) {
		return s.schema, nil
	}
	fresh, err := reflect(ctx, conn, service)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if k.known == nil {
		k.known = map[source]learnt{}
	}
	for other, s := range k.known { // connections that were closed do not come back
		if !now.Before(s.until) {
			delete(k.known, other)
		}
	}
	k.known[from] = learnt{fresh, now.Add(believedFor)}
	return fresh, nil
}

// The methods of server reflection, newest first. Their messages are the same.
// https://github.com/grpc/grpc/blob/master/doc/server-reflection.md
var reflections = []string{
	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
}

func reflect(ctx context.Context, conn *channel.Conn, service string) (*schema, error) {
	for _, method := range reflections {
		s, err := reflectBy(ctx, method, conn, service)
		if status.Code(err) != codes.Unimplemented {
			return s, err
		}
	}
	return nil, failure.Permanent("grpc:UNIMPLEMENTED", "the server has no reflection, by which its methods are learnt: turn that on there, or set descriptor_set_file to a file made with buf build -o FILE.binpb, or protoc --include_imports --descriptor_set_out=FILE")
}

// reflectBy collects the file with the service, and those that it needs.
func reflectBy(ctx context.Context, method string, conn *channel.Conn, service string) (*schema, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, conn.Options...)
	if err != nil {
		return nil, err
	}
	known := map[string]*descriptorpb.FileDescriptorProto{}
	bytes := 0
	ask := func(request *reflectionpb.ServerReflectionRequest) error {
		if err := stream.SendMsg(request); err != nil && !errors.Is(err, io.EOF) { // EOF: RecvMsg says why
			return err
		}
		response := &reflectionpb.ServerReflectionResponse{}
		if err := stream.RecvMsg(response); err != nil {
			return err
		}
		if e := response.GetErrorResponse(); e != nil {
			return &toldError{codes.Code(e.GetErrorCode()), e.GetErrorMessage()}
		}
		for _, raw := range response.GetFileDescriptorResponse().GetFileDescriptorProto() {
			if bytes += len(raw); bytes > maxSchemaBytes || len(known) >= maxFiles {
				return failure.Permanent("response", "the server describes service %s with more than %d files or %d MiB", service, maxFiles, maxSchemaBytes>>20)
			}
			f := &descriptorpb.FileDescriptorProto{}
			if err := proto.Unmarshal(raw, f); err != nil {
				return failure.Permanent("response", "the server's reflection gave what is no description of a file: %w", err)
			}
			known[f.GetName()] = f
		}
		return nil
	}
	err = ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service}})
	if told, ok := errors.AsType[*toldError](err); ok {
		if told.code == codes.NotFound {
			return nil, failure.Permanent("grpc:UNIMPLEMENTED", "the server has no service %s", service)
		}
		return nil, failure.Permanent("response", "the server's reflection does not tell of service %s: %w", service, err)
	}
	if err != nil {
		return nil, err
	}
	for missing := needed(known); missing != ""; missing = needed(known) {
		err := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileByFilename{FileByFilename: missing}})
		if _, told := errors.AsType[*toldError](err); told || err == nil && known[missing] == nil {
			// Some servers leave out what every client has.
			common, lookup := protoregistry.GlobalFiles.FindFileByPath(missing)
			if lookup != nil {
				return nil, failure.Permanent("response", "the server's reflection does not give the file %s, which service %s needs", missing, service)
			}
			known[missing], err = protodesc.ToFileDescriptorProto(common), nil
		}
		if err != nil {
			return nil, err
		}
	}
	set := &descriptorpb.FileDescriptorSet{}
	for _, f := range known {
		set.File = append(set.File, f)
	}
	s, err := newSchema(set)
	if err != nil {
		return nil, failure.Permanent("response", "what the server's reflection gave does not fit together: %w", err)
	}
	return s, nil
}

// needed is a file that another one imports and that is not known yet; empty if there is none.
func needed(known map[string]*descriptorpb.FileDescriptorProto) string {
	for _, f := range known {
		for _, imported := range f.GetDependency() {
			if known[imported] == nil {
				return imported
			}
		}
	}
	return ""
}

// toldError is what a server's reflection answers instead of files.
type toldError struct {
	code    codes.Code
	message string
}

func (e *toldError) Error() string { return fmt.Sprintf("%s: %s", channel.CodeName(e.code), e.message) }

// files remembers the files of descriptor sets, until they change.
type files struct {
	mu    sync.Mutex
	known map[string]readFile
}

type readFile struct {
	*schema
	changed time.Time
	size    int64
}

// read gives what is in a file. Failures are permanent: nobody replaces a file between two attempts.
func (f *files) read(name string) (*schema, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, failure.Permanent("request", "descriptor_set_file: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if k, ok := f.known[name]; ok && k.changed.Equal(info.ModTime()) && k.size == info.Size() {
		return k.schema, nil
	}
	if info.Size() > maxSchemaBytes || !info.Mode().IsRegular() {
		return nil, failure.Permanent("request", "descriptor_set_file: %s is no file of at most %d MiB", name, maxSchemaBytes>>20)
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, failure.Permanent("request", "descriptor_set_file: %w", err)
	}
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(raw, set); err != nil {
		return nil, failure.Permanent("request", "descriptor_set_file: %s holds no FileDescriptorSet", name)
	}
	s, err := newSchema(set)
	if err != nil {
		return nil, failure.Permanent("request", "descriptor_set_file: %s: %w; make it with all imports in it", name, err)
	}
	if f.known == nil {
		f.known = map[string]readFile{}
	}
	f.known[name] = readFile{s, info.ModTime(), info.Size()}
	return s, nil
}
