package serving

import "k8s.io/apimachinery/pkg/runtime/schema"

// WellKnownFields returns the field selectors that kube-apiserver has for a resource in addition
// to metadata.name and metadata.namespace, and the field that it indexes, or "". For other
// resources it returns none. Two selectors are missing, because they are not paths in the object:
// source of Events and status.successful of Jobs.
func WellKnownFields(resource schema.GroupResource) (fields []string, index string) {
	known := wellKnownFields[resource]
	return known.fields, known.index
}

var wellKnownFields = map[schema.GroupResource]struct {
	fields []string
	index  string
}{
	{Resource: "pods"}: {index: "spec.nodeName", fields: []string{
		"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
		"spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName",
	}},
	{Resource: "nodes"}:                  {fields: []string{"spec.unschedulable"}},
	{Resource: "namespaces"}:             {fields: []string{"status.phase"}},
	{Resource: "services"}:               {fields: []string{"spec.clusterIP", "spec.type"}},
	{Resource: "secrets"}:                {fields: []string{"type"}},
	{Resource: "replicationcontrollers"}: {fields: []string{"status.replicas"}},
	{Resource: "events"}: {fields: []string{
		"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
		"involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
		"reason", "reportingComponent", "type",
	}},
	{Group: "events.k8s.io", Resource: "events"}: {fields: []string{
		"regarding.kind", "regarding.namespace", "regarding.name", "regarding.uid",
		"regarding.apiVersion", "regarding.resourceVersion", "regarding.fieldPath",
		"reason", "reportingController", "type",
	}},
	{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}: {fields: []string{"spec.signerName"}},
	{Group: "certificates.k8s.io", Resource: "clustertrustbundles"}:        {fields: []string{"spec.signerName"}},
	{Group: "certificates.k8s.io", Resource: "podcertificaterequests"}: {fields: []string{
		"spec.signerName", "spec.podName", "spec.nodeName",
	}},
	{Group: "resource.k8s.io", Resource: "resourceslices"}: {index: "spec.nodeName", fields: []string{
		"spec.nodeName", "spec.driver", "spec.pool.name",
	}},
}
