package controllerruntime_test

import (
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// TestTheTypedWrapperOfClientGoWorks is not in the root module, because client-go 0.36 has no such wrapper.
func TestTheTypedWrapperOfClientGoWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := func(name, node string) *corev1.Pod {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{NodeName: node}}
		}
		src := informertest.NewSource(pod("a", "one"), pod("b", "one"))
		inf := cache.NewTypedSharedIndexInformer[*corev1.Pod](informer.ClientGo{}.NewSharedIndexInformer(src, &corev1.Pod{}, 0, nil))
		ok(t, inf.AddTypedIndexers(cache.TypedIndexers[*corev1.Pod]{"node": func(p *corev1.Pod) ([]string, error) {
			return []string{p.Spec.NodeName}, nil
		}}))
		calls := make(chan string, 10)
		reg, err := inf.AddTypedEventHandler(cache.TypedResourceEventHandlerDetailedFuncs[*corev1.Pod]{
			AddFunc:    func(p *corev1.Pod, _ bool) { calls <- "add " + p.Name },
			UpdateFunc: func(before, after *corev1.Pod) { calls <- "update " + before.Spec.NodeName + " " + after.Spec.NodeName },
			DeleteFunc: func(p cache.DeletedObject[*corev1.Pod]) { calls <- "delete " + p.GetKey() },
		})
		ok(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			inf.RunWithContext(t.Context())
		}()
		t.Cleanup(func() { <-done })
		expect := func(want ...string) {
			t.Helper()
			var got []string
			for range want {
				got = append(got, <-calls)
			}
			if slices.Sort(got); !slices.Equal(got, want) { // the first state comes in any order
				t.Errorf("%v, want %v", got, want)
			}
			synctest.Wait()
			if len(calls) > 0 {
				t.Errorf("a call more: %s", <-calls)
			}
		}
		expect("add a", "add b")
		src.Apply(pod("a", "two"))
		expect("update one two")
		_, err = src.Delete(types.NamespacedName{Namespace: "default", Name: "b"})
		ok(t, err)
		expect("delete default/b")
		pods, err := inf.GetTypedIndexer().ByTypedIndex("node", "two")
		if err != nil || len(pods) != 1 || pods[0].Name != "a" {
			t.Errorf("the index has %v (%v)", pods, err)
		}
		ok(t, cache.ShutDownEventHandler(inf, reg))
		src.Apply(pod("a", "three"))
		expect()
	})
}
