package chaos_test

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const group = "chaos.example.com"

// kind is a kind of custom resource.
type kind struct {
	name     string
	versions []string // the first is the stored one
	names    int      // the most objects that a namespace has
	strict   bool     // prune unknown fields; changes with each definition
}

var namespaces = []string{"one", "two", "three"}

func allKinds() []*kind {
	return []*kind{
		{name: "Widget", versions: []string{"v1"}, names: 50},
		{name: "Gadget", versions: []string{"v1"}, names: 30},
		// This one is deleted and comes back.
		{name: "Comet", versions: []string{"v1", "v1beta1"}, names: 20},
	}
}

func (k *kind) plural() string { return strings.ToLower(k.name) + "s" }

func (k *kind) resources() []schema.GroupVersionResource {
	var all []schema.GroupVersionResource
	for _, version := range k.versions {
		all = append(all, schema.GroupVersionResource{Group: group, Version: version, Resource: k.plural()})
	}
	return all
}

func (k *kind) resource() schema.GroupVersionResource { return k.resources()[0] }

// definition returns a definition of the kind, with another schema on each call.
func (k *kind) definition() *apiextensionsv1.CustomResourceDefinition {
	k.strict = !k.strict
	spec := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: "integer"}}}
	if lax := true; !k.strict {
		spec.XPreserveUnknownFields = &lax
	}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: k.plural() + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: k.plural(), Kind: k.name},
			Scope: apiextensionsv1.NamespaceScoped,
		},
	}
	for i, version := range k.versions {
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: version, Served: true, Storage: i == 0,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec},
			}},
		})
	}
	return crd
}

func (k *kind) object(namespace string, n int, state int64) object {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"size": state, "text": strings.Repeat("x", int(state%500)),
	}}}
	obj.SetAPIVersion(group + "/" + k.versions[0])
	obj.SetKind(k.name)
	obj.SetNamespace(namespace)
	obj.SetName(fmt.Sprintf("%s-%02d", strings.ToLower(k.name), n))
	obj.SetAnnotations(map[string]string{written: fmt.Sprint(state)})
	obj.SetLabels(map[string]string{colour: colours[state%int64(len(colours))]})
	return obj
}

// common returns an object that every follower of the kind selects.
func (k *kind) common(state int64) object {
	obj := k.object(namespaces[0], 0, state)
	obj.SetLabels(map[string]string{colour: colours[0]})
	return obj
}

const colour = "colour"

var colours = []string{"red", "green", "blue"}
