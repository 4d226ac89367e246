// Package informer lists and watches one Kubernetes resource, keeps its state in
// any store, and tells any number of watchers what changes, each at its own pace.
//
// [New] makes a [CustomCacheInformer] of a source, which [ListWatch] makes of a
// client. AddWatcher registers a [ResourceWatcher]; Run does the work until its
// ctx ends. Get, List, ByIndex and All read what is known ([Reader]).
//
//	pods, err := informer.New(informer.ListWatch(client.CoreV1().Pods("")), informer.Options[*corev1.Pod]{})
//	…
//	reg, err := pods.AddWatcher(watcher, informer.WatcherOptions{})
//	…
//	err = pods.Run(ctx)
//
// # The way of an event
//
//	API server
//	    │ list / watch
//	source        sees every request and every event of the user's ListerWatcher
//	    │
//	reflector     client-go's
//	    │
//	inlet         checks, transforms, holds the reflector back when the store is behind
//	    │
//	queue         client-go's DeltaFIFO or RealFIFO
//	    │
//	apply loop    decides, writes to the store, then tells
//	    │
//	event log     every event once, for all listeners
//	    ├─────────────┐
//	pop, run      pop, run      two goroutines per listener: one reads the log and keeps what
//	                            waits, one calls the watcher, or has its workers call it
//
// Nothing downstream can block anything upstream, except a store that fails:
// then the apply loop tries again, and behind it the reflector stops reading, so
// that the API server, which remembers, is what waits.
//
// # What is promised
//
//  1. Start. Watchers may be added before, during and after the start of Run.
//     Run, AddWatcher and Remove may come in any order and from any goroutine, a
//     watcher's own callback included. Nothing deadlocks and no event is dropped.
//     No request is made before the goroutines of every listener registered so
//     far are live. The one thing that cannot work is to wait in a callback for
//     Stopped, WaitForSync or the end of Run.
//
//  2. Order. A registration is called by one goroutine at a time, unless it asks
//     for Workers, and is told of the changes of one object in the order in which
//     the store took them, one after the other. The store is changed before anyone
//     is told; changes that come close together are told together, up to 1 ms after
//     the first of them, or when the call of the store that is under way by then has
//     returned. One watcher that is registered twice is called from two goroutines.
//
//  3. Joining. AddWatcher does not block. The watcher is told the state as of the
//     call, as added events with OriginInitial, and then every change after it: no
//     gap, no duplicate. The Old of an event is the New of the event before it
//     (an equal object, if the store does not return the very one it was given).
//     Joining does not hold up anybody else, also if the store is slow to list.
//
//  4. Synced. [Registration.Synced] is closed once that watcher has been called for
//     everything of its initial state, also if a call returned an error or, if that
//     is recovered, panicked, also if the state is empty; never after it was removed
//     or the informer was stopped. Synced of the informer is closed once everything
//     of the first list is in the store, or was refused or could not be used and
//     was reported. A list that holds an object of
//     another type fails as a whole, so that it never passes for an empty one.
//     WaitForSync returns a [*SyncError] that says who is late and why.
//
//  5. Deletes are not missed while the informer runs, also not across a relist. An
//     object that was deleted and created again meanwhile, so that its UID is
//     another, is a delete and an add. Old of a delete is never nil; if it was not
//     seen happening, FinalStateUnknown is set. With a store that is a [Durable] they
//     are not missed across a restart or a crash either: what some watcher has not
//     handled, and what happened while none was registered, is told before all else to
//     those that are registered when Run is called and to whoever registers up to a
//     minute after the first of them, perhaps for the second time. An object that was
//     added and deleted while it waited to be merged is not told at all, nor is one that
//     a store has lost which loses its last writes in a crash, see Durable.
//
//  6. A store that fails loses nothing. What a change is, is decided once, from a
//     Get that succeeded: an error is not an absence. Then the write is tried
//     again, with pauses from 10 ms up to 5 s, until it succeeds or the informer is
//     stopped. Nobody is told before, and Synced stays open. A store may refuse a
//     change, with an error that wraps [ErrPermanent]: then nobody is told of that
//     change, and the old state stays, in the store and in what watchers know, until
//     the object's next change or relist. A store is never given a
//     cache.DeletedFinalStateUnknown.
//
//  7. Isolation. A watcher that is slow, blocks, fails, or panics if that is
//     recovered, delays nobody else. A panic of any other function of yours, or of a
//     watcher without RecoverPanics, ends the process; package enqueue can recover those
//     of reconcile, and handlers of a SharedIndexInformer keep client-go's rule.
//
//  8. Bounded. What waits for one watcher is at most MaxBacklog events plus two per
//     object, one per object of a state that it has not been told yet, and what it was
//     handed: 256 events, or MaxBacklog if that is less. Beyond MaxBacklog, waiting events
//     of an object are merged, see [WatcherOptions]. The events themselves are those
//     of the log, which all that are behind share. While the store does not return a
//     listing that a watcher needs, to join or for a resync, the log is kept.
//
//  9. Stop. When ctx ends, Run stops the source first, then the listeners, which may
//     first tell what waits for Options.DrainTimeout; the ctx of their calls stays
//     alive until then. It returns nil when every goroutine that it started has
//     returned, but for the timer of client-go's workqueue behind Workers and Retry,
//     which ends by itself. It waits for calls of yours that are under way, and
//     names them in the log if they take longer than 10 s. What a watcher was not
//     told is counted, logged and told to Observer. What client-go may still do for a
//     moment with a list that has arrived, on a goroutine of its own, reaches nobody.
//
//  10. Ownership. Objects are shared between the store and all watchers. Do not
//     change them; copy first.
//
//  11. Errors reach Options.ErrorHandler, typed, with the key and the operation: once
//     when an operation starts to fail, and once more if it is given up. Each attempt
//     goes to [Observer]. [CustomCacheInformer.Health] and a [*SyncError] carry the
//     last one that stands in the way.
//
// # What is not promised
//
// That every intermediate state is seen: the API server and a relist may skip
// some, and a backlog that is merged does. Any order between different objects, except that with [RealFIFO] live
// events of the watch come in the order of their resourceVersions. An event for an
// object that a relist finds unchanged. Deletes that happened while no informer was
// running are found if the store was kept, see Options.Store.
//
// A plain store cannot do everything; docs/stores.md has the table. It is not asked
// again which keys it has, and a listing whose errors it swallows is taken for the
// truth. What it loses by
// itself is noticed only when the object's next event comes, which is then an add
// of something that watchers know, or a delete of something that one which joined
// later does not. While a write is being retried, a watcher that joins, or is due
// for a resync, waits for it.
//
// # A server that goes back in time
//
// When etcd is restored from a backup, resourceVersions go back, and a watch from a
// later one is answered with silence, for ever. So after a request that has failed,
// and at a start from a Durable, the source is asked for one object: if the version of
// the answer has gone back, that is reported, and all is listed anew. A restore after
// which no request has failed is noticed at the next list, and so is one after which
// the server has come past the version that the informer knows before it is asked: a
// version that is up to a minute old, the time between two bookmarks, where nothing
// changes that is watched. In the latter case an object that has been given the very
// version of a state which was lost is taken for that state until its next event. etcd's
// documentation has a way to restore by which versions do not go back: etcdutl's
// --bump-revision and --mark-compacted.
//
// # Beside client-go and controller-runtime
//
// The same informer can be had as client-go's cache.SharedIndexInformer: a new one by
// [NewSharedIndexInformer], which takes the arguments of client-go's function and fits
// controller-runtime's cache.Options.NewInformer; one that exists by its
// SharedIndexInformer method. Its handlers are told what client-go would tell them, and
// all of it, so that promise 8 does not hold for them. What differs on purpose stands in
// docs/differences-from-client-go.md.
//
// A [Group] runs several informers, waits for them and says how they are. [Shared] lets
// parts of a program that do not know each other have one informer per type in common.
//
// If the environment variable KUBE_CACHE_MUTATION_DETECTOR is "true", every object that
// the source has sent is copied when it is told, and the process ends when one turns out
// to have been changed. That is client-go's; it takes the memory of all objects once
// more, for tests.
//
// # Logging
//
// The informer logs with the logger of Run's ctx, as klog.FromContext finds it. It
// logs what has changed, not each retry. Every line has the informer's name; here
// they all are, with the level of each:
//
//	ERROR  Informer reports an error
//	       by LogError, if there is no ErrorHandler: something has begun to fail,
//	       or is given up
//	INFO   The source works again
//	       a LIST, or a watch, brings something after it had failed
//	INFO   The stream of the first state brought nothing, listing from now on
//	       once, see WatchListAuto
//	INFO   The store works again
//	       an operation that had failed for 10 s or more has succeeded
//	INFO   A watcher is behind: events that wait for it are merged by object
//	       there have been more than MaxBacklog, and it has not caught up for 10 s
//	INFO   The watcher has caught up
//	       nothing waits any more, but what it was handed, for one that was behind
//	INFO   The informer cannot stop until calls return
//	       10 s after it was stopped, or had begun to wait for the watchers: names them
//	INFO   A watcher was not told everything before the informer stopped
//	       for each such watcher, with the number of events
//	INFO   A handler is not resynced as often as it asks for
//	       a handler of a SharedIndexInformer, with the logger of its HandlerOptions
//	INFO   The informer cannot be run a second time
//	       by Run of a SharedIndexInformer, which has no error to return
//	V(2)   The informer starts
//	       the watchers' goroutines are live; "durable" if the store is a Durable
//	V(2)   The informer has synced
//	       once; "resumed" if the store is a Durable and nothing had to be listed
//	V(2)   The source has stopped
//	       as the first thing of a stop, before the watchers
//
// What client-go's reflector logs, a line for each watch that the server ends among
// it, comes three levels further down, from V(3) on. Its trace of a list that took
// more than 10 s goes past the logger, to klog itself at -v=2.
//
// # Testing
//
// Package informertest has a scriptable API server in memory, a watcher that
// records, and more. Everything works inside testing/synctest.
package informer
