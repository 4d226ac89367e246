package kinds_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/kinds"
)

type (
	whole   = *unstructured.Unstructured
	partial = *metav1.PartialObjectMetadata
	status  = metav1.Status
)

func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

func clientsOf(s *server) kinds.Clients {
	config := &rest.Config{Host: "http://server", QPS: -1, Transport: informer.Transport(s)}
	return kinds.Clients{
		Dynamic: must(dynamic.NewForConfig(config)), Metadata: must(metadata.NewForConfig(config)), Discovery: must(discovery.NewDiscoveryClientForConfig(config)),
	}
}

// world is a server and a set over it that runs.
type world struct {
	*server
	t   *testing.T
	set *kinds.Set[whole]
	log log
}

// log is a watcher that notes the events. It also has the errors.
type log struct {
	mu     sync.Mutex
	events []string
	errs   []string
}

func note[T informer.Object](l *log, version func(T) string) informer.WatcherFunc[T] {
	return func(_ context.Context, e informer.Event[T]) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.events = append(l.events, fmt.Sprintf("%s %s %s|%s%s", e.Origin, e.Type, e.Cluster(), e.Key().Name, version(e.Object())))
		return nil
	}
}

func versionOf(u whole) string {
	if v := u.GroupVersionKind().Version; v != "v1" {
		return " in " + v
	}
	return ""
}

func (l *log) handle(_ context.Context, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, err.Error())
}

// runAll runs members in a group until the test ends.
func runAll(t *testing.T, members ...informer.Member) {
	t.Helper()
	group := &informer.Group{}
	for _, m := range members {
		if err := group.Add(m); err != nil {
			t.Fatal(err)
		}
	}
	informertest.Run(t, group)
}

// run runs test in a bubble, with a set that runs over a server.
func run(t *testing.T, opts kinds.Options[whole], prepare func(s *server), test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{server: newServer(), t: t}
		prepare(w.server)
		opts.ErrorHandler, opts.Informer.ErrorHandler = w.log.handle, func(context.Context, error) {}
		w.set = must(kinds.New(clientsOf(w.server), opts))
		must(w.set.Informer().AddWatcher(note(&w.log, versionOf), informer.WatcherOptions{}))
		runAll(t, w.set.Informer(), w.set)
		time.Sleep(5 * time.Second)
		test(w)
	})
}

// count returns the number of events with text.
func (l *log) count(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if strings.Contains(e, text) {
			n++
		}
	}
	return n
}

// take returns the errors since the last call.
func (l *log) take() (errs []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	errs, l.errs = l.errs, nil
	return errs
}

// runMetadata is run with a set that reads metadata.
func runMetadata(t *testing.T, prepare func(s *server), test func(w *world, set *kinds.Set[partial])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{server: newServer(), t: t}
		prepare(w.server)
		set := must(kinds.NewMetadata(clientsOf(w.server), kinds.Options[partial]{ErrorHandler: w.log.handle}))
		must(set.Informer().AddWatcher(note(&w.log, func(partial) string { return "" }), informer.WatcherOptions{}))
		runAll(t, set.Informer(), set)
		time.Sleep(5 * time.Second)
		test(w, set)
	})
}

// expect fails the test unless these are the events since the last call. Their order does not count.
func (w *world) expect(want ...string) {
	w.t.Helper()
	synctest.Wait()
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	slices.Sort(want)
	if slices.Sort(w.log.events); !slices.Equal(w.log.events, want) {
		w.t.Errorf("the events were\n\t%s\nwant\n\t%s", strings.Join(w.log.events, "\n\t"), strings.Join(want, "\n\t"))
	}
	w.log.events = nil
}

// is fails the test unless a kind is in a state, for a reason that contains text.
func (w *world) is(name string, state kinds.State, text string) {
	w.t.Helper()
	synctest.Wait()
	h, ok := w.set.Find(name)
	if !ok || h.State != state || !strings.Contains(h.Reason, text) || (state == kinds.Reading) != (h.Reason == "") {
		w.t.Errorf("%s: %v, %q, want %v, %q", name, h.State, h.Reason, state, text)
	}
}

func (w *world) acquire(k kinds.Kind) *kinds.Lease[whole] {
	w.t.Helper()
	l, err := w.set.Acquire(k)
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

var (
	widget  = kinds.Kind{Group: "example.com", Kind: "Widget"}
	widgets = crd{plural: "widgets", kind: "Widget", scope: "Namespaced", versions: []string{"v1"}}
)
