// Package serving makes a read-only Kubernetes API server of storages. It has everything between a
// [storage.Interface] and HTTP, and almost all of that is k8s.io/apiserver's own code.
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
// resourceVersion="" is answered with the newest state that the relay has: the watch begins with
// that state, whether it asks for initial events or does not say. [Config.RefuseConsistentReads]
// refuses all of these. Only a watch that wants no initial events is never refused: it begins with
// the next change, and promises nothing about the state before.
//
// # Left out
//
// There is no OpenAPI: kubectl get needs only discovery, and kubectl explain asks the API server.
// There is no admission, as nothing is written, and no API Priority and Fairness, which needs
// FlowSchemas of the API server. The limit of requests in flight is the generic server's.
package serving

// The parts of the package, from HTTP down.
//
//   - server.go joins the parts. timeout.go and accept.go change requests before they are answered.
//   - groups.go and endpoint.go are the paths; resource.go and types.go are the resources, fields.go and
//     wellknown.go the fields that selectors may name.
//   - ahead.go, refuse.go answer for versions that the relay does not have.
//   - cache.go is the watch cache, source.go the storage that it reads, and feature.go a feature of it.
