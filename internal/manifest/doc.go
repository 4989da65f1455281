// Package manifest reads flows files: YAML or JSON of the message FlowsFile.
//
// Load reads files and folders, Parse turns them into messages, Check also compiles them (see package definition). All that is
// wrong is told at once, as Problems: each with its file, line and column, the line itself with a mark below the place, and
// what to write instead. Faults that package definition finds are traced back through the YAML tree to where they were written.
//
// The decoder is our own, driven by the messages' descriptors, and not protoyaml, because the tree has to be walked by
// descriptor anyway for what flows files need beyond it: enum values without their prefix, keys given twice, aliases and merge
// keys with a bound, and errors without the words of protobuf. What protoyaml accepts for these messages means the same here,
// which a test checks; numbers for enum values are the one exception.
//
// What a flows file may write beside the JSON of protobuf:
//
//   - enum values without their prefix, in any case: LAST_DAY, monday;
//   - durations with several units: 1h30m;
//   - a key with nothing after it for a message without required fields: manual, done;
//   - anchors, aliases and merge keys (<<).
//
// Plan tells what would change if one list of flows took the place of another.
package manifest
