package opentelemetry_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/tracing/opentelemetry"
)

// run runs an informer with one watcher, and returns a channel of the errors that it reports.
func run(t *testing.T, src *informertest.Source[configMap], w watcher, opts informer.WatcherOptions) (errs chan error) {
	t.Helper()
	errs = make(chan error, 100)
	inf, err := informer.NewFrom(src, informer.Options[configMap]{ErrorHandler: func(_ context.Context, err error) { errs <- err }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inf.AddWatcher(w, opts); err != nil {
		t.Fatal(err)
	}
	informertest.Run(t, inf)
	return errs
}

// taking returns a watcher whose calls take one second longer than f.
func taking(f func(context.Context, event) error) watcher {
	return informer.WatcherFunc[configMap](func(ctx context.Context, e event) error {
		time.Sleep(time.Second)
		return f(ctx, e)
	})
}

func nothing(context.Context, event) error { return nil }

func TestEachCallOfAWatcherIsASpanOfTheTimeItTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := record()
		src := informertest.NewSource(object("a", "1"))
		run(t, src, opentelemetry.Watcher(s, "w", taking(nothing)), informer.WatcherOptions{})
		s.expect(t, "0s-1s informer.handle.added informer.object.key=default/a informer.event.type=added informer.event.origin=initial informer.event.merged=false informer.watcher.name=w")
		src.Apply(object("a", "2"))
		time.Sleep(time.Minute)
		s.expect(t, "1s-2s informer.handle.updated informer.object.key=default/a informer.event.type=updated informer.event.origin=watch informer.event.merged=false informer.watcher.name=w")
		if _, err := src.Delete(types.NamespacedName{Namespace: "default", Name: "a"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		s.expect(t, "1m1s-1m2s informer.handle.deleted informer.object.key=default/a informer.event.type=deleted informer.event.origin=watch informer.event.merged=false informer.watcher.name=w")
	})
}

func TestAnEventThatStandsForSeveralSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := record()
		src := informertest.NewSource(object("a", "1"))
		run(t, src, opentelemetry.Watcher(s, "", taking(nothing)), informer.WatcherOptions{Workers: 2})
		s.next()
		for n := range 3 { // one event is being handled, two wait
			src.Apply(object("a", fmt.Sprint(n)))
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		s.expect(t,
			"1s-2s informer.handle.updated informer.object.key=default/a informer.event.type=updated informer.event.origin=watch informer.event.merged=false",
			"2s-3s informer.handle.updated informer.object.key=default/a informer.event.type=updated informer.event.origin=watch informer.event.merged=true")
	})
}

func TestTheKeyOfAClusterScopedObjectIsItsName(t *testing.T) {
	s := record()
	w := opentelemetry.Watcher(s, "", informer.WatcherFuncs[*corev1.Node]{AddFunc: func(context.Context, informer.Event[*corev1.Node]) error { return nil }})
	if err := w.Add(t.Context(), informer.Event[*corev1.Node]{Type: informer.EventAdded, New: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}); err != nil {
		t.Error(err)
	}
	if got := s.line(s.next()[0]); !strings.Contains(got, " informer.object.key=n ") {
		t.Error(got)
	}
}

func TestWhatACallDoesIsInItsTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := record()
		src := informertest.NewSource(object("a", "1"))
		run(t, src, opentelemetry.Watcher(s, "w", taking(func(ctx context.Context, _ event) error {
			_, request := s.Tracer("client").Start(ctx, "GET")
			defer request.End()
			return nil
		})), informer.WatcherOptions{})
		src.Apply(object("a", "2"))
		time.Sleep(time.Minute)
		synctest.Wait()
		all := s.next()
		if len(all) != 4 {
			t.Fatalf("%d spans, want 4", len(all))
		}
		for n := 0; n < 4; n += 2 {
			child, parent := all[n], all[n+1]
			if child.Name() != "GET" || child.Parent().SpanID() != parent.SpanContext().SpanID() || child.SpanContext().TraceID() != parent.SpanContext().TraceID() {
				t.Errorf("%s is not a child of %s", child.Name(), parent.Name())
			}
			if parent.Parent().IsValid() || len(parent.Links()) > 0 {
				t.Errorf("%s has a parent or links", parent.Name())
			}
		}
		if all[1].SpanContext().TraceID() == all[3].SpanContext().TraceID() {
			t.Error("two calls are in one trace")
		}
	})
}

func TestTheSpanOfRunIsLinkedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := record()
		src := informertest.NewSource(object("a", "1"))
		inf, err := informer.NewFrom(src, informer.Options[configMap]{})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 2 {
			if _, err := inf.AddWatcher(opentelemetry.Watcher(s, fmt.Sprint("w", n), taking(nothing)), informer.WatcherOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, program := s.Tracer("program").Start(t.Context(), "program")
		ctx, stop := context.WithCancel(ctx)
		done := make(chan error)
		go func() { done <- inf.Run(ctx) }()
		time.Sleep(time.Minute)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		all := s.next()
		if len(all) != 2 {
			t.Fatalf("%d spans, want 2", len(all))
		}
		for _, span := range all {
			if span.Parent().IsValid() || span.SpanContext().TraceID() == program.SpanContext().TraceID() {
				t.Error("the call is in the trace of the program")
			}
			if links := span.Links(); len(links) != 1 || !links[0].SpanContext.Equal(program.SpanContext()) {
				t.Errorf("the links are %v", links)
			}
		}
	})
}

func TestAnErrorIsRecordedAndReturnedAsItIs(t *testing.T) {
	failing := errors.New("the mail server is busy")
	t.Run("by all methods", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := record()
			w := opentelemetry.Watcher(s, "", taking(func(context.Context, event) error { return failing }))
			for n, call := range []func(context.Context, event) error{w.Add, w.Update, w.Delete} {
				typ := informer.EventType(n + 1)
				if err := call(t.Context(), event{Type: typ, Old: object("a", "1"), New: object("a", "2")}); err != failing { //nolint:errorlint // the very same
					t.Errorf("%s returned %v", typ, err)
				}
				from := time.Duration(n) * time.Second
				s.expect(t, fmt.Sprintf("%v-%v informer.handle.%s informer.object.key=default/a informer.event.type=%[3]s informer.event.origin=watch informer.event.merged=false%s",
					from, from+time.Second, typ, failed(from+time.Second, "*errors.errorString", "the mail server is busy")))
			}
		})
	})
	t.Run("at each attempt", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := record()
			left := 2
			errs := run(t, informertest.NewSource(object("a", "1")), opentelemetry.Watcher(s, "", taking(func(context.Context, event) error {
				if left--; left >= 0 {
					return failing
				}
				return nil
			})), informer.WatcherOptions{Retry: func(int, error) (time.Duration, bool) { return time.Minute, true }})
			time.Sleep(time.Hour)
			const span = " informer.handle.added informer.object.key=default/a informer.event.type=added informer.event.origin=initial informer.event.merged=false"
			s.expect(t,
				"0s-1s"+span+failed(time.Second, "*errors.errorString", "the mail server is busy"),
				"1m1s-1m2s"+span+failed(time.Minute+2*time.Second, "*errors.errorString", "the mail server is busy"),
				"2m2s-2m3s"+span)
			var reported *informer.EventError
			if err := <-errs; !errors.As(err, &reported) || reported.Err != failing { //nolint:errorlint // the very same
				t.Errorf("the informer reports %v", err)
			}
		})
	})
}

func TestAnErrorThatCannotBeReadDoesNoHarm(t *testing.T) {
	s := record()
	var none *os.PathError
	w := opentelemetry.Watcher(s, "", informer.WatcherFunc[configMap](func(context.Context, event) error { return none }))
	if err := w.Add(t.Context(), event{Type: informer.EventAdded, New: object("a", "1")}); err != error(none) { //nolint:errorlint // the very same
		t.Error("the error is another")
	}
	all := s.next()
	if got := s.line(all[0]); !strings.Contains(got, "Error: <nil> (") || !strings.Contains(got, "exception.type=*fs.PathError") {
		t.Error(got)
	}
}

func TestAPanicIsRecordedAndGoesOn(t *testing.T) {
	cause := errors.New("out of bounds \xff")
	synctest.Test(t, func(t *testing.T) {
		s := record()
		errs := run(t, informertest.NewSource(object("a", "1")), opentelemetry.Watcher(s, "", taking(func(context.Context, event) error {
			panics(cause)
			return nil
		})), informer.WatcherOptions{RecoverPanics: true})
		s.expect(t, "0s-1s informer.handle.added informer.object.key=default/a informer.event.type=added informer.event.origin=initial informer.event.merged=false"+
			failed(time.Second, "*informer.PanicError", "panic: out of bounds ?"))
		var panicked *informer.PanicError
		err := <-errs
		if !errors.As(err, &panicked) || panicked.Value != cause { //nolint:errorlint // the very same
			t.Fatalf("the informer reports %v", err)
		}
		if !strings.Contains(string(panicked.Stack), "opentelemetry_test.panics") {
			t.Errorf("the stack does not contain the function that panicked:\n%s", panicked.Stack)
		}
	})
}

func panics(v any) { panic(v) }

func TestACallThatEndsItsGoroutineEndsTheSpan(t *testing.T) {
	s := record()
	w := opentelemetry.Watcher(s, "", informer.WatcherFunc[configMap](func(context.Context, event) error { runtime.Goexit(); return nil }))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.Add(context.Background(), event{Type: informer.EventAdded, New: object("a", "1")})
	}()
	<-done
	if got := len(s.next()); got != 1 {
		t.Errorf("%d spans have ended, want 1", got)
	}
}

func TestAWatcherThatIsNilCannotBeAdded(t *testing.T) {
	inf, err := informer.NewFrom(informertest.NewSource[configMap](), informer.Options[configMap]{})
	if err != nil {
		t.Fatal(err)
	}
	for name, none := range map[string]watcher{
		"nil":             nil,
		"a nil pointer":   (*informertest.Recorder[configMap])(nil),
		"a nil func":      informer.WatcherFunc[configMap](nil),
		"wrapped already": opentelemetry.Watcher[configMap](nil, "w", nil),
	} {
		w := opentelemetry.Watcher(nil, "w", none)
		for _, w := range []watcher{w, informer.Select(w, func(configMap) bool { return true })} {
			if _, err := inf.AddWatcher(w, informer.WatcherOptions{}); err == nil || !strings.Contains(err.Error(), "watcher is nil") {
				t.Errorf("%s: added with the error %v", name, err)
			}
		}
	}
}

func TestFunctionsThatAWatcherDoesNotHaveMakeNoSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := record()
		src := informertest.NewSource(object("a", "1"))
		run(t, src, opentelemetry.Watcher(s, "", informer.WatcherFuncs[configMap]{UpdateFunc: nothing}), informer.WatcherOptions{})
		src.Apply(object("a", "2"))
		s.expect(t, "0s-0s informer.handle.updated informer.object.key=default/a informer.event.type=updated informer.event.origin=watch informer.event.merged=false")
	})
}

func TestWhatIsNotSelectedMakesNoSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := record()
		src := informertest.NewSource(object("a", "in"), object("b", "out"))
		failing := errors.New("not now")
		run(t, src, informer.Select(opentelemetry.Watcher(s, "", taking(func(_ context.Context, e event) error {
			if e.Type == informer.EventAdded {
				return failing
			}
			return nil
		})), func(obj configMap) bool { return obj.Data["value"] == "in" }), informer.WatcherOptions{
			Retry: func(int, error) (time.Duration, bool) { return time.Minute, true },
		})
		src.Apply(object("a", "out")) // its add has failed, so the watcher is told a delete
		src.Apply(object("b", "out too"))
		time.Sleep(time.Hour)
		s.expect(t,
			"0s-1s informer.handle.added informer.object.key=default/a informer.event.type=added informer.event.origin=initial informer.event.merged=false"+failed(time.Second, "*errors.errorString", "not now"),
			"1m1s-1m2s informer.handle.deleted informer.object.key=default/a informer.event.type=deleted informer.event.origin=initial informer.event.merged=true")
	})
}

func TestACallThatIsNotRecordedIsNotDescribed(t *testing.T) {
	provider := &unsampled{t: t}
	type mark struct{}
	failing := unasked{t}
	w := opentelemetry.Watcher(provider, "w", informer.WatcherFunc[configMap](func(ctx context.Context, e event) error {
		if _, silent := trace.SpanFromContext(ctx).(silentSpan); !silent || ctx.Value(mark{}) != "marked" {
			t.Error("the ctx is another")
		}
		if e.Type == informer.EventDeleted {
			panic(failing)
		}
		return failing
	}))
	ctx := context.WithValue(t.Context(), mark{}, "marked")
	if err := w.Add(ctx, event{Type: informer.EventAdded, New: object("a", "1")}); err != error(failing) { //nolint:errorlint // the very same
		t.Error("the error is another")
	}
	func() {
		defer func() {
			if got := recover(); got != any(failing) {
				t.Error("the panic is another")
			}
		}()
		_ = w.Delete(ctx, event{Type: informer.EventDeleted, Old: object("a", "1")})
	}()
	if provider.spans != 2 || provider.ended != 2 {
		t.Errorf("%d spans have begun, %d have ended, want 2", provider.spans, provider.ended)
	}
}

func TestACallIsCutShortAsWithoutASpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := record()
		src := informertest.NewSource(object("a", "1"))
		inf, err := informer.NewFrom(src, informer.Options[configMap]{
			ErrorHandler: func(_ context.Context, err error) { t.Errorf("reported: %v", err) },
		})
		if err != nil {
			t.Fatal(err)
		}
		stop := informertest.Run(t, inf)
		reg, err := inf.AddWatcher(opentelemetry.Watcher(s, "", informer.WatcherFunc[configMap](func(ctx context.Context, _ event) error {
			<-ctx.Done()
			return ctx.Err()
		})), informer.WatcherOptions{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		stop()
		if got := reg.Stats(); got.Failed != 0 || got.Delivered != 0 {
			t.Errorf("the figures are %+v", got)
		}
		s.expect(t, "0s-1m0s informer.handle.added informer.object.key=default/a informer.event.type=added informer.event.origin=initial informer.event.merged=false"+
			failed(time.Minute, "*errors.errorString", "context canceled"))
	})
}

// BenchmarkSpan measures the cost of a span: of the Observer for one attempt on the store, and
// of the Watcher for one call.
func BenchmarkSpan(b *testing.B) {
	for _, with := range []struct {
		name     string
		provider trace.TracerProvider
	}{
		{"no-provider", noop.NewTracerProvider()},
		{"never-sampled", sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))},
		{"always-sampled", sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()))}, // nothing takes the spans
	} {
		b.Run("of=store/"+with.name, func(b *testing.B) {
			b.ReportAllocs()
			observe := opentelemetry.Observer(with.provider).Store
			info := informer.StoreInfo{Informer: "ConfigMap", Op: "update", Key: "default/a", Took: time.Millisecond}
			for b.Loop() {
				observe(info)
			}
		})
		b.Run("of=watcher/"+with.name, func(b *testing.B) {
			b.ReportAllocs()
			ctx := context.Background()
			w := opentelemetry.Watcher(with.provider, "w", watcher(informer.WatcherFunc[configMap](nothing)))
			e := event{Type: informer.EventUpdated, Old: object("a", "1"), New: object("a", "2")}
			for b.Loop() {
				_ = w.Update(ctx, e)
			}
		})
	}
}
