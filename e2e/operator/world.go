package main

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"sync/atomic"

	netv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/e2e/operator/internal/cluster"
	"github.com/customcacheinformer/informer/examples/operator/website"
)

// address is the address that the Ingress controller of this world gives to every Ingress.
const address = "192.0.2.1"

// world is a namespace with Websites and an operator, which runs as a process. This process
// plays all others.
type world struct {
	*cluster.Cluster
	namespace string
	program   string // file of the operator
	front     *cluster.Front
	operator  *process.Process
	before    atomic.Pointer[func(*http.Request)] // called before each request of the operator; nil for nothing
}

func newWorld(c *cluster.Cluster, program, namespace string) (w *world, err error) {
	w = &world{Cluster: c, program: program, namespace: namespace}
	w.front, err = c.Front(func(r *http.Request) {
		if before := w.before.Load(); before != nil {
			(*before)(r)
		}
	})
	return w, err
}

// close ends everything that is still running, except the Cluster.
func (w *world) close() {
	if w.operator != nil {
		w.operator.Kill()
	}
	w.front.Close()
}

func (w *world) start(ctx context.Context, flags ...string) (err error) {
	w.operator, err = process.Start(exec.CommandContext(ctx, w.program, append(flags, "-kubeconfig", w.front.Kubeconfig)...))
	return err
}

// meddle makes the front call do before each request of the operator, until meddle is called
// again.
func (w *world) meddle(do func(verb, resource, name string)) {
	before := func(r *http.Request) { do(cluster.RequestOf(r)) }
	w.before.Store(&before)
}

func (w *world) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: w.namespace, Name: name}
}

// names returns n names of Websites.
func names(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("site-%03d", i)
	}
	return list
}

// keys returns the keys of the objects with these names.
func (w *world) keys(names []string) []types.NamespacedName {
	list := make([]types.NamespacedName, len(names))
	for i, name := range names {
		list[i] = w.key(name)
	}
	return list
}

// route plays the Ingress controller: it gives an Ingress an address.
func (w *world) route(ctx context.Context, key types.NamespacedName) error {
	return w.Patch(ctx, cluster.Ingresses, key,
		fmt.Sprintf(`{"status":{"loadBalancer":{"ingress":[{"ip":%q}]}}}`, address), "status")
}

// settled is like Settled, and allSettled is settled for several Websites at the hosts that
// they were created with. Their errors include the log of the operator.
func (w *world) settled(ctx context.Context, name, host string, phase website.Phase) (*website.Website, *netv1.Ingress, error) {
	site, ingress, err := w.Settled(ctx, w.key(name), host, phase)
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, w.operator.Log)
	}
	return site, ingress, err
}

func (w *world) allSettled(ctx context.Context, names []string, phase website.Phase) error {
	for _, name := range names {
		if _, _, err := w.settled(ctx, name, cluster.Host(w.key(name)), phase); err != nil {
			return err
		}
	}
	return nil
}
