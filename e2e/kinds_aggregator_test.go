package e2e_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// aggregator passes the requests for a group to a server of its own, as the aggregator of a cluster does.
type aggregator struct {
	main, other http.Handler
	state       atomic.Value // "" if the group is not aggregated, "True" if it is, and "False" if its server does not answer
	traffic     sync.Map     // a *traffic for each resource
}

// traffic counts the lists of a resource, and those of them that came although the server has not ended its last watch.
type traffic struct {
	watching       atomic.Bool // since the server answered a watch, and until it ends it
	lists, unasked atomic.Int64
}

func (a *aggregator) trafficOf(resource string) *traffic {
	t, _ := a.traffic.LoadOrStore(resource, &traffic{})
	return t.(*traffic)
}

// watched is the answer to a watch.
type watched struct {
	http.ResponseWriter
	*traffic
}

func (w watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w watched) WriteHeader(code int) {
	w.watching.Store(code == http.StatusOK)
	w.ResponseWriter.WriteHeader(code)
}

func (w watched) Write(body []byte) (int, error) {
	if bytes.Contains(body, []byte(`"type":"ERROR"`)) {
		w.watching.Store(false)
	}
	return w.ResponseWriter.Write(body)
}

func (a *aggregator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	count, query := a.trafficOf(path.Base(r.URL.Path)), r.URL.Query()
	if query.Get("watch") == "" || query.Get("sendInitialEvents") == "true" {
		count.lists.Add(1)
		if count.watching.Load() {
			count.unasked.Add(1)
		}
	}
	if query.Get("watch") != "" {
		w = watched{w, count}
	}
	state, _ := a.state.Load().(string)
	switch {
	case r.URL.Path == "/apis":
		a.discover(w, r, state)
	case !strings.HasPrefix(r.URL.Path, "/apis/"+aggregatedGroup+"/") || state == "":
		a.main.ServeHTTP(w, r)
	case state == "False":
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
	default:
		a.other.ServeHTTP(w, r)
	}
}

// discover answers with the groups, which the main server does not list without an aggregator.
func (a *aggregator) discover(w http.ResponseWriter, r *http.Request, state string) {
	var all metav1.APIGroupList
	for _, name := range []string{"apiextensions.k8s.io", "apiregistration.k8s.io", ownGroup} {
		answer, ask := httptest.NewRecorder(), r.Clone(r.Context())
		ask.URL.Path = "/apis/" + name
		ask.Header.Del("Accept-Encoding")
		var group metav1.APIGroup
		if a.main.ServeHTTP(answer, ask); answer.Code == http.StatusOK && json.Unmarshal(answer.Body.Bytes(), &group) == nil {
			all.Groups = append(all.Groups, group)
		}
	}
	if state != "" {
		v1 := metav1.GroupVersionForDiscovery{GroupVersion: aggregatedGroup + "/v1", Version: "v1"}
		all.Groups = append(all.Groups, metav1.APIGroup{Name: aggregatedGroup, Versions: []metav1.GroupVersionForDiscovery{v1}, PreferredVersion: v1})
	}
	all.Kind, all.APIVersion = "APIGroupList", "v1"
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(all)
}

// aggregate puts or, with "", deletes the APIService of the aggregated group.
func (w *kindsWorld) aggregate(state string) {
	w.t.Helper()
	client, err := dynamic.NewForConfig(w.main.Config())
	if err != nil {
		w.t.Fatal(err)
	}
	services := client.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
	w.aggregator.state.Store(state)
	w.front.CloseClientConnections()
	name := "v1." + aggregatedGroup
	if state == "" {
		if err := services.Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
			w.t.Fatal(err)
		}
		return
	}
	api := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": name},
		"spec":   map[string]any{"group": aggregatedGroup, "version": "v1", "service": map[string]any{"name": "other", "namespace": "default"}},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Available", "status": state, "message": "no endpoints"}}},
	}}
	if _, err := services.Apply(w.t.Context(), name, api, metav1.ApplyOptions{FieldManager: "test"}); err != nil {
		w.t.Fatal(err)
	}
}
