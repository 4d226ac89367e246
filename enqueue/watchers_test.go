package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
)

// keys is a queue that keeps every key.
type keys[K comparable] struct {
	mu    sync.Mutex
	added []K
}

func (q *keys[K]) Add(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.added = append(q.added, key)
}

// take returns the keys that were added since the last call.
func (q *keys[K]) take() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	text := fmt.Sprint(q.added)
	q.added = nil
	return strings.Trim(text, "[]")
}

func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	for _, f := range change {
		f(p)
	}
	return p
}

func ownedBy(refs ...metav1.OwnerReference) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.OwnerReferences = refs }
}

func owner(version, kind, name string, controller bool) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, Controller: &controller}
}

// tell calls w with an add if before is nil, with a delete if after is nil, and otherwise with
// an update.
func tell(t *testing.T, w informer.ResourceWatcher[*corev1.Pod], before, after *corev1.Pod) {
	t.Helper()
	var err error
	switch {
	case before == nil:
		err = w.Add(t.Context(), informer.Event[*corev1.Pod]{New: after, Type: informer.EventAdded})
	case after == nil:
		err = w.Delete(t.Context(), informer.Event[*corev1.Pod]{Old: before, Type: informer.EventDeleted})
	default:
		err = w.Update(t.Context(), informer.Event[*corev1.Pod]{Old: before, New: after, Type: informer.EventUpdated})
	}
	if err != nil {
		t.Error(err)
	}
}

func TestObjectEnqueuesItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var queue keys[types.NamespacedName]
		src := informertest.NewSource(pod("a"))
		inf, err := informer.NewFrom(src, informer.Options[*corev1.Pod]{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := inf.AddWatcher(enqueue.Object[*corev1.Pod](&queue), informer.WatcherOptions{ResyncPeriod: time.Hour}); err != nil {
			t.Fatal(err)
		}
		informertest.Run(t, inf)
		check := func(want string) {
			t.Helper()
			synctest.Wait()
			if got := queue.take(); got != want {
				t.Errorf("enqueued %q, want %q", got, want)
			}
		}
		check("ns/a")
		src.Apply(pod("b"))
		check("ns/b")
		src.Apply(pod("b", func(p *corev1.Pod) { p.Spec.NodeName = "n" }))
		check("ns/b")
		_, _ = src.Delete(types.NamespacedName{Namespace: "ns", Name: "b"})
		check("ns/b")
		time.Sleep(61 * time.Minute)
		check("ns/a") // by the resync
	})
}

func TestOwnerEnqueuesItsOwners(t *testing.T) {
	kind := schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}
	web, db := owner("apps/v1", "ReplicaSet", "web", true), owner("apps/v1beta1", "ReplicaSet", "db", true)
	other := owner("apps/v1", "ReplicaSet", "other", false)
	for _, test := range []struct {
		what     string
		owners   enqueue.Owners
		old, new *corev1.Pod
		want     string
	}{
		{"added", enqueue.Owners{Kind: kind}, nil, pod("p", ownedBy(web)), "ns/web"},
		{"deleted", enqueue.Owners{Kind: kind}, pod("p", ownedBy(web)), nil, "ns/web"},
		{"updated, once", enqueue.Owners{Kind: kind}, pod("p", ownedBy(web)), pod("p", ownedBy(web)), "ns/web"},
		{"another version of the API", enqueue.Owners{Kind: kind}, nil, pod("p", ownedBy(db)), "ns/db"},
		{"changes hands", enqueue.Owners{Kind: kind}, pod("p", ownedBy(web)), pod("p", ownedBy(db)), "ns/db ns/web"},
		{"is adopted", enqueue.Owners{Kind: kind}, pod("p"), pod("p", ownedBy(web)), "ns/web"},
		{"is released", enqueue.Owners{Kind: kind}, pod("p", ownedBy(web)), pod("p"), "ns/web"},
		{"nobody's", enqueue.Owners{Kind: kind}, nil, pod("p"), ""},
		{"no controller", enqueue.Owners{Kind: kind}, nil, pod("p", ownedBy(other)), ""},
		{"the controller is not said", enqueue.Owners{Kind: kind}, nil, pod("p", ownedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "x"})), ""},
		{"all owners", enqueue.Owners{Kind: kind, All: true}, nil, pod("p", ownedBy(web, other)), "ns/web ns/other"},
		{"another group", enqueue.Owners{Kind: kind}, nil, pod("p", ownedBy(owner("example.com/v1", "ReplicaSet", "x", true))), ""},
		{"another kind", enqueue.Owners{Kind: kind}, nil, pod("p", ownedBy(owner("apps/v1", "StatefulSet", "x", true))), ""},
		{"no version at all", enqueue.Owners{Kind: schema.GroupKind{Kind: "Node"}}, nil, pod("p", ownedBy(owner("a/b/c", "Node", "x", true))), ""},
		{"an owner twice", enqueue.Owners{Kind: kind, All: true}, nil, pod("p", ownedBy(web, web)), "ns/web"},
		{"the core group", enqueue.Owners{Kind: schema.GroupKind{Kind: "Node"}, ClusterScoped: true}, nil, pod("p", ownedBy(owner("v1", "Node", "n", true))), "/n"},
	} {
		t.Run(test.what, func(t *testing.T) {
			var queue keys[types.NamespacedName]
			tell(t, enqueue.Owner[*corev1.Pod](&queue, test.owners), test.old, test.new)
			if got := queue.take(); got != test.want {
				t.Errorf("enqueued %q, want %q", got, test.want)
			}
		})
	}
}

// An object may name as many owners as fit into it, tens of thousands. Each costs a key and no
// more: each key is enqueued once, and the work does not grow with the square of their number.
func TestAnObjectOfVeryManyOwnersEnqueuesEachOnce(t *testing.T) {
	n := 200_000
	if testing.Short() {
		n = 20_000
	}
	var refs []metav1.OwnerReference
	for i := range n {
		name := fmt.Sprint(i)
		refs = append(refs, owner("apps/v1", "ReplicaSet", name, i == 0), owner("apps/v1", "Deployment", name, false))
	}
	all := pod("p", ownedBy(append(refs, refs...)...))
	kind := schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}
	var queue keys[types.NamespacedName]
	tell(t, enqueue.Owner[*corev1.Pod](&queue, enqueue.Owners{Kind: kind}), all, all)
	if got := queue.take(); got != "ns/0" {
		t.Errorf("without All %.100q is enqueued, want the controller alone", got)
	}
	w := enqueue.Owner[*corev1.Pod](&queue, enqueue.Owners{Kind: kind, All: true})
	began := time.Now()
	tell(t, w, all, all)
	took := time.Since(began)
	if len(queue.added) != n {
		t.Fatalf("%d keys are enqueued, want %d", len(queue.added), n)
	}
	for i, key := range queue.added {
		if key.Name != fmt.Sprint(i) {
			t.Fatalf("key %d is %v", i, key)
		}
	}
	if took > 2*time.Minute { // it takes seconds, and with the square several minutes
		t.Errorf("%d owners took %v", n, took)
	}
}

func TestMapEnqueuesWhatTheFunctionReturns(t *testing.T) {
	type node string // a key type of the user's own
	var queue keys[node]
	w := enqueue.Map(&queue, func(ctx context.Context, p *corev1.Pod) ([]node, error) {
		if ctx != t.Context() {
			t.Error("another ctx than the event's")
		}
		if p.Spec.NodeName == "bad" {
			return []node{"never"}, errors.New("no such node")
		}
		return fields[node](p.Spec.NodeName), nil
	})
	on := func(nodes string) *corev1.Pod { return pod("p", func(p *corev1.Pod) { p.Spec.NodeName = nodes }) }
	for _, test := range []struct {
		old, new *corev1.Pod
		want     string
	}{
		{nil, on("a"), "a"},
		{on("a"), on("b"), "b a"},
		{on("a b"), on("b c"), "b c a"},
		{on("a a"), nil, "a"},
		{nil, on(""), ""},
	} {
		tell(t, w, test.old, test.new)
		if got := queue.take(); got != test.want {
			t.Errorf("enqueued %q, want %q", got, test.want)
		}
	}
	err := w.Update(t.Context(), informer.Event[*corev1.Pod]{Old: on("bad"), New: on("a"), Type: informer.EventUpdated})
	if got := queue.take(); err == nil || err.Error() != "no such node" || got != "" {
		t.Errorf("a function that fails: %v, and %q is enqueued", err, got)
	}
}

func fields[K ~string](text string) (keys []K) {
	for _, s := range strings.Fields(text) {
		keys = append(keys, K(s))
	}
	return keys
}

// If the function of Map fails, its event comes again, if the watcher is added with Retry.
func TestAMapThatFailsIsCalledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var queue keys[string]
		failures := 3
		w := enqueue.Map(&queue, func(_ context.Context, p *corev1.Pod) ([]string, error) {
			if failures--; failures >= 0 {
				return nil, errors.New("not now")
			}
			return []string{p.Name}, nil
		})
		inf, err := informer.NewFrom(informertest.NewSource(pod("a")), informer.Options[*corev1.Pod]{
			ErrorHandler: func(context.Context, error) {},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := inf.AddWatcher(w, informer.WatcherOptions{Retry: informer.Backoff(time.Second, time.Minute, 0)}); err != nil {
			t.Fatal(err)
		}
		informertest.Run(t, inf)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := queue.take(); got != "a" {
			t.Errorf("enqueued %q, want a", got)
		}
	})
}

// A label changes and changes back while the first of the two updates waits for its retry. The
// two are merged into one update that changes no label. That update must pass anyway, because
// the object may have been reconciled for another reason in between.
func TestThereAndBackWhileARetryWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var queue keys[string]
		var down atomic.Bool
		w := enqueue.Map(&queue, func(_ context.Context, p *corev1.Pod) ([]string, error) {
			if down.Load() {
				return nil, errors.New("not now")
			}
			return []string{p.Name}, nil
		}, enqueue.Labels)
		labelled := func(l string) *corev1.Pod {
			return pod("p", func(p *corev1.Pod) { p.Labels = map[string]string{"l": l} })
		}
		src := informertest.NewSource(labelled("a"))
		inf, err := informer.NewFrom(src, informer.Options[*corev1.Pod]{ErrorHandler: func(context.Context, error) {}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := inf.AddWatcher(w, informer.WatcherOptions{Retry: informer.Backoff(time.Second, time.Second, 0)}); err != nil {
			t.Fatal(err)
		}
		informertest.Run(t, inf)
		queue.take()
		down.Store(true)
		src.Apply(labelled("b"))
		synctest.Wait()
		src.Apply(labelled("a"))
		synctest.Wait()
		down.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := queue.take(); got != "p" {
			t.Errorf("enqueued %q, want p", got)
		}
	})
}

func TestChanges(t *testing.T) {
	base := pod("p", func(p *corev1.Pod) {
		p.Generation, p.Labels, p.Annotations = 1, map[string]string{"l": "1"}, map[string]string{"a": "1"}
	})
	changed := func(change func(*corev1.Pod)) *corev1.Pod {
		p := base.DeepCopy()
		change(p)
		return p
	}
	now := metav1.Now()
	states := map[string]*corev1.Pod{
		"status":     changed(func(p *corev1.Pod) { p.Status.Phase = "Running" }),
		"generation": changed(func(p *corev1.Pod) { p.Generation = 2 }),
		"label":      changed(func(p *corev1.Pod) { p.Labels["l"] = "2" }),
		"no labels":  changed(func(p *corev1.Pod) { p.Labels = nil }),
		"annotation": changed(func(p *corev1.Pod) { p.Annotations["b"] = "1" }),
		"deletion":   changed(func(p *corev1.Pod) { p.DeletionTimestamp = &now }),
		"resync":     base,
	}
	running := func(_, after metav1.Object) bool { return after.(*corev1.Pod).Status.Phase == "Running" }
	kind := schema.GroupKind{Kind: "Node"}
	base.OwnerReferences = []metav1.OwnerReference{owner("v1", "Node", "n", true)}
	for _, state := range states {
		state.OwnerReferences = base.OwnerReferences
	}
	for _, test := range []struct {
		what    string
		changes []enqueue.Change
		want    string // the states that pass, sorted
	}{
		{"none", nil, "annotation, deletion, generation, label, no labels, resync, status"},
		{"Generation", []enqueue.Change{enqueue.Generation}, "deletion, generation"},
		{"Labels", []enqueue.Change{enqueue.Labels}, "deletion, label, no labels"},
		{"Annotations", []enqueue.Change{enqueue.Annotations}, "annotation, deletion"},
		{"Resync", []enqueue.Change{enqueue.Resync}, "deletion, resync"},
		{"any of several", []enqueue.Change{enqueue.Generation, enqueue.Annotations, enqueue.Resync}, "annotation, deletion, generation, resync"},
		{"the user's own", []enqueue.Change{running}, "deletion, status"},
	} {
		t.Run(test.what, func(t *testing.T) {
			var queue keys[types.NamespacedName]
			for name, w := range map[string]informer.ResourceWatcher[*corev1.Pod]{
				"Object": enqueue.Object[*corev1.Pod](&queue, test.changes...),
				"Owner":  enqueue.Owner[*corev1.Pod](&queue, enqueue.Owners{Kind: kind}, test.changes...),
				"Map": enqueue.Map(&queue, func(context.Context, *corev1.Pod) ([]types.NamespacedName, error) {
					return []types.NamespacedName{{Name: "mapped"}}, nil
				}, test.changes...),
			} {
				var passed []string
				for what, state := range states {
					tell(t, w, base, state)
					if queue.take() != "" {
						passed = append(passed, what)
					}
				}
				slices.Sort(passed)
				if got := strings.Join(passed, ", "); got != test.want {
					t.Errorf("%s: updates of %s pass, want %s", name, got, test.want)
				}
				tell(t, w, nil, base)
				tell(t, w, base, nil)
				if n := len(queue.added); n != 2 {
					t.Errorf("%s: an add and a delete enqueue %d keys", name, n)
				}
				queue.take()
			}
		})
	}
}

// A merged update may hide a state in between, and that state may have been reconciled.
func TestMergedUpdatesPass(t *testing.T) {
	var queue keys[types.NamespacedName]
	w := enqueue.Object[*corev1.Pod](&queue, enqueue.Labels)
	p := pod("p")
	if err := w.Update(t.Context(), informer.Event[*corev1.Pod]{Old: p, New: p, Type: informer.EventUpdated, Merged: true}); err != nil {
		t.Error(err)
	}
	if got := queue.take(); got != "ns/p" {
		t.Errorf("enqueued %q", got)
	}
}

// The owners of its finalizers go one after the other. The API server raises no generation for that.
func TestAnUpdateOfADyingObjectPasses(t *testing.T) {
	now := metav1.Now()
	old := pod("p", func(p *corev1.Pod) {
		p.Generation, p.DeletionTimestamp, p.Finalizers = 1, &now, []string{"ours", "theirs"}
		ownedBy(owner("apps/v1", "ReplicaSet", "r", true))(p)
	})
	after := old.DeepCopy()
	after.Finalizers = []string{"ours"}
	never := func(metav1.Object, metav1.Object) bool { return false }
	for name, change := range map[string]enqueue.Change{
		"Generation": enqueue.Generation, "Labels": enqueue.Labels, "Annotations": enqueue.Annotations, "never": never,
	} {
		var queue keys[types.NamespacedName]
		for want, w := range map[string]informer.ResourceWatcher[*corev1.Pod]{
			"ns/p": enqueue.Object[*corev1.Pod](&queue, change),
			"ns/r": enqueue.Owner[*corev1.Pod](&queue, enqueue.Owners{Kind: schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}}, change),
			"ns/m": enqueue.Map(&queue, func(context.Context, *corev1.Pod) ([]types.NamespacedName, error) {
				return []types.NamespacedName{{Namespace: "ns", Name: "m"}}, nil
			}, change),
		} {
			tell(t, w, old, after)
			if got := queue.take(); got != want {
				t.Errorf("%s: enqueued %q, want %s", name, got, want)
			}
			tell(t, w, old, old)
			if got := queue.take(); got != "" {
				t.Errorf("%s: a resync enqueues %q", name, got)
			}
		}
	}
}

// Generation does not keep out updates of kinds whose objects have no generation.
func TestGenerationOfAnObjectWithoutOne(t *testing.T) {
	var queue keys[types.NamespacedName]
	w := enqueue.Object[*corev1.Pod](&queue, enqueue.Generation)
	old := pod("p")
	tell(t, w, old, pod("p"))
	if got := queue.take(); got != "ns/p" {
		t.Errorf("an update enqueues %q", got)
	}
	tell(t, w, old, old)
	if got := queue.take(); got != "" {
		t.Errorf("a resync enqueues %q", got)
	}
	counted := pod("p", func(p *corev1.Pod) { p.Generation = 2 })
	tell(t, w, counted, pod("p", func(p *corev1.Pod) { p.Generation = 1 })) // from a restored backup
	if got := queue.take(); got != "ns/p" {
		t.Errorf("a generation that goes back enqueues %q", got)
	}
	tell(t, w, counted, counted.DeepCopy())
	if got := queue.take(); got != "" {
		t.Errorf("the same generation enqueues %q", got)
	}
}

func TestWatchersRefuseNil(t *testing.T) {
	var queue keys[types.NamespacedName]
	kind := enqueue.Owners{Kind: schema.GroupKind{Kind: "Node"}}
	none := func(context.Context, *corev1.Pod) ([]types.NamespacedName, error) { return nil, nil }
	var nobody *keys[types.NamespacedName]
	for want, f := range map[string]func(){
		"enqueue: Object: queue is nil":           func() { enqueue.Object[*corev1.Pod](nil) },
		"enqueue: Object: one of changes is nil":  func() { enqueue.Object[*corev1.Pod](&queue, enqueue.Labels, nil) },
		"enqueue: Owner: queue is nil":            func() { enqueue.Owner[*corev1.Pod](nobody, kind) },
		"enqueue: Owner: one of changes is nil":   func() { enqueue.Owner[*corev1.Pod](&queue, kind, nil) },
		"enqueue: Owner: Owners.Kind has no kind": func() { enqueue.Owner[*corev1.Pod](&queue, enqueue.Owners{}) },
		"enqueue: Map: queue is nil":              func() { enqueue.Map(nil, none) },
		"enqueue: Map: keys is nil":               func() { enqueue.Map[*corev1.Pod](&queue, nil) },
		"enqueue: Map: one of changes is nil":     func() { enqueue.Map(&queue, none, nil) },
	} {
		t.Run(want, func(t *testing.T) {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("panic %v", got)
				}
			}()
			f()
		})
	}
}
