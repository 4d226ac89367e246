package kinds

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
)

var (
	crdResource     = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	serviceResource = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
)

// sinkFuncs is an [informer.Sink]. The catalog keeps only a few strings of each object: a CRD with
// its schema has 50 to 500 kB.
type sinkFuncs struct {
	put    func(obj *unstructured.Unstructured)
	remove func(name string)
}

func (s sinkFuncs) Put(_ context.Context, _ string, obj *unstructured.Unstructured) error {
	s.put(obj)
	return nil
}

func (s sinkFuncs) Remove(_ context.Context, key string, _ types.UID) error {
	s.remove(key)
	return nil
}

var _ informer.Sink[*unstructured.Unstructured] = sinkFuncs{}

// define returns the parts of a CRD that the catalog needs.
func define(crd *unstructured.Unstructured) *definition {
	d := &definition{name: crd.GetName(), uid: string(crd.GetUID()), terminating: crd.GetDeletionTimestamp() != nil}
	text := func(fields ...string) string {
		s, _, _ := unstructured.NestedString(crd.Object, fields...)
		return s
	}
	d.offer = Offer{
		Group: text("spec", "group"), Kind: text("spec", "names", "kind"), Resource: text("spec", "names", "plural"),
		Namespaced: text("spec", "scope") != "Cluster", Custom: true,
	}
	d.offer.Categories, _, _ = unstructured.NestedStringSlice(crd.Object, "spec", "names", "categories")
	for _, v := range elementsOf(crd, "spec", "versions") {
		if name, _ := v["name"].(string); v["served"] == true {
			d.offer.Versions = append(d.offer.Versions, name)
		}
	}
	slices.SortFunc(d.offer.Versions, byPreference)
	accepted := condition(crd, "NamesAccepted")
	established := condition(crd, "Established")
	d.established = established.status == "True"
	switch {
	case accepted.status == "False":
		d.reason = accepted.message
	case !d.established:
		d.reason = established.message
	}
	return d
}

// serve returns the parts of an APIService that the catalog needs. own is false if the API server
// itself serves its group.
func serve(api *unstructured.Unstructured) (s service, own bool) {
	_, own, _ = unstructured.NestedMap(api.Object, "spec", "service")
	s.group, _, _ = unstructured.NestedString(api.Object, "spec", "group")
	if available := condition(api, "Available"); available.status == "False" {
		s.reason = available.message
	}
	return s, own
}

type status struct{ status, message string }

// condition returns the condition of an object with this name. Its message is never "". Its status
// is "" if there is no such condition.
func condition(obj *unstructured.Unstructured, name string) status {
	for _, c := range elementsOf(obj, "status", "conditions") {
		if c["type"] != name {
			continue
		}
		s, _ := c["status"].(string)
		message, _ := c["message"].(string)
		if reason, _ := c["reason"].(string); message == "" {
			message = reason
		}
		if message == "" {
			message = name + " is " + s
		}
		return status{s, message}
	}
	return status{"", "it has no condition " + name}
}

// elementsOf returns the elements of the list at a path that are maps.
func elementsOf(obj *unstructured.Unstructured, fields ...string) (all []map[string]any) {
	list, _, _ := unstructured.NestedFieldNoCopy(obj.Object, fields...)
	elements, _ := list.([]any)
	for _, e := range elements {
		if m, ok := e.(map[string]any); ok {
			all = append(all, m)
		}
	}
	return all
}
