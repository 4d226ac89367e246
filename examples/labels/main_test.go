package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/kinds"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{})
	informertest.Main(m)
}

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

func resource(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: plural}
}

func crd(kind, category string) *unstructured.Unstructured {
	plural := strings.ToLower(kind) + "s"
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural + ".example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced", "names": map[string]any{"kind": kind, "plural": plural, "categories": []any{category}},
			"versions": []any{map[string]any{"name": "v1", "served": true}},
		},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}},
	}}
}

func TestEveryKindOfTheCategoryIsLabelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme := runtime.NewScheme()
		if err := metav1.AddMetaToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		objects, partial := []runtime.Object{crd("Shop", "managed"), crd("Secret", "other")}, []runtime.Object{}
		for _, kind := range []string{"Shop", "Secret", "Cart"} {
			meta := metav1.ObjectMeta{Namespace: "default", Name: "a"}
			partial = append(partial, &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "example.com/v1", Kind: kind}, ObjectMeta: meta})
			objects = append(objects, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "example.com/v1", "kind": kind, "metadata": map[string]any{"namespace": "default", "name": "a"},
			}})
		}
		discovery := fake.NewClientset()
		discovery.Resources = []*metav1.APIResourceList{{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{
			{Name: "deployments", Kind: "Deployment", Namespaced: true, Verbs: []string{"list", "watch"}, Categories: []string{"all"}},
		}}}
		client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(scheme, map[schema.GroupVersionResource]string{
			crds: "CustomResourceDefinitionList", {Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}: "APIServiceList",
			resource("shops"): "ShopList", resource("secrets"): "SecretList", resource("carts"): "CartList",
		}, objects...)
		clients := kinds.Clients{Discovery: discovery.Discovery(), Dynamic: client, Metadata: metadatafake.NewSimpleMetadataClient(scheme, partial...)}
		group, err := newLabeler(clients, "managed", "example.com/seen=yes")
		if err != nil {
			t.Fatal(err)
		}
		informertest.Run(t, group)
		labelled := func(want ...string) {
			t.Helper()
			time.Sleep(10 * time.Second)
			got := []string{}
			for _, plural := range []string{"carts", "secrets", "shops"} {
				obj, err := client.Resource(resource(plural)).Namespace("default").Get(t.Context(), "a", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if obj.GetLabels()["example.com/seen"] == "yes" {
					got = append(got, plural)
				}
			}
			if strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("labelled are %v, want %v", got, want)
			}
		}
		labelled("shops")
		if _, err := client.Resource(crds).Create(t.Context(), crd("Cart", "managed"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		labelled("carts", "shops")
	})
}

func TestALabelWithoutAValueIsRefused(t *testing.T) {
	if _, err := newLabeler(kinds.Clients{}, "managed", "seen"); err == nil || !strings.Contains(err.Error(), "-label") {
		t.Errorf("the error is %v", err)
	}
	if _, err := newLabeler(kinds.Clients{}, "managed", "seen=yes"); err == nil || !strings.Contains(err.Error(), "is nil") {
		t.Errorf("the error is %v", err)
	}
}
