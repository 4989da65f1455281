// Package server assembles a schedulerd process: options, data directory, flows files, scheduler, listeners, health, metrics,
// and the order in which all of it starts and stops.
//
//	options.go   what can be set
//	run.go       a server and the signals of its process
//	server.go    the start
//	stop.go      the stop, step by step
//	flows.go     flows files: reading them, and reading them again
//	admin.go     the admin listener
//	calls.go     a log line for each call
//	health.go    when the server is ready
//	metrics.go   the figures
//	tls.go       certificates that may change on disk
//	kinds.go     which kinds of tasks there are
//
// There is nothing global: a test starts as many servers as it likes.
//
//	o := server.Defaults()
//	o.Flows = []string{"flows.yaml"}
//	s, err := server.Start(ctx, o)
//	...
//	err = s.Stop(ctx)
package server
