package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// TestNamespacesComeAndGo reads 200 of 230 namespaces, and changes ten of them every second, while writers write to all. One
// may not be read at first. The right to read another is taken away and given back.
func TestNamespacesComeAndGo(t *testing.T) {
	const all, read, turnover = 230, 200, 10
	w, lasts := newWorldOf(t, "turnover.example.com"), 2*time.Minute
	if testing.Short() {
		lasts = 8 * time.Second
	}
	names := make([]string, all)
	for i := range names {
		names[i] = fmt.Sprint("n", i)
	}
	everywhere, client := slices.Clone(names), w.client(server.Config())
	stop := make(chan struct{})
	var writing sync.WaitGroup
	for part := range clients {
		writing.Go(func() {
			random := rand.New(rand.NewPCG(uint64(part), 0))
			there := map[string]bool{}
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
				namespace, obj := everywhere[random.IntN(all)], fmt.Sprintf("w%d-%d", part, random.IntN(2))
				switch in, key := client.Namespace(namespace), namespace+"/"+obj; {
				case !there[key]:
					w.create(in, obj, n)
					there[key] = true
				case random.IntN(3) == 0:
					w.remove(in, obj)
					there[key] = false
				default:
					w.update(in, obj, n)
				}
			}
		})
	}

	halt := sync.OnceFunc(func() { close(stop); writing.Wait() })
	t.Cleanup(halt)

	late, revoked := names[0], names[1]
	var lateForbidden, revokedForbidden atomic.Bool
	lateForbidden.Store(true)
	config := server.User(func(a authorizer.Attributes) bool {
		namespace := a.GetNamespace()
		return a.IsReadOnly() && namespace != "" && (namespace != late || !lateForbidden.Load()) && (namespace != revoked || !revokedForbidden.Load())
	})
	revocable, revoke := context.WithCancel(t.Context()) // the server ends no watch because a right is gone
	defer revoke()
	config.QPS = -1
	var mu sync.Mutex // protects firsts
	firsts := map[string]int{}
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			_, path, _ := strings.Cut(req.URL.Path, "/namespaces/")
			namespace, _, _ := strings.Cut(path, "/")
			if what := kindOfRequest(req.URL.Query()); what == "stream" || what == "list" {
				mu.Lock()
				firsts[namespace]++
				mu.Unlock()
			}
			if namespace != revoked || revocable.Err() != nil {
				return rt.RoundTrip(req)
			}
			ctx, cancel := context.WithCancel(req.Context())
			context.AfterFunc(revocable, cancel)
			resp, err := rt.RoundTrip(req.WithContext(ctx))
			if err == nil {
				resp.Body = endsWith{resp.Body, revocable}
			}
			return resp, err
		})
	})
	reader, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	inf, err := informer.NewInNamespaces(reader.Resource(w.gvr).Namespace, names[:read], informer.Options[object]{ErrorHandler: func(_ context.Context, err error) {
		if !apierrors.IsForbidden(err) && !errors.Is(err, context.Canceled) { // a request that is under way when the rights go is cancelled
			t.Error(err)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	events := &informertest.Recorder[object]{}
	if _, err := inf.AddWatcher(events, informer.WatcherOptions{MaxBacklog: -1}); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := inf.Run(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(running.Wait)

	// The first half of the namespaces that are read stays.
	random, come := rand.New(rand.NewPCG(1, 1)), map[string]int{}
	for _, name := range names[:read] {
		come[name]++
	}
	var failing error // of the namespace without the right
	for begun := time.Now(); time.Since(begun) < lasts || revokedForbidden.Load() && time.Since(begun) < patience; <-time.After(time.Second) {
		for range turnover {
			in, out := read/2+random.IntN(read/2), read+random.IntN(all-read)
			names[in], names[out] = names[out], names[in]
			come[names[in]]++
		}
		if err := inf.SetNamespaces(names[:read]); err != nil {
			t.Fatal(err)
		}
		switch went := time.Since(begun); {
		case went > 2*lasts/3 && revokedForbidden.Load():
			n := slices.IndexFunc(inf.Health().Namespaces, func(n informer.SourceHealth) bool { return n.Namespace == revoked })
			if failing = inf.Health().Namespaces[n].SourceError; apierrors.IsForbidden(failing) {
				revokedForbidden.Store(false)
			}
		case went > lasts/3 && revocable.Err() == nil:
			revokedForbidden.Store(true)
			revoke()
		}
	}
	if revocable.Err() == nil || revokedForbidden.Load() {
		t.Errorf("the right was not taken away and given back; the namespace fails with %v", failing)
	}
	lateForbidden.Store(false)
	halt()

	want := map[types.NamespacedName]string{}
	list, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	readNow := map[string]bool{}
	for _, name := range names[:read] {
		readNow[name] = true
	}
	for i := range list.Items {
		if obj := &list.Items[i]; readNow[obj.GetNamespace()] {
			want[types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}] = version(obj)
		}
	}
	states := func() (stored, told map[types.NamespacedName]string) {
		stored, told = map[types.NamespacedName]string{}, map[types.NamespacedName]string{}
		for key, obj := range inf.All() {
			stored[key] = version(obj)
		}
		for key, obj := range events.View() {
			told[key] = version(obj)
		}
		return stored, told
	}
	stored, told := states()
	for deadline := time.Now().Add(patience); (!cmp.Equal(want, stored) || !cmp.Equal(want, told)) && time.Now().Before(deadline); stored, told = states() {
		<-time.After(10 * time.Millisecond) // the informer runs in real time
	}
	if diff := cmp.Diff(want, stored); diff != "" {
		t.Errorf("the store (-server +store):\n%s", diff)
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("the watcher (-server +watcher):\n%s", diff)
	}
	if err := events.Err(); err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	changes := 0
	for _, name := range names {
		changes += come[name]
		if name != late && name != revoked && firsts[name] > come[name] {
			t.Errorf("%s came %d times, and its first state was asked for %d times", name, come[name], firsts[name])
		}
	}
	t.Logf("%d namespaces came, with %d objects at the end, and %d events", changes, len(want), len(events.Events()))
}

// endsWith is the body of an answer that ends when ctx does.
type endsWith struct {
	io.ReadCloser
	ctx context.Context
}

func (e endsWith) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if err != nil && e.ctx.Err() != nil {
		err = io.EOF
	}
	return n, err
}
