package relay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/relay"
)

// cluster is an API server with one object of each of some resources, which changes all the time.
type cluster struct {
	*httptest.Server
	mu      sync.Mutex
	version int
	moved   chan struct{} // closed when the version or a fault changes
	faults  map[string]string
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{version: 10, moved: make(chan struct{}), faults: map[string]string{}}
	c.Server = httptest.NewServer(c)
	ctx, cancel := context.WithCancel(context.Background())
	var changing sync.WaitGroup
	changing.Go(func() {
		for ctx.Err() == nil {
			c.change(func() { c.version++ })
			time.Sleep(200 * time.Millisecond)
		}
	})
	t.Cleanup(func() { cancel(); changing.Wait(); c.CloseClientConnections(); c.Close() })
	return c
}

func (c *cluster) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.moved)
	c.moved = make(chan struct{})
}

// fail gives a resource a fault: the code of its answers, "hangs", "removed", "cut" for lists whose second page fails, or "" for none.
func (c *cluster) fail(name, fault string) { c.change(func() { c.faults[name] = fault }) }

func (c *cluster) now(name string) (version int, fault string, moved <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version, c.faults[name], c.moved
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) < 4 {
		c.describe(w, len(parts))
		return
	}
	name, group := parts[len(parts)-1], parts[1]+"/"+parts[2]
	kind := kindOf(name)
	object := func(version int) map[string]any {
		return map[string]any{"kind": kind, "apiVersion": group, "metadata": map[string]any{
			"name": "one", "namespace": "default", "uid": "u", "resourceVersion": strconv.Itoa(version),
		}}
	}
	send := func(v any) { _ = json.NewEncoder(w).Encode(v); w.(http.Flusher).Flush() }
	refuse := func(code int) {
		w.WriteHeader(code)
		send(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": http.StatusText(code),
			"reason": map[int]string{404: "NotFound", 403: "Forbidden", 410: "Expired", 500: "InternalError", 422: "Invalid"}[code]})
	}
	version, fault, moved := c.now(name)
	for fault == "hangs" {
		select {
		case <-r.Context().Done():
			return
		case <-moved:
			version, fault, moved = c.now(name)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	switch code, _ := strconv.Atoi(strings.ReplaceAll(fault, "removed", "404")); {
	case code != 0:
		refuse(code)
	case r.URL.Query().Get("continue") != "":
		refuse(http.StatusInternalServerError)
	case r.URL.Query().Get("watch") == "":
		about := map[string]any{"resourceVersion": strconv.Itoa(version)}
		if fault == "cut" {
			about["continue"] = "more"
		}
		send(map[string]any{"kind": kind + "List", "apiVersion": group, "metadata": about, "items": []any{object(version)}})
	case r.URL.Query().Get("sendInitialEvents") == "true":
		refuse(http.StatusUnprocessableEntity)
	case fault == "cut":
		refuse(http.StatusGone) // a list follows
	default:
		seen, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
		for r.Context().Err() == nil && (fault == "" || fault == "hangs") {
			if fault == "" && version > seen {
				seen = version
				send(map[string]any{"type": "MODIFIED", "object": object(version)})
			}
			select {
			case <-moved:
			case <-r.Context().Done():
			}
			version, fault, moved = c.now(name)
		}
		if fault == "removed" {
			send(map[string]any{"type": "DELETED", "object": object(version)})
		}
	}
}

// describe answers discovery of the resources of example.com: of the groups, or with three parts of a path, of its version.
func (c *cluster) describe(w http.ResponseWriter, parts int) {
	w.Header().Set("Content-Type", "application/json")
	if _, fault, _ := c.now("discovery"); fault != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if parts < 3 { // of /api too, which then has no versions
		version := metav1.GroupVersionForDiscovery{GroupVersion: "example.com/v1", Version: "v1"}
		group := metav1.APIGroup{Name: "example.com", Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version}
		_ = json.NewEncoder(w).Encode(metav1.APIGroupList{Groups: []metav1.APIGroup{group}})
		return
	}
	list := metav1.APIResourceList{GroupVersion: "example.com/v1"}
	for _, name := range fourResources[1:] {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: name, SingularName: strings.TrimSuffix(name, "s"), Kind: kindOf(name), Namespaced: true, Verbs: metav1.Verbs{"get", "list", "watch"},
		})
	}
	_ = json.NewEncoder(w).Encode(list)
}

func kindOf(name string) string { return strings.ToUpper(name[:1]) + strings.TrimSuffix(name[1:], "s") }

var fourResources = []string{"leases", "widgets", "gadgets", "gizmos"}

func resourceOf(name string) relay.Resource {
	r := relay.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: name}, Kind: kindOf(name), Namespaced: true}
	if name == "leases" {
		return leases()
	}
	return r
}

// outage is a relay of four resources of a cluster, and its client.
type outage struct {
	*testing.T
	relay   *relay.Relay
	cluster *cluster
	address string
	client  *http.Client
}

func newOutage(t *testing.T, c *cluster, changes ...func(*relay.Resource)) *outage {
	opts := options(t)
	opts.Upstream, opts.MaxStaleness, opts.Resources = &rest.Config{Host: c.URL, QPS: -1}, 3*time.Second, nil
	for _, name := range fourResources {
		r := resourceOf(name)
		for _, change := range changes {
			change(&r)
		}
		opts.Resources = append(opts.Resources, r)
	}
	certificates, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true, NextProtos: []string{"h2"}}})
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: certificates, ForceAttemptHTTP2: true}
	o := &outage{t, nil, c, "https://" + opts.Serving.Listener.Addr().String(), &http.Client{Transport: transport}}
	if o.relay, err = relay.New(opts); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- o.relay.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
	})
	return o
}

func (o *outage) await(what string, is func() bool) {
	o.Helper()
	for begun := time.Now(); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begun) > time.Minute {
			o.Fatalf("%s: Ready: %v; Absent: %v", what, o.relay.Ready(), o.relay.Absent())
		}
	}
}

func pathOf(name string) string {
	r := resourceOf(name)
	return "/apis/" + r.Group + "/" + r.Version + "/" + name + "?resourceVersion=0"
}

// get returns the code and the body of an answer.
func (o *outage) get(path string) (int, string) {
	o.Helper()
	answer, err := o.client.Get(o.address + path)
	if err != nil {
		o.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		o.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// absent returns the answer to reads of a resource, as Absent has it.
func (o *outage) absent(name string) error { r := resourceOf(name); return o.relay.Absent()[full(r)] }

func full(r relay.Resource) string { return r.Resource + "." + r.Version + "." + r.Group }

// watcher watches a resource, and begins again when its watch ends.
type watcher struct {
	version, ended atomic.Int64
	odd            atomic.Bool // it got versions out of order
}

func (o *outage) watch(name string) *watcher {
	w := &watcher{}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		for ; ctx.Err() == nil; w.ended.Add(1) {
			request, _ := http.NewRequestWithContext(ctx, http.MethodGet, o.address+pathOf(name)+"&watch=true", http.NoBody)
			if answer, err := o.client.Do(request); err == nil {
				w.read(answer.Body)
				_ = answer.Body.Close()
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	o.Cleanup(func() { cancel(); watching.Wait() })
	return w
}

func (w *watcher) read(body io.Reader) {
	var e struct {
		Object struct {
			Metadata struct{ ResourceVersion string }
		}
	}
	for last, all := int64(0), json.NewDecoder(body); all.Decode(&e) == nil && e.Object.Metadata.ResourceVersion != ""; {
		version, _ := strconv.ParseInt(e.Object.Metadata.ResourceVersion, 10, 64)
		w.odd.Store(w.odd.Load() || version <= last)
		last = version
		w.version.Store(version)
	}
}

// Each of four resources fails in turn, under 200 agents. The agents of the others notice nothing.
func TestAgentsOfOtherResourcesNoticeNothingOfAResourceThatFails(t *testing.T) {
	agents := 50 // of each resource
	if testing.Short() {
		agents = 5
	}
	for _, fault := range []string{"404", "403", "500", "hangs", "removed"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			o := newOutage(t, newCluster(t))
			o.await("the relay does not begin", func() bool { return o.relay.Ready() == nil })
			all := map[string][]*watcher{}
			for _, name := range fourResources {
				for range agents {
					all[name] = append(all[name], o.watch(name))
				}
			}
			arrive := func(name string) {
				o.Helper()
				version, _, _ := o.cluster.now(name)
				for _, w := range all[name] {
					o.await("an agent of "+name+" lacks a change", func() bool { return w.version.Load() >= int64(version) })
				}
			}
			arriveAgain := func(name string) {
				arrive(name)
				for _, w := range all[name] {
					w.ended.Store(0) // some watches end before the relay has the state
				}
			}
			for _, name := range fourResources {
				arriveAgain(name)
			}
			ended := 0
			for _, failing := range fourResources {
				o.cluster.fail(failing, fault)
				o.await("the relay does not notice", func() bool {
					h := o.relay.Health()[full(resourceOf(failing))].(informer.Health)
					old := time.Since(h.LastContact) > 3*time.Second && fault != "404" && fault != "removed"
					return (apierrors.IsNotFound(o.absent(failing)) || old) && (h.SourceFailures > 0) == (fault != "hangs")
				})
				want := http.StatusOK // the state of that time
				if fault == "404" || fault == "removed" {
					want = http.StatusNotFound
				}
				if code, body := o.get(pathOf(failing)); code != want {
					t.Errorf("%s: a list gets %d %s", failing, code, body)
				}
				if code, body := o.get("/readyz"); code != http.StatusOK || o.relay.Ready() != nil {
					t.Errorf("%s: /readyz is %d %s, %v", failing, code, body, o.relay.Ready())
				}
				for _, name := range fourResources {
					if name != failing {
						arrive(name)
					}
				}
				for _, w := range all[failing] {
					o.await("a watch of a resource that is gone continues", func() bool { return want == http.StatusOK || w.ended.Load() > 0 })
				}
				for _, name := range fourResources {
					for _, w := range all[name] {
						if n := w.ended.Swap(0); name == failing {
							ended += int(min(n, 1))
						} else if n > 0 {
							t.Errorf("a watch of %s ends because %s fails", name, failing)
						}
					}
				}
				o.cluster.fail(failing, "")
				arriveAgain(failing)
			}
			for name, watchers := range all {
				for _, w := range watchers {
					if w.odd.Load() {
						t.Errorf("%s: the versions were out of order", name)
					}
				}
			}
			t.Logf("4 resources failed by turns (%s): %d of %d watches of the failing resource ended while it failed, none of the others; %v",
				fault, ended, 4*agents, time.Since(begun).Round(time.Second))
		})
	}
}

func TestARelayThatStartsDuringAnOutageServesTheOtherResources(t *testing.T) {
	c := newCluster(t)
	for i, fault := range []string{"", "404", "403", "500"} {
		c.fail(fourResources[i], fault)
	}
	o := newOutage(t, c)
	o.await("the relay does not begin", func() bool { return o.relay.Ready() == nil })
	for i, want := range []int{200, 404, 503, 503} {
		code, body := o.get(pathOf(fourResources[i]))
		reason := []string{`"one"`, "could not find the requested resource", "Forbidden", "Internal Server Error"}[i]
		if code != want || !strings.Contains(body, reason) || (o.absent(fourResources[i]) == nil) != (i == 0) {
			t.Errorf("%s: got %d %s, %v", fourResources[i], code, body, o.absent(fourResources[i]))
		}
	}
	for _, name := range fourResources {
		c.fail(name, "")
		o.await(name+" is not served", func() bool { code, _ := o.get(pathOf(name)); return code == http.StatusOK })
	}
	// Without authentication, all clients are anonymous. Their HTTP/2 connections must stay.
	reused := false
	trace := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
	request, _ := http.NewRequestWithContext(trace, http.MethodGet, o.address+pathOf("leases"), http.NoBody)
	answer, err := o.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.ProtoMajor != 2 || !reused {
		t.Errorf("the answer came by %s, over the connection of the requests before: %v", answer.Proto, reused)
	}
}

func TestARelayWhoseResourcesAllFailIsNotReadyAndHasTheReasons(t *testing.T) {
	c := newCluster(t)
	for i, fault := range []string{"404", "404", "403", "500"} {
		c.fail(fourResources[i], fault)
	}
	o := newOutage(t, c)
	for _, reason := range []string{"leases.v1.coordination.k8s.io: the server could not find", "Forbidden", "Internal Server Error"} {
		o.await("the reason "+reason+" is missing", func() bool { return strings.Contains(fmt.Sprint(o.relay.Ready()), reason) })
	}
	if err := o.relay.Ready(); strings.Contains(err.Error(), "has not answered") {
		t.Errorf("the API server answers each time: %v", err)
	}
	if code, body := o.get("/readyz/upstream"); code != http.StatusInternalServerError || !strings.Contains(body, "gizmos") {
		t.Errorf("/readyz/upstream: %d %s", code, body)
	}
}

func TestATransformThatFailsOnceEndsNoResource(t *testing.T) {
	var fail, failed atomic.Bool
	o := newOutage(t, newCluster(t), func(r *relay.Resource) {
		if r.Resource != "widgets" {
			return
		}
		r.Transform = func(obj informer.AnyObject) (informer.AnyObject, error) {
			if fail.CompareAndSwap(true, false) {
				failed.Store(true)
				return nil, errors.New("odd")
			}
			return obj, nil
		}
	})
	served := func() bool { code, _ := o.get(pathOf("widgets")); return code == http.StatusOK }
	o.await("widgets are not served", served)
	fail.Store(true)
	o.await("Transform is not called", failed.Load)
	o.await("widgets are not served any more, although Transform works for the next change", served)
}

// Agents keep the last state, as with other failures of the API server.
func TestAListThatFailsInTheMiddleTakesNothingFromAgents(t *testing.T) {
	o := newOutage(t, newCluster(t), func(r *relay.Resource) {
		if r.Resource == "widgets" {
			r.Store = informertest.NewDurable()
		}
	})
	o.await("the relay does not begin", func() bool { return o.relay.Ready() == nil })
	w := o.watch("widgets")
	o.await("the agent gets nothing", func() bool { return w.version.Load() > 0 })
	w.ended.Store(0)
	o.cluster.fail("widgets", "cut")
	o.await("no list fails", func() bool {
		h := o.relay.Health()[full(resourceOf("widgets"))].(informer.Health)
		return h.SourceFailures > 0
	})
	if code, body := o.get(pathOf("widgets")); code != http.StatusOK || w.ended.Load() > 0 {
		t.Errorf("a read gets %d %s, and %d watches have ended", code, body, w.ended.Load())
	}
	o.cluster.fail("widgets", "")
	version, _, _ := o.cluster.now("widgets")
	o.await("the agent lacks a change", func() bool { return w.version.Load() >= int64(version) })
}

// The API server sends a part of each list, and so is not silent, but the state gets older.
func TestARelayWhoseListsFailInTheMiddleIsNotReady(t *testing.T) {
	o := newOutage(t, newCluster(t))
	o.await("the relay does not begin", func() bool { return o.relay.Ready() == nil })
	for _, name := range fourResources {
		o.cluster.fail(name, "cut")
	}
	o.await("no list is tried again", func() bool {
		h := o.relay.Health()[full(resourceOf("widgets"))].(informer.Health)
		return time.Since(h.LastProgress) > 5*time.Second && time.Since(h.LastContact) < time.Second
	})
	if err := o.relay.Ready(); err == nil || !strings.Contains(err.Error(), "old: list widgets") {
		t.Errorf("Ready: %v", err)
	}
	for _, name := range fourResources {
		o.cluster.fail(name, "")
	}
	o.await("the relay does not get ready again", func() bool { return o.relay.Ready() == nil })
}
