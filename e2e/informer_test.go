package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/informertest"
)

const (
	clients   = 4
	watchers  = 10 // how many watchers of each informer stay: some register before the start, the others later
	lastName  = "zz-last"
	namespace = "default"
)

// objects returns how many objects the clients create. outages returns how many of them they
// change while no informer can watch.
func objects() int { return sized(5000) }
func outages() int { return sized(300) }

type object = *unstructured.Unstructured

// recorder is a watcher that stays. It closes complete when it gets the last object.
type recorder struct {
	informertest.Recorder[object]
	complete chan struct{}
}

func newRecorder() *recorder {
	r := &recorder{complete: make(chan struct{})}
	r.Hook = func(_ context.Context, e informer.Event[object]) error {
		if e.Key().Name == lastName {
			close(r.complete)
		}
		return nil
	}
	return r
}

// world is a kind on the server, with clients that write to the server directly and informers
// that read through a proxy.
type world struct {
	t       *testing.T
	gvk     schema.GroupVersionKind
	gvr     schema.GroupVersionResource
	proxy   *apiserver.Proxy
	writers []dynamic.ResourceInterface
	written atomic.Int64
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, gvk: schema.GroupVersionKind{Group: "e2e.example.com", Version: "v1", Kind: "Widget"}}
	var err error
	if w.gvr, err = server.Install(t.Context(), apiserver.Kind{GroupVersionKind: w.gvk}); err != nil {
		t.Fatal(err)
	}
	if w.proxy, err = server.Proxy(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.proxy.Close)
	for range clients {
		w.writers = append(w.writers, w.client(server.Config()).Namespace(namespace))
	}
	return w
}

func (w *world) client(config *rest.Config) dynamic.NamespaceableResourceInterface {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		w.t.Fatal(err)
	}
	return client.Resource(w.gvr)
}

func (w *world) widget(name string, size int) object {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(size)}}}
	obj.SetGroupVersionKind(w.gvk)
	obj.SetName(name)
	return obj
}

// do counts a write, and fails the test if the write failed.
func (w *world) do(err error) {
	w.written.Add(1)
	if err != nil {
		w.t.Error(err)
	}
}

func (w *world) create(c dynamic.ResourceInterface, name string, size int) {
	_, err := c.Create(w.t.Context(), w.widget(name, size), metav1.CreateOptions{})
	w.do(err)
}

func (w *world) update(c dynamic.ResourceInterface, name string, size int) {
	_, err := c.Patch(w.t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"size":%d}}`, size), metav1.PatchOptions{})
	w.do(err)
}

func (w *world) remove(c dynamic.ResourceInterface, name string) {
	w.do(c.Delete(w.t.Context(), name, metav1.DeleteOptions{}))
}

// churn creates all objects and changes or deletes most of them. Each client does a part.
func (w *world) churn(after func(name int)) {
	var all sync.WaitGroup
	for n, client := range w.writers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), 1))
			for i := n; i < objects(); i += clients {
				w.create(client, name(i), 0)
				if earlier := n + clients*r.IntN(i/clients+1); earlier%10 >= 5 {
					w.update(client, name(earlier), i)
				}
				if i >= 10*clients && i%4 == n && i%10 < 3 { // objects with these numbers are never updated
					w.remove(client, name(i))
				}
				after(i)
			}
		})
	}
	all.Wait()
}

func name(n int) string { return fmt.Sprintf("w-%04d", n) }

// state returns the objects of the server: the version of each by its key.
func (w *world) state() map[types.NamespacedName]string {
	list, err := w.writers[0].List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	state := map[types.NamespacedName]string{}
	for i := range list.Items {
		state[keyOf(&list.Items[i])] = version(&list.Items[i])
	}
	return state
}

func keyOf(obj object) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

func version(obj object) string { return fmt.Sprintf("%s@%s", obj.GetUID(), obj.GetResourceVersion()) }

// follower is an informer with its watchers.
type follower struct {
	inf     *informer.CustomCacheInformer[object]
	mu      sync.Mutex // protects the rest
	staying []*recorder
	left    []*informertest.Recorder[object]
	regs    []*informer.Registration // the registrations of the watchers that leave
}

func (w *world) follow(queue informer.QueueKind) *follower {
	inf, err := informer.NewFrom(informer.ListWatch(w.client(w.proxy.Config())), informer.Options[object]{
		Queue:        queue,
		ErrorHandler: func(_ context.Context, err error) { w.t.Logf("reported: %v", err) },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	f := &follower{inf: inf}
	for range watchers / 2 {
		f.stay(w.t)
	}
	informertest.Run(w.t, inf)
	return f
}

func (f *follower) stay(t *testing.T) {
	r := newRecorder()
	if _, err := f.inf.AddWatcher(r, informer.WatcherOptions{MaxBacklog: -1}); err != nil {
		t.Error(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.staying = append(f.staying, r)
}

// comeAndGo adds a watcher that will leave, and removes the one that was added before it.
func (f *follower) comeAndGo(t *testing.T) {
	r := &informertest.Recorder[object]{}
	reg, err := f.inf.AddWatcher(r, informer.WatcherOptions{MaxBacklog: -1})
	if err != nil {
		t.Error(err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, old := range f.regs {
		old.Remove()
	}
	f.regs = []*informer.Registration{reg}
	f.left = append(f.left, r)
}

func TestEveryWatcherEndsWithTheServersState(t *testing.T) {
	w := newWorld(t)
	followers := map[string]*follower{"DeltaFIFO": w.follow(informer.QueueDeltaFIFO), "RealFIFO": w.follow(informer.QueueRealFIFO)}
	each := func(do func(*follower)) {
		for _, f := range followers {
			do(f)
		}
	}

	// Clients write while watchers come and go and connections are cut.
	w.churn(func(n int) {
		if n%(objects()/20) == 7 {
			each(func(f *follower) { f.comeAndGo(t) })
		}
		if n%(objects()/5) == objects()/10 {
			each(func(f *follower) { f.stay(t) })
		}
		if n%(objects()/4) == objects()/5 {
			w.proxy.Cut()
		}
	})
	// While no informer can watch, objects are changed, deleted, or deleted and created again
	// with the same name. Then the server forgets its history, so that it answers the next
	// watch with 410.
	w.proxy.Refuse()
	c := w.writers[0]
	for n := range outages() {
		switch obj := name(10*n + 5); n % 3 { // these objects have not been deleted
		case 0:
			w.update(c, obj, -1)
		case 1:
			w.remove(c, obj)
		case 2:
			w.remove(c, obj)
			w.create(c, obj, -2)
		}
	}
	if err := server.Expire(t.Context(), w.gvr); err != nil {
		t.Fatal(err)
	}
	if err := w.proxy.Allow(); err != nil {
		t.Fatal(err)
	}
	// A relist has no order, so create the last object only when the relist is over.
	over, err := c.Create(t.Context(), w.widget("over", 0), metav1.CreateOptions{})
	w.do(err)
	each(func(f *follower) {
		if err := f.inf.WaitForVersion(t.Context(), "", over.GetResourceVersion()); err != nil {
			t.Fatal(err)
		}
	})
	w.create(c, lastName, 0)
	t.Logf("%d writes", w.written.Load())

	want := w.state()
	for queue, f := range followers {
		for i, r := range f.staying {
			select {
			case <-r.complete:
			case <-time.After(patience):
				t.Fatalf("%s: watcher %d did not get the last object", queue, i)
			}
			f.check(t, fmt.Sprintf("%s: watcher %d", queue, i), want, r)
		}
		for i, r := range f.left {
			if err := r.Err(); err != nil {
				t.Errorf("%s: watcher %d, which left: %v", queue, i, err)
			}
		}
		checkRelist(t, queue, f.staying[0].Events())
		t.Logf("%s: %d watchers stayed, the first with %d events, %d left", queue, len(f.staying), len(f.staying[0].Events()), len(f.left))
	}
}

// check fails the test unless the events of r are consistent and lead to want.
func (f *follower) check(t *testing.T, who string, want map[types.NamespacedName]string, r *recorder) {
	t.Helper()
	if err := r.Err(); err != nil {
		t.Errorf("%s: %v", who, err)
	}
	got := map[types.NamespacedName]string{}
	for key, obj := range r.View() {
		got[key] = version(obj)
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s does not end with the server's state (-server +watcher):\n%s", who, cmp.Diff(want, got))
	}
}

// checkRelist fails the test unless the events of the relist match the changes of the outage.
func checkRelist(t *testing.T, queue string, events []informer.Event[object]) {
	t.Helper()
	told := map[string]string{}
	for _, e := range events {
		if e.Origin == informer.OriginRelist {
			told[e.Key().Name] += e.Type.String() + " "
		}
	}
	for n := range outages() {
		want := [...]string{"updated ", "deleted ", "deleted added "}[n%3]
		if got := told[name(10*n+5)]; got != want {
			t.Errorf("%s: %s was %sduring the outage, and the watcher got %q", queue, name(10*n+5), want, got)
		}
	}
}

func TestAWriterReadsItsWrites(t *testing.T) {
	w := &world{t: t, gvk: schema.GroupVersionKind{Group: "e2e.example.com", Version: "v1", Kind: "Gadget"}}
	var err error
	if w.gvr, err = server.Install(t.Context(), apiserver.Kind{GroupVersionKind: w.gvk}); err != nil {
		t.Fatal(err)
	}
	client := w.client(server.Config())
	for _, queue := range []informer.QueueKind{informer.QueueDeltaFIFO, informer.QueueRealFIFO} {
		inf, err := informer.NewFrom(informer.ListWatch(client), informer.Options[object]{Queue: queue})
		if err != nil {
			t.Fatal(err)
		}
		informertest.Run(t, inf)
		for n := range 50 {
			obj, err := client.Namespace(namespace).Create(t.Context(), w.widget(fmt.Sprintf("g-%d-%d", queue, n), n), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := inf.WaitForVersion(t.Context(), "", obj.GetResourceVersion()); err != nil {
				t.Fatal(err)
			}
			if got, exists, err := inf.Get(keyOf(obj)); !exists || err != nil || version(got) != version(obj) {
				t.Fatalf("wrote %s and read %v, %v, %v", version(obj), got, exists, err)
			}
		}
	}
}

func TestAServerThatCannotBeReachedIsNamed(t *testing.T) {
	proxy, err := server.Proxy()
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	proxy.Refuse()
	w := &world{t: t, gvr: schema.GroupVersionResource{Group: "e2e.example.com", Version: "v1", Resource: "nothings"}}
	for name, config := range map[string]*rest.Config{"refused": proxy.Config(), "not found": server.Config()} {
		t.Run(name, func(t *testing.T) {
			failed := make(chan struct{})
			reported := sync.OnceFunc(func() { close(failed) })
			inf, err := informer.NewFrom(informer.ListWatch(w.client(config)), informer.Options[object]{
				Name:         "nothings",
				ErrorHandler: func(context.Context, error) { reported() },
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- inf.Run(ctx) }()
			<-failed
			wait, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			defer cancel()
			err = inf.WaitForSync(wait)
			t.Log(err)
			if name == "not found" && !apierrors.IsNotFound(err) {
				t.Errorf("a resource that does not exist: %v", err)
			}
			if name == "refused" && !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("a server that refuses connections: %v", err)
			}
			begin := time.Now()
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
			t.Logf("stopped in %v", time.Since(begin))
		})
	}
}
