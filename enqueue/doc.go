// Package enqueue connects informers to a reconcile function. A [Controller] has a queue,
// watchers that put the keys of objects into it, and workers that take them out and call the
// function:
//
//	c, err := enqueue.NewController(reconcile, enqueue.Options{Name: "website", Workers: 4},
//		enqueue.For(websites, enqueue.Generation),
//		enqueue.Owns(ingresses, enqueue.Owners{Kind: websiteKind}),
//	)
//	if err != nil {
//		return err
//	}
//	err = errors.Join(group.Add(websites), group.Add(ingresses), group.Add(c))
//	…
//	err = group.Run(ctx)
//
// [For], [Owns] and [Watches] decide which keys an event puts into the queue, and each [Change]
// decides which updates count. The function is called for each key, and again after a failure. It
// is never called twice at once for one key, however many events there are. Most of this is the
// work of client-go's workqueue.
//
// The workers start when the informers that the controller reads have synced. The group stops the
// controller before these informers. The group's Health, the page of package debug and the metrics
// show the controller. With an [informer.Durable], no delete is lost, see [Controller].
//
// For informers over many clusters, use [InClusters] and [WatchesIn].
//
// # Logging
//
// A controller logs with the logger of the ctx of its Run, as klog.FromContext finds it.
// Every line has the name of the queue:
//
//	ERROR  Reconciling has failed
//	       for each failed call, if there is no ErrorHandler, with the key
//	ERROR  Controller reports an error
//	       if there is no ErrorHandler: a standby drops keys of deletes
//	INFO   Stopped before the workers have started
//	       once, with the reason
//	INFO   The workers cannot stop until calls return
//	       names the keys of calls that do not return after a stop
//
// A wait for the informers or for the election that lasts longer than 30 s is logged like a wait of
// informer.WaitForSync. "late" names the things that are missing, and "reason" is why, if that is
// known.
//
// # Example
//
// The example operator, in examples/operator, is a whole program; docs/operator.md follows one
// event through it, and explains when a plain watcher is enough.
package enqueue

// The parts of the package.
//
//   - options.go has the options, and controller.go the Controller. source.go makes its watchers, with keys.go and
//     change.go. scope.go knows which keys no object can have, and portable.go which types of keys replicas can exchange.
//     health.go has the Health, and late.go what it waits for.
//   - standby.go keeps the keys until the program is elected, and shards.go divides them over replicas.
//   - worker.go makes the calls, and decides when a key comes again and which failures are reported. queue.go plans the
//     calls, and shares.go divides the workers between clusters. state.go notes the results of calls, deletes.go which
//     deletes they have handled, and error.go has their error.
