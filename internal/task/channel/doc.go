// Package channel is the resource kind of a gRPC channel, and how the kinds grpc and service make their calls: over such a
// resource, or over a connection to an address that all tasks share.
//
// # Dead connections
//
// A peer that vanished is noticed within 40 s by TCP keepalive: the first probe after 30 s of silence, given up after 10 s
// more. HTTP/2 pings would find a stuck process behind a living proxy, too, but servers of Go, Java, C++ and Python answer
// more than two of them in five minutes with ENHANCE_YOUR_CALM and cut the connection, and the calls on it, unless they were
// told otherwise (gRFC A8, https://github.com/grpc/proposal/blob/master/A8-client-side-keepalive.md). A task may well run for
// an hour on a server like that, so pings are sent every five and a half minutes only.
//
// # Failures
//
// A status becomes the error class "grpc:CODE". See [Failure] for what is retried.
package channel
