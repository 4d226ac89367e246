// Package memory is a store in memory whose readers never delay its writer.
//
// The objects are in hash tries. A write copies the nodes that it changes, up to the root, and then publishes the new
// root. So a reader, which takes no lock, has a trie that nothing changes. There is one exception, because most
// writes are updates: an object is put into the place of another one if the keys and index values stay as they are, and if no
// [Snapshot] can have the node. A snapshot that its owner drops leaves nothing behind.
//
// A [Store] has a part for each source, such as a namespace. A part has its own objects and its own indexes, so
// reading, listing or dropping a source costs as much as the source has. Keys and sources are given: the store takes any
// strings for both.
//
// # What readers see
//
// [Part.Get] and [Store.Now] see each update as soon as it is made, and objects that come, go or move between index
// values when the write is complete. A [Snapshot] has all of a write or nothing of it. To take one, a reader waits for
// the write that is under way, and keeps the next one waiting for some nanoseconds. Reads without a snapshot cost later
// writes nothing. After a snapshot, the next write to each node copies that node.
//
// # Index functions
//
// The store calls each index function once for each write, and remembers the values. It never asks again for the values
// of the old object, so a function that changes its mind leaves nothing in the index. If a function returns an error or
// panics, the object is stored, and has no values in that index until its next write or [Part.Reindex]. [Store.Failed]
// has the keys of such objects. A value that is returned twice counts once, and "" is a value like any other. A write
// of an object with 10,000 values changes 10,000 places, which takes milliseconds.
//
// Functions run while the store keeps other writers out, but no readers. They may read the store. A function that
// writes to the store blocks forever.
//
// # The parts
//
//   - trie.go: a node, and a write that changes one trie
//   - content.go: the objects of a source with their indexes
//   - values.go: index functions, and the values that they return
//   - store.go: the methods that write
//   - read.go: the methods that read, and snapshots
//   - indexer.go: the store as a cache.Indexer, with everything that client-go's has
package memory
