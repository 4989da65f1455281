// Package store is what the engine needs of storage: an ordered map of bytes in shards, written in atomic, durable groups by
// sessions that can be fenced.
//
// Keys and values are the engine's business. An engine process joins the store and gets a Session, acquires shards, loads what they
// hold and from then on commits groups of changes. What a session committed is durable when Commit returns; once another session
// took over a shard, every commit of the first that touches it fails with ErrFenced, whatever that session believes.
//
// # What an engine may rely on
//
//   - A group is applied as a whole or not at all, also by a crash in the middle of it.
//   - Get and Scan show durable groups only: what a reader saw is not lost later. A Scan sees one point in time.
//   - A commit under way is over before Acquire gives its shards to another session: who acquired a shard and then loads it misses nothing.
//   - Revisions grow by at least one with each commit, also across restarts of the store.
//   - The generation of a shard grows by one each time a session takes it; it does not go back, not even when a backup is restored.
//
// # What Commit may answer
//
// A revision: the group is durable, now or since an earlier try. ErrUnknown: repeat the same group, with the same Seq, until the
// answer is another one. ErrFenced, ErrClosed, ErrIO: this session has ended, Done is closed; whether the group was applied shows when
// a new session loads the shards. ErrSequence, ErrTooLarge: the caller's fault, nothing was applied.
//
// # Stores
//
// NewMemory keeps everything in memory. internal/store/pebble keeps it in a directory. Both leave sessions, ownership, fencing and
// sequence to Sessions. Every store passes the tests of package storetest, which also has a disk that loses what a real one may lose.
package store
