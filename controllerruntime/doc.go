// Package controllerruntime connects this library's informers with controller-runtime.
//
// A manager does not need this package. One line makes all caches of a manager use this
// library:
//
//	manager.Options{Cache: cache.Options{NewInformer: informer.ClientGo{}.NewSharedIndexInformer}}
//
// The fields of informer.ClientGo set options for each type, share memory, or show the informers in
// a group.
//
// This package is for informers outside of the manager's cache. informer.NewFrom makes them, with
// their own store, watchers and options. [ListWatch] makes the source of an informer from
// a controller-runtime client, [Runnable] lets the manager run the informer, and [Synced]
// makes a controller wait for it.
//
// # Blocking and errors
//
// No function of this package makes a request, starts a goroutine or blocks. The informer
// reports the client's errors, as with any source. The manager runs a Runnable until the
// manager stops. If the informer's Run returns an error, the manager stops with it. If the
// source of a controller does not sync in time, the manager stops too, and its error gives the
// reason.
//
// # Testing
//
// A manager whose caches use this library can be tested without a cluster: the example
// TestWithoutACluster makes its informers read from an informertest.Source. It is in
// example_testing_test.go, and docs/migrating-from-client-go.md lists the options that such a test sets.
//
// controller-runtime's fake client works with ListWatch, also when interceptors wrap it.
// Informers over a fake client sync at once and see each change that is made through it.
//
// The fake's watches ignore selectors. ListWatch applies label selectors to them itself, but
// not field selectors: these are only applied to the first state. With a fake client, each
// informer needs its own ListWatch. The fake counts versions separately for each object, so
// WaitForVersion does not work with it.
package controllerruntime
