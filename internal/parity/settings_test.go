package parity_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestSharedTransform(t *testing.T) {
	sharedCases{
		"is of all that is stored and delivered": eachWay(func(t *testing.T, s shared, src *source) {
			inf := s.new(src, 0)
			wantError(t, false, "SetTransform", inf.SetTransform(mark("x")))
			early := listenToMarks(t, inf)
			runShared(t, inf)
			early.expect(t, "add a@x", "add b@x")
			change(t, src, "a=2", "c=1", "-b")
			early.expect(t, "update a@x->a@x", "add c@x", "delete b@x")
			listenToMarks(t, inf).expect(t, "add a@x", "add c@x")
			missing(t, src, "a=3", "-c")
			early.expect(t, "update a@x->a@x", "delete c@x")
			if got := cached(t, inf, "a").(configMap); got.Annotations["mark"] != "x" || got.Data["value"] != "3" {
				t.Errorf("the store has %v", got)
			}
		}),
		"is the last that was set, which may be nil": func(t *testing.T, s shared) {
			for told, last := range map[string]cache.TransformFunc{"add a@y": mark("y"), "add a@": nil} {
				inf := s.new(one(), 0)
				wantError(t, false, "SetTransform", inf.SetTransform(mark("x")))
				wantError(t, false, "SetTransform again", inf.SetTransform(last))
				h := listenToMarks(t, inf)
				runShared(t, inf)
				h.expect(t, told)
			}
		},
		"may make another type of it": func(t *testing.T, s shared) {
			if s.name == madeWithNew {
				return // its informer can hold only config maps
			}
			src, inf := s.over(two())
			wantError(t, false, "SetTransform", inf.SetTransform(func(obj any) (any, error) {
				if cm, ok := obj.(configMap); ok {
					return &metav1.PartialObjectMetadata{ObjectMeta: cm.ObjectMeta}, nil
				}
				return obj, nil
			}))
			h := listen(t, inf)
			runShared(t, inf)
			change(t, src, "a=2", "-b")
			h.expect(t, "add a@1 initial", "update a@1->a@3", "add b@2 initial", "delete b@4")
			if obj, ok := cached(t, inf, "a").(*metav1.PartialObjectMetadata); !ok {
				t.Errorf("the store has a %T", obj)
			}
			missing(t, src, "-a")
			h.expect(t, "tombstone a@3")
		},
		"that fails leaves the object as it was": func(t *testing.T, s shared) {
			src, inf := s.over(informertest.NewSource(object("a", "good"), object("b", "bad")))
			wantError(t, false, "SetTransform", inf.SetTransform(func(obj any) (any, error) {
				if cm, ok := obj.(configMap); ok && cm.Data["value"] == "bad" {
					return nil, errors.New("bad")
				}
				return obj, nil
			}))
			h := listen(t, inf)
			runShared(t, inf)
			checkSynced(t, true, inf, h.reg)
			change(t, src, "a=bad")
			h.expect(t, "add a@1 initial")
			checkShared(t, inf, "a@1")
			change(t, src, "a=good again", "b=good")
			h.expect(t, "update a@1->a@4", "add b@5")
		},
		"cannot be set after the start": func(t *testing.T, s shared) {
			src, inf := s.over(two())
			h := listenToMarks(t, inf)
			stop := runShared(t, inf)
			wantError(t, true, "SetTransform while it runs", inf.SetTransform(mark("x")))
			change(t, src, "a=2")
			h.expect(t, "add a@", "update a@->a@", "add b@")
			stop()
			wantError(t, true, "SetTransform after the stop", inf.SetTransform(nil))
		},
	}.inBubbles(t)
}

// mark returns a transform that sets an annotation. It leaves any object that is not a config
// map as it is.
func mark(with string) cache.TransformFunc {
	return func(obj any) (any, error) {
		if cm, ok := obj.(configMap); ok {
			cm.Annotations = map[string]string{"mark": with}
		}
		return obj, nil
	}
}

// listenToMarks adds a handler that records the marks of the objects, not their versions.
func listenToMarks(t *testing.T, inf cache.SharedInformer) *heard {
	t.Helper()
	markOf := func(obj any) string {
		if tomb, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = tomb.Obj
		}
		return obj.(configMap).Name + "@" + obj.(configMap).Annotations["mark"]
	}
	var h heard
	h.reg = handle(t, inf, cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { h.note("add "+markOf(obj), nil, obj) },
		UpdateFunc: func(before, after any) { h.note("update "+markOf(before)+"->"+markOf(after), before, after) },
		DeleteFunc: func(obj any) { h.note("delete "+markOf(obj), nil, obj) },
	})
	return &h
}

func TestSharedWatchErrorHandler(t *testing.T) {
	sharedCases{
		"gets each error of a list": func(t *testing.T, s shared) {
			for _, n := range []int{1, 3} {
				src := two()
				refuseLists(src, n)
				inf, errs := watchErrors(t, s, src)
				runShared(t, inf)
				if got := errs.Take(); len(got) != 1 || !apierrors.IsForbidden(got[0]) || !errors.Is(got[0], errForbidden) {
					t.Errorf("the handler got %v", got)
				}
				sleepBubble(hour)
				checkSynced(t, true, inf)
				equal(t, "errors after the first", len(errs.Take()), n-1)
			}
		},
		"gets the error of a watch": func(t *testing.T, s shared) {
			for _, err := range []error{errForbidden, apierrors.NewInternalError(errors.New("out of order"))} {
				src := two()
				inf, errs := watchErrors(t, s, src)
				runShared(t, inf)
				sleepBubble(time.Minute)
				src.Fail("watch", err, 1)
				src.Disconnect()
				sleepBubble(time.Minute)
				if got := errs.Take(); len(got) != 1 || !errors.Is(got[0], err) {
					t.Errorf("the handler got %v, want %v", got, err)
				}
			}
		},
		"does not get usual events": func(t *testing.T, s shared) {
			src := two()
			inf, errs := watchErrors(t, s, src)
			runShared(t, inf)
			for range 3 {
				sleepBubble(time.Minute)
				src.Disconnect()
				sleepBubble(time.Minute)
				src.Expire()
				sleepBubble(hour) // with timeouts
				for _, err := range []error{syscall.ECONNREFUSED, apierrors.NewTooManyRequestsError("slow down")} {
					src.Fail("watch", err, 3)
					src.Disconnect()
					sleepBubble(hour)
				}
				status := apierrors.NewInternalError(errors.New("out of order")).Status()
				src.Inject(watch.Event{Type: watch.Error, Object: &status})
				sleepBubble(hour)
			}
			equal(t, "errors", errs.Take(), "[]")
		},
		"may want a context": func(t *testing.T, s shared) {
			src := two()
			refuseLists(src, 1)
			inf := s.new(src, 0)
			type key struct{}
			told := make(chan any, 10)
			wantError(t, false, "SetWatchErrorHandlerWithContext", inf.SetWatchErrorHandlerWithContext(
				func(ctx context.Context, r *cache.Reflector, err error) {
					if r == nil || !apierrors.IsForbidden(err) || ctx.Err() != nil {
						t.Errorf("the handler got %v, with a reflector: %t, and a ctx with the error %v", err, r != nil, ctx.Err())
					}
					told <- ctx.Value(key{})
				}))
			ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
			done := make(chan struct{})
			go func() {
				defer close(done)
				inf.RunWithContext(ctx)
			}()
			equal(t, "value of the ctx, which is that of Run", <-told, "value")
			cancel()
			<-done
		},
		"is the last that was set": func(t *testing.T, s shared) {
			src := two()
			refuseLists(src, 1)
			inf, first := watchErrors(t, s, src)
			var last errorLog
			wantError(t, false, "SetWatchErrorHandlerWithContext", inf.SetWatchErrorHandlerWithContext(
				func(ctx context.Context, _ *cache.Reflector, err error) { last.Handle(ctx, err) }))
			runShared(t, inf)
			if first, last := first.Take(), last.Take(); len(first) != 0 || len(last) != 1 {
				t.Errorf("the first handler got %v, the last %v", first, last)
			}
		},
		"cannot be set after the start": func(t *testing.T, s shared) {
			inf := s.new(two(), 0)
			stop := runShared(t, inf)
			plain := func(*cache.Reflector, error) {}
			withContext := func(context.Context, *cache.Reflector, error) {}
			for _, when := range []string{"while it runs", "after the stop"} {
				wantError(t, true, "SetWatchErrorHandler "+when, inf.SetWatchErrorHandler(plain))
				wantError(t, true, "SetWatchErrorHandlerWithContext "+when, inf.SetWatchErrorHandlerWithContext(withContext))
				stop()
			}
		},
	}.inBubbles(t)
}

var errForbidden = testkit.Forbidden("configmaps")

// refuseLists makes src answer the next lists with 403. A negative times is for all lists.
func refuseLists(src *source, times int) {
	src.SetFaults(lists)
	src.Fail("list", errForbidden, times)
}

func watchErrors(t *testing.T, s shared, src *source) (cache.SharedIndexInformer, *errorLog) {
	t.Helper()
	var errs errorLog
	inf := s.new(src, 0)
	wantError(t, false, "SetWatchErrorHandler", inf.SetWatchErrorHandler(func(r *cache.Reflector, err error) {
		if r == nil {
			t.Error("the watch error handler got no reflector")
		}
		errs.Handle(context.Background(), err)
	}))
	return inf, &errs
}
