// Package source reads one resource from an API server. A [Source] is on both sides of
// client-go's reflector: it passes the reflector's requests on to the user's ListerWatcher, and
// it is the store into which the reflector writes.
//
//	ListerWatcher ──► requests, forwarder ──► reflector ──► feed ──► Sink
//	 (the user's)      (each event is       (client-go)           (the informer's)
//	                    inspected)
//
// So it can report every failure, and pass every change to the Sink with its version. One Run
// goes through these states:
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
// After a failed request the server is suspect: it may come back with an older state, as after a
// restore of etcd. Before the next request that names a version, the source then sends a probe, a
// request for one object.
//
// # The parts
//
// Each line refers only to files in it or below it:
//
//	source.go, wire.go             New, Run and RunParts; RunOver, whose ListerWatcher may be replaced
//	requests.go                    the lists and watches that the reflector asks for
//	probe.go, client.go            lists with the user's ListerWatcher; whether a probe or the newest state is needed
//	forwarder.go                   the events of a watch, with merged.go for those that internal/framing decodes
//	firststate.go, fake.go         how long a stream of the first state may be silent; the watch of a fake clientset
//	feed.go                        the way from the reflector to the Sink
//	reading.go                     the state of one Run, whose parts are in the next two lines
//	resume.go, parts.go            the start at a version; a list that comes in parts
//	trust.go, pauses.go            what the server is believed to have; the time between attempts
//	connection.go                  Status, with failures.go (which are reported), waiting.go (for how long), decoded.go,
//	                               turn.go and calls.go
//	answers.go                     the judgement of a list, with errors.go (which may pass) and versions.go
//	options.go                     Options, Callbacks and Sink, which the informer gives
package source
