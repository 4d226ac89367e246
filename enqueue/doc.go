// Package enqueue is the way from an informer to a reconcile function: watchers that
// put the keys of objects into one of client-go's workqueues, and workers that take
// them out again.
//
//	queue := enqueue.NewQueue[types.NamespacedName]("website")
//	websites.AddWatcher(enqueue.Object[*Website](queue, enqueue.Generation), informer.WatcherOptions{})
//	ingresses.AddWatcher(enqueue.Owner[*netv1.Ingress](queue, enqueue.Owners{Kind: websiteKind}), informer.WatcherOptions{})
//	…
//	err := enqueue.Run(ctx, &group, queue, reconcile, enqueue.Options{Workers: 4})
//
// [Object], [Owner] and [Map] say whose keys an event is about; each [Change] that they
// are given says which updates matter. [Run] calls the reconcile function for each key:
// for one key never twice at once, however many events there are, and again after a
// failure. Most of that is what the workqueue does; [NewQueue] makes one of the usual kind.
//
// The example operator, in examples/operator, is a whole program; docs/operator.md
// follows one event through it, and says when a plain watcher is enough.
package enqueue
