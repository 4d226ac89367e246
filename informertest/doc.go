// Package informertest helps to test programs that use package informer, without an API server
// and without waiting.
//
// [Start] returns a running informer and the [Source] that it follows. A Source is an API
// server in memory: it has real resourceVersions, remembers deletes, and can be made to fail
// in every way that an API server fails. [Recorder] is a watcher that records its events and
// checks them. [Store] is a store that fails, hangs or is slow on demand, and reports wrong
// use. [Durable] is a durable store that can crash and be reopened. [NewReader] is for
// functions that only read.
//
// Everything here works inside testing/synctest, where a back-off of minutes takes no time; a
// package that uses synctest should call [Main] from its TestMain.
//
// client-go's fake clientsets are sources too, through informer.ListWatch. They are handy if
// the program under test writes through a clientset. But they have no resourceVersions, lose a
// delete that happens between the LIST and the WATCH, and panic when more than 100 changes are
// made without letting other goroutines run. Where that matters, use a Source.
package informertest
