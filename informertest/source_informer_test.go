package informertest_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// An informer of client-go is the yardstick: whatever happens to its requests and watches, it
// must end up with the objects of the source.

func TestTheSharedInformerOfClientGoFollowsTheSource(t *testing.T) {
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	newUnstructured := func() *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(kind)
		return u
	}
	newPartial := func() *metav1.PartialObjectMetadata {
		p := &metav1.PartialObjectMetadata{}
		p.SetGroupVersionKind(kind)
		return p
	}
	for name, faults := range map[string]informertest.Faults{
		"supported": {},
		"rejected":  {RejectWatchList: true},
	} {
		t.Run("typed, watch list "+name, func(t *testing.T) {
			testSharedInformer(t, faults, func() *corev1.ConfigMap { return &corev1.ConfigMap{} })
		})
		t.Run("unstructured, watch list "+name, func(t *testing.T) {
			testSharedInformer(t, faults, newUnstructured)
		})
		t.Run("metadata, watch list "+name, func(t *testing.T) {
			testSharedInformer(t, faults, newPartial)
		})
	}
}

func testSharedInformer[T informer.Object](t *testing.T, faults informertest.Faults, newObject func() T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(named(newObject(), "first"))
		src.SetFaults(faults)
		inf := cache.NewSharedIndexInformer(src, newObject(), 0, cache.Indexers{})
		seen := mirrorOf[T](inf)
		go inf.RunWithContext(t.Context())
		if !cache.WaitForCacheSync(t.Context().Done(), inf.HasSynced) {
			t.Fatal("the informer has not synced")
		}
		wantSame(t, "the store", src, inf.GetStore().List())
		lists := func(r informertest.Request) bool { return r.Verb == "list" }
		if slices.ContainsFunc(src.Requests(), lists) != faults.RejectWatchList {
			t.Errorf("the requests were %v", src.Requests())
		}

		for range 5 {
			for range 20 {
				writeSomething(random, src, newObject)
				provokeSomething(random, src)
			}
			src.Heal()
			// longer than the informer backs off, and than a watch stays muted
			time.Sleep(time.Hour)
			wantSame(t, "the store", src, inf.GetStore().List())
			wantSame(t, "the state of the handler", src, seen())
		}
	})
}

func named[T informer.Object](obj T, name string) T {
	obj.SetNamespace("default")
	obj.SetName(name)
	return obj
}

func writeSomething[T informer.Object](random *rand.Rand, src *informertest.Source[T], newObject func() T) {
	obj := named(newObject(), fmt.Sprint("name-", random.IntN(5)))
	if random.IntN(3) == 0 {
		_, _ = src.Delete(keyOf(obj.GetName())) // it may not exist
		return
	}
	obj.SetAnnotations(map[string]string{"value": fmt.Sprint(random.Int())})
	src.Apply(obj)
}

// provokeSomething lets some time pass, and perhaps causes a fault.
func provokeSomething[T informer.Object](random *rand.Rand, src *informertest.Source[T]) {
	faults := []func(){
		src.Disconnect,
		src.Expire,
		src.Compact,
		src.Bookmark,
		src.Heal,
		func() {
			src.SetFaults(informertest.Faults{
				Down: random.IntN(3) == 0, Mute: random.IntN(3) == 0, ListDelay: time.Duration(random.IntN(10)) * time.Second,
			})
		},
		func() { src.Fail("list", apierrors.NewTooManyRequests("later", 1), 1) },
		func() { src.Fail("watch", syscall.ECONNREFUSED, 2) },
		func() { src.Fail("watch", errors.New("garbage"), 1) },
	}
	if i := random.IntN(2 * len(faults)); i < len(faults) {
		faults[i]()
	}
	time.Sleep(time.Duration(random.IntN(3)) * time.Second)
}

func mirrorOf[T informer.Object](inf cache.SharedIndexInformer) func() []any {
	var mu sync.Mutex
	known := map[string]any{}
	set := func(obj any) {
		mu.Lock()
		defer mu.Unlock()
		known[obj.(T).GetName()] = obj
	}
	must(inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, obj any) { set(obj) },
		DeleteFunc: func(obj any) {
			mu.Lock()
			defer mu.Unlock()
			key := must(cache.DeletionHandlingObjectToName(obj))
			delete(known, key.Name)
		},
	}))
	return func() []any {
		mu.Lock()
		defer mu.Unlock()
		var objs []any
		for _, obj := range known {
			objs = append(objs, obj)
		}
		return objs
	}
}

func wantView[T informer.Object](t *testing.T, src *informertest.Source[T], r *informertest.Recorder[T]) {
	t.Helper()
	var told []any
	for _, obj := range r.View() {
		told = append(told, obj)
	}
	wantSame(t, "the state of the watcher", src, told)
}

func wantSame[T informer.Object](t *testing.T, what string, src *informertest.Source[T], objs []any) {
	t.Helper()
	got := []T{}
	for _, obj := range objs {
		got = append(got, obj.(T))
	}
	slices.SortFunc(got, func(a, b T) int { return strings.Compare(a.GetName(), b.GetName()) })
	if diff := cmp.Diff(src.Objects(), got); diff != "" {
		t.Fatalf("%s is not what the source has (-source +got):\n%s", what, diff)
	}
}
