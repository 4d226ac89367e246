package informer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

func ExampleCustomCacheInformer_Health() {
	src, store := informertest.NewSource(object("settings", "1")), informertest.NewStore(nil)
	reported := make(chan error, 1)
	inf, _ := informer.NewFrom(src, informer.Options[*corev1.ConfigMap]{
		Store:        store,
		ErrorHandler: func(_ context.Context, err error) { reported <- err },
	})
	fmt.Println(inf.Health().Ready())

	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = inf.Run(ctx) })
	defer running.Wait()
	defer stop()
	_ = inf.WaitForSync(ctx)
	fmt.Println(inf.Health().Ready())

	store.Fail(func(op, key string) error { return errors.New("disk full") })
	written := src.Apply(object("settings", "2"))
	fmt.Println("reported:", <-reported)
	fmt.Println(inf.Health().Ready())

	store.Heal()
	_ = inf.WaitForVersion(ctx, "", written.ResourceVersion) // nothing was lost
	fmt.Println(inf.Health().Ready())
	// Output:
	// informer ConfigMap: has not started
	// <nil>
	// reported: store: get default/settings: disk full
	// informer ConfigMap: store: get default/settings: disk full
	// <nil>
}

func ExampleProbeHandler() {
	inf, _ := informer.NewFrom(informertest.NewSource[*corev1.ConfigMap](), informer.Options[*corev1.ConfigMap]{})
	mux := http.NewServeMux()
	mux.Handle("/readyz", informer.ProbeHandler(func() error { return inf.Health().Ready() }))
	mux.Handle("/livez", informer.ProbeHandler(func() error { return inf.Health().Live() }))

	for _, path := range []string{"/readyz", "/livez"} { // as the kubelet does
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Print(path, " ", answer.Code, " ", answer.Body)
	}
	// Output:
	// /readyz 503 informer ConfigMap: has not started
	// /livez 200 ok
}

func ExampleTee() {
	events := 0 // one goroutine calls this hook; for the hooks of watchers, use atomic counters
	metrics := &informer.Observer{
		Apply: func(informer.ApplyInfo) { events++ },
	}
	tracing := &informer.Observer{
		Apply: func(a informer.ApplyInfo) { fmt.Println(a.Informer, a.Origin, a.Type, a.Key) },
		Store: func(s informer.StoreInfo) { fmt.Println(s.Informer, s.Op, s.Key, s.Err) },
	}
	inf, _ := informer.NewFrom(informertest.NewSource(object("settings", "1")), informer.Options[*corev1.ConfigMap]{
		Observer: informer.Tee(metrics, tracing),
	})

	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = inf.Run(ctx) })
	_ = inf.WaitForSync(ctx)
	stop()
	running.Wait()
	fmt.Println(events, "event")
	// Output:
	// ConfigMap apply default/settings <nil>
	// ConfigMap initial added default/settings
	// 1 event
}
