// Package storetest holds what every store has to pass, and a disk to try an engine on.
//
// Run is the suite: a store that passes it keeps the promises of package store. Disk is a store in memory that behaves like one on a
// disk at its worst: commits take time, their answers get lost, and a crash keeps what was synced and any prefix of the rest.
package storetest
