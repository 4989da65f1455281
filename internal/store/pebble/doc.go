// Package pebble keeps a store in a directory, with the embedded engine github.com/cockroachdb/pebble. It is schedulerd's default store.
//
// # Promises
//
// What Commit answered is on the disk: a kill or a power loss at any moment loses nothing acknowledged and leaves no half of a group. A
// reader sees nothing that could still be lost. One process at a time has the directory open; another gets ErrLocked.
//
// A write that fails (a full disk, an I/O error) ends the store: that commit and all later ones get ErrIO, all sessions end, and nothing
// more is written until the store is opened again. Reads go on. Damage that is found gets ErrCorrupt with the name of the file.
//
// A store is never started from empty where there was one. A directory that holds anything else than a store is refused, and so is a
// store that has less in it than was committed: see below.
//
// # The directory
//
//	COMMITTED   what this package writes: which store this is, and the newest revision that was acknowledged
//	LOCK        held by the process that has the store open
//	the rest    the engine's: write-ahead logs (*.log), tables (*.sst), MANIFEST-*, OPTIONS-*, marker.*
//
// The engine finds most damage by checksums. What it does not find is a file that was cut short, put back from an older copy or deleted
// where a crash could have had the same effect: it would start with less. COMMITTED tells. The newest revision is written there after each
// commit, without a sync, so it is exact after a kill and at most some seconds behind after a power loss, and never ahead. How much of the
// manifest was synced, and which full logs there are, is written whenever that changes, with a sync. Nothing is deleted from the
// directory before a store that is opened has been found whole.
//
// # Keys
//
//	m/...                        the store's own: schema, instance, epoch, revision, m/generation/<shard>
//	s<shard, 2 bytes><key>       the engine's, numbers big-endian so that a shard is one range
//
// The schema is the version of this layout. A newer one is refused with ErrSchema, an older one is migrated when it is opened.
//
// # Failing engine
//
// Pebble panics or calls Fatalf when it cannot write; both would end the process. It therefore works on a filesystem (guard) that never tells it:
// after the first failed write its writes go nowhere and count as done, and this package refuses everything in its place.
package pebble
