package controllerruntime_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	gort "runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/customcacheinformer/informer/internal/mix"
	"github.com/customcacheinformer/informer/share"
)

// streamPods serves n Pods of a large cluster as the initial events of a watch. It makes each Pod
// when its turn comes, so that it keeps none.
func streamPods(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/pods" || r.URL.Query().Get("sendInitialEvents") != "true" {
			http.Error(w, "this server only streams Pods", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		cluster, out := mix.New(1, n), json.NewEncoder(w)
		send := func(kind watch.EventType, p *corev1.Pod) {
			p.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
			// The client may be gone. Then the request's context ends, too.
			_ = out.Encode(metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Object: p}})
		}
		for i := range n {
			send(watch.Added, cluster.Pod(i, 0))
		}
		send(watch.Bookmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: "999999999", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}})
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

func cacheHeap(t *testing.T, n int, transform toolscache.TransformFunc) float64 {
	t.Helper()
	server := httptest.NewServer(streamPods(n))
	defer server.Close()
	kinds := meta.NewDefaultRESTMapper(nil)
	kinds.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	c, err := cache.New(&rest.Config{Host: server.URL}, cache.Options{Mapper: kinds, DefaultTransform: transform})
	ok(t, err)
	before := liveHeap()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Start(ctx) }()
	_, err = c.GetInformer(ctx, &corev1.Pod{})
	if !c.WaitForCacheSync(ctx) {
		t.Error("the cache has not synced")
	}
	heap := liveHeap() - before
	var list corev1.PodList
	if listed := c.List(ctx, &list); listed != nil || len(list.Items) != n {
		t.Errorf("the cache lists %d Pods, %v, want %d", len(list.Items), listed, n)
	}
	stop()
	ok(t, <-ended)
	ok(t, err)
	return heap / float64(n)
}

// liveHeap returns the bytes of all live objects.
func liveHeap() float64 {
	for range 3 { // a pool keeps its objects until the second collection
		gort.GC()
	}
	var m gort.MemStats
	gort.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// The cache is controller-runtime's own, with client-go's informer, and the Pods come over HTTP.
func TestACacheTakesLessMemoryWithTheTransformOfATable(t *testing.T) {
	n := 5_000
	if testing.Short() {
		n = 500
	}
	asIs := cacheHeap(t, n, nil)
	table := share.New()
	shared := cacheHeap(t, n, table.Transform)
	t.Logf("heap per Pod of %d: %.0f B as it is, %.0f B shared, ratio %.3f", n, asIs, shared, shared/asIs)
	if shared > asIs/2 {
		t.Errorf("heap per Pod: %.0f B shared and %.0f B as it is, want less than half", shared, asIs)
	}
	gort.KeepAlive(table)
}
