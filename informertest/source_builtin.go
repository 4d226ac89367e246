package informertest

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// apiGroups are the API groups of Kubernetes itself, by the directory in k8s.io/api that has their
// types. This package does not import k8s.io/api, which is large: a program may have only types of
// its own.
var apiGroups = map[string]string{
	"admissionregistration": "admissionregistration.k8s.io",
	"apiserverinternal":     "internal.apiserver.k8s.io",
	"apps":                  "apps",
	"autoscaling":           "autoscaling",
	"batch":                 "batch",
	"certificates":          "certificates.k8s.io",
	"coordination":          "coordination.k8s.io",
	"core":                  "",
	"discovery":             "discovery.k8s.io",
	"events":                "events.k8s.io",
	"extensions":            "extensions",
	"flowcontrol":           "flowcontrol.apiserver.k8s.io",
	"networking":            "networking.k8s.io",
	"node":                  "node.k8s.io",
	"policy":                "policy",
	"rbac":                  "rbac.authorization.k8s.io",
	"resource":              "resource.k8s.io",
	"scheduling":            "scheduling.k8s.io",
	"storage":               "storage.k8s.io",
	"storagemigration":      "storagemigration.k8s.io",
}

// builtinKind returns the kind of the Go type t, and true if it is a kind of Kubernetes itself. For
// a type that does not imply its kind, such as *unstructured.Unstructured, it returns the kind that
// the caller passes.
func builtinKind(t reflect.Type, kind schema.GroupVersionKind) (schema.GroupKind, bool) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if path, ok := strings.CutPrefix(t.PkgPath(), "k8s.io/api/"); ok {
		dir, _, _ := strings.Cut(path, "/")
		return schema.GroupKind{Group: apiGroups[dir], Kind: t.Name()}, true
	}
	if strings.HasPrefix(t.PkgPath(), "k8s.io/apimachinery/") && slices.Contains(slices.Collect(maps.Values(apiGroups)), kind.Group) {
		return kind.GroupKind(), true
	}
	return schema.GroupKind{}, false
}
