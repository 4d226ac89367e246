// Package informertest helps to test programs that use package informer, without an API server
// and without waiting.
//
// [Start] returns a running informer and the [Source] that it follows. A Source is an API
// server in memory: it has real resourceVersions, remembers deletes, and can be made to fail
// in every way that an API server fails. [Recorder] is a watcher that records its events and
// checks them. [Store] is a store that fails, hangs or is slow on demand, and reports wrong
// use. [Durable] is a durable store that can crash and be reopened. [NewReader] returns a
// Reader over given objects, to test functions that only read.
//
// Everything here works inside testing/synctest, where a back-off of minutes takes no time. A
// package that uses synctest should call [Main] from its TestMain.
//
// client-go's fake clientsets are sources too, through informer.ListWatch. They are handy if
// the program under test writes through a clientset. But they have no resourceVersions, lose a
// delete that happens between the LIST and the WATCH, and panic when a watch has more than 100
// changes that its reader has not received. Where that matters, use a Source.
package informertest

// The parts of the package.
//
// Each line calls only the lines below it:
//
//   - start.go runs an informer over a Source; recorder.go checks its events
//   - source_serve.go (with source_patch.go) and source_namespace.go answer for a whole clientset, and
//     for one namespace
//   - source_list.go and source_watch.go answer a LIST and a WATCH
//   - source_faults.go and source_restore.go have the methods with which a test causes and ends faults
//   - source.go is the Source: its lock, and the methods with which a test writes, reads, and looks
//     at the readers
//   - source_query.go reads the options of a request: selectors, versions, pages
//   - source_state.go keeps the objects with their versions, source_history.go the past changes
//   - source_object.go (with source_fields.go, source_generation.go, source_builtin.go) has what a
//     source knows about objects and their kind
//   - source_failures.go has the Faults, and decides with which error a request fails. source_requests.go
//     notes the requests and the open watches
//   - store.go and durable.go (with durable_contents.go) have the stores, store_faults.go their
//     faults
//   - faults.go delays requests and operations
