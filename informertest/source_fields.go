package informertest

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// selectable is a field that a field selector may name.
type selectable struct {
	// paths are the fields of an object that may hold the value. The first field that is not empty
	// is used.
	paths []string
	// missing is the value if all of them are empty.
	missing string
}

// selectables are the fields that selectors may name, by label. nil stands for metadata.name and
// metadata.namespace.
type selectables map[string]selectable

// at returns metadata.name and the fields of these paths. The label of each field is its path.
func at(paths ...string) selectables {
	all := selectables{"metadata.name": {}}
	for _, path := range paths {
		all[path] = selectable{paths: []string{path}}
	}
	return all
}

func (fields selectables) with(label, missing string, paths ...string) selectables {
	fields[label] = selectable{paths, missing}
	return fields
}

// builtinFields are the fields that an API server of Kubernetes 1.37 selects by. Other kinds have
// metadata.name and metadata.namespace. The kinds without namespaces in this map refuse
// metadata.namespace.
var builtinFields = map[schema.GroupKind]selectables{
	{Kind: "Pod"}: at("metadata.namespace", "spec.nodeName", "spec.restartPolicy", "spec.schedulerName",
		"spec.serviceAccountName", "status.phase", "status.podIP", "status.nominatedNodeName").
		with("spec.hostNetwork", "false", "spec.hostNetwork").
		with("spec.host", "", "spec.nodeName").
		with("status.podIPs", ""), // the server accepts it, and has no value for it
	{Kind: "Node"}:                      at().with("spec.unschedulable", "false", "spec.unschedulable"),
	{Kind: "Namespace"}:                 at("status.phase"),
	{Kind: "Secret"}:                    at("metadata.namespace", "type"),
	{Kind: "Service"}:                   at("metadata.namespace", "spec.clusterIP", "spec.type"),
	{Kind: "ReplicationController"}:     at("metadata.namespace").with("status.replicas", "0", "status.replicas"),
	{Group: "apps", Kind: "ReplicaSet"}: at("metadata.namespace").with("status.replicas", "0", "status.replicas"),
	{Group: "batch", Kind: "Job"}:       at("metadata.namespace").with("status.successful", "0", "status.succeeded"),
	{Kind: "Event"}: at("metadata.namespace", "involvedObject.kind", "involvedObject.namespace", "involvedObject.name",
		"involvedObject.uid", "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
		"reason", "reportingComponent", "type").
		with("source", "", "source.component", "reportingComponent"),
	{Group: "events.k8s.io", Kind: "Event"}: at("metadata.namespace", "regarding.kind", "regarding.namespace", "regarding.name",
		"regarding.uid", "regarding.apiVersion", "regarding.resourceVersion", "regarding.fieldPath",
		"reason", "reportingController", "type"),
	{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}: at("spec.signerName"),
	{Group: "certificates.k8s.io", Kind: "ClusterTrustBundle"}:        at("spec.signerName"),
	{Group: "certificates.k8s.io", Kind: "PodCertificateRequest"}:     at("metadata.namespace", "spec.signerName", "spec.podName", "spec.nodeName"),
	{Group: "resource.k8s.io", Kind: "ResourceSlice"}:                 at("spec.nodeName", "spec.driver"),
}

func (f selectable) value(content map[string]any) string {
	for _, path := range f.paths {
		value, _, err := unstructured.NestedFieldNoCopy(content, strings.Split(path, ".")...)
		if err != nil || value == nil || value == "" {
			continue
		}
		return fmt.Sprint(value)
	}
	return f.missing
}

// contentOf returns obj as the maps of its JSON. obj may be typed or unstructured.
func contentOf(obj any) map[string]any {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		panic(fmt.Sprintf("informertest: a field selector for objects of type %T: %v", obj, err))
	}
	return content
}
