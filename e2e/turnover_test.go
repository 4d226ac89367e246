package e2e_test

import (
	"context"
	"fmt"
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
// may not be read at first.
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

	var forbidden atomic.Bool
	forbidden.Store(true)
	config := server.User(func(a authorizer.Attributes) bool {
		return a.IsReadOnly() && a.GetNamespace() != "" && (a.GetNamespace() != names[0] || !forbidden.Load())
	})
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
			return rt.RoundTrip(req)
		})
	})
	reader, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	inf, err := informer.NewInNamespaces(reader.Resource(w.gvr).Namespace, names[:read], informer.Options[object]{ErrorHandler: func(_ context.Context, err error) {
		if !apierrors.IsForbidden(err) {
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
	for begun := time.Now(); time.Since(begun) < lasts; <-time.After(time.Second) {
		for range turnover {
			in, out := read/2+random.IntN(read/2), read+random.IntN(all-read)
			names[in], names[out] = names[out], names[in]
			come[names[in]]++
		}
		if err := inf.SetNamespaces(names[:read]); err != nil {
			t.Fatal(err)
		}
	}
	forbidden.Store(false)
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
		if name != names[0] && firsts[name] > come[name] {
			t.Errorf("%s came %d times, and its first state was asked for %d times", name, come[name], firsts[name])
		}
	}
	t.Logf("%d namespaces came, with %d objects at the end, and %d events", changes, len(want), len(events.Events()))
}
