// Package controllerruntime joins this library's informers with controller-runtime.
//
// A manager needs nothing of this package. One line puts all of its caches on
// this library:
//
//	manager.Options{Cache: cache.Options{NewInformer: informer.NewSharedIndexInformer}}
//
// and informer.SharedIndexInformerFunc does the same with options per type.
//
// What is here is for informers beside the manager's cache, made by informer.New,
// with a store, watchers and options of their own: [ListWatch] makes the source of
// one from a controller-runtime client, [Runnable] has the manager run it, and
// [Synced] has a controller wait for it.
//
// # What blocks, and what fails
//
// Nothing here makes a request, starts anything or blocks when it is called. What
// a client answers is the informer's to report, as with any source. The manager runs
// a Runnable until it stops; an error that the informer's Run returns stops the
// manager. A controller whose source does not sync stops it too, with the reason.
//
// # Testing
//
// controller-runtime's fake client works with ListWatch, also inside an interceptor:
// informers over it sync at once, and see each change that is made through it. Its
// watches ignore selectors; ListWatch makes up for that with label selectors, but
// not with field selectors, which hold for the first state only. Each informer needs a
// ListWatch of its own then. The fake counts
// versions for each object by itself, so that WaitForResourceVersion is of no use.
package controllerruntime
