// Package source reads one resource from an API server. A [Source] stands on both sides of
// client-go's reflector: the reflector's requests go through it to the user's ListerWatcher,
// and the reflector writes into it as its store.
//
//	ListerWatcher ──► requests, forwarder ──► reflector ──► feed ──► Sink
//	 (the user's)      (each event is       (client-go)           (the informer's)
//	                    inspected)
//
// So every failure is reported, and every change reaches the Sink with the version that it
// leads to. One Run passes through these states:
//
//	probing   a version to resume from is given: is the server at least that far?
//	              yes ──► resuming        no, or it cannot be compared ──► listing
//	              refused twice, or busy for a minute ──► listing
//	resuming  the reflector gets an empty list and watches from the version
//	              accepted ──► watching   the version is gone, or as above ──► listing
//	listing   a list, or a stream of the first state; a stream that does not end or is cut is
//	          replaced by a list
//	              complete ──► watching   failed, or not the list ──► listing, after a pause
//	watching  changes come
//	              ended, or silent for too long ──► watching      the version is gone ──► listing
//
// After a failed request the server is suspect: it may come back with an older state, as
// after a restore of etcd. Then a probe for one object comes before the next request that
// names a version.
package source
