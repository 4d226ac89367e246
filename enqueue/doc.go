// Package enqueue leads from an informer to a reconcile function: watchers put the keys of
// objects into one of client-go's workqueues, and workers take them out again.
//
//	queue := enqueue.NewQueue[types.NamespacedName]("website")
//	websites.AddWatcher(enqueue.Object[*Website](queue, enqueue.Generation), informer.WatcherOptions{})
//	ingresses.AddWatcher(enqueue.Owner[*netv1.Ingress](queue, enqueue.Owners{Kind: websiteKind}), informer.WatcherOptions{})
//	…
//	err := enqueue.Run(ctx, &group, queue, reconcile, enqueue.Options{Workers: 4})
//
// [Object], [Owner] and [Map] decide whose keys an event puts into the queue; each [Change]
// decides which updates matter. [Run] calls the reconcile function for each key: never twice
// at once for one key, however many events there are, and again after a failure. Most of that
// is the work of the workqueue; [NewQueue] makes one of the usual kind.
//
// # Logging
//
// [Run] logs with the logger of its ctx, as klog.FromContext finds it. Every line has the
// name of the queue:
//
//	ERROR  Reconciling has failed
//	       for each failed call, if there is no ErrorHandler, with the key
//	INFO   Stopped before the informers have synced
//	       once, with the reason; no worker was started
//	INFO   The workers cannot stop until calls return
//	       names the keys of calls that do not return after a stop
//
// # Example
//
// The example operator, in examples/operator, is a whole program; docs/operator.md follows one
// event through it, and says when a plain watcher is enough.
package enqueue
