// Package memory is a store in memory whose readers never delay its writer.
//
// The objects are in hash tries. A write copies the nodes that it changes, up to the root, and then publishes
// the new root. So a reader, which takes no lock, has a trie that never changes. There is one exception,
// because most writes are updates: a write replaces an object in place if the key and the index values stay the
// same and no [Snapshot] can have the node. A snapshot needs no clean-up: the garbage collector frees it.
//
// A [Store] has a part for each source, such as a namespace. A part has its own objects and its own indexes, so
// the cost to read or list a source depends only on the objects of that source. The caller chooses keys and
// sources; both may be any strings.
//
// # What readers see
//
// [Part.Get] and [Store.Now] show an update at once. They show objects that come, go or move between index
// values when the write is complete. A [Snapshot] has all of a write or nothing of it. To take one, a reader
// waits for the write that is under way, and delays the next one for some nanoseconds. Reads without a snapshot
// cost later writes nothing. After a snapshot, the next write to each node copies the node.
//
// # Index functions
//
// The store calls each index function once for each write, and remembers the values. It never calls a function
// for the old object, so a function that later returns other values leaves nothing behind in the index. If a
// function returns an error or panics, the object is stored, but has no values in that index until its next
// write or [Part.Reindex]. [Store.Failed] returns the keys of such objects. A value that is returned twice
// counts once, and "" is a value like any other. A write of an object with 10,000 values changes 10,000 places,
// which takes milliseconds.
//
// While functions run, other writers wait, but readers do not. Functions may read the store. A function that
// writes to the store blocks forever.
//
// # The parts
//
//   - trie.go: a node, and a write that changes one trie
//   - content.go: the objects of a source with their indexes
//   - values.go: index functions, and the values that they return
//   - store.go: the methods that write
//   - read.go: the methods that read, and snapshots
//   - indexer.go: the store as a cache.Indexer, with all methods of client-go's
package memory
