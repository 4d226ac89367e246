package serving

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

func TestDiscoveryHasTheResourcesWithTheirNamesAndVerbs(t *testing.T) {
	f := serve(t)
	for kind, client := range map[string]func(discovery.DiscoveryInterface) discovery.DiscoveryInterface{
		"aggregated": func(d discovery.DiscoveryInterface) discovery.DiscoveryInterface { return d },
		"legacy":     func(d discovery.DiscoveryInterface) discovery.DiscoveryInterface { return d.WithLegacy() },
	} {
		client := client(discovery.NewDiscoveryClientForConfigOrDie(&rest.Config{Host: f.url}))
		_, lists, err := client.ServerGroupsAndResources()
		if err != nil {
			t.Fatal(kind, err)
		}
		got := map[string]metav1.APIResource{}
		for _, list := range lists {
			for _, r := range list.APIResources {
				r.Group, r.Version = "", "" // legacy discovery leaves them empty
				got[list.GroupVersion+" "+r.Name] = r
			}
		}
		verbs := metav1.Verbs{"get", "list", "watch"}
		want := map[string]metav1.APIResource{
			"v1 pods":                {Name: "pods", SingularName: "pod", Kind: "Pod", ShortNames: []string{"po"}, Namespaced: true, Verbs: verbs},
			"example.com/v1 widgets": {Name: "widgets", SingularName: "thing", Kind: "Widget", ShortNames: []string{"wd"}, Namespaced: true, Verbs: verbs},
			"example.com/v1 gadgets": {Name: "gadgets", SingularName: "gadget", Kind: "Gadget", Verbs: verbs},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s discovery:\ngot  %v\nwant %v", kind, got, want)
		}
	}
}

func TestTheNewestVersionOfAGroupIsThePreferredOne(t *testing.T) {
	beta := widgetResource
	beta.Version = "v1beta1"
	f := serve(t, func(c *Config) {
		c.Resources = append(c.Resources, Resource{GroupVersionResource: beta, Kind: "Widget", Namespaced: true, Storage: newMemory(1)})
	})
	var group metav1.APIGroup
	if err := json.Unmarshal([]byte(f.get(t, "/apis/example.com", http.StatusOK)), &group); err != nil {
		t.Fatal(err)
	}
	if len(group.Versions) != 2 || group.PreferredVersion.Version != "v1" || group.Versions[1].Version != "v1beta1" {
		t.Errorf("got %+v", group)
	}
	_, _, body := f.request(t, http.MethodGet, "/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || len(list.Items[0].Versions) != 2 || list.Items[0].Versions[0].Version != "v1" {
		t.Errorf("got %s", body)
	}
}

func TestWritesGet405(t *testing.T) {
	f := serve(t)
	f.pods.set(t, pod("a", "n1"))
	f.widgets.set(t, widget("a", "red", 1))
	for _, path := range []string{podPath, widgetsPath, "/api/v1/pods", "/apis/example.com/v1/gadgets"} {
		for _, request := range []struct{ method, path string }{
			{http.MethodPost, path}, {http.MethodDelete, path},
			{http.MethodPut, path + "/a"}, {http.MethodPatch, path + "/a"}, {http.MethodDelete, path + "/a"},
		} {
			if path == "/api/v1/pods" && strings.HasSuffix(request.path, "/a") {
				continue // that is not a path of a namespaced object
			}
			code, _, body := f.request(t, request.method, request.path, "")
			if code != http.StatusMethodNotAllowed || !strings.Contains(body, `"reason":"MethodNotAllowed"`) {
				t.Errorf("%s %s: got %d %s", request.method, request.path, code, body)
			}
		}
	}
}

func TestSubresourcesDoNotExist(t *testing.T) {
	f := serve(t)
	f.pods.set(t, pod("a", "n1"))
	for _, sub := range []string{"status", "log", "exec"} {
		f.get(t, podPath+"/a/"+sub, http.StatusNotFound)
	}
}
