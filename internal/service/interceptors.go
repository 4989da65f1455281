package service

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"buf.build/go/protovalidate"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Unary is what every call goes through: a request that breaks a rule of the contract gets no further, a panic becomes an
// internal error, and errors become what the table of errors says.
func (s *Service) Unary(ctx context.Context, request any, call *grpc.UnaryServerInfo, next grpc.UnaryHandler) (response any, err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			response, err = nil, s.panicked(ctx, call.FullMethod, recovered)
		}
	}()
	if err := s.validate(request); err != nil {
		return nil, statusOf(ctx, s.config.Log, call.FullMethod, err)
	}
	response, err = next(ctx, request)
	return response, statusOf(ctx, s.config.Log, call.FullMethod, err)
}

// Stream is Unary for streams.
func (s *Service) Stream(server any, stream grpc.ServerStream, call *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			err = s.panicked(stream.Context(), call.FullMethod, recovered)
		}
	}()
	err = next(server, &validatedStream{ServerStream: stream, validate: s.validate})
	return statusOf(stream.Context(), s.config.Log, call.FullMethod, err)
}

type validatedStream struct {
	grpc.ServerStream
	validate func(any) error
}

func (s *validatedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.validate(m)
}

func (s *Service) panicked(ctx context.Context, method string, recovered any) error {
	reference := newReference()
	s.config.Log.ErrorContext(ctx, "call panicked", "rpc", method, "reference", reference,
		"panic", fmt.Sprint(recovered), "stack", string(debug.Stack()))
	return internalError(reference)
}

// validate checks a message against the rules in the contract.
func (s *Service) validate(m any) error {
	message, ok := m.(proto.Message)
	if !ok {
		return nil
	}
	err := s.validator.Validate(message)
	broken := (*protovalidate.ValidationError)(nil)
	if !errors.As(err, &broken) {
		return err
	}
	out := make(invalidRequest, len(broken.Violations))
	for i, v := range broken.Violations {
		out[i] = violation(protovalidate.FieldPathString(v.Proto.GetField()), v.Proto.GetMessage())
	}
	return out
}
