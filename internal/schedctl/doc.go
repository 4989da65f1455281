// Package schedctl is the command line client of schedulerd.
//
// [Main] runs one command line in an [Env], which holds everything a command
// touches outside of the program: arguments, streams, environment, clock,
// terminal and the network. cmd/schedctl passes the real ones; tests pass a
// fake server over an in-memory connection.
//
// # Where things are
//
// A file per command, named after it (list.go, trigger.go, preview.go …), or
// per family of commands (verbs.go: reset, cancel, pause, resume; files.go:
// validate, plan, apply). Under them:
//
//   - root.go: the command tree, the global flags, the way from error to exit code;
//   - connect.go: from --server and the TLS flags to a connection;
//   - errors.go: the one table from gRPC code and ErrorReason to exit code and words;
//   - output.go: one response as table, wide, json, yaml or name;
//   - yaml.go, enum.go: YAML to and from JSON, and the short names of enum values;
//   - table.go, clock.go, flowtext.go: how columns, times and flows look to people;
//   - watch.go: streams that survive a broken connection and a restarted daemon;
//   - mirror.go: the states of flows as a watch tells them;
//   - follow.go: a run shown until it has ended;
//   - screen.go: a block of lines redrawn in place on a terminal;
//   - graph: a flow's state machine as Mermaid or DOT.
//
// # Output
//
// json and yaml are the response message of the call with the field names of
// the .proto files, whole lists in one document whatever their pages were.
// What streams (watch, run --follow) is one JSON document a line. Tables are
// for people and may change; scripts take json or name. Colours and redrawing
// happen on a terminal only, and no colour where NO_COLOR is set.
package schedctl
