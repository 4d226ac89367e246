package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/informertest"
)

// requests records the requests that go through a transport.
type requests struct {
	http.RoundTripper
	mu  sync.Mutex // protects the rest
	all []string
}

func (r *requests) RoundTrip(req *http.Request) (*http.Response, error) {
	what := kindOfRequest(req.URL.Query())
	if req.URL.Query().Get("continue") == "" { // a further page belongs to the list
		r.mu.Lock()
		r.all = append(r.all, what)
		r.mu.Unlock()
	}
	return r.RoundTripper.RoundTrip(req)
}

// kindOfRequest returns "list", "stream", "watch" or "probe".
func kindOfRequest(query url.Values) string {
	switch {
	case query.Get("sendInitialEvents") == "true":
		return "stream"
	case query.Get("watch") != "":
		return "watch"
	case query.Get("limit") == "1":
		return "probe"
	}
	return "list"
}

// settled matches a watch that stays, and what a busy server adds to it: further watches that
// replace one that ended, and the probe after a watch that took a second to begin.
var settled = regexp.MustCompile(`watch( watch| probe)*$`)

// take returns the requests since the last call, without what a busy server adds to the last watch.
func (r *requests) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := strings.Join(r.all, " ")
	r.all = nil
	return settled.ReplaceAllString(all, "watch")
}

// warmWorld is a kind on a server of its own, with a store that outlives its informers.
type warmWorld struct {
	t      *testing.T
	dir    string
	server *apiserver.Server
	gvk    schema.GroupVersionKind
	gvr    schema.GroupVersionResource
	writer dynamic.ResourceInterface
	mode   informer.WatchListMode
	store  *informertest.Durable
	asked  requests
}

func newWarmWorld(t *testing.T, mode informer.WatchListMode) *warmWorld {
	w := &warmWorld{
		t: t, dir: t.TempDir(), mode: mode, store: informertest.NewDurable(),
		gvk: schema.GroupVersionKind{Group: "warm.example.com", Version: "v1", Kind: "Widget"},
	}
	w.serve()
	var err error
	if w.gvr, err = w.server.Install(t.Context(), apiserver.Kind{GroupVersionKind: w.gvk}); err != nil {
		t.Fatal(err)
	}
	w.writer = w.client(w.server.Config()).Namespace(namespace)
	t.Cleanup(func() { w.server.Stop() })
	return w
}

// serve starts a server over the files in dir.
func (w *warmWorld) serve() {
	var err error
	if w.server, err = apiserver.StartIn(w.t.Context(), w.dir); err != nil {
		w.t.Fatal(err)
	}
	if w.writer == nil {
		return
	}
	w.writer = w.client(w.server.Config()).Namespace(namespace)
	for { // definitions are not served until shortly after the server is ready
		if _, err := w.writer.List(w.t.Context(), metav1.ListOptions{Limit: 1}); err == nil {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-w.t.Context().Done():
			w.t.Fatal("the kind is not served")
		}
	}
}

func (w *warmWorld) client(config *rest.Config) dynamic.NamespaceableResourceInterface {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		w.t.Fatal(err)
	}
	return client.Resource(w.gvr)
}

func (w *warmWorld) do(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *warmWorld) create(n int) {
	obj := (&world{gvk: w.gvk}).widget(name(n), n)
	_, err := w.writer.Create(w.t.Context(), obj, metav1.CreateOptions{})
	w.do(err)
}

func (w *warmWorld) update(n, size int) {
	_, err := w.writer.Patch(w.t.Context(), name(n), types.MergePatchType, fmt.Appendf(nil, `{"spec":{"size":%d}}`, size), metav1.PatchOptions{})
	w.do(err)
}

func (w *warmWorld) remove(n int) {
	w.do(w.writer.Delete(w.t.Context(), name(n), metav1.DeleteOptions{}))
}

// life is an informer that has synced, and its watcher.
type life struct {
	*warmWorld
	inf  *informer.CustomCacheInformer[object]
	r    informertest.Recorder[object]
	last chan struct{} // receives a token when the watcher gets the object lastName
	stop func()
}

func (w *warmWorld) live() *life {
	config := w.server.Config()
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		w.asked.RoundTripper = rt
		return &w.asked
	})
	l := w.prepare(w.client(config).Namespace(namespace))
	l.stop = informertest.Run(w.t, l.inf)
	return l
}

// prepare returns an informer that does not run, with its watcher.
func (w *warmWorld) prepare(client dynamic.ResourceInterface) *life {
	l := &life{warmWorld: w, last: make(chan struct{}, 1)}
	l.r.Hook = func(_ context.Context, e informer.Event[object]) error {
		if e.Type == informer.EventAdded && e.Key().Name == lastName {
			l.last <- struct{}{}
		}
		return nil
	}
	var err error
	l.inf, err = informer.NewFrom(informer.ListWatch(client), informer.Options[object]{
		Durable: w.store, WatchList: w.mode,
		ErrorHandler: func(_ context.Context, err error) { w.t.Logf("reported: %v", err) },
	})
	w.do(err)
	_, err = l.inf.AddWatcher(&l.r, informer.WatcherOptions{})
	w.do(err)
	return l
}

// converge waits until the watcher has got everything on the server, and compares its
// view with the server.
func (l *life) converge() {
	l.t.Helper()
	list, err := l.writer.List(l.t.Context(), metav1.ListOptions{})
	l.do(err)
	want := map[types.NamespacedName]string{}
	for i := range list.Items {
		want[keyOf(&list.Items[i])] = version(&list.Items[i])
	}
	_, err = l.writer.Create(l.t.Context(), (&world{gvk: l.gvk}).widget(lastName, 0), metav1.CreateOptions{})
	l.do(err)
	select {
	case <-l.last:
	case <-time.After(patience):
		l.t.Fatal("the watcher did not get the last object")
	}
	got := map[types.NamespacedName]string{}
	for key, obj := range l.r.View() {
		if key.Name != lastName {
			got[key] = version(obj)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		l.t.Errorf("the watcher does not have the server's state (-server +watcher):\n%s", diff)
	}
	if err := l.r.Err(); err != nil {
		l.t.Error(err)
	}
	l.do(l.writer.Delete(l.t.Context(), lastName, metav1.DeleteOptions{}))
}

// deleted returns the UIDs of the objects whose delete the watcher got.
func (l *life) deleted() map[types.UID]bool {
	uids := map[types.UID]bool{}
	for _, e := range l.r.Events() {
		if e.Type == informer.EventDeleted {
			uids[e.Old.GetUID()] = true
		}
	}
	return uids
}

func (w *warmWorld) uid(n int) types.UID {
	obj, err := w.writer.Get(w.t.Context(), name(n), metav1.GetOptions{})
	w.do(err)
	return obj.GetUID()
}

func (w *warmWorld) checkAsked(when, want string) {
	w.t.Helper()
	got := w.asked.take()
	w.t.Logf("%s: %s", when, got)
	if got != want {
		w.t.Errorf("%s: requests %q, want %q", when, got, want)
	}
}

// change changes objects while no informer runs, and returns the UIDs of those it deletes.
func (w *warmWorld) change(round int) map[types.UID]bool {
	gone := map[types.UID]bool{}
	for n := round; n < warmObjects(); n += 10 {
		switch n % 3 {
		case 0:
			w.update(n, 1000+round)
		case 1:
			gone[w.uid(n)] = true
			w.remove(n)
		case 2:
			gone[w.uid(n)] = true
			w.remove(n)
			w.create(n)
		}
	}
	return gone
}

func warmObjects() int { return sized(1000) }

func TestAWarmStartOnARealServer(t *testing.T) {
	for name, mode := range map[string]informer.WatchListMode{"stream": informer.WatchListOn, "list": informer.WatchListOff} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "list" {
				t.Skip("another server takes seconds: make soak")
			}
			w := newWarmWorld(t, mode)
			for n := range warmObjects() {
				w.create(n)
			}
			l := w.live()
			l.converge()
			l.stop()
			cold := name
			if name == "list" {
				cold += " watch"
			}
			w.checkAsked("cold", cold)

			gone := w.change(1)
			w.store = w.store.Reopen()
			l = w.live()
			l.converge()
			l.stop()
			w.checkAsked("after a clean stop", "probe watch")
			checkGone(t, gone, l.deleted())

			w.store = w.store.Reopen()
			l = w.live()
			gone = w.crash(l)
			w.asked.take()
			for uid := range w.change(2) {
				gone[uid] = true
			}
			w.store = w.store.Reopen()
			l = w.live()
			l.converge()
			l.stop()
			w.checkAsked("after a crash", "probe watch")
			checkGone(t, gone, l.deleted())

			gone = w.change(3)
			w.do(w.server.Expire(t.Context(), w.gvr))
			w.store = w.store.Reopen()
			l = w.live()
			l.converge()
			l.stop()
			w.checkAsked("after the history has expired", "probe watch "+cold)
			checkGone(t, gone, l.deleted())
			if err := w.store.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

// crash ends the informer l like a crash, in the middle of deletes. It returns the UIDs of the
// deleted objects.
func (w *warmWorld) crash(l *life) map[types.UID]bool {
	block := make(chan struct{})
	stuck := informer.WatcherFunc[object](func(_ context.Context, e informer.Event[object]) error {
		if e.Type == informer.EventDeleted {
			<-block
		}
		return nil
	})
	_, err := l.inf.AddWatcher(stuck, informer.WatcherOptions{})
	w.do(err)
	gone := map[types.UID]bool{}
	for n := 0; n < warmObjects(); n += 10 {
		gone[w.uid(n)] = true
		w.remove(n)
		if n == warmObjects()/2 {
			w.store.Crash()
		}
	}
	close(block)
	l.stop()
	return gone
}

func checkGone(t *testing.T, want, got map[types.UID]bool) {
	t.Helper()
	if len(want) == 0 {
		t.Error("nothing was deleted")
	}
	for uid := range want {
		if !got[uid] {
			t.Errorf("the watcher did not get the delete of %s", uid)
		}
	}
	t.Logf("%d deletes delivered, %d of them necessary", len(got), len(want))
}

func TestARestoredEtcdIsNoticedAtAWarmStart(t *testing.T) {
	for name, mode := range map[string]informer.WatchListMode{"stream": informer.WatchListOn, "list": informer.WatchListOff} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "stream" {
				t.Skip("two more servers take seconds: make soak")
			}
			w := newWarmWorld(t, mode)
			for n := range 100 {
				w.create(n)
			}
			w.server.Stop()
			backup := t.TempDir()
			w.do(os.CopyFS(filepath.Join(backup, "etcd"), os.DirFS(filepath.Join(w.dir, "etcd"))))

			w.serve()
			for n := range 100 {
				switch n % 4 {
				case 0:
					w.update(n, -1)
				case 1:
					w.remove(n)
				case 2:
					w.create(1000 + n)
				}
			}
			l := w.live()
			l.converge()
			l.stop()
			w.server.Stop()

			w.dir = backup
			w.serve()
			w.update(0, -2)
			w.asked.take()
			w.store = w.store.Reopen()
			l = w.live()
			l.converge()
			l.stop()
			w.checkAsked("after etcd was restored", "probe list watch")
		})
	}
}
