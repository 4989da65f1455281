package grpc

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	goreflect "reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	schedulerdv1 "github.com/schedulerd/schedulerd/gen/go/schedulerd/v1"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
	"github.com/schedulerd/schedulerd/internal/task/channel"
	"github.com/schedulerd/schedulerd/internal/task/kindtest"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/structpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is a service with messages that have many types of fields.
type echo struct {
	schedulerdv1.UnimplementedTaskServiceServer
	left chan bool // told when a stream was left by its client
}

func (*echo) Run(_ context.Context, r *schedulerdv1.RunRequest) (*schedulerdv1.RunResponse, error) {
	if r.GetInvocation().GetTask() == "refuse" {
		return nil, status.Error(codes.NotFound, "no such task")
	}
	if n := r.GetInvocation().GetAttempt(); n > 100 {
		return &schedulerdv1.RunResponse{Result: &schedulerdv1.TaskResult{Value: structpb.NewStringValue(strings.Repeat("x", int(n)))}}, nil
	}
	return &schedulerdv1.RunResponse{Result: &schedulerdv1.TaskResult{
		Value: structpb.NewStringValue(fmt.Sprintf("%s %d %s", r.GetInvocation().GetFlowId(), r.GetInvocation().GetFencingToken(), r.GetInvocation().GetFireTime().AsTime())),
	}}, nil
}

// RunStream sends as many messages as the attempt says.
func (e *echo) RunStream(r *schedulerdv1.RunStreamRequest, s grpc.ServerStreamingServer[schedulerdv1.RunStreamResponse]) error {
	for i := range r.GetInvocation().GetAttempt() {
		message := &schedulerdv1.TaskProgress{Message: strings.Repeat("x", int(r.GetInvocation().GetFencingToken())), Fraction: new(float64)}
		*message.Fraction = float64(i)
		if err := s.Send(&schedulerdv1.RunStreamResponse{Event: &schedulerdv1.RunStreamResponse_Progress{Progress: message}}); err != nil {
			return err
		}
	}
	if r.GetInvocation().GetTask() == "wait" {
		<-s.Context().Done()
		e.left <- true
	}
	return nil
}

// serve serves until the test ends.
func serve(t *testing.T, register func(*grpc.Server)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	register(server)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return l.Addr().String()
}

func build(t *testing.T, format string, args ...any) workflow.Task {
	t.Helper()
	pool := &channel.Pool{}
	t.Cleanup(func() { pool.Close() })
	return kindtest.Task(t, KindOf(pool, nil), kindtest.Config(), fmt.Sprintf(`{"grpc": {%s}}`, fmt.Sprintf(format, args...)))
}

func TestCalls(t *testing.T) {
	e := &echo{left: make(chan bool, 1)}
	address := serve(t, func(s *grpc.Server) {
		schedulerdv1.RegisterTaskServiceServer(s, e)
		reflection.Register(s)
	})
	progress := func(n float64) any {
		return map[string]any{"progress": map[string]any{"message": "", "fraction": n}}
	}
	for name, test := range map[string]struct {
		definition string
		want       any
		class      string
		text       string
	}{
		"unary": {
			definition: `"method": "schedulerd.v1.TaskService/Run", "request": {"invocation": {"flow_id": "${ params.name }", "fencingToken": "9007199254740993", "fireTime": "2031-02-03T04:05:06Z", "attempt": "${ params.n }"}}`,
			want:       map[string]any{"result": map[string]any{"value": "Ada 9007199254740993 2031-02-03 04:05:06 +0000 UTC", "action": ""}},
		},
		"no request": {
			definition: `"method": "schedulerd.v1.TaskService/Run"`,
			want:       map[string]any{"result": map[string]any{"value": " 0 1970-01-01 00:00:00 +0000 UTC", "action": ""}},
		},
		"status": {definition: `"method": "schedulerd.v1.TaskService/Run", "request": {"invocation": {"task": "refuse"}}`, class: "grpc:NOT_FOUND", text: "no such task"},
		"stream": {
			definition: `"method": "schedulerd.v1.TaskService/RunStream", "request": {"invocation": {"attempt": 3}}`,
			want:       []any{progress(0), progress(1), progress(2)},
		},
		"empty stream": {definition: `"method": "schedulerd.v1.TaskService/RunStream"`, want: []any{}},
		"max_messages": {
			definition: `"method": "schedulerd.v1.TaskService/RunStream", "request": {"invocation": {"attempt": 2, "task": "wait"}}, "max_messages": 2`,
			want:       []any{progress(0), progress(1)},
		},
		"much stream":     {definition: `"method": "schedulerd.v1.TaskService/RunStream", "request": {"invocation": {"attempt": 1000, "fencing_token": 1000}}`, class: "result", text: "ask for fewer"},
		"large response":  {definition: `"method": "schedulerd.v1.TaskService/Run", "request": {"invocation": {"attempt": 5000000}}`, class: "grpc:RESOURCE_EXHAUSTED"},
		"unknown field":   {definition: `"method": "schedulerd.v1.TaskService/Run", "request": {"invocation": {"flow": "x"}}`, class: "request", text: `request: unknown field "flow"`},
		"wrong value":     {definition: `"method": "schedulerd.v1.TaskService/Run", "request": {"invocation": {"attempt": "many"}}`, class: "request", text: `request: invalid value for uint32 field attempt: "many"`},
		"unknown method":  {definition: `"method": "schedulerd.v1.TaskService/Ran"`, class: "grpc:UNIMPLEMENTED", text: "has no method Ran; did you mean Run?"},
		"unknown service": {definition: `"method": "schedulerd.v1.TasksService/Run"`, class: "grpc:UNIMPLEMENTED", text: "the server has no service schedulerd.v1.TasksService"},
		"client stream":   {definition: `"method": "grpc.reflection.v1.ServerReflection/ServerReflectionInfo"`, class: "request", text: "its requests are a stream"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := build(t, `"address": %q, %s`, address, test.definition).Run(t.Context(), kindtest.NewCall().Invocation)
			if test.class != "" {
				if e := kindtest.Failure(t, err); e.Class != test.class || !e.Permanent || !strings.Contains(e.Error(), test.text) {
					t.Errorf("%v of class %s, permanent %v", e, e.Class, e.Permanent)
				}
				return
			}
			if err != nil || !goreflect.DeepEqual(got.Value, test.want) {
				t.Errorf("got  %v, %v\nwant %v", got.Value, err, test.want)
			}
		})
	}
	<-e.left
}

func TestReflectionOfOldServers(t *testing.T) {
	address := serve(t, func(s *grpc.Server) {
		schedulerdv1.RegisterTaskServiceServer(s, &echo{})
		grpc_reflection_v1alpha.RegisterServerReflectionServer(s, reflection.NewServer(reflection.ServerOptions{Services: s}))
	})
	if _, err := build(t, `"address": %q, "method": "schedulerd.v1.TaskService/Run"`, address).Run(t.Context(), kindtest.NewCall().Invocation); err != nil {
		t.Error(err)
	}
}

// descriptorSet is a file that describes TaskService, with or without what it imports.
func descriptorSet(t *testing.T, imports bool) string {
	t.Helper()
	set := &descriptorpb.FileDescriptorSet{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if imports {
			for i := range f.Imports().Len() {
				add(f.Imports().Get(i).FileDescriptor)
			}
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
	}
	add(schedulerdv1.File_schedulerd_v1_task_service_proto)
	raw, err := proto.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "set.binpb")
	if err := os.WriteFile(name, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestDescriptorSets(t *testing.T) {
	address := serve(t, func(s *grpc.Server) { schedulerdv1.RegisterTaskServiceServer(s, &echo{}) })
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no set"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		descriptorSet(t, true):  "",
		descriptorSet(t, false): "with all imports",
		text:                    "holds no FileDescriptorSet",
		"/nowhere":              "no such file",
		t.TempDir():             "is no file of at most",
		"":                      "the server has no reflection",
	} {
		_, err := build(t, `"address": %q, "method": "schedulerd.v1.TaskService/Run", "descriptor_set_file": %q`, address, file).Run(t.Context(), kindtest.NewCall().Invocation)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %s", file, err, want)
		}
		if err != nil && !kindtest.Failure(t, err).Permanent {
			t.Errorf("%s: it is repeated", file)
		}
	}
}

// A file that was replaced is read again.
func TestDescriptorSetChanges(t *testing.T) {
	f := &files{}
	name := descriptorSet(t, true)
	one, err := f.read(name)
	if err != nil {
		t.Fatal(err)
	}
	if two, err := f.read(name); err != nil || two != one {
		t.Errorf("read again: %v", err)
	}
	if err := os.Chtimes(name, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if two, err := f.read(name); err != nil || two == one {
		t.Errorf("not read again: %v", err)
	}
}

// What a server told is believed for a minute.
func TestBelief(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &schemas{known: map[source]learnt{}}
		s := &schema{}
		conn := &channel.Conn{ClientConn: &grpc.ClientConn{}}
		k.known[source{conn.ClientConn, "x"}] = learnt{s, time.Now().Add(believedFor)}
		time.Sleep(believedFor - 1)
		if got, err := k.byReflection(t.Context(), conn, "x"); err != nil || got != s {
			t.Errorf("%v, %v", got, err)
		}
	})
	// Another service on the same connection drops what is too old.
	address := serve(t, func(s *grpc.Server) { reflection.Register(s) })
	pool := &channel.Pool{}
	defer pool.Close()
	k := &schemas{known: map[source]learnt{{&grpc.ClientConn{}, "old"}: {&schema{}, time.Now()}}}
	task := kindtest.Task(t, KindOf(pool, nil), kindtest.Config(), fmt.Sprintf(`{"grpc": {"address": %q, "method": "grpc.reflection.v1.ServerReflection/ServerReflectionInfo"}}`, address)).(*call)
	task.schema = k.byReflection
	if _, err := task.Run(t.Context(), kindtest.NewCall().Invocation); err == nil {
		t.Error("a stream of requests was sent")
	}
	if len(k.known) != 1 {
		t.Errorf("%d services are remembered", len(k.known))
	}
}
