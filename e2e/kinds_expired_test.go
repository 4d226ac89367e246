package e2e_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/kinds"
)

// restarter keeps the version of each object, as some programs do without an informer: it lists once and watches from there. When its watch
// expires, it watches from the version of a new list, of which it takes nothing else.
type restarter struct {
	mu       sync.Mutex // protects the rest
	versions map[types.NamespacedName]string
	watches  int
}

// run follows the objects until ctx ends.
func (r *restarter) run(ctx context.Context, client dynamic.ResourceInterface) {
	for ctx.Err() == nil {
		list, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			select {
			case <-time.After(100 * time.Millisecond): // the server runs in real time
			case <-ctx.Done():
			}
			continue
		}
		r.mu.Lock()
		for i := range list.Items {
			if r.watches == 0 {
				r.versions[keyOf(&list.Items[i])] = version(&list.Items[i])
			}
		}
		r.watches++
		r.mu.Unlock()
		w, err := toolswatch.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{
			WatchFuncWithContext: client.Watch,
		})
		if err != nil {
			return
		}
		for event := range w.ResultChan() {
			r.take(event)
		}
		w.Stop()
		<-w.Done()
	}
}

func (r *restarter) take(event watch.Event) {
	obj, ok := event.Object.(object)
	if !ok {
		return // the Status of a 410
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch event.Type {
	case watch.Added, watch.Modified:
		r.versions[keyOf(obj)] = version(obj)
	case watch.Deleted:
		delete(r.versions, keyOf(obj))
	}
}

// has reports whether it has these versions, after n watches began.
func (r *restarter) has(want map[types.NamespacedName]string, n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watches == n && cmp.Equal(want, r.versions)
}

// TestAHistoryThatExpiresLeavesNoOldState changes and deletes objects while no watch is open, and expires the history. A set gets the new state. A
// RetryWatcher that starts again from a new list does not show what has happened in between.
func TestAHistoryThatExpiresLeavesNoOldState(t *testing.T) {
	w := newWorldOf(t, "expired.example.com")
	proxy, err := server.Proxy()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	in := w.writers[0]
	for n := range 10 {
		w.create(in, name(n), n)
	}
	set, err := kinds.New(kindsClients(t, proxy.Config()), kinds.Options[object]{
		ErrorHandler: func(context.Context, error) {}, Informer: informer.Options[object]{ErrorHandler: func(context.Context, error) {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := set.Acquire(kinds.Kind{Group: w.gvk.Group, Kind: w.gvk.Kind})
	if err != nil {
		t.Fatal(err)
	}
	runSet(t, set)
	r := &restarter{versions: map[types.NamespacedName]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.run(ctx, w.client(proxy.Config())) })
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	eventually := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(patience); !done(); <-time.After(5 * time.Millisecond) { // the server runs in real time
			if time.Now().After(deadline) {
				t.Fatalf("%s: %+v, %v", what, set.Health(), r.versions)
			}
		}
	}
	setHas := func(want map[types.NamespacedName]string) bool {
		stored := map[types.NamespacedName]string{}
		for key, obj := range lease.All() {
			stored[key] = version(obj)
		}
		return cmp.Equal(want, stored)
	}
	before := w.state()
	eventually("not both have the first state", func() bool { return setHas(before) && r.has(before, 1) })

	proxy.Refuse()
	w.update(in, name(1), 100)
	w.remove(in, name(2))
	w.remove(in, name(3))
	w.create(in, name(3), 100)
	if err := server.Expire(t.Context(), w.gvr); err != nil {
		t.Fatal(err)
	}
	if err := proxy.Allow(); err != nil {
		t.Fatal(err)
	}
	eventually("the set has an old state", func() bool { return setHas(w.state()) })
	eventually("the watch has not expired", func() bool { return r.has(before, 2) })
	w.update(in, name(4), 100) // both are up to date again
	eventually("the set does not get the next change", func() bool { return setHas(w.state()) })
	now, old := w.state(), before
	key := types.NamespacedName{Namespace: namespace, Name: name(4)}
	old[key] = now[key]
	eventually("the other one does not have the old state with the next change", func() bool { return r.has(old, 2) })
	if cmp.Equal(now, old) {
		t.Error("nothing has changed while no watch was open")
	}
	t.Logf("the set has the state of the server, and the other one differs from it (-server +other):\n%s", cmp.Diff(now, old))
}
