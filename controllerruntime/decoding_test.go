package controllerruntime_test

import (
	"context"
	"net/http"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// The library knows the sources of controller-runtime's caches by the name of a function. If that changes,
// client-go decodes again, and this test fails.
func TestCachesDecodeObjectsAsTheyArrive(t *testing.T) {
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	untyped, listed := &unstructured.Unstructured{}, &unstructured.UnstructuredList{}
	untyped.SetGroupVersionKind(kind)
	listed.SetGroupVersionKind(kind)
	bare, bares := &metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadataList{}
	bare.SetGroupVersionKind(kind)
	bares.SetGroupVersionKind(kind)
	for name, test := range map[string]struct {
		obj     client.Object
		list    client.ObjectList
		decoded int
	}{
		"typed":        {&corev1.ConfigMap{}, &corev1.ConfigMapList{}, 4},
		"unstructured": {untyped, listed, 4},
		"metadata":     {bare, bares, 0}, // controller-runtime gives it another kind
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := informertest.NewSource(testkit.Object("a", "1"), testkit.Object("b", "1"), testkit.Object("c", "1"))
				wire := &testkit.Wire{Source: src}
				config := wire.Config()
				if name == "metadata" { // the watch of controller-runtime leaks a goroutine when it is stopped
					wire.Odd(func(req *http.Request) testkit.Answer {
						switch {
						case testkit.IsStream(req):
							return testkit.Refuses(422, metav1.StatusReasonInvalid)
						case testkit.IsWatch(req):
							return testkit.Hangs
						}
						return nil
					})
				}
				kinds := meta.NewDefaultRESTMapper(nil)
				kinds.Add(kind, meta.RESTScopeNamespace)
				theirs, err := cache.New(config, cache.Options{Mapper: kinds})
				ok(t, err)
				ours, err := cache.New(config, cache.Options{Mapper: kinds, NewInformer: informer.ClientGo{}.NewSharedIndexInformer})
				ok(t, err)
				var lists []client.ObjectList
				for _, c := range []cache.Cache{theirs, ours} {
					ctx, stop := context.WithCancel(t.Context())
					var running sync.WaitGroup
					running.Go(func() { ok(t, c.Start(ctx)) })
					defer func() { stop(); running.Wait() }()
					inf, err := c.GetInformer(t.Context(), test.obj)
					ok(t, err)
					if !c.WaitForCacheSync(t.Context()) {
						t.Fatal("the cache has not synced")
					}
					if c == ours {
						defer func() {
							if h := inf.(interface{ Health() informer.Health }).Health(); h.Decoding != (informer.DecodingHealth{Objects: test.decoded}) {
								t.Errorf("decoded: %d, want %d; left: %d, because %q", h.Decoding.Objects, test.decoded, h.Decoding.Left, h.Decoding.LeftBecause)
							}
						}()
					}
				}
				src.Apply(testkit.Object("b", "2"))
				testkit.SleepBubble(time.Minute)
				for _, c := range []cache.Cache{theirs, ours} {
					list := test.list.DeepCopyObject().(client.ObjectList)
					ok(t, c.List(t.Context(), list))
					lists = append(lists, list)
				}
				if n := meta.LenList(lists[0]); n != 3 || !equalItems(t, lists[0], lists[1]) {
					t.Errorf("%d objects\n%v\n%v", n, lists[0], lists[1])
				}
			})
		})
	}
}

// equalItems reports whether two lists have the same items, in any order.
func equalItems(t *testing.T, a, b client.ObjectList) bool {
	byName := func(list client.ObjectList) map[string]any {
		objs, err := meta.ExtractList(list)
		ok(t, err)
		items := map[string]any{}
		for _, obj := range objs {
			items[obj.(client.Object).GetName()] = obj
		}
		return items
	}
	return reflect.DeepEqual(byName(a), byName(b))
}
