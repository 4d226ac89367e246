// Package informer lists and watches one Kubernetes resource, keeps its state in any store,
// and delivers every change to any number of watchers, each at its own pace.
//
// [New] makes a [CustomCacheInformer] from a typed client, [NewFrom] from any other source, and
// [NewInNamespaces] from the clients of several namespaces. [NewOverClusters] makes one over many clusters, and package kinds one over kinds that come and go. AddWatcher registers a
// [ResourceWatcher]. Run does the work until its ctx ends. Get, List, ByIndex and All read the known
// state, see [Reader]. A [Snapshot] is for several reads of one state.
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
//  2. [CustomCacheInformer.AddWatcher] registers your code that gets events.
//  3. [Registration] shows when that code has seen everything, and removes it.
//  4. [CustomCacheInformer.ByIndex], and the other methods of [Reader], read the objects. Options.Fields and
//     package indexes have ready-made indexes.
//  5. [Select] passes on only some objects.
//  6. [Backoff] calls again after an error; [WatcherOptions] has the other choices.
//  7. [CustomCacheInformer.WaitForVersion] waits until the informer has your own last write.
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
// No part can block a part above it, with one exception: a store that is slow or fails. Then the
// source stops reading. The waiting changes, and with [IntakeEarly] the rest of a list, stay with
// the API server, which remembers them for some minutes. If the next page of a list is gone by
// then, the list begins again. After the second time, it is asked for as a whole.
//
// # What is promised
//
//  1. Start. Watchers may be added before, during and after the start of Run. Run, AddWatcher
//     and Remove may be called in any order and from any goroutine, also from a watcher's own
//     callback. Nothing deadlocks and no event is dropped. The informer makes no request
//     before the goroutines of all watchers registered so far are live. Only one thing cannot
//     work: a callback must not wait for Stopped, CatchUp, WaitForSync or the end of Run.
//
//  2. Order. One goroutine at a time calls the watcher of a registration, unless the
//     registration asks for Workers. The watcher gets the events of one object one after the
//     other, in the order in which the store took the changes. The store is changed before any
//     watcher gets the event. Changes that come close together are published together: up to
//     1 ms after the first of them, or, if a call of the store is under way by then, when that
//     call has returned. A watcher that is registered twice is called from two goroutines.
//
//  3. Joining. AddWatcher does not block. The watcher gets the state as of the call, as added
//     events with OriginInitial, and then every change after it: no gap, no duplicate. The Old
//     of an event is the New of the event before it. (It is an equal object if the store does
//     not return the very object that it was given.) A watcher that joins delays no other part
//     of the informer, also if the store is slow to list. The informer's own store gives each watcher a snapshot.
//     Over another store, watchers that join at the same time share readings. While the store takes changes, a pause
//     follows each reading, nine times as long and at most 100 ms, so that many joins do not keep the store from taking
//     changes. A reading that hangs holds up other joins for about a second for each page that they read.
//
//  4. Synced. [Registration.Synced] is closed once the watcher has been called for every object
//     of its initial state. A call that returned an error counts, and so does one that panicked
//     if the panic is recovered. An empty state counts too. The channel is never closed after
//     the watcher was removed or the informer was stopped. Synced of the informer is closed
//     once every object of the first list is in the store, or was reported because the store
//     refused it or because it could not be used. A list that holds an object of another type
//     fails, and so does an answer that does not show that it is a list of the resource: by the type of
//     its items, by a resourceVersion if the list before had one, and by its kind if it is
//     unstructured. Each page must have the version of the first. A list may lack a resourceVersion until one
//     of the source has had one, because some servers have none. This is reported, and shown by Health. The
//     version of a [Durable] counts as one. Two odd lists are believed at the twentieth time in a row: an
//     empty one of a source without versions, and one of another kind. With [IntakeWhole], nothing of such a list is delivered. With [IntakeEarly], the
//     objects that came before the failure were delivered, as with any list that fails in the
//     middle. No delete, no Synced and no
//     bookmark follows from a list before it is complete. WaitForSync returns a [*SyncError] that
//     names the parts that are late and the reasons.
//
//  5. Deletes are not missed while the informer runs, also not across a relist. If an object
//     was deleted and created again in between, so that it has another UID, watchers get a
//     delete and an add. Old of a delete is never nil. FinalStateUnknown is set if the delete
//     itself was not seen. With a store that is a [Durable], deletes are not missed across a
//     restart or a crash either. Some deletes may be left from before: those that some watcher
//     has not handled, and those that happened while no watcher was registered. They are
//     delivered before anything else, perhaps for the second time, to the watchers that are
//     registered when Run is called, and to those that register up to a minute after the first
//     of them. A watcher has handled a delete when its call has returned, and no retry follows.
//     A controller of package enqueue has handled a delete only when it has reconciled every
//     key that the delete led to. Until then, the store keeps the tombstones of these deletes,
//     and of no others. Three kinds of deletes are not delivered. The first is the delete of an object
//     whose add still waited, if the two were merged. The second is the delete of an object that
//     the store has lost, if the store loses its last writes in a crash, see Durable. The third
//     is a delete that [Select] makes of an update: it comes once, and has no tombstone.
//
//  6. A store that fails loses nothing. The informer decides only once what a change is, from a
//     Get that succeeded: an error does not mean that the object is absent. Then it tries the
//     write again, with pauses from 10 ms up to 5 s, until the write succeeds or the informer
//     is stopped. No watcher gets the event before that, and Synced stays open. A store may
//     refuse a change with an error that wraps [ErrPermanent]. Then no watcher gets the event,
//     and the old state stays, in the store and for the watchers, until the object's next
//     change or relist. A store is never given a cache.DeletedFinalStateUnknown.
//
//  7. Isolation. A watcher that is slow, blocks or fails delays no other part of the informer.
//     Neither does a watcher that panics, if the panic is recovered. A panic of a watcher
//     without RecoverPanics, or of any other function of yours, ends the process. There are three
//     exceptions: package enqueue can recover panics of reconcile, a panic of an index function is an error in
//     the informer's own store, and handlers of a SharedIndexInformer keep client-go's rule.
//
//  8. Bounded. At most this many events wait for one watcher: MaxBacklog, plus two per object,
//     plus one per object of a state that it has not been given yet, plus the events that it has
//     taken: 256, or MaxBacklog if that is less. Beyond MaxBacklog, the waiting events of an object
//     are merged, see [WatcherOptions]. All watchers that are behind share the events of the log.
//     While the store is behind, 2,000 changes wait for it in memory, and a list that has arrived:
//     with [IntakeEarly], only one page of it. The log is kept while a watcher needs a listing of
//     the store, to join or for a resync, and the store does not return it.
//
//  9. Stop. When ctx ends, Run stops the source first and then the watchers. Watchers may first
//     handle their waiting events for up to Options.DrainTimeout; the ctx of their calls stays
//     alive until then. Run returns nil when every goroutine that it started has returned,
//     except the timer of client-go's workqueue behind Workers and Retry, which ends by itself.
//     Run waits for calls of your functions that are under way, and names them in the log if
//     they take longer than 10 s. Events that a watcher did not get are counted, logged and
//     reported to Observer. For a moment, client-go may still work on a list that has arrived,
//     on a goroutine of its own. The result reaches neither the store nor a watcher.
//
//  10. Ownership. The store and all watchers share the objects. Do not change them; copy first.
//
//  11. Errors reach Options.ErrorHandler, typed, with the key and the operation: once when an
//     operation starts to fail, and once more if it is given up. Each attempt is reported to
//     [Observer]. An object that cannot be decoded, see [Transport], or for which Transform or an
//     index function fails is reported once until it works again, and of many only some, with their
//     number, see [ObjectError].
//     [CustomCacheInformer.Health] and a [*SyncError] carry the last error that is in the way.
//     They also show a request that has had no answer for 30 s, and a first state whose end has not
//     come after 10 s.
//
//  12. A wrong answer does not hold an informer up forever, and neither does a stream or a watch that
//     has gone silent. A start from a [Durable] lists if the version has expired, if the source refuses
//     twice to continue from it, or if the source has been busy for a minute. For a stream of the first state, see
//     [WatchListOn]. A watch is replaced when it is silent a minute after the server should have ended it:
//     after 11 minutes at most, unless TweakListOptions changes TimeoutSeconds.
//
// # What is not promised
//
//   - Every intermediate state. The API server and a relist may skip some, and a backlog that
//     is merged does skip them.
//   - Any order between different objects. With [QueueRealFIFO], however, live events of a watch
//     come in the order of their resourceVersions.
//   - An event for an object that a relist finds unchanged.
//   - Deletes that happened while no informer was running, unless the store was kept, see
//     Options.Durable.
//
// A store that is only a cache.Store cannot do everything; docs/stores.md has the table. The
// informer does not ask it again which keys it has. If its List swallows an error, the result
// is taken for the truth. If it loses an object by itself, the informer notices only when the
// object's next event comes. Watchers may then get an add of an object that they already know,
// or a delete of one that a later watcher never saw. While a write is being retried, a watcher
// that joins or is due for a resync waits for that write.
//
// # Several namespaces
//
// An informer of [NewInNamespaces] has one store, one event log and one registration per watcher,
// and a source for each namespace. [CustomCacheInformer.SetNamespaces] changes the set, also while it runs. The informer needs no right to list the resource in all namespaces. Each
// source lists, watches, backs off and continues from a version of its own. So nothing that
// happens in one namespace can make the informer miss an event of another:
//
//   - The informer has synced when it has listed every namespace. Until then, the events of a
//     namespace that is listed already come as live events.
//   - A list proves nothing about the objects of other namespaces.
//   - A namespace that cannot be read, or can no longer be read, keeps its last state. Its requests are tried
//     again, its errors name it, and so does [Health]. The others continue.
//   - Live events come in the order of their resourceVersions, with [QueueRealFIFO], within a namespace.
//   - When a namespace leaves the set, its objects come as deletes with [OriginLeft], behind all of its other events. A namespace
//     that comes is listed, and no request is made for the others.
//   - ResourceVersion is the lowest version of all namespaces. WaitForVersion waits for one namespace,
//     or for all.
//   - Transform and TweakListOptions are called from a goroutine of each namespace.
//   - The bookmark of a [Durable] has a version for each namespace. A namespace that is new is
//     listed. The objects of one that is no longer wanted at a start come as deletes, before anything
//     else is done.
//
// # Handing work over
//
// A process may take over work from another one, such as the keys of a controller. Then two waits
// keep it from working on an older state. The process that gives the work up calls
// [Registration.CatchUp], so that its watcher has handled all changes that its store has. It passes on
// Changed of each of its [CustomCacheInformer.Versions]. The process that takes over gives these to
// WaitForVersion. From then on, its store is at least as new as any state that the first
// process has read. As Changed never comes from a bookmark, this wait does not last until the next one.
//
// # A server that goes back in time
//
// When etcd is restored from a backup, resourceVersions go back. A watch from a later version
// then gets no events, forever and without an error. So the informer asks the source for one
// object after a request has failed, and at a start from a Durable. If the version of the
// answer has gone back, this is reported, and everything is listed again.
//
// The informer also asks after a watch that took a second or more to open. client-go may have repeated that
// request after failures that it does not show.
//
// Two kinds of restore are noticed only at the next list. One is a restore after which no
// request has failed. The other is a restore where, before the informer asks, the server has
// already come past the version that the informer knows. (This version is up to a minute old,
// the time between two bookmarks, if no watched object changes.) In this second case an object
// may have got exactly the version of a state that was lost. It is taken for that state until
// its next event. The documentation of etcd describes a restore in which versions do not go
// back: --bump-revision and --mark-compacted of etcdutl.
//
// # Beside client-go and controller-runtime
//
// The same informer can be had as client-go's cache.SharedIndexInformer. For a new one, use
// [ClientGo.NewSharedIndexInformer]: it takes the arguments of client-go's function and fits
// controller-runtime's cache.Options.NewInformer. For one that exists, use its
// SharedIndexInformer method. Its handlers get the events that client-go would give them, and
// all of them, so promise 8 does not hold for handlers. The intended differences are listed in
// docs/differences-from-client-go.md.
//
// A [Group] runs several informers and controllers, waits for them and reports their health. Its
// Health feeds the live page that the Handler of package debug serves. [GetOrAdd] lets independent
// parts of a program use one informer per type.
//
// If the environment variable KUBE_CACHE_MUTATION_DETECTOR is "true", every object from the
// source is copied when its event is published, and the process ends when an object turns out
// to have been changed. Objects are compared about once a second, and not at the end. This is a
// feature of client-go for tests: it needs the memory of all objects a second time.
//
// # Metrics and traces
//
// An [Observer] is called for everything that happens: [ListInfo] and [WatchInfo] are about the
// source, [StoreInfo] and [ApplyInfo] about the store, [HandledInfo] and
// [BacklogInfo] about watchers. Only a program that makes metrics of its own needs these types: the modules metrics/prometheus and
// tracing/opentelemetry have observers.
//
// # Logging
//
// The informer logs with the logger of Run's ctx, as klog.FromContext finds it. It logs changes
// of its condition, not each retry. Every line has the informer's name. Only the two lines of
// WaitForSync are logged with the logger of WaitForSync's ctx, and those of a Group have the names
// of its members instead, as "group". These are all lines, with the level of each:
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
//	INFO   A watcher was not told everything before the informer stopped
//	       for each such watcher, with the number of events
//	INFO   Still waiting
//	       a WaitForSync has lasted for 30 s: "late" and "reason" say for what it waits and why
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
// The lines of client-go's reflector come three levels further down, from V(3) on. One of them
// comes for each watch that the server ends. The reflector's trace of a list that took more
// than 10 s does not use this logger: it goes to klog itself, at -v=2.
//
// # Testing
//
// Package informertest has a scriptable API server in memory, a watcher that records, and more.
// Everything works inside testing/synctest.
package informer

// The parts of the package, in the order in which an event passes them. CONTRIBUTING.md has more.
//
//   - informer.go joins the parts. options.go and errors.go are what a program gives and gets.
//   - source.go makes sources of clients. internal/source reads them, with internal/framing below the
//     clients, and sink.go takes their objects.
//   - gate.go holds the sources back while the store is behind, and is what waits.
//   - apply.go takes items from the queue, decide.go decides what each changes, and write.go writes it,
//     with own.go, plain.go or durable.go. internal/memory is the informer's own store.
//   - processor.go publishes events in a log, and owns the listeners.
//   - listener.go calls one watcher, and pop.go keeps what it has not handled: join.go reads its first
//     state, backlog.go bounds and merges it, crew.go shares it among workers. calls.go is about its calls:
//     their counts, their results, and what client-go's handlers and followers of versions get.
//   - watcher.go, reader.go, store.go, health.go and observer.go are the other public names, with sync.go,
//     which waits for the first state.
//   - group.go and group_shared.go run several informers, and clusters.go engages clusters. clientgo.go shows an informer as
//     client-go's, and has one that fills a Sink in place of a reflector of client-go's.
