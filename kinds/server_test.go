package kinds_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

type obj = map[string]any

// server is an API server in memory: it has discovery, CRDs, APIServices, and the objects of any resource, in all versions with the same
// resourceVersions. It is an http.RoundTripper, so that it works in a bubble.
type server struct {
	mu       sync.Mutex
	version  int
	kinds    map[string]*resource // those that are not from CRDs, and those of CRDs, by resource and group
	events   []event
	changed  chan struct{}                          // closed at the next change
	requests []string                               // verb and path
	fail     func(verb, path string) *metav1.Status // nil for no failure
	stale    map[string]bool                        // groups that discovery cannot complete
	hidden   map[string]bool                        // groups that discovery does not show
	open     int                                    // watches
}

// resource is what the server has of a resource.
type resource struct {
	group, name, kind string
	versions          []string
	namespaced        bool
	categories        []string
	custom            bool
	objects           map[string]obj
	epoch             int // of its CRD; watches of another one end
}

type event struct {
	version  int
	resource string
	kind     string
	object   obj
}

const (
	crdsName     = "customresourcedefinitions.apiextensions.k8s.io"
	servicesName = "apiservices.apiregistration.k8s.io"
)

func newServer() *server {
	s := &server{version: 100, kinds: map[string]*resource{}, changed: make(chan struct{}), stale: map[string]bool{}, hidden: map[string]bool{}}
	s.add(&resource{group: "apiextensions.k8s.io", name: "customresourcedefinitions", kind: "CustomResourceDefinition", versions: []string{"v1"}})
	s.add(&resource{group: "apiregistration.k8s.io", name: "apiservices", kind: "APIService", versions: []string{"v1"}})
	s.add(&resource{name: "pods", kind: "Pod", versions: []string{"v1"}, namespaced: true, categories: []string{"all"}})
	return s
}

func (s *server) add(r *resource) {
	r.objects = map[string]obj{}
	s.kinds[r.id()] = r
}

func (r *resource) id() string { return r.name + "." + r.group }

// serve adds the resource of an API server of its own, with its APIService.
func (s *server) serve(r *resource) {
	s.mu.Lock()
	s.add(r)
	s.mu.Unlock()
	s.service(r.group, "True")
}

// service puts the APIService of a group.
func (s *server) service(group, available string) {
	s.put(servicesName, obj{
		"metadata": obj{"name": "v1." + group}, "spec": obj{"group": group, "version": "v1", "service": obj{"name": "x", "namespace": "y"}},
		"status": obj{"conditions": []any{obj{"type": "Available", "status": available, "message": "no endpoints"}}},
	})
}

// crd is a CRD of the group example.com, whose fields tests change.
type crd struct {
	plural, kind, scope string
	versions            []string // that are served
	categories          []any
	notEstablished      bool
	notAccepted         bool
	terminating         bool
	schema              string
}

func (c crd) name() string { return c.plural + ".example.com" }

// define puts a CRD. Objects of the same CRD stay.
func (s *server) define(c crd) {
	var versions []any
	for _, v := range append(slices.Clone(c.versions), "v0") {
		versions = append(versions, obj{"name": v, "served": v != "v0", "storage": v == "v1", "schema": obj{"openAPIV3Schema": obj{"description": c.schema}}})
	}
	status := func(not bool) string { return map[bool]string{true: "False", false: "True"}[not] }
	meta := obj{"name": c.name()}
	if c.terminating {
		meta["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	}
	s.mu.Lock()
	r := s.kinds[c.name()]
	if r == nil {
		r = &resource{group: "example.com", name: c.plural, custom: true, epoch: s.version}
		s.add(r)
	}
	r.kind, r.namespaced, r.categories, r.versions = c.kind, c.scope != "Cluster", nil, c.versions
	for _, category := range c.categories {
		r.categories = append(r.categories, category.(string))
	}
	if c.notEstablished {
		r.versions = nil
	}
	s.mu.Unlock()
	s.put(crdsName, obj{
		"metadata": meta,
		"spec":     obj{"group": "example.com", "scope": c.scope, "names": obj{"kind": c.kind, "plural": c.plural, "categories": c.categories}, "versions": versions},
		"status": obj{"conditions": []any{
			obj{"type": "NamesAccepted", "status": status(c.notAccepted), "message": "the kind is in use"},
			obj{"type": "Established", "status": status(c.notEstablished), "message": "installing"},
		}},
	})
}

// undefine deletes a CRD and its objects.
func (s *server) undefine(c crd) {
	s.mu.Lock()
	delete(s.kinds, c.name())
	s.mu.Unlock()
	s.delete(crdsName, c.name())
}

// put creates or updates an object. Its UID stays.
func (s *server) put(id string, o obj) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.kinds[id]
	u := &unstructured.Unstructured{Object: o}
	key, kind := u.GetNamespace()+"/"+u.GetName(), "ADDED"
	s.version++
	u.SetUID(types.UID(fmt.Sprintf("uid-%d", s.version)))
	if old, exists := r.objects[key]; exists {
		kind = "MODIFIED"
		u.SetUID((&unstructured.Unstructured{Object: old}).GetUID())
	}
	u.SetResourceVersion(strconv.Itoa(s.version))
	r.objects[key] = o
	s.happened(event{s.version, id, kind, o})
}

// objects puts objects with these names into namespace default, or none.
func (s *server) objects(id, namespace string, names ...string) {
	for _, name := range names {
		s.put(id, obj{"metadata": obj{"name": name, "namespace": namespace, "labels": obj{"app": name}}, "spec": obj{"size": "1"}})
	}
}

func (s *server) delete(id, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.kinds[id]
	if !strings.Contains(key, "/") {
		key = "/" + key
	}
	o := (&unstructured.Unstructured{Object: r.objects[key]}).DeepCopy()
	delete(r.objects, key)
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	s.happened(event{s.version, id, "DELETED", o.Object})
}

// cut ends the watches of a resource.
func (s *server) cut(id string) {
	s.do(func() {
		s.kinds[id].epoch++
		close(s.changed)
		s.changed = make(chan struct{})
	})
}

func (s *server) happened(e event) {
	s.events = append(s.events, e)
	close(s.changed)
	s.changed = make(chan struct{})
}

// do changes the server.
func (s *server) do(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// asked returns the number of requests whose verb and path contain text.
func (s *server) asked(text string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.requests {
		if strings.Contains(r, text) {
			n++
		}
	}
	return n
}

// RoundTrip answers a request. The body of a watch comes while the server writes it.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	reader, writer := io.Pipe()
	w := &answer{header: http.Header{}, body: writer, ready: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.answer(w, r)
		w.WriteHeader(http.StatusOK)
		_ = writer.Close()
	}()
	select {
	case <-w.ready:
	case <-r.Context().Done():
		_ = reader.Close()
		return nil, r.Context().Err()
	}
	go func() { // ends the body with the ctx
		select {
		case <-r.Context().Done():
			_ = reader.CloseWithError(r.Context().Err())
		case <-done:
		}
	}()
	return &http.Response{StatusCode: w.code, Header: w.header, Body: body{reader, r, done}, Request: r, ProtoMajor: 1, ProtoMinor: 1}, nil
}

type body struct {
	*io.PipeReader
	of   *http.Request
	done chan struct{}
}

// answer is an http.ResponseWriter.
type answer struct {
	header http.Header
	body   io.Writer
	once   sync.Once
	code   int
	ready  chan struct{} // closed when the header is written
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(code int) {
	a.once.Do(func() { a.code = code; close(a.ready) })
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

func write(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func failure(code int32, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: code, Reason: reason, Message: message}
}

func (s *server) answer(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	verb := "list"
	if q.Get("watch") != "" {
		verb = "watch"
		if q.Get("sendInitialEvents") == "true" {
			verb = "stream"
		}
	}
	s.mu.Lock()
	s.requests = append(s.requests, verb+" "+r.URL.Path+" ")
	fail := s.fail
	s.mu.Unlock()
	if fail != nil {
		if status := fail(verb, r.URL.Path); status != nil {
			write(w, int(status.Code), status)
			return
		}
	}
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(path) == 1:
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		w.WriteHeader(http.StatusOK)
		_ = json.NewEncoder(w).Encode(s.discovery(path[0] == "api"))
	case path[0] == "api":
		s.read(w, r, verb, "", path[1], path[2:])
	default:
		s.read(w, r, verb, path[1], path[2], path[3:])
	}
}

func (s *server) discovery(core bool) *apidiscovery.APIGroupDiscoveryList {
	s.mu.Lock()
	defer s.mu.Unlock()
	groups := map[string]*apidiscovery.APIGroupDiscovery{}
	for _, id := range slices.Sorted(maps.Keys(s.kinds)) {
		r := s.kinds[id]
		if core != (r.group == "") || s.hidden[r.group] {
			continue
		}
		g := groups[r.group]
		if g == nil {
			g = &apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: r.group}}
			groups[r.group] = g
		}
		for _, version := range r.versions {
			n := slices.IndexFunc(g.Versions, func(v apidiscovery.APIVersionDiscovery) bool { return v.Version == version })
			if n < 0 {
				n = len(g.Versions)
				g.Versions = append(g.Versions, apidiscovery.APIVersionDiscovery{Version: version, Freshness: apidiscovery.DiscoveryFreshnessCurrent})
			}
			if s.stale[r.group] {
				g.Versions[n].Freshness = apidiscovery.DiscoveryFreshnessStale
				continue
			}
			scope := apidiscovery.ScopeCluster
			if r.namespaced {
				scope = apidiscovery.ScopeNamespace
			}
			g.Versions[n].Resources = append(g.Versions[n].Resources, apidiscovery.APIResourceDiscovery{
				Resource: r.name, ResponseKind: &metav1.GroupVersionKind{Group: r.group, Version: version, Kind: r.kind}, Scope: scope,
				SingularResource: strings.ToLower(r.kind), Verbs: []string{"list", "watch"}, Categories: r.categories,
			})
		}
	}
	list := &apidiscovery.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		list.Items = append(list.Items, *groups[name])
	}
	return list
}

// read lists or watches a resource in a version.
func (s *server) read(w http.ResponseWriter, r *http.Request, verb, group, version string, path []string) {
	namespace := ""
	if len(path) == 3 {
		namespace, path = path[1], path[2:]
	}
	id, q := path[0]+"."+group, r.URL.Query()
	selector, _ := labels.Parse(q.Get("labelSelector"))
	from, _ := strconv.Atoi(q.Get("resourceVersion"))
	metadata := strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata")
	as := func(of *resource, o obj) obj {
		u := (&unstructured.Unstructured{Object: o}).DeepCopy()
		u.SetAPIVersion(strings.TrimPrefix(group+"/"+version, "/"))
		if u.SetKind(of.kind); metadata {
			u.Object = obj{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": u.Object["metadata"]}
		}
		return u.Object
	}
	selects := func(o obj) bool {
		u := &unstructured.Unstructured{Object: o}
		return (namespace == "" || u.GetNamespace() == namespace) && selector.Matches(labels.Set(u.GetLabels()))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.kinds[id]
	if of == nil || !slices.Contains(of.versions, version) {
		write(w, http.StatusNotFound, failure(404, metav1.StatusReasonNotFound, "the server could not find the requested resource"))
		return
	}
	var state []obj
	if verb != "watch" {
		for _, key := range slices.Sorted(maps.Keys(of.objects)) {
			if o := of.objects[key]; selects(o) {
				state = append(state, as(of, o))
			}
		}
		from = s.version
	}
	at := strconv.Itoa(s.version)
	if verb == "list" {
		kind, v := of.kind+"List", strings.TrimPrefix(group+"/"+version, "/")
		if metadata {
			kind, v = "PartialObjectMetadataList", "meta.k8s.io/v1"
		}
		s.mu.Unlock()
		defer s.mu.Lock()
		write(w, http.StatusOK, obj{"kind": kind, "apiVersion": v, "metadata": obj{"resourceVersion": at}, "items": append([]obj{}, state...)})
		return
	}
	var send []obj
	for _, o := range state {
		send = append(send, obj{"type": "ADDED", "object": o})
	}
	if verb == "stream" {
		send = append(send, obj{"type": "BOOKMARK", "object": as(of, obj{"metadata": obj{
			"resourceVersion": at, "annotations": obj{metav1.InitialEventsAnnotationKey: "true"}, "name": "", "creationTimestamp": nil,
		}})})
	}
	s.open++
	defer func() { s.open-- }()
	end := time.After(time.Duration(seconds(q.Get("timeoutSeconds"))) * time.Second)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	for encoder := json.NewEncoder(w); ; {
		for _, e := range s.events {
			if s.kinds[id] != of {
				return
			}
			if e.version > from && e.resource == id && selects(e.object) {
				send = append(send, obj{"type": e.kind, "object": as(of, e.object)})
			}
		}
		from = s.version
		changed, epoch := s.changed, of.epoch
		s.mu.Unlock()
		for _, e := range send {
			if encoder.Encode(e) != nil {
				s.mu.Lock()
				return
			}
		}
		send = nil
		select {
		case <-changed:
		case <-end:
			s.mu.Lock()
			return
		case <-r.Context().Done():
			s.mu.Lock()
			return
		}
		s.mu.Lock()
		if now := s.kinds[id]; now == nil || now.epoch != epoch || !slices.Contains(now.versions, version) {
			return
		}
	}
}

func seconds(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 3600
	}
	return n
}
