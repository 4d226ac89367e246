// Package source reads one resource from an API server. A [Source] stands on both sides of
// client-go's reflector: the reflector's requests go through it to the user's ListerWatcher,
// and the reflector writes into it as its store.
//
//	ListerWatcher ──► requests, relay ──► reflector ──► feed ──► Sink
//	 (the user's)      (each event is       (client-go)           (the informer's)
//	                    inspected)
//
// So every failure is reported, and every change reaches the Sink with the version that it
// leads to. One Run passes through these states; each arrow is a request or an answer:
//
//	          a version to resume from
//	Run ─┬──────────────► probe ──► empty list ──► watch from that version ─┐
//	     │                  │                          │                    │ not refused
//	     │     server older │             version gone │                    ▼
//	     └───► stream or ◄──┴──────────────────────────┴─── 410 ──────── watching ◄─┐
//	           list                                                    ▲    │ ended │
//	             └──────────────── complete ───────────────────────────┘    └───────┘
//
// After a failed request the server is suspect: it may come back with an older state, as
// after a restore of etcd. Then a probe for one object comes before the next request that
// names a version.
package source
