package parity_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// This file tests the features of the client-go view that client-go's informer does not have.
// The tests of the common behaviour use cases_test.go.

// anyOptions are the options of an informer whose object type is known only at run time.
type anyOptions = informer.Options[informer.AnyObject]

// configured returns the client-go view of an informer with these options.
func configured(lw cache.ListerWatcher, example runtime.Object, opts anyOptions, indexers cache.Indexers) cache.SharedIndexInformer {
	configure := func(runtime.Object) (anyOptions, error) { return opts, nil }
	return informer.ClientGo{Options: configure}.NewSharedIndexInformer(lw, example, 0, indexers)
}

func TestASharedIndexInformerTakesOptionsPerType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := informertest.NewStore(nil)
		var told []string // each example and each observation
		inf := informer.ClientGo{Options: func(example runtime.Object) (anyOptions, error) {
			told = append(told, fmt.Sprintf("%T", example))
			return anyOptions{
				Store:     store,
				Transform: annotate("first"),
				Observer:  &informer.Observer{Apply: func(i informer.ApplyInfo) { told = append(told, i.Informer) }},
				Indexers: informer.Indexers[informer.AnyObject]{
					"value": func(obj informer.AnyObject) ([]string, error) { return []string{obj.GetLabels()["value"]}, nil },
				},
			}, nil
		}}.NewSharedIndexInformer(one(), &corev1.ConfigMap{}, 0, byNamespace())
		wantError(t, false, "SetTransform", inf.SetTransform(func(obj any) (any, error) { return annotate("second")(obj.(informer.AnyObject)) }))
		runShared(t, inf)
		equal(t, "Options and the observer got", told, "[*v1.ConfigMap ConfigMap]")
		if _, exists, err := store.GetByKey("default/a"); err != nil || !exists {
			t.Errorf("the store has a: %t, %v", exists, err)
		}
		for index, value := range map[string]string{"value": "1", cache.NamespaceIndex: "default"} {
			objs, err := inf.GetIndexer().ByIndex(index, value)
			if err != nil || len(objs) != 1 {
				t.Fatalf("by %s: %v, %v", index, objs, err)
			}
			equal(t, "transformed by", objs[0].(configMap).Annotations["transformed"], " first second")
		}
	})
}

func annotate(name string) func(informer.AnyObject) (informer.AnyObject, error) {
	return func(obj informer.AnyObject) (informer.AnyObject, error) {
		obj.SetAnnotations(map[string]string{"transformed": obj.GetAnnotations()["transformed"] + " " + name})
		return obj, nil
	}
}

func TestASharedIndexInformerThatCannotBeMadeReportsWhy(t *testing.T) {
	for name, test := range map[string]struct {
		opts   anyOptions
		err    error
		reason string
	}{
		"an error of Options": {err: errors.New("no options for this type"), reason: "no options for this type"},
		"a bad option":        {opts: anyOptions{DrainTimeout: -1}, reason: "Options.DrainTimeout"},
		"an index that is there": {
			opts:   anyOptions{Indexers: informer.Indexers[informer.AnyObject]{"value": func(informer.AnyObject) ([]string, error) { return nil, nil }}},
			reason: `"value"`,
		},
		"a field that is not there": {
			opts:   anyOptions{Fields: map[string]string{"x": "spec.nodeName"}},
			reason: `Options.Fields["x"]: path "spec.nodeName": the object (v1.ConfigMap) has no field "spec"`,
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			var errs errorLog
			test.opts.ErrorHandler = errs.Handle
			configure := func(runtime.Object) (anyOptions, error) { return test.opts, test.err }
			src := one()
			inf := informer.ClientGo{Options: configure}.NewSharedIndexInformer(src, &corev1.ConfigMap{}, 0, byValue())
			testkit.StartShared(t, inf)
			err := inf.(interface{ WaitForSync(context.Context) error }).WaitForSync(within(t, time.Minute))
			reported := errs.Take()
			if inf.HasSynced() || len(reported) != 1 {
				t.Errorf("synced: %t, reported %v", inf.HasSynced(), reported)
			}
			for _, err := range append(reported, err) {
				if err == nil || !strings.Contains(err.Error(), test.reason) {
					t.Errorf("%v does not name the reason", err)
				}
			}
			equal(t, "requests", len(src.Requests()), 0)
		})
	}
}

func TestAnInvalidSharedIndexInformerPanics(t *testing.T) {
	none := func(runtime.Object) (anyOptions, error) { return anyOptions{}, nil }
	var noSource *source
	for name, test := range map[string]struct {
		with informer.ClientGo
		lw   cache.ListerWatcher
	}{
		"no source":                  {},
		"a source that is a nil":     {lw: noSource},
		"a source without functions": {lw: &cache.ListWatch{}},
		"no source, and options":     {with: informer.ClientGo{Options: none}},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if msg := fmt.Sprint(recover()); !strings.Contains(msg, "nil") && !strings.Contains(msg, "without") {
					t.Errorf("panicked with %q", msg)
				}
			}()
			test.with.NewSharedIndexInformer(test.lw, &corev1.Pod{}, 0, nil)
			t.Error("did not panic")
		})
	}
}

func TestWatchersAndHandlersStandSideBySide(t *testing.T) {
	testkit.EachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := two()
		inf := testkit.NewInformer(t, src, options{Queue: queue})
		shared := inf.SharedIndexInformer()
		equal(t, "two calls return one view", shared == inf.SharedIndexInformer(), true)
		var watcher testkit.Recorder
		testkit.AddWatcher(t, inf, &watcher, informer.WatcherOptions{})
		h := listen(t, shared)
		informertest.Run(t, inf)
		h.expect(t, "add a@1 initial", "add b@2 initial")
		watcher.Expect(t, "added default/a", "added default/b")
		checkSynced(t, true, h.reg)

		change(t, src, "a=3", "-b")
		h.expect(t, "update a@1->a@3", "delete b@4")
		watcher.Expect(t, "updated default/a", "deleted default/b")
		if e := watcher.Events()[3]; e.Old.ResourceVersion != "1002" || e.New != nil {
			t.Errorf("the delete event has Old %v and New %v", e.Old, e.New)
		}
		noError(t, watcher.Err())
		testkit.ErrorIs(t, shared.SetTransform(nil), informer.ErrAlreadyRun)
	})
}

func TestAnOddArgumentIsTakenAsClientGoDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, byNamespace())
		inf := configured(one(), &corev1.ConfigMap{}, anyOptions{Store: store}, byNamespace())
		runShared(t, inf)
		checkSynced(t, true, inf) // although the store already has the requested index
		var none configMap
		inf = informer.ClientGo{}.NewSharedIndexInformer(one(), none, 0, nil) // even a nil pointer names the type
		runShared(t, inf)
		for _, alike := range []any{object("a", "1"), cache.ExplicitKey("default/a"), &object("a", "1").ObjectMeta, cache.DeletedFinalStateUnknown{Key: "default/a"}} {
			if _, exists, err := inf.GetStore().Get(alike); err != nil || !exists {
				t.Errorf("Get(%T): %t, %v", alike, exists, err)
			}
		}
		fails := func(any) ([]string, error) { return nil, errors.New("it always does") }
		wantError(t, false, "AddIndexers", inf.GetIndexer().AddIndexers(cache.Indexers{"fails": fails}))
	})
	_, err := informer.NewFrom(one(), options{Store: cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)})
	wantError(t, true, "New with a store that panics when an index is added", err)
}

// While the store is behind, the events of different objects still come in the order of their
// versions, as with client-go's informer.
func TestHandlersAreCalledInTheOrderOfVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := informertest.NewSource[configMap](), informertest.NewStore(nil)
		inf := configured(src, &corev1.ConfigMap{}, anyOptions{Store: store}, nil)
		h := listen(t, inf)
		runShared(t, inf)
		release := store.Hang()
		for _, name := range []string{"first", "a", "b", "a"} {
			src.Apply(object(name, src.ResourceVersion()))
			synctest.Wait()
		}
		release()
		synctest.Wait()
		equal(t, "calls of the handler", h.take(), "[add first@1 add a@2 add b@3 update a@2->a@4]")
	})
}

// The final state of a refused delete must not be kept. Otherwise a handler would get it with
// the next delete of the object.
func TestTheFinalStateOfARefusedDeleteIsNotDelivered(t *testing.T) {
	testkit.EachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src, store := two(), informertest.NewStore(nil)
		inf := configured(src, &corev1.ConfigMap{}, anyOptions{Queue: queue, Store: store, ErrorHandler: testkit.Ignore}, nil)
		h := listen(t, inf)
		runShared(t, inf)
		h.expect(t, "add a@1 initial", "add b@2 initial")

		store.Fail(func(op, key string) error {
			return testkit.ErrorIf(op == "delete" && key == "default/a", informer.ErrPermanent)
		})
		change(t, src, "-a", "-b")
		h.expect(t, "delete b@4")
		store.Heal()
		src.Compact()
		src.Disconnect()
		sleepBubble(time.Minute)
		h.expect(t, "tombstone a@1")
	})
}

// TestATombstoneOfWhichOnlyTheKeyIsKnown makes the store lose an object. The relist then knows
// only from the watchers that the object existed. The object of the tombstone has the example's
// type and kind, if that is possible.
func TestATombstoneOfWhichOnlyTheKeyIsKnown(t *testing.T) {
	widget := unstructuredOf("Widget")
	for name, check := range map[string]func(t *testing.T){
		"typed": func(t *testing.T) {
			checkBareTombstone(t, &corev1.ConfigMap{}, object("a", "1"), "*v1.ConfigMap", "ConfigMap")
		},
		"any": func(t *testing.T) { checkBareTombstone(t, nil, object("a", "1"), "*v1.PartialObjectMetadata", "") },
		"unstructured": func(t *testing.T) {
			checkBareTombstone(t, widget("", ""), widget("a", "1"), "*unstructured.Unstructured", "Widget")
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, check) })
	}
}

func checkBareTombstone[T informer.Object](t *testing.T, example runtime.Object, obj T, wantType, wantName string) {
	src, inner := informertest.NewSource(obj), cache.NewStore(cache.MetaNamespaceKeyFunc)
	inf := configured(src, example, anyOptions{Store: informertest.NewStore(inner)}, nil)
	if name := inf.HasSyncedChecker().Name(); !strings.Contains(name, wantName) {
		t.Errorf("the informer is named %q", name)
	}
	gone := deleted(t, inf)
	runShared(t, inf)
	_ = inner.Delete(obj)
	src.Fail("list", syscall.ECONNREFUSED, -1)
	src.Fail("watch", syscall.ECONNREFUSED, -1)
	src.Disconnect()
	last := src.Objects()[0]
	remove(t, src, "a")
	src.Compact()
	src.Heal()
	sleepBubble(time.Minute)
	if len(*gone) != 1 {
		t.Fatalf("deleted %v", *gone)
	}
	tomb, ok := (*gone)[0].(cache.DeletedFinalStateUnknown)
	if !ok || tomb.Key != "default/a" || fmt.Sprintf("%T", tomb.Obj) != wantType {
		t.Fatalf("the tombstone is %#v", (*gone)[0])
	}
	bare := tomb.Obj.(informer.AnyObject)
	if bare.GetName() != "a" || bare.GetNamespace() != "default" || bare.GetUID() != last.GetUID() {
		t.Errorf("the tombstone carries %v", bare)
	}
	if example != nil && bare.GetObjectKind().GroupVersionKind() != example.GetObjectKind().GroupVersionKind() {
		t.Errorf("the tombstone has the kind %v", bare.GetObjectKind().GroupVersionKind())
	}
}

// deleted adds a handler that appends the argument of each OnDelete to the result.
func deleted(t *testing.T, inf cache.SharedIndexInformer) *[]any {
	t.Helper()
	var gone []any
	handle(t, inf, cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) { gone = append(gone, obj) }})
	return &gone
}

func TestTheTransformOfTheOptionsComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("fails", "1"), object("nothing", "1"), object("well", "1"))
		var errs errorLog
		inf := configured(src, &corev1.ConfigMap{}, anyOptions{ErrorHandler: errs.Handle, Transform: func(obj informer.AnyObject) (informer.AnyObject, error) {
			switch obj.GetName() {
			case "fails":
				return nil, errors.New("cannot be transformed")
			case "nothing":
				return nil, nil
			}
			return obj, nil
		}}, nil)
		var second []string
		wantError(t, false, "SetTransform", inf.SetTransform(func(obj any) (any, error) {
			second = append(second, obj.(configMap).Name)
			return obj, nil
		}))
		runShared(t, inf)
		equal(t, "calls of the second transform", second, "[well]")
		equal(t, "reports", len(errs.Take()), 2)
		health := inf.(interface{ Health() informer.Health }).Health()
		if !health.Synced || health.Name != "ConfigMap" || health.Objects != 1 {
			t.Errorf("Health: %+v", health)
		}
	})
}

// described has the metadata of an API object, but is not an API object itself.
type described struct {
	metav1.TypeMeta
	meta metav1.ObjectMeta
}

func (d *described) GetObjectMeta() metav1.Object { return &d.meta }
func (d *described) DeepCopyObject() runtime.Object {
	return &described{d.TypeMeta, *d.meta.DeepCopy()}
}

func TestAnInvalidExampleObjectLetsNothingPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, release := held()
		change(t, src, "-a", "-b")
		inner := cache.NewStore(cache.MetaNamespaceKeyFunc)
		wantError(t, false, "Add", inner.Add(object("before", "1")))
		var errs errorLog
		inf := configured(src, &described{}, anyOptions{Store: informertest.NewStore(inner), ErrorHandler: errs.Handle}, nil)
		gone := deleted(t, inf)
		runShared(t, inf)
		wantError(t, false, "Delete", inner.Delete(object("before", "1"))) // now only the key is known
		release()
		testkit.Opened(t, src)
		inject(src, &described{meta: metav1.ObjectMeta{Namespace: "default", Name: "d"}})
		synctest.Wait()
		if got := errs.Take(); len(got) != 1 || !strings.Contains(got[0].Error(), "is not of the informer's type") {
			t.Errorf("reported %v", got)
		}
		if len(*gone) != 1 || fmt.Sprintf("%T", (*gone)[0].(cache.DeletedFinalStateUnknown).Obj) != "*v1.PartialObjectMetadata" {
			t.Errorf("deleted %v", *gone)
		}
	})
}
