// Package service is the gRPC service schedulerd.v1.SchedulerService on top of the core: handlers that translate, call the
// core, and translate back.
//
//	flows.go, runs.go, definitions.go, watch.go   the handlers
//	translate.go                                  the core's values as messages, and back
//	errors.go                                     the table of errors: kinds of the core to codes and reasons
//	tokens.go                                     page and resume tokens
//	interceptors.go                               what every call goes through: validation, errors, panics
//	shared.go                                     states encoded once for all watchers
//
// A server that offers the service runs its calls through Unary and Stream; without them the contract's rules do not hold:
//
//	s, err := service.New(config)
//	server := grpc.NewServer(grpc.UnaryInterceptor(s.Unary), grpc.StreamInterceptor(s.Stream))
//	schedulerdv1.RegisterSchedulerServiceServer(server, s)
//	...
//	s.Attach(service.Engine{Running: running}) // until then every call is answered NOT_READY
//	...
//	s.EndStreams() // before server.GracefulStop, which waits for streams but ends none
package service
