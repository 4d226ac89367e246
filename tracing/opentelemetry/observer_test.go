package opentelemetry_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/tracing/opentelemetry"
)

const refused = "connection refused"

func TestEachOperationIsASpan(t *testing.T) {
	for _, test := range []struct {
		call func(o *informer.Observer)
		want string
	}{
		{func(o *informer.Observer) { o.List(informer.ListInfo{Informer: "i", Objects: 2, Took: time.Second}) },
			"-1s-0s informer.list informer.name=i informer.list.objects=2"},
		{func(o *informer.Observer) { o.List(informer.ListInfo{Informer: "i", Err: syscall.ECONNREFUSED}) },
			"0s-0s informer.list informer.name=i informer.list.objects=0" + failed(0, "syscall.Errno", refused)},
		{func(o *informer.Observer) {
			o.Watch(informer.WatchInfo{Informer: "i", Streaming: true, Events: 4, Took: time.Minute})
		},
			"-1m0s-0s informer.watch informer.name=i informer.watch.streaming=true informer.watch.events=4"},
		{func(o *informer.Observer) { o.Watch(informer.WatchInfo{Informer: "i", Err: syscall.ECONNREFUSED}) },
			"0s-0s informer.watch informer.name=i informer.watch.streaming=false informer.watch.events=0" + failed(0, "syscall.Errno", refused)},
		{func(o *informer.Observer) {
			o.Store(informer.StoreInfo{Informer: "i", Op: "get", Key: "n/a", Took: time.Second})
		},
			"-1s-0s informer.store.get informer.name=i informer.store.operation=get informer.store.failures=0 informer.object.key=n/a"},
		{func(o *informer.Observer) {
			o.Store(informer.StoreInfo{Informer: "i", Op: "scan", Failures: 1, Err: errors.New("locked")})
		}, "0s-0s informer.store.scan informer.name=i informer.store.operation=scan informer.store.failures=1" + failed(0, "*errors.errorString", "locked")},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := record()
			test.call(opentelemetry.Observer(s))
			s.expect(t, test.want)
		})
	}
}

func TestOtherThingsAreNotObserved(t *testing.T) {
	observer := reflect.ValueOf(opentelemetry.Observer(nil)).Elem()
	for n := range observer.NumField() {
		name := observer.Type().Field(n).Name
		if wanted := slices.Contains([]string{"List", "Watch", "Store"}, name); observer.Field(n).IsNil() == wanted {
			t.Errorf("it has %s: %t, want %t", name, !wanted, wanted)
		}
	}
}

// tellAll calls each function of an Observer with an operation that has failed with err.
func tellAll(o *informer.Observer, text string, took time.Duration, err error) {
	o.List(informer.ListInfo{Informer: text, Took: took, Err: err})
	o.Watch(informer.WatchInfo{Informer: text, Took: took, Err: err})
	o.Store(informer.StoreInfo{Informer: text, Op: "get", Key: text, Took: took, Err: err})
}

func TestUnrecordedSpansAreNotDescribed(t *testing.T) {
	provider := &unsampled{t: t}
	tellAll(opentelemetry.Observer(provider), "i", time.Second, unasked{t})
	if provider.spans != 3 || provider.ended != 3 {
		t.Errorf("%d spans have begun, %d have ended, want 3", provider.spans, provider.ended)
	}
}

type unasked struct{ t *testing.T }

func (u unasked) Error() string {
	u.t.Error("the text of an error was read for a span that is not recorded")
	return ""
}

func TestTextsThatAreUnfitForASpanAreMadeFit(t *testing.T) {
	const broken = "a\xff\xfeb\xc3"
	for name, test := range map[string]struct {
		text string
		want string
	}{
		"not UTF-8":             {broken, "a?b?"},
		"with control bytes":    {"a\x00\x1b[31m", "a\x00\x1b[31m"},
		"as long as it may be":  {strings.Repeat("a", 1024), strings.Repeat("a", 1024)},
		"longer":                {strings.Repeat("a", 1025), strings.Repeat("a", 1024) + "…"},
		"much longer":           {strings.Repeat("a", 1<<20), strings.Repeat("a", 1024) + "…"},
		"long and not UTF-8":    {strings.Repeat("a\xff", 1<<20), strings.Repeat("a?", 512) + "…"},
		"cut within a rune":     {"a" + strings.Repeat("é", 1024), "a" + strings.Repeat("é", 511) + "?…"},
		"as long, of such":      {strings.Repeat("é", 512), strings.Repeat("é", 512)},
		"of things not thought": {"¡\u202e🙂", "¡\u202e🙂"},
	} {
		t.Run(name, func(t *testing.T) {
			s := record()
			tellAll(opentelemetry.Observer(s), test.text, 0, errors.New(test.text))
			w := opentelemetry.Watcher(s, test.text, informer.WatcherFunc[configMap](func(context.Context, event) error {
				return errors.New(test.text)
			}))
			obj := object(test.text, "")
			obj.Namespace = ""
			if err := w.Add(t.Context(), event{Type: informer.EventAdded, New: obj}); err == nil || err.Error() != test.text {
				t.Error("the error of the watcher is another")
			}
			all := s.next()
			if len(all) != 4 {
				t.Fatalf("%d spans, want 4", len(all))
			}
			for _, span := range all {
				if got := span.Status().Description; got != test.want {
					t.Errorf("%s: the status is %.50q", span.Name(), got)
				}
				texts := 0
				check := func(attributes []attribute.KeyValue) {
					for _, a := range attributes {
						got := a.Value.Emit()
						if !utf8.ValidString(got) || len(got) > 2000 {
							t.Errorf("%s: %s is %.50q", span.Name(), a.Key, got)
						}
						if got == test.want {
							texts++
						}
					}
				}
				check(span.Attributes())
				for _, e := range span.Events() {
					check(e.Attributes)
					if e.Time.After(span.EndTime()) {
						t.Errorf("%s: the error comes %v after the end", span.Name(), e.Time.Sub(span.EndTime()))
					}
				}
				want := map[string]int{"informer.list": 2, "informer.watch": 2, "informer.store.get": 3, "informer.handle.added": 3}
				if texts != want[span.Name()] {
					t.Errorf("%s has the text %d times", span.Name(), texts)
				}
			}
		})
	}
}

func TestTimesThatCannotBeDoNoHarm(t *testing.T) {
	s := record()
	for _, took := range []time.Duration{-time.Hour, math.MinInt64, math.MaxInt64} {
		tellAll(opentelemetry.Observer(s), "i", took, nil)
	}
	if got := len(s.next()); got != 9 {
		t.Errorf("%d spans, want 9", got)
	}
}

func TestSpansSayWhoHasMadeThem(t *testing.T) {
	s := record()
	tellAll(opentelemetry.Observer(s), "i", 0, nil)
	for _, span := range s.next() {
		if got := span.InstrumentationScope().Name; got != "github.com/customcacheinformer/informer/tracing/opentelemetry" {
			t.Errorf("the scope of %s is %q", span.Name(), got)
		}
	}
}

// unprovided returns observers and watchers that were made without a provider, before the
// program sets one. They are made only once, because only the first provider that a
// program sets takes over tracers made before.
var unprovided = sync.OnceValues(func() (observers []*informer.Observer, watchers []watcher) {
	pass := informer.WatcherFunc[configMap](nothing)
	for _, none := range []trace.TracerProvider{nil, (*sdktrace.TracerProvider)(nil)} {
		observers = append(observers, opentelemetry.Observer(none))
		watchers = append(watchers, opentelemetry.Watcher(none, "w", pass))
	}
	otel.SetTracerProvider(program)
	return observers, watchers
})

var program = record()

func TestWithoutAProviderItIsTheOneOfTheProgram(t *testing.T) {
	observers, watchers := unprovided()
	program.next()
	for _, o := range observers {
		tellAll(o, "i", 0, nil)
	}
	for _, w := range watchers {
		if err := w.Add(t.Context(), event{Type: informer.EventAdded, New: object("a", "1")}); err != nil {
			t.Error(err)
		}
	}
	if got, want := len(program.next()), 2*3+2; got != want {
		t.Errorf("%d spans, want %d", got, want)
	}
}
