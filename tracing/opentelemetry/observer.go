// Package opentelemetry makes OpenTelemetry spans for the work of an informer, and runs the
// calls of its watchers inside spans.
//
// [Observer] covers the source and the store. It makes a span for each operation when the
// operation is over. [Watcher] covers the calls of a watcher: everything that a call does, such
// as its requests to an API server, belongs to the trace of the call. The two never make a span
// for the same thing, so a program may use either or both:
//
//	pods, err := informer.New(client.CoreV1().Pods(""), informer.Options[*corev1.Pod]{
//		Observer: opentelemetry.Observer(nil),
//	})
//	…
//	_, err = pods.AddWatcher(opentelemetry.Watcher(nil, "mailer", mailer), informer.WatcherOptions{Name: "mailer"})
//
// # The spans
//
// There are few span names. Everything that varies is in attributes:
//
//	informer.list        a LIST request for one page
//	                       informer.name, informer.list.objects
//	informer.watch       a watch, from the request to its end
//	                       informer.name, informer.watch.streaming, informer.watch.events
//	informer.store.get   an attempt at an operation on the store; the other names end in
//	                     add, update, delete, or another value of informer.StoreError.Op
//	                       informer.name, informer.object.key if it is about one object,
//	                       informer.store.operation, informer.store.failures
//	informer.handle.added, informer.handle.updated, informer.handle.deleted
//	                     a call of a watcher
//	                       informer.watcher.name, informer.object.key, informer.event.type,
//	                       informer.event.origin, informer.event.merged
//
// The key of an object is namespace/name, or only the name if the object is cluster-scoped. In an
// informer over clusters, the name of the cluster and a "|" come before it. The key is not in
// k8s.namespace.name and similar attributes, because those describe where the program itself runs.
//
// The span of a failed operation has the status Error and the error as an event. Bytes that are
// not UTF-8 become question marks, because exporters refuse whole batches that contain such
// bytes. Texts are cut after 1,024 bytes.
//
// Every span is the root of a trace. A sampler sees only the name of a span, because a span gets
// its attributes only if it is recorded. So a dropped span costs little. To keep only failures,
// filter the spans after their end, in a span processor or a collector.
package opentelemetry

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/object"
)

// scope is the name of the tracer that makes the spans.
const scope = "github.com/customcacheinformer/informer/tracing/opentelemetry"

// These are the attributes of the spans and of their events.
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

	// The names of these two are an OpenTelemetry convention.
	exceptionType    attribute.Key = "exception.type"
	exceptionMessage attribute.Key = "exception.message"
)

// Observer returns an Options.Observer that makes a span for each LIST request, each watch and
// each attempt on the store. It makes the span when the operation is over, with the time that the
// operation took. One Observer may serve any number of informers; informer.Tee joins it with
// others. The other functions of the Observer are nil, including the one for the calls of
// watchers: use [Watcher] for these.
//
// The informer's own store makes one attempt for each batch of changes. With Options.Store, each
// change makes two attempts, a get and a write. With Options.Durable, most changes make a get, and
// each batch makes an apply. To have no spans for them, set the field Store of the returned
// Observer to nil.
//
// If provider is nil, Observer uses otel.GetTracerProvider(), and the program may set its own
// provider later. Observer does not block, and may be called from any goroutine. The functions of
// the returned Observer do not block either, unless a span processor of provider does.
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

// record makes a span of the given duration that ends now. It calls attributes only if the
// span is recorded.
func record(tracer trace.Tracer, name string, took time.Duration, err error, attributes func() []attribute.KeyValue) {
	now := time.Now()
	_, span := tracer.Start(context.Background(), name, trace.WithTimestamp(now.Add(-took)))
	if !span.IsRecording() {
		span.End()
		return
	}
	span.SetAttributes(attributes()...)
	fail(span, err, trace.WithTimestamp(now)) // the event must not be later than the end of the span
	span.End(trace.WithTimestamp(now))
}

// fail marks span as failed with err, unless err is nil. It adds the event that span.RecordError
// would add, but with a text that is fit for a span. It also works if the method Error panics,
// such as for a nil pointer, because fmt recovers the panic.
func fail(span trace.Span, err error, options ...trace.EventOption) {
	if err == nil || !span.IsRecording() {
		return
	}
	message := text(fmt.Sprint(err))
	exception := trace.WithAttributes(exceptionType.String(fmt.Sprintf("%T", err)), exceptionMessage.String(message))
	span.AddEvent("exception", append(options, exception)...)
	span.SetStatus(codes.Error, message)
}

// longest is the maximum number of bytes of a text in a span.
const longest = 1024

// text returns s as valid UTF-8. If s has more than longest bytes, it is cut and ends with "…".
func text(s string) string {
	if len(s) > longest {
		s = s[:longest] + "…"
	}
	return strings.ToValidUTF8(s, "?")
}

func tracerOf(provider trace.TracerProvider) trace.Tracer {
	if object.IsNil(provider) {
		provider = otel.GetTracerProvider()
	}
	return provider.Tracer(scope)
}
