// Package informertest helps to test programs that use package informer, without
// an API server and without waiting.
//
// [Start] gives a running informer and the [Source] it follows. A Source is an
// API server in memory: it has real resourceVersions, remembers deletes, and can
// be told to fail in every way that an API server fails. [Recorder] is a watcher
// that remembers and checks what it was told. [Store] is a store that fails, hangs
// or is slow on demand and says when it is used wrongly; [Durable] is one that crashes
// and is found again. [NewReader] is for functions that only read.
//
// Everything here works inside testing/synctest, where a back-off of minutes
// takes no time; a package that does so should call [Main] from its TestMain.
//
// client-go's fake clientsets are sources too, through informer.ListWatch. They
// are handy where the program under test writes through a clientset. But they
// have no resourceVersions, lose a delete that happens between the LIST and the
// WATCH, and panic when more than 100 changes are made without letting other
// goroutines run. Where that matters, use a Source.
package informertest
