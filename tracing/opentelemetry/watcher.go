package opentelemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/object"
)

// Watcher returns a watcher that calls w inside a span. The ctx of the call carries the span, so
// everything that w does with this ctx is in the same trace. The span records an error of w, and
// the watcher returns it unchanged. The span also records a panic of w, which then continues as
// without Watcher. If w is a WatcherFuncs, its nil functions make no spans.
//
// Each call is a separate trace, and so is each retry. If the ctx of Run carries a span, the
// spans of the calls link to that span. They are not its children: otherwise one trace would hold
// every call for as long as the program runs.
//
// name is the value of the attribute informer.watcher.name in the spans, and should be the same
// as WatcherOptions.Name. If name is empty, the spans do not have the attribute. Set
// WatcherOptions.Name too: by default the informer names the watcher after the type that Watcher
// returns, not after the type of w. OnSynced and other functions of the options are called
// outside of any span.
//
// To combine Watcher with Select, pass the result of Watcher to Select, and the result of Select to
// AddWatcher. Events that are not selected then make no spans:
//
//	informer.Select(opentelemetry.Watcher(provider, "mailer", mailer), selected)
//
// A watcher of package enqueue only puts a key into a queue, so spans for it are of no use. Make
// a span in the reconcile function instead.
//
// If provider is nil, Watcher uses otel.GetTracerProvider(), and the program may set its own
// provider later. If w is nil, Watcher returns nil, which AddWatcher refuses.
// Watcher does not block, and may be called from any goroutine. The returned watcher blocks as
// long as w does. Several goroutines may call it at once if they may call w at once.
func Watcher[T informer.Object](provider trace.TracerProvider, name string, w informer.ResourceWatcher[T]) informer.ResourceWatcher[T] {
	if object.IsNil(w) {
		return nil
	}
	funcs, ok := w.(informer.WatcherFuncs[T])
	if !ok {
		funcs = informer.WatcherFuncs[T]{AddFunc: w.Add, UpdateFunc: w.Update, DeleteFunc: w.Delete}
	}
	tracer := tracerOf(provider)
	name = text(name)
	return informer.WatcherFuncs[T]{
		AddFunc:    traced(tracer, "informer.handle.added", name, funcs.AddFunc),
		UpdateFunc: traced(tracer, "informer.handle.updated", name, funcs.UpdateFunc),
		DeleteFunc: traced(tracer, "informer.handle.deleted", name, funcs.DeleteFunc),
	}
}

func traced[T informer.Object](tracer trace.Tracer, spanName, watcher string, call func(context.Context, informer.Event[T]) error) func(context.Context, informer.Event[T]) error {
	if call == nil {
		return nil
	}
	return func(ctx context.Context, e informer.Event[T]) error {
		var options []trace.SpanStartOption
		if outer := trace.SpanContextFromContext(ctx); outer.IsValid() {
			options = []trace.SpanStartOption{trace.WithNewRoot(), trace.WithLinks(trace.Link{SpanContext: outer})}
		}
		ctx, span := tracer.Start(ctx, spanName, options...)
		defer func() { // span.End itself would record the panic, but with its text unchecked
			v := recover()
			if v == nil {
				span.End()
				return
			}
			fail(span, &informer.PanicError{Value: v})
			span.End()
			panic(v)
		}()
		if span.IsRecording() {
			span.SetAttributes(attributesOf(watcher, e)...)
		}
		err := call(ctx, e)
		fail(span, err)
		return err
	}
}

func attributesOf[T informer.Object](watcher string, e informer.Event[T]) []attribute.KeyValue {
	key := cache.NamespacedNameAsObjectName(e.Key()).String()
	if cluster := e.Cluster(); cluster != "" {
		key = cluster + "|" + key // as in the spans of operations on the store
	}
	attributes := []attribute.KeyValue{
		objectKey.String(text(key)),
		eventType.String(e.Type.String()),
		eventOrigin.String(e.Origin.String()),
		eventMerged.Bool(e.Merged),
	}
	if watcher != "" {
		attributes = append(attributes, watcherName.String(watcher))
	}
	return attributes
}
