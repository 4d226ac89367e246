// Package serving makes a read-only Kubernetes API server of storages. It contains everything between a
// [storage.Interface] and HTTP. Almost all of that is k8s.io/apiserver's own code.
//
//	HTTP          authentication, authorization, limits, /healthz, /metrics: the generic API server
//	endpoints     GET, LIST and WATCH of each resource, and discovery: groups.go, endpoint.go
//	encoding      JSON, YAML, protobuf, Table, metadata only: types.go, accept.go
//	watch cache   all objects in memory, and the changes of the last minutes: cache.go
//	storage       the caller's, which the watch cache watches
//
// # Reads without a resourceVersion
//
// The relay does not know the newest state of the cluster. A GET, a LIST or a watch with
// resourceVersion="" gets the newest state that the relay has. The watch begins with that state,
// unless it asks for no initial events. With [Config.RefuseConsistentReads], the relay refuses all
// of these. It never refuses a watch that asks for no initial events: such a watch begins with the
// next change, and promises nothing about the state before.
//
// # Left out
//
// There is no OpenAPI: kubectl get needs only discovery, and kubectl explain asks the API server.
// There is no admission, because nothing is written, and no API Priority and Fairness, because that
// needs FlowSchemas of the API server. The limit of requests in flight is the generic server's.
package serving

// The parts of the package, from HTTP down.
//
//   - server.go joins the parts, and ends the watches when the relay stops. timeout.go and accept.go change requests before they are answered.
//   - groups.go and endpoint.go have the paths, resource.go and types.go the resources, and
//     fields.go and wellknown.go the fields that selectors may name.
//   - ahead.go and refuse.go answer for versions that the relay does not have.
//   - cache.go is the watch cache, source.go the storage that it reads, and feature.go a feature of it.
