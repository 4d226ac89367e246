package page_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/debug"
	"github.com/customcacheinformer/informer/informertest"
)

const (
	mount  = "/debug/informers"
	prefix = "/some/prefix"
)

// world is a program with a group of informers that serves the debug page of the group.
type world struct {
	t      *testing.T
	group  informer.Group
	server *httptest.Server

	// instead replaces the answers of the server, unless it is nil.
	instead atomic.Pointer[http.HandlerFunc]
}

func newWorld(t *testing.T) *world {
	w := &world{t: t}
	w.group.ErrorHandler = func(context.Context, error) {}
	handler := debug.Handler(w.group.Health)
	mux := http.NewServeMux()
	mux.Handle(mount, handler)
	mux.Handle(prefix+mount, http.StripPrefix(prefix, handler))
	w.server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if instead := w.instead.Load(); instead != nil {
			(*instead)(rw, r)
			return
		}
		mux.ServeHTTP(rw, r)
	}))
	t.Cleanup(w.server.Close)
	return w
}

// run runs the group until the test ends.
func (w *world) run() {
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	done := make(chan error, 1)
	go func() { done <- w.group.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Run: %v", err)
		}
	})
}

func (w *world) page() string { return w.server.URL + mount }

// member adds an informer to the group.
func member[T informer.Object](w *world, src *informertest.Source[T], opts informer.Options[T]) *informer.CustomCacheInformer[T] {
	w.t.Helper()
	opts.Backoff = &wait.Backoff{Duration: between, Factor: 2, Steps: 100, Cap: time.Second}
	inf, err := informer.NewFrom(src, opts)
	if err == nil {
		err = w.group.Add(inf)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return inf
}

// watch adds a watcher that calls handle for every event of an informer.
func watch[T informer.Object](w *world, inf *informer.CustomCacheInformer[T], opts informer.WatcherOptions, handle func(context.Context)) {
	w.t.Helper()
	f := informer.WatcherFunc[T](func(ctx context.Context, _ informer.Event[T]) error {
		handle(ctx)
		return nil
	})
	if _, err := inf.AddWatcher(f, opts); err != nil {
		w.t.Fatal(err)
	}
}

// takes returns a watcher's function that takes d for each event.
func takes(d time.Duration) func(context.Context) {
	return func(ctx context.Context) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
}

// brake is a watcher that a test can block.
type brake struct {
	mu   sync.Mutex
	free chan struct{} // closed to let blocked calls return; nil while calls do not block
}

// block makes calls block from now on, until release is called.
func (b *brake) block() (release func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	free := make(chan struct{})
	b.free = free
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.free = nil
		close(free)
	}
}

func (b *brake) call(ctx context.Context) {
	b.mu.Lock()
	free := b.free
	b.mu.Unlock()
	if free == nil {
		return
	}
	select {
	case <-free:
	case <-ctx.Done():
	}
}

func pod(name string, revision int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, Annotations: map[string]string{"revision": fmt.Sprint(revision)},
	}}
}

func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", fmt.Errorf(
		"User %q cannot list resource %q in API group \"\" at the cluster scope", "system:serviceaccount:shop:storefront", resource))
}

// forbid adds an informer of secrets that the API server refuses to list and to watch.
func forbid(w *world) {
	src := informertest.NewSource[*corev1.Secret]()
	src.Fail("list", forbidden("secrets"), -1)
	src.Fail("watch", forbidden("secrets"), -1)
	secrets := member(w, src, informer.Options[*corev1.Secret]{})
	watch(w, secrets, informer.WatcherOptions{Name: "certificates"}, takes(0))
}

// shop is a world with an informer of pods and an informer of secrets, which are forbidden.
// The pods have three watchers: "cache", which is quick, "dns", which is slow, and "webhooks",
// which can be blocked.
type shop struct {
	*world
	pods     *informertest.Source[*corev1.Pod]
	webhooks brake
}

func newShop(t *testing.T) *shop {
	s := &shop{world: newWorld(t), pods: informertest.NewSource(pod("cart", 0))}
	inf := member(s.world, s.pods, informer.Options[*corev1.Pod]{})
	watch(s.world, inf, informer.WatcherOptions{Name: "cache"}, func(context.Context) {})
	watch(s.world, inf, informer.WatcherOptions{Name: "dns"}, takes(20*time.Millisecond))
	watch(s.world, inf, informer.WatcherOptions{Name: "webhooks"}, s.webhooks.call)
	forbid(s.world)
	s.run()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := inf.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	for s.group.Health()["Secret"].(informer.Health).SourceError == nil {
		if takes(between)(ctx); ctx.Err() != nil {
			t.Fatal("the secrets are not forbidden")
		}
	}
	return s
}

// change changes a pod, times times.
func (s *shop) change(times int) {
	for range times {
		s.pods.Apply(pod("cart", rand.Int()))
	}
}

// newTroubled returns the page of a world with many problems. Its pods change until the test
// ends; one of their watchers is quick, one is behind, one is blocked, and one has its events
// merged. The store of its config maps is full. Its secrets are forbidden.
func newTroubled(t *testing.T) (address string) {
	w := newWorld(t)
	pods := informertest.NewSource[*corev1.Pod]()
	inf := member(w, pods, informer.Options[*corev1.Pod]{})
	watch(w, inf, informer.WatcherOptions{Name: "cache"}, takes(5*time.Millisecond))
	watch(w, inf, informer.WatcherOptions{Name: "dns"}, takes(200*time.Millisecond))
	var audit brake
	audit.block()
	watch(w, inf, informer.WatcherOptions{Name: "audit"}, audit.call)
	watch(w, inf, informer.WatcherOptions{Name: "billing", MaxBacklog: 100}, takes(100*time.Millisecond))

	store := informertest.NewStore(nil)
	maps := informertest.NewSource(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "prices"}})
	configMaps := member(w, maps, informer.Options[*corev1.ConfigMap]{Store: store})
	watch(w, configMaps, informer.WatcherOptions{Name: "flags"}, takes(0))
	store.Fail(func(op, _ string) error {
		if op == "get" {
			return nil
		}
		return errors.New("write /var/lib/storefront/000042.log: no space left on device")
	})
	forbid(w)
	w.run()

	ctx, stop := context.WithCancel(context.Background())
	var churning sync.WaitGroup
	churning.Go(func() { churn(ctx, pods) })
	t.Cleanup(func() { stop(); churning.Wait() })
	return w.page()
}

// churn changes pods until ctx ends: usually a few at a time, and sometimes many.
func churn(ctx context.Context, pods *informertest.Source[*corev1.Pod]) {
	for n := 0; ctx.Err() == nil; n++ {
		changes := 4
		if n%28 == 4 { // every seven seconds
			changes = 400
		}
		for range changes {
			i := rand.IntN(120)
			pods.Apply(pod(fmt.Sprintf("%s-%02d", []string{"cart", "checkout", "search"}[i%3], i/3), rand.Int()))
		}
		takes(250 * time.Millisecond)(ctx)
	}
}
