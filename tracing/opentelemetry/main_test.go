package opentelemetry_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] // see informertest.Main
	klog.SetLogger(klog.Logger{})
	goleak.VerifyTestMain(m)
}

type (
	configMap = *corev1.ConfigMap
	event     = informer.Event[configMap]
	watcher   = informer.ResourceWatcher[configMap]
)

func object(name, value string) configMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Data:       map[string]string{"value": value},
	}
}

type spans struct {
	*sdktrace.TracerProvider
	recorder *tracetest.SpanRecorder
	begun    time.Time
	seen     int // number of spans that next has returned
}

func record() *spans {
	recorder := tracetest.NewSpanRecorder()
	return &spans{sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)), recorder, time.Now(), 0}
}

// next returns the spans that have ended since its last call.
func (s *spans) next() []sdktrace.ReadOnlySpan {
	all := s.recorder.Ended()
	defer func() { s.seen = len(all) }()
	return all[s.seen:]
}

// expect fails the test unless want are the spans that have ended since the last call of next, in any order.
// In a bubble, wait until every goroutine is blocked.
func (s *spans) expect(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, span := range s.next() {
		got = append(got, s.line(span))
	}
	slices.Sort(got) // goroutines make spans at the same time
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the spans are\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// line returns everything about a span as text: the seconds at its start and end, its name and attributes,
// and its status and events.
func (s *spans) line(span sdktrace.ReadOnlySpan) string {
	line := fmt.Sprintf("%v-%v %s", s.at(span.StartTime()), s.at(span.EndTime()), span.Name())
	for _, a := range span.Attributes() {
		line += fmt.Sprintf(" %s=%s", a.Key, a.Value.Emit())
	}
	if span.Parent().IsValid() {
		line += " with a parent"
	}
	if status := span.Status(); status.Code != codes.Unset {
		line += fmt.Sprintf(" %s: %s", status.Code, status.Description)
	}
	for _, e := range span.Events() {
		line += fmt.Sprintf(" (%s at %v", e.Name, s.at(e.Time))
		for _, a := range e.Attributes {
			line += fmt.Sprintf(" %s=%s", a.Key, a.Value.Emit())
		}
		line += ")"
	}
	return line
}

// at returns how many whole seconds after the begin t is. The pause before a retry is random, but shorter.
func (s *spans) at(t time.Time) time.Duration { return t.Sub(s.begun).Truncate(time.Second) }

// failed returns the end of a line for an error.
func failed(at time.Duration, kind, message string) string {
	return fmt.Sprintf(" Error: %s (exception at %v exception.type=%s exception.message=%[1]s)", message, at, kind)
}

// unsampled is a provider whose spans are not recorded. It fails the test if a span is given
// attributes, links or events.
type unsampled struct {
	embedded.TracerProvider
	t     testing.TB
	spans int // number of spans that have begun
	ended int
}

func (u *unsampled) Tracer(string, ...trace.TracerOption) trace.Tracer { return silentTracer{of: u} }

type silentTracer struct {
	embedded.Tracer
	of *unsampled
}

func (s silentTracer) Start(ctx context.Context, _ string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	s.of.spans++
	if config := trace.NewSpanStartConfig(options...); len(config.Attributes()) > 0 || len(config.Links()) > 0 {
		s.of.t.Error("a span that is not recorded got attributes or links")
	}
	span := silentSpan{of: s.of}
	return trace.ContextWithSpan(ctx, span), span
}

type silentSpan struct {
	noop.Span
	of *unsampled
}

func (s silentSpan) SetAttributes(...attribute.KeyValue) {
	s.of.t.Error("a span that is not recorded got attributes")
}

func (s silentSpan) AddEvent(string, ...trace.EventOption) {
	s.of.t.Error("a span that is not recorded got an event")
}

func (s silentSpan) End(...trace.SpanEndOption) { s.of.ended++ }
