package relay_test

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	fronts "github.com/customcacheinformer/informer/e2e/internal/front"
)

// node is an agent of a fleet: a reflector of client-go, and a record of all its calls of its store.
type node struct {
	requests *requests

	mu       sync.Mutex
	readings []reading
	version  uint64 // up to which the agent has got everything
}

// reading is a list, and the changes that follow it.
type reading struct {
	version uint64
	state   state
	changes []change
}

// node starts an agent that makes its requests through a transport. The test stops it at its end.
func (w *world) node(config *rest.Config, transport http.RoundTripper) *node {
	w.Helper()
	n := &node{requests: &requests{to: transport}}
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := coordinationclient.NewForConfigAndClient(config, &http.Client{Transport: n.requests})
	w.OK(err)
	reflector := cache.NewReflectorWithOptions(informer.ListWatch(client.Leases("default")), &coordinationv1.Lease{}, n, cache.ReflectorOptions{})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { reflector.RunWithContext(ctx) })
	w.Cleanup(func() { cancel(); running.Wait() })
	return n
}

// Add implements cache.ReflectorStore, as the other methods do.
func (n *node) Add(obj any) error { return n.change(obj, false) }

func (n *node) Update(obj any) error { return n.change(obj, false) }

func (n *node) Delete(obj any) error { return n.change(obj, true) }

// Resync does nothing: the reflector has no period for it.
func (n *node) Resync() error { return nil }

// Replace notes a list.
func (n *node) Replace(all []any, version string) error {
	r := reading{version: number(version), state: state{}}
	for _, obj := range all {
		lease := obj.(*coordinationv1.Lease)
		r.state[lease.Name] = number(lease.ResourceVersion)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.readings, n.version = append(n.readings, r), r.version
	return nil
}

func (n *node) change(obj any, deleted bool) error {
	lease := obj.(*coordinationv1.Lease)
	n.mu.Lock()
	defer n.mu.Unlock()
	r := &n.readings[len(n.readings)-1]
	n.version = number(lease.ResourceVersion)
	r.changes = append(r.changes, change{n.version, lease.Name, deleted})
	return nil
}

// has reports whether the agent has got everything up to a version.
func (n *node) has(version uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.version >= version
}

// record returns all that the agent got.
func (n *node) record() []reading {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.readings)
}

// requests is a transport that notes each request that is answered.
type requests struct {
	to http.RoundTripper

	mu  sync.Mutex
	all []request
}

type request struct {
	kind string // as kindOf
	at   time.Time
	code int
}

func (r *requests) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := r.to.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, request{fronts.KindOf(req.URL.Query()), time.Now(), answer.StatusCode})
	return answer, nil
}

// since returns the requests that were answered since a time.
func (r *requests) since(begun time.Time) []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := slices.IndexFunc(r.all, func(q request) bool { return q.at.After(begun) })
	if first < 0 {
		return nil
	}
	return slices.Clone(r.all[first:])
}
