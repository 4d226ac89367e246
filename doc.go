// Package informer lists and watches one Kubernetes resource, keeps its objects in any store,
// and delivers their changes to any number of watchers, each at its own pace.
//
// [New] makes a [CustomCacheInformer] from a typed client, [NewFrom] from any other source, and
// [NewInNamespaces] from the clients of several namespaces. [NewOverClusters] makes one over many
// clusters. Package kinds makes one over kinds that are added and removed. AddWatcher registers a
// [ResourceWatcher]. Run does the work until its ctx ends. Get, List, ByIndex and All read the known
// state, see [Reader]. A [Snapshot] lets several reads see the same state.
//
//	pods, err := informer.New(client.CoreV1().Pods(""), informer.Options[*corev1.Pod]{})
//	…
//	reg, err := pods.AddWatcher(watcher, informer.WatcherOptions{})
//	…
//	err = pods.Run(ctx)
//
// # Where to begin
//
// Most programs need only these names, in this order. Each has an example.
//
//  1. [New] makes an informer.
//  2. [CustomCacheInformer.AddWatcher] registers a watcher: your code that receives the events.
//  3. [Registration] shows when the watcher has received all objects, and can remove the watcher.
//  4. [CustomCacheInformer.ByIndex], and the other methods of [Reader], read the objects. Options.Fields and
//     package indexes have ready-made indexes.
//  5. [Select] passes on only some objects.
//  6. [Backoff] calls again after an error; [WatcherOptions] has the other options.
//  7. [CustomCacheInformer.WaitForVersion] waits until the informer has your last write.
//  8. [Group] runs several informers, controllers of package enqueue, and other members.
//  9. [CustomCacheInformer.Health] shows what the informer is doing.
//  10. [ProbeHandler] answers the probes of a Pod.
//
// # The way of an event
//
//	API server
//	    │ list / watch
//	source        sees every request and every event of the user's ListerWatcher
//	    │
//	reflector     client-go's
//	    │
//	sink, gate    check and transform objects, and hold the reflector back when the store is behind
//	    │
//	queue         client-go's DeltaFIFO or RealFIFO
//	    │
//	apply loop    decides, writes to the store, then publishes the event
//	    │
//	event log     every event once, shared by all listeners
//	    ├─────────────┐
//	pop, run      pop, run      two goroutines per listener: pop reads the log and keeps the
//	                            backlog, run calls the watcher or has its workers call it
//
// No part can block a part above it, with one exception: if the store is slow or fails, the source
// stops reading. The waiting changes, and with [IntakeEarly] the rest of a list, stay at the
// API server, which keeps them for some minutes. If the next page of a list is gone by then, the
// informer begins the list again. After the second time, it asks for the whole list at once.
//
// # What is promised
//
//  1. Start. Watchers may be added before, during and after the start of Run. Run, AddWatcher and
//     Remove may be called in any order and from any goroutine, also in a watcher's own callback.
//     Nothing deadlocks and no event is dropped. The informer makes no request before the
//     goroutines of all watchers registered so far are live. One thing is forbidden: a watcher's
//     callback must not wait for Stopped, CatchUp, WaitForSync or the end of Run.
//
//  2. Order. One goroutine at a time calls the watcher of a registration, unless the registration
//     asks for Workers. The watcher gets the events of one object one at a time, in the order in
//     which the store took the changes. The store has a change before any watcher gets the event.
//     Changes that arrive within 1 ms may be published together. If a call of the store is under
//     way when this time is over, they are published when that call has returned. A watcher that is
//     registered twice is called from two goroutines.
//
//  3. Joining. AddWatcher does not block. The watcher gets the state as of the call, as added events with
//     OriginInitial, and then every later change: no gap, no duplicate. The Old of an event is the New of the object's
//     event before it, or an equal object if the store returns copies. A watcher that joins delays no other part of the
//     informer, even if the store is slow to list. The informer's own store gives each watcher a snapshot. Over another
//     store, watchers that join at the same time share the pages that they read. While the store takes changes, a pause
//     follows each read of a page, nine times as long as the read and at most 100 ms. These pauses let the store take
//     changes even if many watchers join. A read that hangs delays other joins by about a second for each page that
//     they read.
//
//  4. Synced. [Registration.Synced] is closed once the watcher has been called for every object of its
//     initial state. Calls that returned an error or panicked (if the panic is recovered) count too. If the
//     state is empty, the channel is closed when the informer has synced. The channel is never closed after
//     the watcher was removed or the informer was stopped. Synced of the informer is closed once every
//     object of the first list is in the store. An object that was reported, because the store refused it
//     or it could not be used, counts too. A list fails if it has an object of another type. It also fails
//     if it does not look like a list of the resource: its items must have the right type, it must have a
//     resourceVersion if the list before had one, and an unstructured list must have the right kind. Each
//     page must have the version of the first. Some servers have no resourceVersions. So a list without one
//     is accepted, but reported and shown by Health. It fails once a list of the source, or a [Durable], has
//     had a version. Two kinds of odd lists are accepted at the twentieth time in a row: an empty list of a
//     source without versions, and a list of another kind. With [IntakeWhole], nothing of a failed list is
//     delivered. With [IntakeEarly], the objects that came before the failure are delivered. No delete, no
//     Synced and no bookmark follows from a list before it is complete. WaitForSync returns a [*SyncError]
//     that names the parts that are late and the reasons.
//
//  5. Deletes. No delete is missed while the informer runs, even if it has to list again. If an object
//     was deleted and created again in between, so that it has another UID, watchers get a delete and
//     an add. Old of a delete is never nil. FinalStateUnknown is set if the delete itself was not
//     seen. Over a [Durable], no delete is missed across a restart or a crash either. Some deletes may
//     be left from before the start: those that some watcher has not handled, and those that happened
//     while no watcher was registered. Watchers that are registered up to a minute after Run is called,
//     or after the first watcher if that comes later, get these deletes before anything else, perhaps
//     for the second time. A watcher has handled a delete when its call has returned and no retry follows. A
//     controller of package enqueue has handled a delete only when it has reconciled every key that
//     the delete led to. A handler that only fills another queue, as those of controller-runtime
//     do, has handled it before the key is reconciled. Until a delete is handled, the store keeps
//     its tombstone. There are three exceptions. If the add of an object still waits when its
//     delete comes, both may be merged into nothing. If the store loses its last writes in a crash,
//     one delete may be missed, see Durable. A delete that [Select] makes of an update has no
//     tombstone, so it does not come again after a restart.
//
//  6. Failures of the store. If the store fails, nothing is lost. The informer decides only once
//     what a change is, after a Get that succeeded: an error does not mean that the object is
//     absent. It repeats a write that fails, with pauses from 10 ms up to 5 s, until the write
//     succeeds or the informer is stopped. Until then no watcher gets the event, and Synced stays
//     open. A store may refuse a change with an error that wraps [ErrPermanent]. Then no watcher
//     gets the event, and the store and the watchers keep the old state until the object's next
//     change or relist. A store never gets a cache.DeletedFinalStateUnknown.
//
//  7. Isolation. A watcher that is slow, blocks or fails delays no other part of the informer. Neither does a
//     watcher that panics, if the panic is recovered. A panic of a watcher without RecoverPanics, or of any
//     other function of yours, ends the process. There are three exceptions: package enqueue can recover
//     panics of reconcile, the informer's own store treats a panic of an index function as an error, and for
//     handlers of a SharedIndexInformer client-go's rule applies.
//
//  8. Bounded memory. Beyond MaxBacklog, the waiting events of an object are merged, see [WatcherOptions]. So
//     at most MaxBacklog events plus two per object wait for one watcher. In addition, the watcher may still
//     have to get one event for each object of a state, and hold the events that it has taken: up to 256, or
//     MaxBacklog if that is less. All watchers that are behind share the events of the log. While the store is
//     behind, up to 2,000 changes wait for it in memory, and a list that has arrived: with [IntakeEarly], only
//     one page of it. The log grows while a watcher waits for a read of the store that does not return, to
//     join or for a resync.
//
//  9. Stop. When ctx ends, Run stops the source first and then the watchers. Watchers may first
//     handle their waiting events for up to Options.DrainTimeout; the ctx of their calls stays
//     alive until then. Run returns nil when every goroutine that it started has returned. Only a
//     timer of client-go's workqueue, used for Workers and Retry, may end a little later. Run waits
//     for calls of your functions that are under way, and names them in the log if they take longer
//     than 10 s. Events that a watcher did not get are counted, logged and reported to Observer. A
//     goroutine of client-go may for a moment still work on a list that has arrived. The result
//     reaches neither the store nor a watcher.
//
//  10. Ownership. The store and all watchers share the objects. Do not change them; copy first.
//
//  11. Errors. Options.ErrorHandler gets typed errors with the key and the operation: once when an
//     operation begins to fail, and once more if it is given up. Each attempt is reported to
//     [Observer]. An object that cannot be decoded (see [Transport]) is reported, but not again until
//     it works. The same is true if Transform or an index function fails for an object. If many objects
//     fail, only some are reported, with their number, see [ObjectError]. [CustomCacheInformer.Health]
//     and a [*SyncError] have the last error that prevents progress. They also show a request that has
//     had no answer for 30 s, and a stream of the first state that has not ended after 10 s.
//
//  12. Silent servers. An informer does not wait forever because of a wrong answer, or of a stream
//     or a watch that has become silent. A start from a [Durable] lists if the version has expired,
//     if the source refuses twice to continue from it, or if the source has been busy for a minute.
//     For a stream of the first state, see [WatchListOn]. The informer replaces a watch that is
//     silent a minute after the server should have ended it. That is after 11 minutes at most,
//     unless TweakListOptions changes TimeoutSeconds.
//
// # What is not promised
//
//   - Every intermediate state of an object. The API server and a relist may skip some, and merging
//     skips them too.
//   - An order between different objects. But with [QueueRealFIFO], live events of a watch come in
//     the order of their resourceVersions.
//   - An event for an object that a relist finds unchanged.
//   - Deletes that happened while no informer was running, unless the store was kept, see
//     Options.Durable.
//
// A store that is only a cache.Store cannot do everything; docs/stores.md has the table. The
// informer reads its keys only at the start. If its List hides an error, the informer takes the
// result as complete. If the store loses an object, the informer notices that only at the object's
// next event. Watchers may then get an add of an object that they already know, or a delete of one
// that a later watcher never got. While a write is being retried, a watcher that joins or is due
// for a resync waits for that write.
//
// # Several namespaces
//
// An informer of [NewInNamespaces] has one store, one event log and one registration per watcher, and a
// source for each namespace. [CustomCacheInformer.SetNamespaces] changes the set, also while it runs.
// The informer needs no right to list the resource in all namespaces. Each source lists, watches, backs
// off and continues from a version of its own. So no failure in one namespace can make the informer miss
// an event of another:
//
//   - The informer has synced when it has listed every namespace. Until then, the later events of a
//     namespace that is listed already come as live events.
//   - A list of one namespace causes no deletes in other namespaces.
//   - A namespace that cannot be read keeps its last state. The informer keeps trying, and errors and
//     [Health] name the namespace. The others continue.
//   - With [QueueRealFIFO], the live events of a namespace come in the order of their resourceVersions.
//   - When a namespace is removed, its objects come as deletes with [OriginLeft], after all of its other events. When a namespace
//     is added, only that namespace is listed.
//   - ResourceVersion returns the lowest version of all namespaces. WaitForVersion waits for one
//     namespace, or for all.
//   - Transform and TweakListOptions are called from a goroutine of each namespace.
//   - The bookmark of a [Durable] has a version for each namespace. At a start, a new namespace is
//     listed. The objects of namespaces that are no longer in the set come as deletes, before any
//     other event.
//
// # Handing work over
//
// A process may take over work from another process, such as the keys of a controller. Two waits make
// sure that it does not work on an older state. The process that gives up the work calls
// [Registration.CatchUp], so that its watcher has handled all changes in its store. Then it passes on
// Changed of each of its [CustomCacheInformer.Versions]. The process that takes over passes these
// versions to WaitForVersion. When that has returned, its store is at least as new as any state that
// the first process has read. Because Changed never comes from a bookmark, this wait need not last
// until the next bookmark.
//
// # A server that goes back in time
//
// When etcd is restored from a backup, resourceVersions go back. A watch from a later version then
// never gets an event or an error. So the informer asks the source for one object after a request
// has failed, and at a start from a Durable. If the answer has a lower version than before, the
// informer reports that and lists everything again.
//
// The informer also asks after a watch that took a second or more to open, because client-go may have
// repeated that request after failures without reporting them.
//
// Two kinds of restore are noticed only at the next list. In the first, no request fails. In the second,
// the server has passed the version that the informer knows before the informer asks. If no watched object
// changes, this version is up to a minute old, the time between two bookmarks. In this second case an
// object may get exactly the version of a state that was lost. The informer then takes the object for
// that state until the object's next event. The documentation of etcd describes a restore in which versions do not go back:
// --bump-revision and --mark-compacted of etcdutl.
//
// # Use with client-go and controller-runtime
//
// The informer also implements client-go's cache.SharedIndexInformer. To make one, use
// [ClientGo.NewSharedIndexInformer], which takes the arguments of client-go's function and fits
// controller-runtime's cache.Options.NewInformer. For an informer that exists, use its
// SharedIndexInformer method. Handlers get all events that client-go would give them, so promise 8
// does not hold for handlers. docs/differences-from-client-go.md lists the intended differences.
//
// A [Group] runs several informers and controllers, waits for them and reports their health. Its
// Health feeds the live page that the Handler of package debug serves. [GetOrAdd] lets independent
// parts of a program use one informer per type.
//
// If the environment variable KUBE_CACHE_MUTATION_DETECTOR is "true", every object from the source
// is copied when its event is published. Objects and copies are compared about once a second, but
// not at the end. The process ends if an object was changed. This is a feature of client-go for
// tests. It doubles the memory of the objects.
//
// # Metrics and traces
//
// The functions of an [Observer] are called as the informer works. [ListInfo] and [WatchInfo] are about
// the source, [StoreInfo] and [ApplyInfo] about the store, [HandledInfo] and [BacklogInfo] about
// watchers. Only a program with its own metrics needs these types: the modules metrics/prometheus and
// tracing/opentelemetry have observers.
//
// # Logging
//
// The informer logs with the logger that klog.FromContext finds in Run's ctx. It logs when its
// state changes, not each retry. Every line has the informer's name. The two lines of WaitForSync
// use the logger of WaitForSync's ctx instead, and for a Group they have the names of its members
// as "group". These are all lines, with the level of each:
//
//	ERROR  Informer reports an error
//	       by Report, if there is no ErrorHandler: an operation has begun to fail,
//	       or is given up, or an object cannot be used
//	INFO   An object works again
//	       the decoder, Transform or the index functions work for an object that was reported,
//	       not for all
//	INFO   No object fails any more
//	       the last object for which they failed works again, or was deleted
//	INFO   The source works again
//	       a LIST or a watch has brought something after it had failed; one line for each of
//	       the two, and a stream of the first state that works ends the failures of both
//	INFO   The stream of the first state does not end, listing from now on
//	       once, see WatchListOn
//	INFO   The store works again
//	       an operation that had failed for 10 s or more has succeeded
//	INFO   A watcher is behind: events that wait for it are merged by object
//	       more than MaxBacklog events have waited, and it has not caught up for 10 s
//	INFO   The watcher has caught up
//	       a watcher that was behind has no waiting events, except those it has taken
//	INFO   The informer cannot stop until calls return
//	       10 s after the stop, or after it began to wait for the watchers: names the calls
//	INFO   A watcher did not get every event before the informer stopped
//	       for each such watcher, with the number of events
//	INFO   Still waiting
//	       a WaitForSync has lasted for 30 s: "late" and "reason" are what it waits for and why
//	INFO   The wait is over
//	       such a WaitForSync returns, with "err" if it fails
//	INFO   A handler is not resynced as often as it asks for
//	       a handler of a SharedIndexInformer, with the logger of its HandlerOptions
//	INFO   The informer cannot be run a second time
//	       by Run of a SharedIndexInformer, which returns no error
//	V(2)   The informer starts
//	       the watchers' goroutines are live; "durable" if the store is a Durable
//	V(2)   The informer has synced
//	       once; "resumed" if the store is a Durable and no list was needed; "memory" is that of Health
//	V(2)   The informer reads other namespaces
//	       after SetNamespaces, with the names that were added and removed
//	V(2)   The informer reads other clusters
//	       after Engage, Replace or Disengage of [Clusters], likewise
//	V(2)   The source has stopped
//	       as the first step of a stop, before the watchers
//
// The lines of client-go's reflector are logged three levels lower, from V(3) on. One of them comes
// for each watch that the server ends. The reflector's trace of a list that took more than 10 s
// does not use this logger: it goes to klog itself, at -v=2.
//
// # Testing
//
// Package informertest provides a scriptable API server in memory, a watcher that records, and more.
// Everything works inside testing/synctest.
package informer

// The parts of the package, in the order in which an event passes them. CONTRIBUTING.md has more.
//
//   - informer.go joins the parts. options.go and errors.go are what a program gives and gets. errors.go also decides
//     which of many objects that fail are reported.
//   - source.go makes sources from clients, and starts and ends them. internal/source reads the sources, internal/framing
//     decodes objects below the clients, and sink.go checks and transforms the objects.
//   - gate.go makes the sources wait while the store is behind, and counts the waiting items.
//   - apply.go takes items from the queue, decide.go decides what each changes, and write.go writes it,
//     with own.go, plain.go or durable.go. internal/memory is the informer's own store.
//   - processor.go publishes events in a log, and owns the listeners. It decides which watchers get earlier deletes.
//   - listener.go calls one watcher, and pop.go prepares what it has not handled. join.go reads its first
//     state, backlog.go bounds and merges its events, and crew.go divides them among workers. calls.go
//     counts the calls, and has client-go's handlers and followers of versions.
//   - watcher.go (with Backoff), reader.go, store.go, health.go and observer.go have the other public names. sync.go
//     waits for the first state, for an object and for a version.
//   - group.go and group_shared.go run several informers, and clusters.go engages clusters. clientgo.go implements
//     client-go's interfaces, and has the informer that fills a Sink.
