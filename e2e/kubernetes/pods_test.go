package kubernetes_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// TestEachEventOfPodsIsThatOfClientGo runs a typed informer beside client-go's over Pods in protobuf, and
// compares all events: an event must have the same type and equal objects.
func TestEachEventOfPodsIsThatOfClientGo(t *testing.T) {
	for name, mode := range map[string]informer.WatchListMode{
		"the first state is streamed": informer.WatchListOn, "the first state is listed": informer.WatchListOff,
	} {
		t.Run(name, func(t *testing.T) { comparePods(t, mode) })
	}
}

func comparePods(t *testing.T, mode informer.WatchListMode) {
	c := newCluster(t)
	w := &podWriter{cluster: c, last: map[string]string{}}
	namespace := c.namespace()
	w.pods = c.client.CoreV1().Pods(namespace)
	w.each(0, earlyPods, w.create)

	ours, theirs := newLedger(), newLedger()
	wire := &wire{types: map[string]int{}}
	config := c.Config()
	config.Wrap(wire.wrap)
	inf, err := informer.New(c.clientset(config).CoreV1().Pods(namespace), informer.Options[*corev1.Pod]{WatchList: mode})
	c.ok(err)
	_, err = inf.AddWatcher(ours.watcher(), informer.WatcherOptions{MaxBacklog: -1})
	c.ok(err)
	informertest.Run(t, inf)
	beside := c.runClientGo(c.clientset(c.Config()).CoreV1().Pods(namespace), theirs)

	w.each(0, earlyPods+latePods, w.live)
	for whose, ledger := range map[string]*ledger{"this library's": ours, "client-go's": theirs} {
		c.await(whose+" informer has told the last events", func() bool { return ledger.has(w.last) })
	}
	if ours.count() != w.writes {
		t.Errorf("%d writes led to %d events", w.writes, ours.count())
	}
	compareLedgers(t, ours, theirs)
	compareStores(t, inf, beside)
	wire.check(t)
	t.Logf("%d events of %d Pods", ours.count(), len(w.last))
}

// runClientGo runs client-go's informer until the end of the test, and returns it when it has synced.
func (c *cluster) runClientGo(pods typedcorev1.PodInterface, events *ledger) cache.SharedIndexInformer {
	c.Helper()
	shared := cache.NewSharedIndexInformer(informer.ListWatch(pods), &corev1.Pod{}, 0, nil)
	handler, err := shared.AddEventHandler(events.handler())
	c.ok(err)
	var running sync.WaitGroup
	running.Go(func() { shared.RunWithContext(c.ctx) })
	c.Cleanup(running.Wait) // the ctx has ended by then
	c.await("client-go's informer has synced", handler.HasSynced)
	return shared
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
					cmp.Diff([]*corev1.Pod{want[n].old, want[n].new}, []*corev1.Pod{got[n].old, got[n].new}))
			}
		}
	}
}

// sameEvent compares two events. On a delete client-go passes the object of the watch's event, which has
// the version of the delete, and this library the New of the event before.
func sameEvent(a, b told) bool {
	if a.what == "deleted" && b.what == "deleted" {
		a.old, b.old = a.old.DeepCopy(), b.old.DeepCopy()
		a.old.ResourceVersion, b.old.ResourceVersion = "", ""
	}
	return a.what == b.what && equality.Semantic.DeepEqual(a.old, b.old) && equality.Semantic.DeepEqual(a.new, b.new)
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

// podWriter writes Pods.
type podWriter struct {
	*cluster
	pods typedcorev1.PodInterface

	mu     sync.Mutex        // protects the rest
	last   map[string]string // the version of each Pod after the last write, "" if it is deleted
	writes int               // that are events of watches
}

// each calls write for the numbers from..to, several at a time.
func (w *podWriter) each(from, to int, write func(n int) error) {
	w.Helper()
	var group errgroup.Group
	group.SetLimit(writers)
	for n := from; n < to; n++ {
		group.Go(func() error { return write(n) })
	}
	w.ok(group.Wait())
}

// wrote notes the result of a write.
func (w *podWriter) wrote(name, version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes++
	w.last[name] = version
}

func (w *podWriter) create(n int) error {
	pod, err := w.pods.Create(w.ctx, newPod(fmt.Sprintf("pod-%04d", n)), metav1.CreateOptions{})
	if err == nil {
		w.wrote(pod.Name, pod.ResourceVersion)
	}
	return err
}

// newPod returns a Pod as a client sends it.
func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
}

// live lets a Pod run through a part of its life, which depends on its number.
func (w *podWriter) live(n int) error {
	if n >= earlyPods {
		if err := w.create(n); err != nil {
			return err
		}
	}
	name := fmt.Sprintf("pod-%04d", n)
	for _, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodSucceeded}[:n%3] {
		if err := w.setPhase(name, phase); err != nil {
			return err
		}
	}
	switch n % 5 {
	case 0:
		return w.delete(name)
	case 1: // a new Pod has the name
		if err := w.delete(name); err != nil {
			return err
		}
		return w.create(n)
	}
	return nil
}

// setPhase does what a kubelet does.
func (w *podWriter) setPhase(name string, phase corev1.PodPhase) error {
	pod, err := w.pods.Get(w.ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	pod.Status.Phase = phase
	if pod, err = w.pods.UpdateStatus(w.ctx, pod, metav1.UpdateOptions{}); err == nil {
		w.wrote(name, pod.ResourceVersion)
	}
	return err
}

func (w *podWriter) delete(name string) error {
	err := w.pods.Delete(w.ctx, name, *metav1.NewDeleteOptions(0))
	if err == nil {
		w.wrote(name, "")
	}
	return err
}

// wire counts the content types of answers.
type wire struct {
	mu    sync.Mutex // protects types
	types map[string]int
}

func (w *wire) wrap(rt http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		res, err := rt.RoundTrip(req)
		if err == nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.types[res.Header.Get("Content-Type")]++
		}
		return res, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// check fails the test unless all answers were protobuf.
func (w *wire) check(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.types) == 0 {
		t.Error("there were no answers")
	}
	for contentType := range w.types {
		if !strings.HasPrefix(contentType, "application/vnd.kubernetes.protobuf") {
			t.Errorf("an answer is %s", contentType)
		}
	}
}
