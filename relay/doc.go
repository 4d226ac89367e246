// Package relay serves Kubernetes resources, read-only, to many clients, such as a fleet of agents that
// all watch the same resource. The relay has one watch of each resource at the API server, however many
// agents there are. An agent uses the relay as its API server and does not need this package.
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
//     server and back, and continue its watch from the version that it has. A relay that no longer has
//     the changes after that version answers 410, and the agent lists at the relay. A relay that does
//     not have the version yet answers 429, and the agent tries again. If the API server does not have
//     the version either, because it was restored from a backup, the relay answers 410, and the agent
//     begins again.
//  2. Agents get every change in the order of the versions, as from the API server. If the informer must
//     list again, the changes in between are not known. The relay then ends all watches, and the agents
//     read again from the relay.
//  3. A relay whose informers have a Durable makes no list when it starts again, as long as the API
//     server has the changes since it stopped.
//  4. The relay's state is only as new as its watch. Ready returns an error if the API server has sent
//     nothing about any resource, except parts of lists, for longer than Options.MaxStaleness. Reads with
//     resourceVersion="" get the newest state that the relay has, which may be older than the API server's.
//  5. A resource that fails does not affect the others. The relay still serves its last state. For a
//     resource that does not exist, it answers 404 and ends the watches. For a resource that has never
//     had a state, it answers 503 with the reason. It serves both as soon as the API server has them.
//  6. A client cannot change the answers that other clients get.
//  7. For everything except get, list and watch, the relay answers 405.
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

// The parts of the package.
//
//   - relay.go makes and runs the Relay from options.go. served.go is a resource that it serves, and its readiness.
//   - discover.go asks the API server about the names of resources, and find.go does it again until all are found.
//   - source.go reads a resource from the API server. patient.go decides after which errors that read continues from
//     its version, and reached.go asks whether the API server has a version.
//   - internal/feed makes an informer the storage of a watch cache, and internal/serving answers the agents.
