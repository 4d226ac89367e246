// Package opentelemetry makes OpenTelemetry spans of what an informer does, and runs the
// calls of its watchers inside spans.
//
// [Observer] is for the source and the store: it is told when something has happened, and
// makes a span of it then. [Watcher] is for the calls of a watcher: what such a call does,
// its requests to an API server for example, belongs to its trace. There is nothing that
// both make a span of, so that a program may use either or both:
//
//	pods, err := informer.New(source, informer.Options[*corev1.Pod]{
//		Observer: opentelemetry.Observer(nil),
//	})
//	…
//	_, err = pods.AddWatcher(opentelemetry.Watcher(nil, "mailer", mailer), informer.WatcherOptions{Name: "mailer"})
//
// # The spans
//
// There are few names, and what varies stands in attributes:
//
//	informer.list        a LIST request, of one page
//	                       informer.name, informer.list.objects
//	informer.watch       a watch, from the request to its end
//	                       informer.name, informer.watch.streaming, informer.watch.events
//	informer.store.get   an attempt at an operation on the store; the other names end in
//	                     add, update, delete, or what else informer.StoreError.Op has
//	                       informer.name, informer.object.key if it is about one object,
//	                       informer.store.operation, informer.store.failures
//	informer.handle.added, informer.handle.updated, informer.handle.deleted
//	                     a call of a watcher
//	                       informer.watcher.name, informer.object.key, informer.event.type,
//	                       informer.event.origin, informer.event.merged
//
// The key of an object is namespace/name, or the name alone if it is cluster-scoped. It is
// not put into k8s.namespace.name and the like, which say where the program itself runs.
//
// A span of what has failed has the status Error, and the error as an event. Bytes that are
// not UTF-8 become question marks, because exporters refuse whole batches for them, and
// texts are cut after 1,024 bytes.
//
// Every span is the root of a trace. A sampler has the name to go by, and no attributes: they
// are only made for spans that are recorded, so that what it drops costs little. To keep
// nothing but failures, filter where spans have ended, in a span processor or a collector.
package opentelemetry

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/customcacheinformer/informer"
)

// scope is what spans say that they were made by.
const scope = "github.com/customcacheinformer/informer/tracing/opentelemetry"

// The attributes of the spans and of their events.
const (
	informerName   attribute.Key = "informer.name"
	listObjects    attribute.Key = "informer.list.objects"
	watchStreaming attribute.Key = "informer.watch.streaming"
	watchEvents    attribute.Key = "informer.watch.events"
	storeOperation attribute.Key = "informer.store.operation"
	storeFailures  attribute.Key = "informer.store.failures"
	watcherName    attribute.Key = "informer.watcher.name"
	objectKey      attribute.Key = "informer.object.key"
	eventType      attribute.Key = "informer.event.type"
	eventOrigin    attribute.Key = "informer.event.origin"
	eventMerged    attribute.Key = "informer.event.merged"

	// By convention of OpenTelemetry.
	exceptionType    attribute.Key = "exception.type"
	exceptionMessage attribute.Key = "exception.message"
)

// Observer returns an Options.Observer that makes a span of each LIST request, each watch
// and each attempt on the store, when it is over, with the time that it took. One Observer
// may serve any number of informers; informer.Tee joins it with others. Its other functions
// are nil, that for the calls of watchers among them, for which there is [Watcher].
//
// A change is two attempts on most stores, to get and to write. Who does not want them sets
// Store to nil in what is returned.
//
// If provider is nil, it is otel.GetTracerProvider(), also of a program that sets its own
// later. Neither Observer nor what it returns blocks, unless a span processor of provider
// does. Observer may be called from any goroutine.
func Observer(provider trace.TracerProvider) *informer.Observer {
	tracer := tracerOf(provider)
	return &informer.Observer{
		List: func(i informer.ListInfo) {
			record(tracer, "informer.list", i.Took, i.Err, func() []attribute.KeyValue {
				return []attribute.KeyValue{
					informerName.String(text(i.Informer)),
					listObjects.Int(i.Objects),
				}
			})
		},
		Watch: func(i informer.WatchInfo) {
			record(tracer, "informer.watch", i.Took, i.Err, func() []attribute.KeyValue {
				return []attribute.KeyValue{
					informerName.String(text(i.Informer)),
					watchStreaming.Bool(i.Streaming),
					watchEvents.Int(i.Events),
				}
			})
		},
		Store: func(i informer.StoreInfo) {
			record(tracer, "informer.store."+i.Op, i.Took, i.Err, func() []attribute.KeyValue {
				attributes := []attribute.KeyValue{
					informerName.String(text(i.Informer)),
					storeOperation.String(i.Op),
					storeFailures.Int(i.Failures),
				}
				if i.Key != "" {
					attributes = append(attributes, objectKey.String(text(i.Key)))
				}
				return attributes
			})
		},
	}
}

// record makes a span that ends now of what took that long. attributes is only called if
// the span is recorded.
func record(tracer trace.Tracer, name string, took time.Duration, err error, attributes func() []attribute.KeyValue) {
	now := time.Now()
	_, span := tracer.Start(context.Background(), name, trace.WithTimestamp(now.Add(-took)))
	if !span.IsRecording() {
		span.End()
		return
	}
	span.SetAttributes(attributes()...)
	fail(span, err, trace.WithTimestamp(now)) // not after the end
	span.End(trace.WithTimestamp(now))
}

// fail makes span that of something which has failed with err, if that is not nil. The event
// is the one that span.RecordError would make, but with a text that is fit for a span, and also
// if the method Error panics, as it may for a nil pointer: fmt sees to that.
func fail(span trace.Span, err error, options ...trace.EventOption) {
	if err == nil || !span.IsRecording() {
		return
	}
	message := text(fmt.Sprint(err))
	exception := trace.WithAttributes(exceptionType.String(fmt.Sprintf("%T", err)), exceptionMessage.String(message))
	span.AddEvent("exception", append(options, exception)...)
	span.SetStatus(codes.Error, message)
}

// longest is how many bytes of a text a span has.
const longest = 1024

// text returns s as it may stand in a span.
func text(s string) string {
	if len(s) > longest {
		s = s[:longest] + "…"
	}
	return strings.ToValidUTF8(s, "?")
}

func tracerOf(provider trace.TracerProvider) trace.Tracer {
	if isNil(provider) {
		provider = otel.GetTracerProvider()
	}
	return provider.Tracer(scope)
}

// isNil reports whether v is nil, or an interface around a nil pointer, func or the like.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Slice, reflect.Chan:
		return r.IsNil()
	}
	return false
}
