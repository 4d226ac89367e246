package relay_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer/e2e/internal/stage"
)

type fleet []*node

// perConnection is how many agents share a connection, which can have 100 watches. A connection of its
// own for each agent would make the test measure 1,000 handshakes of TLS in one process.
const perConnection = 50

// fleet starts agents, over several connections.
func (w *world) fleet(agents int, config *rest.Config) fleet {
	w.Helper()
	var all fleet
	for len(all) < agents {
		certificates, err := rest.TLSConfigFor(config)
		w.OK(err)
		transport := &http.Transport{TLSClientConfig: certificates, ForceAttemptHTTP2: true, MaxConnsPerHost: 1}
		w.Cleanup(transport.CloseIdleConnections)
		for range min(perConnection, agents-len(all)) {
			all = append(all, w.node(config, transport))
		}
	}
	return all
}

// await waits until all agents have got a change that is made now, and returns the change's version.
func (f fleet) await(w *world) uint64 {
	w.Helper()
	version := w.mark()
	w.Await("an agent has not got the last change", func() bool {
		return !slices.ContainsFunc(f, func(n *node) bool { return !n.has(version) })
	})
	return version
}

// check fails the test unless the histories of all agents are right, also after a change that is made now. It returns how
// often they have listed.
func (f fleet) check(w *world, h *history) (lists int) {
	w.Helper()
	last := f.await(w)
	w.Await("the history lacks the last change", func() bool { return h.newest() >= last })
	for i, n := range f {
		record := n.record()
		lists += len(record)
		if err := h.check(record); err != nil {
			w.Errorf("agent %d: %v", i, err)
		}
	}
	return lists
}

// wantQuiet fails the test if an agent has made a request since a time.
func (f fleet) wantQuiet(w *world, since time.Time) {
	w.Helper()
	for i, n := range f {
		if again := n.requests.since(since); len(again) > 0 {
			w.Errorf("agent %d made requests: %v", i, kinds(again))
		}
	}
}

// mark changes an object, and returns its version.
func (w *world) mark() uint64 {
	w.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"marked":"%d"}}}`, time.Now().UnixNano())
	lease, err := w.leases.Patch(w.Context(), "l0", types.MergePatchType, patch, metav1.PatchOptions{})
	w.OK(err)
	return number(lease.ResourceVersion)
}

// write changes random objects l1 to l(n-1) until stop is called, and deletes and creates some.
func (w *world) write(random *rand.Rand, n int, pause time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(w.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			name := fmt.Sprint("l", 1+random.IntN(n-1))
			var err error
			if random.IntN(5) == 0 {
				err = w.leases.Delete(ctx, name, metav1.DeleteOptions{})
			} else {
				err = w.set(ctx, name, fmt.Sprint(i))
			}
			if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
				w.Logf("writing %s: %v", name, err)
			}
			stage.Pass(ctx, pause)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); writing.Wait() })
	w.Cleanup(stop)
	return stop
}

// set changes an object, or creates it.
func (w *world) set(ctx context.Context, name, value string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"changed":"%s"}}}`, value)
	_, err := w.leases.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		_, err = w.leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, Labels: map[string]string{"changed": value},
		}}, metav1.CreateOptions{})
	}
	return err
}

// returned describes how the agents came back since a time: when they made their first request that was
// answered, how many listed, and the codes of all answers.
func (f fleet) returned(begun time.Time) string {
	var first []time.Duration
	lists, codes := 0, map[int]int{}
	for _, n := range f {
		all := n.requests.since(begun)
		if len(all) > 0 {
			first = append(first, all[0].at.Sub(begun).Round(time.Millisecond))
		}
		for _, r := range all {
			codes[r.code]++
		}
		if slices.ContainsFunc(all, func(r request) bool { return r.kind == "list" || r.kind == "stream" }) {
			lists++
		}
	}
	if len(first) == 0 {
		return "no agent made a request"
	}
	slices.Sort(first)
	at := func(percent int) time.Duration { return first[(len(first)-1)*percent/100] }
	return fmt.Sprintf("%d of %d agents made requests, and %d listed; the first answers came after %v (p0), %v (p50), %v (p99), %v (p100); answers by code: %v",
		len(first), len(f), lists, at(0), at(50), at(99), at(100), codes)
}
