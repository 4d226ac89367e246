package opentelemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// Watcher returns a watcher that calls w inside a span. The ctx of the call carries the
// span, so that what w does with it is in the same trace. An error is recorded, and returned
// as it is. A panic is recorded, and goes on: what becomes of it is as without Watcher.
// Functions that a WatcherFuncs does not have make no spans.
//
// Each call is a trace of its own, each attempt of an event that comes again included. If
// the ctx of Run carries a span, that is not the parent, because a trace would then go on for
// as long as the program runs, but a link.
//
// A name such as that in WatcherOptions.Name says whose call it was; spans do not have it if
// it is empty. Set WatcherOptions.Name too: the informer sees the type of what Watcher
// returns, and not that of w. OnSynced and other options are called as ever, in no span.
//
// A watcher that Select makes goes around this one, because AddWatcher must be given what
// Select returns, and so that there are no spans of what is not selected:
//
//	informer.Select(opentelemetry.Watcher(provider, "mailer", mailer), selected)
//
// A watcher of package enqueue only puts a key into a queue. Its spans are of no use; make
// one in the function that reconciles.
//
// If provider is nil, it is otel.GetTracerProvider(), also of a program that sets its own
// later. If w is nil, so is what Watcher returns, and AddWatcher returns an error. Watcher
// does not block, and may be called from any goroutine. What it returns may be called by
// several goroutines at once if w may, and blocks for as long as w does.
func Watcher[T informer.Object](provider trace.TracerProvider, name string, w informer.ResourceWatcher[T]) informer.ResourceWatcher[T] {
	if isNil(w) {
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

// traced returns a function that calls call inside a span, or nil if there is none.
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
		defer func() { // not span.End itself, which would record a panic without a look at its text
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
	attributes := []attribute.KeyValue{
		objectKey.String(text(cache.NamespacedNameAsObjectName(e.Key()).String())),
		eventType.String(e.Type.String()),
		eventOrigin.String(e.Origin.String()),
		eventMerged.Bool(e.Merged),
	}
	if watcher != "" {
		attributes = append(attributes, watcherName.String(watcher))
	}
	return attributes
}
