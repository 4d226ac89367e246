package opentelemetry_test

import (
	"context"
	"fmt"
	"sync"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	corev1 "k8s.io/api/core/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/tracing/opentelemetry"
)

// An informer's requests, its store operations and the calls of its watchers become spans.
// This example keeps them in memory; a program gives its provider an exporter.
func Example() {
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	src := informertest.NewSource(object("a", "1"))

	inf, err := informer.NewFrom(src, informer.Options[*corev1.ConfigMap]{
		Observer: opentelemetry.Observer(provider),
	})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	mailer := informer.WatcherFunc[*corev1.ConfigMap](func(ctx context.Context, _ informer.Event[*corev1.ConfigMap]) error {
		_, span := provider.Tracer("mail").Start(ctx, "send") // in the trace of this call
		defer span.End()
		stop()
		return nil
	})
	watcher := opentelemetry.Watcher(provider, "mailer", mailer)
	if _, err := inf.AddWatcher(watcher, informer.WatcherOptions{Name: "mailer"}); err != nil {
		panic(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = inf.Run(ctx) })
	running.Wait()

	for _, span := range exporter.GetSpans() {
		fmt.Println(span.Name)
	}
	// Unordered output:
	// informer.store.apply
	// send
	// informer.handle.added
	// informer.watch
}
