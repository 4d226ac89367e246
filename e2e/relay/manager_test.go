package relay_test

import (
	"context"
	"slices"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// A manager of controller-runtime finds out by discovery which resources there are.
func TestTheCacheOfAControllerRuntimeManagerReadsFromTheRelay(t *testing.T) {
	w := newWorld(t)
	w.create(30)
	r := w.relay(w.front.Config(), "", nil)
	log.SetLogger(klog.Background())
	c, err := cache.New(r.config, cache.Options{Scheme: scheme.Scheme})
	w.OK(err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Start(ctx) }()
	defer func() {
		cancel()
		w.OK(<-done)
	}()
	if !c.WaitForCacheSync(ctx) {
		t.Fatal("the cache does not start")
	}
	var half coordinationv1.LeaseList
	w.OK(c.List(ctx, &half, client.MatchingLabels{"half": "1"}, client.InNamespace("default")))
	if len(half.Items) != 15 {
		t.Errorf("the cache has %d Leases with the label, want 15", len(half.Items))
	}
	w.OK(w.leases.Delete(ctx, "l1", metav1.DeleteOptions{}))
	w.Await("the cache does not notice a delete", func() bool {
		var one coordinationv1.Lease
		return client.IgnoreNotFound(c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "l1"}, &one)) == nil && one.Name == ""
	})
	if asked := w.front.asked(0); !slices.Equal(asked, []string{"stream"}) {
		t.Errorf("the API server was asked for %v, want one stream", asked)
	}
}
