package kubernetes_test

import (
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

const (
	earlyPods = 2000 // that are there before the informers
	latePods  = 1000
	writers   = 8
)

// TestEachEventOfPodsIsThatOfClientGo runs a typed informer next to client-go's over Pods in protobuf, and
// compares all events: an event must have the same type and equal objects.
func TestEachEventOfPodsIsThatOfClientGo(t *testing.T) {
	skipIfShort(t)
	for name, mode := range map[string]informer.WatchListMode{
		"the first state is streamed": informer.WatchListOn, "the first state is listed": informer.WatchListOff,
	} {
		t.Run(name, func(t *testing.T) { comparePods(newCluster(t, shared), mode) })
	}
}

func comparePods(c *cluster, mode informer.WatchListMode) {
	w := &podWriter{cluster: c, last: map[string]string{}}
	namespace := c.namespace()
	w.pods = c.client.CoreV1().Pods(namespace)
	w.each(earlyPods, w.create)

	ours, theirs := newLedger(), newLedger()
	wire := &wire{types: map[string]int{}}
	config := c.Config()
	config.Wrap(wire.wrap)
	inf, err := informer.New(c.clientset(config).CoreV1().Pods(namespace), informer.Options[*corev1.Pod]{WatchList: mode})
	c.ok(err)
	_, err = inf.AddWatcher(ours.watcher(), informer.WatcherOptions{MaxBacklog: -1})
	c.ok(err)
	informertest.Run(c.T, inf)
	beside := c.runClientGo(c.clientset(c.Config()).CoreV1().Pods(namespace), theirs)

	w.each(earlyPods+latePods, w.live)
	for whose, ledger := range map[string]*ledger{"this library's": ours, "client-go's": theirs} {
		c.await(whose+" informer has delivered the last events", func() bool { return ledger.has(w.last) })
	}
	if ours.count() != w.writes {
		c.Errorf("%d writes led to %d events", w.writes, ours.count())
	}
	compareLedgers(c.T, ours, theirs)
	compareStores(c.T, inf, beside)
	wire.check(c.T)
	c.Logf("%d events of %d Pods", ours.count(), len(w.last))
}

// runClientGo runs client-go's informer until the end of the test, and returns it when it has synced.
func (c *cluster) runClientGo(pods typedcorev1.PodInterface, events *ledger) cache.SharedIndexInformer {
	c.Helper()
	beside := cache.NewSharedIndexInformer(informer.ListWatch(pods), &corev1.Pod{}, 0, nil)
	handler, err := beside.AddEventHandler(events.handler())
	c.ok(err)
	var running sync.WaitGroup
	running.Go(func() { beside.RunWithContext(c.ctx) })
	c.Cleanup(running.Wait) // the ctx is done by then
	c.await("client-go's informer has synced", handler.HasSynced)
	return beside
}

func compareLedgers(t *testing.T, ours, theirs *ledger) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(theirs.events)) {
		want, got := theirs.events[name], ours.events[name]
		if len(got) != len(want) {
			t.Errorf("%s: %d events, client-go's informer has %d", name, len(got), len(want))
			continue
		}
		for n := range want {
			if !sameEvent(got[n], want[n]) {
				t.Errorf("%s, event %d (-client-go +this library): %s, %s\n%s", name, n, want[n].what, got[n].what,
					cmp.Diff([]*corev1.Pod{want[n].before, want[n].after}, []*corev1.Pod{got[n].before, got[n].after}))
			}
		}
	}
}

// sameEvent compares two events. On a delete client-go passes the object of the watch's event, which has
// the version of the delete, and this library the New of the event before.
func sameEvent(a, b told) bool {
	if a.what == "deleted" && b.what == "deleted" {
		a.before, b.before = a.before.DeepCopy(), b.before.DeepCopy()
		a.before.ResourceVersion, b.before.ResourceVersion = "", ""
	}
	return a.what == b.what && equality.Semantic.DeepEqual(a.before, b.before) && equality.Semantic.DeepEqual(a.after, b.after)
}

func compareStores(t *testing.T, inf *informer.CustomCacheInformer[*corev1.Pod], beside cache.SharedIndexInformer) {
	t.Helper()
	ours, theirs := map[types.NamespacedName]*corev1.Pod{}, map[types.NamespacedName]*corev1.Pod{}
	for key, pod := range inf.All() {
		ours[key] = pod
	}
	for _, obj := range beside.GetStore().List() {
		pod := obj.(*corev1.Pod)
		theirs[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = pod
	}
	if len(ours) == 0 || !equality.Semantic.DeepEqual(ours, theirs) {
		t.Errorf("%d Pods; the stores (-client-go +this library):\n%s", len(ours), cmp.Diff(theirs, ours))
	}
}
