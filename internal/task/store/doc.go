// Package store is the resource kind of a key-value store in memory, and the task kind that reads and changes it.
//
// A [Store] holds JSON-like values by key. Each operation is atomic. Values are copied in and out: nobody holds a part of the
// store. Lists and objects inside a stored value are never changed, only replaced; the exception is a list under a key, to
// which values are appended in place.
//
// What a store holds is bounded by a weight: the bytes of keys and texts, and 16 for every value, which is about what Go
// takes for it.
package store
