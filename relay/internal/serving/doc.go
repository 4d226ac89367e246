// Package serving makes a read-only Kubernetes API server of storages: it has everything between
// a storage.Interface and HTTP.
package serving
