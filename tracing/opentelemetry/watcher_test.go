package opentelemetry_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
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
	errs, _ = runWith(t, src, w, opts, informer.Options[configMap]{})
	return errs
}

func runWith(t *testing.T, src *informertest.Source[configMap], w watcher, opts informer.WatcherOptions, of informer.Options[configMap]) (errs chan error, stop func()) {
	t.Helper()
	errs = make(chan error, 100)
	of.ErrorHandler = func(_ context.Context, err error) { errs <- err }
	inf, err := informer.NewFrom(src, of)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inf.AddWatcher(w, opts); err != nil {
		t.Fatal(err)
	}
	return errs, informertest.Run(t, inf)
}

// taking returns a watcher whose calls take one second longer than f.
func taking(f func(context.Context, event) error) watcher {
	return informer.WatcherFunc[configMap](func(ctx context.Context, e event) error {
		time.Sleep(time.Second)
		return f(ctx, e)
	})
}

func nothing(context.Context, event) error { return nil }

// Every span of an informer: of a list with two pages, of a watch that breaks and one that fails, of a store that is
// full for two writes, and of a watcher that fails twice and is then called for a merged event.
func TestEachStepOfAnInformerIsASpanOfTheTimeItTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, src, store := record(), informertest.NewSource(object("a", "1"), object("b", "1"), object("c", "1")), informertest.NewStore(nil)
		src.SetFaults(informertest.Faults{ListDelay: time.Second})
		busy, left := errors.New("the mail server is busy"), 2
		errs, stop := runWith(t, src, opentelemetry.Watcher(s, "w", taking(func(_ context.Context, e event) error {
			if e.Key().Name == "a" && left > 0 {
				left--
				return busy
			}
			return nil
		})), informer.WatcherOptions{Workers: 3, Retry: func(int, error) (time.Duration, bool) { return time.Minute, true }},
			informer.Options[configMap]{Name: "i", Observer: opentelemetry.Observer(s), Store: store, WatchList: informer.WatchListOff, PageSize: 2})
		until := func(at time.Duration) { time.Sleep(at - time.Since(s.begun)); synctest.Wait() }
		until(3 * time.Minute)
		for n := range 3 { // one event is being handled, two wait
			src.Apply(object("a", fmt.Sprint(n)))
			synctest.Wait()
		}
		until(4 * time.Minute)
		if _, err := src.Delete(types.NamespacedName{Namespace: "default", Name: "b"}); err != nil {
			t.Fatal(err)
		}
		until(4*time.Minute + 30*time.Second + 200*time.Millisecond) // the pause before the next list ends within a second
		src.Fail("watch", syscall.ECONNREFUSED, 1)
		src.Disconnect()
		until(5 * time.Minute)
		store.Delay(time.Second)
		full := 2
		store.Fail(func(op, _ string) error {
			if op == "update" && full > 0 {
				full--
				return syscall.ENOSPC
			}
			return nil
		})
		src.Apply(object("c", "2"))
		until(6 * time.Minute)

		text, err := os.ReadFile("testdata/spans.txt")
		if err != nil {
			t.Fatal(err)
		}
		s.expect(t, strings.Split(strings.TrimSpace(string(text)), "\n")...)
		var reported *informer.EventError
		if err := <-errs; !errors.As(err, &reported) || reported.Err != busy { //nolint:errorlint // the very same
			t.Errorf("the informer reports %v", err)
		}
		stop()
		if all := s.next(); len(all) != 1 || s.at(all[0].EndTime()) != 6*time.Minute || len(all[0].Events()) > 0 {
			t.Errorf("after the stop the new spans are %v", all)
		}
	})
}

func TestTheWorkOfACallIsInItsTrace(t *testing.T) {
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

func TestTheErrorOfACallIsRecordedAndReturnedAsItIs(t *testing.T) {
	busy, none := errors.New("the mail server is busy"), (*os.PathError)(nil) // the text of none cannot be read
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	pass := informer.WatcherFunc[informer.AnyObject](func(ctx context.Context, e informer.Event[informer.AnyObject]) error {
		switch e.Origin {
		case informer.OriginRelist:
			return busy
		case informer.OriginResync:
			return none
		case informer.OriginInitial:
			runtime.Goexit()
		}
		return nil
	})
	for _, test := range []struct {
		event informer.Event[informer.AnyObject]
		err   error
		want  string
	}{
		{informer.Event[informer.AnyObject]{Type: informer.EventAdded, New: node, Merged: true, From: &informer.Cluster{Name: "east"}}, nil,
			"0s-0s informer.handle.added informer.object.key=east|n informer.event.type=added informer.event.origin=watch informer.event.merged=true"},
		{informer.Event[informer.AnyObject]{Type: informer.EventAdded, Origin: informer.OriginRelist, New: node}, busy,
			"0s-0s informer.handle.added informer.object.key=n informer.event.type=added informer.event.origin=relist informer.event.merged=false" + failed(0, "*errors.errorString", "the mail server is busy")},
		{informer.Event[informer.AnyObject]{Type: informer.EventUpdated, Origin: informer.OriginRelist, Old: object("a", "1"), New: object("a", "2")}, busy,
			"0s-0s informer.handle.updated informer.object.key=default/a informer.event.type=updated informer.event.origin=relist informer.event.merged=false" + failed(0, "*errors.errorString", "the mail server is busy")},
		{informer.Event[informer.AnyObject]{Type: informer.EventDeleted, Origin: informer.OriginRelist, Old: node}, busy,
			"0s-0s informer.handle.deleted informer.object.key=n informer.event.type=deleted informer.event.origin=relist informer.event.merged=false" + failed(0, "*errors.errorString", "the mail server is busy")},
		{informer.Event[informer.AnyObject]{Type: informer.EventUpdated, Origin: informer.OriginResync, Old: node, New: node}, none,
			"0s-0s informer.handle.updated informer.object.key=n informer.event.type=updated informer.event.origin=resync informer.event.merged=false" + failed(0, "*fs.PathError", "<nil>")},
		{informer.Event[informer.AnyObject]{Type: informer.EventAdded, Origin: informer.OriginInitial, New: node}, nil, // ends its goroutine
			"0s-0s informer.handle.added informer.object.key=n informer.event.type=added informer.event.origin=initial informer.event.merged=false"},
	} {
		s := record()
		w := opentelemetry.Watcher(s, "", informer.ResourceWatcher[informer.AnyObject](pass))
		call := map[informer.EventType]func(context.Context, informer.Event[informer.AnyObject]) error{informer.EventAdded: w.Add, informer.EventUpdated: w.Update, informer.EventDeleted: w.Delete}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := call[test.event.Type](t.Context(), test.event); err != test.err { //nolint:errorlint // the very same
				t.Errorf("%s: the error is %v", test.want, err)
			}
		}()
		<-done
		s.expect(t, test.want)
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

func TestANilWatcherCannotBeAdded(t *testing.T) {
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
		synctest.Wait()
		s.expect(t, "0s-0s informer.handle.updated informer.object.key=default/a informer.event.type=updated informer.event.origin=watch informer.event.merged=false")
	})
}

func TestUnselectedEventsMakeNoSpans(t *testing.T) {
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
		src.Apply(object("a", "out")) // its add has failed, so the watcher gets a delete
		src.Apply(object("b", "out too"))
		time.Sleep(time.Hour)
		s.expect(t,
			"0s-1s informer.handle.added informer.object.key=default/a informer.event.type=added informer.event.origin=initial informer.event.merged=false"+failed(time.Second, "*errors.errorString", "not now"),
			"1m1s-1m2s informer.handle.deleted informer.object.key=default/a informer.event.type=deleted informer.event.origin=initial informer.event.merged=true")
	})
}

func TestAnUnrecordedCallIsNotDescribed(t *testing.T) {
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
