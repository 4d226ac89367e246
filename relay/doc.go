// Package relay serves Kubernetes resources, to read, to many clients: a fleet of agents that each watch
// the same resource. The API server has one watch of the relay for each resource, however many
// agents there are. An agent uses the relay as its API server and needs nothing of this package.
//
//	r, err := relay.New(relay.Options{Upstream: config, Resources: resources, …})
//	…
//	err = r.Run(ctx)
//
// # How it works
//
//	API server
//	    │ one watch for each resource
//	informer          of package informer; with a Durable it continues after a restart without a list
//	    │ exact states, and changes in the order of their versions
//	watch cache       kube-apiserver's own: lists, watches, selectors, bookmarks, slow clients
//	    │
//	generic server    kube-apiserver's own: encodings, TLS, authentication, authorization, limits
//	    │
//	agents
//
// # What is promised
//
//  1. Versions are those of the API server. An agent may go from one relay to another, or to the API
//     server and back, and watch on from the version that it has. A relay that no longer has the
//     changes after that version answers 410, and the agent lists at the relay. A relay that does not
//     have the version yet answers 429, and the agent tries again. Only if the API server does not
//     have the version either, because it was restored from a backup, does the agent begin again.
//  2. Agents get every change in the order of the versions, as from the API server. When the informer
//     must list again, the changes in between are not known. Then the relay ends all watches, and the
//     agents read again, from the relay.
//  3. A relay whose informers have a Durable makes no list when it starts again, as long as the API
//     server has the changes since it stopped.
//  4. The state is as old as the relay's watch. Ready returns an error when no resource has been heard of
//     for longer than Options.MaxStaleness. Reads with resourceVersion="" are answered with
//     the newest state that the relay has, which may be older than the API server's.
//  5. No resource takes another from the agents. A resource that fails is served in the state of the last
//     contact. One that does not exist is answered with 404, and its watches end; one that has never had a
//     state is answered with 503 and the reason. Both are served as soon as the API server has them.
//  6. No client changes the answers of another.
//  7. Everything except get, list and watch is answered with 405.
//
// # What is logged
//
// Run logs with the logger of its ctx, besides what k8s.io/apiserver and the informers log:
//
//	error  The relay cannot serve a resource yet, and tries again
//	       one of Options.Names is not known to the API server, or cannot be asked for; once for each reason
//	error  The relay serves a resource no more
//	       its store has failed for good; the other resources are served
package relay
