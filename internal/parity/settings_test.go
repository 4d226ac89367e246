package parity_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/informertest"
)

func TestSharedTransform(t *testing.T) {
	sharedCases{
		"is of all that is stored and told":              transformsAll,
		"is of all that is stored and told, of a lister": transformsAllOfALister,
		"is the last that was set":                       transformLastWins,
		"may make another type of it":                    transformsTheType,
		"that fails leaves the object as it was":         transformFails,
		"may be nil":                                     transformNil,
		"cannot be set after the start":                  transformTooLate,
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

func marks(into *heard) cache.ResourceEventHandler {
	markOf := func(obj any) string {
		if tomb, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = tomb.Obj
		}
		return obj.(configMap).Name + "@" + obj.(configMap).Annotations["mark"]
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { into.note("add "+markOf(obj), nil, obj) },
		UpdateFunc: func(before, after any) { into.note("update "+markOf(before)+"->"+markOf(after), before, after) },
		DeleteFunc: func(obj any) { into.note("delete "+markOf(obj), nil, obj) },
	}
}

func transformsAll(t *testing.T, s shared) { checkTransform(t, s, two()) }

func transformsAllOfALister(t *testing.T, s shared) {
	src := two()
	src.SetFaults(informertest.Faults{RejectWatchList: true})
	checkTransform(t, s, src)
}

func checkTransform(t *testing.T, s shared, src *source) {
	inf := s.new(src, 0)
	wantError(t, false, "SetTransform", inf.SetTransform(mark("x")))
	var early, late heard
	handle(t, inf, marks(&early))
	runShared(t, inf)
	early.expect(t, "add a@x", "add b@x")
	src.Apply(object("a", "2"))
	src.Apply(object("c", "1"))
	remove(t, src, "b")
	early.expect(t, "update a@x->a@x", "add c@x", "delete b@x")
	handle(t, inf, marks(&late))
	late.expect(t, "add a@x", "add c@x")
	missing(src, func() {
		src.Apply(object("a", "3"))
		remove(t, src, "c")
	})
	early.expect(t, "update a@x->a@x", "delete c@x")
	if got := cached(t, inf, "a").(configMap); got.Annotations["mark"] != "x" || got.Data["value"] != "3" {
		t.Errorf("the store has %v", got)
	}
}

func transformLastWins(t *testing.T, s shared) {
	inf := s.new(two(), 0)
	wantError(t, false, "SetTransform", inf.SetTransform(mark("x")))
	wantError(t, false, "SetTransform again", inf.SetTransform(mark("y")))
	var h heard
	handle(t, inf, marks(&h))
	runShared(t, inf)
	h.expect(t, "add a@y", "add b@y")
}

func transformsTheType(t *testing.T, s shared) {
	if s.name == madeWithNew {
		return // its informer can hold only config maps
	}
	src := two()
	inf := s.new(src, 0)
	wantError(t, false, "SetTransform", inf.SetTransform(func(obj any) (any, error) {
		if cm, ok := obj.(configMap); ok {
			return &metav1.PartialObjectMetadata{ObjectMeta: cm.ObjectMeta}, nil
		}
		return obj, nil
	}))
	var h heard
	handle(t, inf, &h)
	runShared(t, inf)
	src.Apply(object("a", "2"))
	remove(t, src, "b")
	h.expect(t, "add a@1 initial", "update a@1->a@3", "add b@2 initial", "delete b@4")
	if obj, ok := cached(t, inf, "a").(*metav1.PartialObjectMetadata); !ok {
		t.Errorf("the store has a %T", obj)
	}
	missing(src, func() { remove(t, src, "a") })
	h.expect(t, "tombstone a@3")
}

func transformFails(t *testing.T, s shared) {
	src := informertest.NewSource(object("a", "good"), object("b", "bad"))
	inf := s.new(src, 0)
	wantError(t, false, "SetTransform", inf.SetTransform(func(obj any) (any, error) {
		if cm, ok := obj.(configMap); ok && cm.Data["value"] == "bad" {
			return nil, errors.New("bad")
		}
		return obj, nil
	}))
	var h heard
	reg := handle(t, inf, &h)
	runShared(t, inf)
	checkSynced(t, "the informer", true, inf)
	checkSynced(t, "the handler", true, reg)
	src.Apply(object("a", "bad"))
	h.expect(t, "add a@1 initial")
	checkShared(t, inf, "a@1")
	src.Apply(object("a", "good again"))
	src.Apply(object("b", "good"))
	h.expect(t, "update a@1->a@4", "add b@5")
}

func transformNil(t *testing.T, s shared) {
	inf := s.new(two(), 0)
	wantError(t, false, "SetTransform", inf.SetTransform(mark("x")))
	wantError(t, false, "SetTransform(nil)", inf.SetTransform(nil))
	var h heard
	handle(t, inf, marks(&h))
	runShared(t, inf)
	h.expect(t, "add a@", "add b@")
}

func transformTooLate(t *testing.T, s shared) {
	src := two()
	inf := s.new(src, 0)
	var h heard
	handle(t, inf, marks(&h))
	stop := runShared(t, inf)
	wantError(t, true, "SetTransform while it runs", inf.SetTransform(mark("x")))
	src.Apply(object("a", "2"))
	h.expect(t, "add a@", "update a@->a@", "add b@")
	stop()
	wantError(t, true, "SetTransform after the stop", inf.SetTransform(nil))
}

func TestSharedWatchErrorHandler(t *testing.T) {
	sharedCases{
		"is told what a list returned":   watchErrorOfAList,
		"is told what a watch returned":  watchErrorOfAWatch,
		"is not told what is as usual":   watchErrorNot,
		"may want a context":             watchErrorWithContext,
		"is the last that was set":       watchErrorLastWins,
		"cannot be set after the start":  watchErrorTooLate,
		"of several errors is told each": watchErrorOfEach,
	}.inBubbles(t)
}

var errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("not you"))

// refuseLists makes src answer the next lists with 403. A negative times is for all lists.
func refuseLists(src *source, times int) {
	src.SetFaults(informertest.Faults{RejectWatchList: true})
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

func watchErrorOfAList(t *testing.T, s shared) {
	src := two()
	refuseLists(src, 1)
	inf, errs := watchErrors(t, s, src)
	runShared(t, inf)
	got := errs.Take()
	if len(got) != 1 || !apierrors.IsForbidden(got[0]) || !errors.Is(got[0], errForbidden) {
		t.Errorf("the handler got %v", got)
	}
	sleepBubble(time.Minute)
	checkSynced(t, "the informer", true, inf)
	if got := errs.Take(); len(got) != 0 {
		t.Errorf("the handler got %v although the list succeeded", got)
	}
}

func watchErrorOfAWatch(t *testing.T, s shared) {
	for name, err := range map[string]error{
		"403": errForbidden,
		"500": apierrors.NewInternalError(errors.New("out of order")),
	} {
		src := two()
		inf, errs := watchErrors(t, s, src)
		runShared(t, inf)
		sleepBubble(time.Minute)
		src.Fail("watch", err, 1)
		src.Disconnect()
		sleepBubble(time.Minute)
		if got := errs.Take(); len(got) != 1 || !errors.Is(got[0], err) {
			t.Errorf("the handler got %v for %s", got, name)
		}
	}
}

func watchErrorNot(t *testing.T, s shared) {
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
	if got := errs.Take(); len(got) != 0 {
		t.Errorf("the handler got %v", got)
	}
}

func watchErrorOfEach(t *testing.T, s shared) {
	src := two()
	refuseLists(src, 3)
	inf, errs := watchErrors(t, s, src)
	runShared(t, inf)
	sleepBubble(hour)
	if got := errs.Take(); len(got) != 3 {
		t.Errorf("the handler got %v", got)
	}
}

func watchErrorWithContext(t *testing.T, s shared) {
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
	if got := <-told; got != "value" {
		t.Errorf("the ctx is not that of Run, its value is %v", got)
	}
	cancel()
	<-done
}

func watchErrorLastWins(t *testing.T, s shared) {
	src := two()
	refuseLists(src, 1)
	inf, errs := watchErrors(t, s, src)
	var last errorLog
	wantError(t, false, "SetWatchErrorHandlerWithContext", inf.SetWatchErrorHandlerWithContext(
		func(ctx context.Context, _ *cache.Reflector, err error) { last.Handle(ctx, err) }))
	runShared(t, inf)
	if got := errs.Take(); len(got) != 0 {
		t.Errorf("the first handler got %v", got)
	}
	if got := last.Take(); len(got) != 1 {
		t.Errorf("the last handler got %v", got)
	}
}

func watchErrorTooLate(t *testing.T, s shared) {
	inf := s.new(two(), 0)
	stop := runShared(t, inf)
	plain := func(*cache.Reflector, error) {}
	withContext := func(context.Context, *cache.Reflector, error) {}
	for _, when := range []string{"while it runs", "after the stop"} {
		wantError(t, true, "SetWatchErrorHandler "+when, inf.SetWatchErrorHandler(plain))
		wantError(t, true, "SetWatchErrorHandlerWithContext "+when, inf.SetWatchErrorHandlerWithContext(withContext))
		stop()
	}
}
