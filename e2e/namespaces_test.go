package e2e_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/disk"
)

// someNamespaces are those that the user may read. There are objects in another one, too.
var someNamespaces = []string{"ns-a", "ns-b", "ns-c"}

// namespaced is a kind with objects in several namespaces, and a user who may read some of them.
type namespaced struct {
	*world
	path   string
	config *rest.Config // of the user, through the proxy

	mu       sync.Mutex          // protects the rest
	refused  string              // a namespace that the user may not read now
	expire   string              // a namespace whose next watch asks for a version that is gone
	requests map[string][]string // by namespace
}

func newNamespaced(t *testing.T) *namespaced {
	w := &namespaced{
		world: newWorldOf(t, "namespaces.example.com"), path: filepath.Join(t.TempDir(), "widgets.db"),
		requests: map[string][]string{},
	}
	user := server.User(func(a authorizer.Attributes) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return a.IsReadOnly() && a.GetNamespace() != w.refused && slices.Contains(someNamespaces, a.GetNamespace())
	})
	var err error
	if w.proxy, err = apiserver.NewProxy(user); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.proxy.Close)
	w.config = w.proxy.Config()
	w.config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) { return rt.RoundTrip(w.note(req)) })
	})
	return w
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// note records a request. If its namespace is to expire, note returns it with a version that the
// server has forgotten.
func (w *namespaced) note(req *http.Request) *http.Request {
	_, rest, _ := strings.Cut(req.URL.Path, "/namespaces/")
	namespace, _, _ := strings.Cut(rest, "/")
	query := req.URL.Query()
	what := kindOfRequest(query)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests[namespace] = append(w.requests[namespace], what)
	if what == "watch" && w.expire == namespace {
		w.expire = ""
		query.Set("resourceVersion", "1")
		req = req.Clone(req.Context())
		req.URL.RawQuery = query.Encode()
	}
	return req
}

// asked returns the requests to a namespace since the last call, without repetitions.
func (w *namespaced) asked(namespace string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	asked := strings.Join(slices.Compact(w.requests[namespace]), " ")
	w.requests[namespace] = nil
	return asked
}

func (w *namespaced) set(refused, expire string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused, w.expire = refused, expire
}

func (w *namespaced) in(namespace string) dynamic.ResourceInterface {
	return w.client(server.Config()).Namespace(namespace)
}

// write creates, changes or deletes an object.
func (w *namespaced) write(random *rand.Rand, client dynamic.ResourceInterface, there map[int]bool) {
	switch n := random.IntN(30); {
	case !there[n]:
		w.create(client, name(n), random.IntN(1e9))
		there[n] = true
	case random.IntN(3) == 0:
		w.remove(client, name(n))
		there[n] = false
	default:
		w.update(client, name(n), random.IntN(1e9))
	}
}

// namespacedLife is an informer of the user over the store on disk.
type namespacedLife struct {
	*informer.CustomCacheInformer[object]
	events *informertest.Recorder[object]
	stop   func()
}

func (w *namespaced) live() *namespacedLife {
	w.t.Helper()
	store, err := disk.Open(w.path, &unstructured.Unstructured{}, disk.Options{
		Identity: store.Identity{Cluster: "e2e", Resource: w.gvr.String(), Namespace: strings.Join(someNamespaces, ",")},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(w.config)
	if err != nil {
		w.t.Fatal(err)
	}
	inf, err := informer.NewInNamespaces(client.Resource(w.gvr).Namespace, someNamespaces, informer.Options[object]{
		Durable: store, ErrorHandler: func(_ context.Context, err error) { w.t.Logf("reported: %v", err) },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	l := &namespacedLife{CustomCacheInformer: inf, events: &informertest.Recorder[object]{Hook: w.checkOrder()}}
	if _, err := inf.AddWatcher(l.events, informer.WatcherOptions{MaxBacklog: -1}); err != nil {
		w.t.Fatal(err)
	}
	stop := informertest.Run(w.t, inf)
	l.stop = sync.OnceFunc(func() {
		stop()
		if err := store.Close(); err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(l.stop)
	return l
}

// checkOrder returns a hook that fails the test if an object goes back in time.
func (w *namespaced) checkOrder() func(context.Context, informer.Event[object]) error {
	newest := map[types.UID]string{}
	return func(_ context.Context, e informer.Event[object]) error {
		obj := e.Object()
		version := obj.GetResourceVersion()
		if before := newest[obj.GetUID()]; before != "" {
			if order, err := resourceversion.CompareResourceVersion(version, before); err != nil || order < 0 {
				w.t.Errorf("%v went from version %s to %s", e, before, version)
			}
		}
		newest[obj.GetUID()] = version
		return nil
	}
}

// readOwnWrite writes to a namespace, and reads the write as soon as the informer has it. After
// that, the informer also has everything that came before the write.
func (w *namespaced) readOwnWrite(l *namespacedLife, namespace string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	key := types.NamespacedName{Namespace: namespace, Name: "own-write"}
	made, err := w.in(namespace).Create(ctx, w.widget(key.Name, 0), metav1.CreateOptions{})
	if w.do(err); err != nil {
		return
	}
	if err := l.WaitForVersion(ctx, namespace, made.GetResourceVersion()); err != nil {
		w.t.Error(err)
	}
	if got, there, err := l.Get(key); !there || err != nil || got.GetUID() != made.GetUID() {
		w.t.Errorf("after the wait the object is there: %v, %v", there, err)
	}
	w.do(w.in(namespace).Delete(ctx, key.Name, metav1.DeleteOptions{}))
	if err := l.WaitFor(ctx, key, func(_ object, there bool) bool { return !there }); err != nil {
		w.t.Error(err)
	}
}

// check compares the store and the watcher with the server. Nothing writes meanwhile.
func (w *namespaced) check(l *namespacedLife) {
	w.t.Helper()
	want := map[types.NamespacedName]string{}
	for _, namespace := range someNamespaces {
		w.readOwnWrite(l, namespace)
		list, err := w.in(namespace).List(w.t.Context(), metav1.ListOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		for i := range list.Items {
			obj := &list.Items[i]
			want[types.NamespacedName{Namespace: namespace, Name: obj.GetName()}] = version(obj)
		}
	}
	stored := map[types.NamespacedName]string{}
	for key, obj := range l.All() {
		stored[key] = version(obj)
	}
	if diff := cmp.Diff(want, stored); diff != "" {
		w.t.Errorf("the store (-server +store):\n%s", diff)
	}
	told := func() map[types.NamespacedName]string {
		told := map[types.NamespacedName]string{}
		for key, obj := range l.events.View() {
			told[key] = version(obj)
		}
		return told
	}
	for deadline := time.Now().Add(patience); !cmp.Equal(want, told()) && time.Now().Before(deadline); {
		<-time.After(10 * time.Millisecond) // the watcher runs in real time
	}
	if diff := cmp.Diff(want, told()); diff != "" {
		w.t.Errorf("the watcher (-server +watcher):\n%s", diff)
	}
	if err := l.events.Err(); err != nil {
		w.t.Error(err)
	}
}

// forbid takes the right to read a namespace away for a while. Its state stays, and the others go
// on.
func (w *namespaced) forbid(l *namespacedLife, namespace, other string) {
	w.t.Helper()
	w.check(l)
	known := len(l.events.Events())
	w.set(namespace, "")
	w.proxy.Cut()
	w.readOwnWrite(l, other)
	for _, e := range l.events.Events()[known:] {
		if e.Key().Namespace == namespace {
			w.t.Errorf("while the namespace is forbidden: %v", e)
		}
	}
	failing := func() (err error) {
		for _, h := range l.Health().Namespaces {
			if h.Namespace == namespace {
				err = h.SourceError
			}
		}
		return err
	}
	for deadline := time.Now().Add(patience); failing() == nil && time.Now().Before(deadline); {
		<-time.After(10 * time.Millisecond) // the server runs in real time
	}
	if err := failing(); err == nil || !strings.Contains(err.Error(), "forbidden") || l.Health().Ready() != nil {
		w.t.Errorf("the namespace fails with %v; ready: %v", err, l.Health().Ready())
	}
	w.set("", "")
}

// One informer reads three namespaces for a user who may read just these, while all that can go
// wrong in one of them does.
func TestSeveralNamespacesOfARealServer(t *testing.T) {
	w := newNamespaced(t)
	if err := server.Expire(t.Context(), w.gvr); err != nil { // version 1 is gone from now on
		t.Fatal(err)
	}
	var over atomic.Bool
	var pause sync.RWMutex // held by each writer while it writes
	var writers sync.WaitGroup
	for n, namespace := range append([]string{"ns-hidden"}, someNamespaces...) {
		writers.Go(func() {
			random, client, there := rand.New(rand.NewPCG(uint64(n), 24)), w.in(namespace), map[int]bool{}
			for !over.Load() {
				pause.RLock()
				w.write(random, client, there)
				pause.RUnlock()
			}
		})
	}
	defer writers.Wait()
	defer over.Store(true)
	quiet := func(do func()) {
		pause.Lock()
		defer pause.Unlock()
		do()
	}

	l := w.live()
	random := rand.New(rand.NewPCG(1, 24))
	for round := range sized(25) {
		at := random.IntN(len(someNamespaces))
		namespace, other := someNamespaces[at], someNamespaces[(at+1)%len(someNamespaces)]
		switch round % 5 {
		case 0: // every watch ends, while other namespaces have unread events
			w.proxy.Cut()
			w.readOwnWrite(l, namespace)
		case 1: // the version of one namespace is gone
			w.asked(namespace)
			w.asked(other)
			w.set("", namespace)
			w.proxy.Cut()
			w.readOwnWrite(l, namespace)
			w.readOwnWrite(l, other)
			listed := func(asked string) bool { return strings.Contains(asked, "list") || strings.Contains(asked, "stream") }
			if asked := w.asked(namespace); !listed(asked) {
				t.Errorf("a namespace whose version was gone was asked: %s", asked)
			}
			if asked := w.asked(other); listed(asked) {
				t.Errorf("another namespace was asked: %s", asked)
			}
		case 2:
			quiet(func() { w.forbid(l, namespace, other) })
			w.readOwnWrite(l, namespace)
		case 3: // a restart at any moment
			l.stop()
			for _, namespace := range someNamespaces {
				w.asked(namespace)
			}
			l = w.live()
			for _, namespace := range someNamespaces {
				if asked := w.asked(namespace); asked != "probe watch" {
					t.Errorf("after a restart %s was asked: %s", namespace, asked)
				}
			}
		case 4:
			quiet(func() { w.check(l) })
		}
	}
	over.Store(true)
	writers.Wait()
	w.check(l)
	if asked := w.asked("ns-hidden") + w.asked(""); asked != "" {
		t.Errorf("other namespaces were asked: %s", asked)
	}
	t.Logf("%d writes", w.written.Load())
}
