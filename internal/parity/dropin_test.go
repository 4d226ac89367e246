package parity_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// This file tests the features of the client-go view that client-go's informer does not have.
// The tests of the common behaviour use cases_test.go.

// anyOptions are the options of an informer whose object type is known only at run time.
type anyOptions = informer.Options[informer.AnyObject]

func configured(lw cache.ListerWatcher, opts anyOptions, indexers cache.Indexers) cache.SharedIndexInformer {
	configure := func(runtime.Object) (anyOptions, error) { return opts, nil }
	return informer.ClientGo{Options: configure}.NewSharedIndexInformer(lw, &corev1.ConfigMap{}, 0, indexers)
}

func TestASharedIndexInformerTakesOptionsPerType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := informertest.NewSource(object("a", "1")), informertest.NewStore(nil)
		var applied []informer.ApplyInfo
		var asked []string
		made := informer.ClientGo{Options: func(example runtime.Object) (anyOptions, error) {
			asked = append(asked, fmt.Sprintf("%T", example))
			return anyOptions{
				Store:     store,
				Transform: annotate("first"),
				Observer:  &informer.Observer{Apply: func(i informer.ApplyInfo) { applied = append(applied, i) }},
				Indexers: informer.Indexers[informer.AnyObject]{
					"value": func(obj informer.AnyObject) ([]string, error) { return []string{obj.GetLabels()["value"]}, nil },
				},
			}, nil
		}}.NewSharedIndexInformer
		inf := made(src, &corev1.ConfigMap{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		if err := inf.SetTransform(func(obj any) (any, error) { return annotate("second")(obj.(informer.AnyObject)) }); err != nil {
			t.Fatal(err)
		}
		runShared(t, inf)
		if diff := cmp.Diff([]string{"*v1.ConfigMap"}, asked); diff != "" {
			t.Errorf("Options was called with (-want +got):\n%s", diff)
		}
		if len(applied) != 1 || applied[0].Informer != "ConfigMap" {
			t.Errorf("the observer got %v", applied)
		}
		if _, exists, err := store.GetByKey("default/a"); err != nil || !exists {
			t.Errorf("the store has a: %t, %v", exists, err)
		}
		for index, value := range map[string]string{"value": "1", cache.NamespaceIndex: "default"} {
			objs, err := inf.GetIndexer().ByIndex(index, value)
			if err != nil || len(objs) != 1 {
				t.Fatalf("by %s: %v, %v", index, objs, err)
			}
			if got := objs[0].(configMap).Annotations["transformed"]; got != " first second" {
				t.Errorf("transformed%s, want first second", got)
			}
		}
	})
}

func annotate(name string) func(informer.AnyObject) (informer.AnyObject, error) {
	return func(obj informer.AnyObject) (informer.AnyObject, error) {
		obj.SetAnnotations(map[string]string{"transformed": obj.GetAnnotations()["transformed"] + " " + name})
		return obj, nil
	}
}

func TestASharedIndexInformerThatCannotBeMadeSaysWhy(t *testing.T) {
	mistake := errors.New("no options for this type")
	negative := func(runtime.Object) (anyOptions, error) { return anyOptions{DrainTimeout: -1}, nil }
	for name, test := range map[string]struct {
		configure func(runtime.Object) (anyOptions, error)
		reason    string
	}{
		"an error of Options": {func(runtime.Object) (anyOptions, error) { return anyOptions{}, mistake }, mistake.Error()},
		"a bad option":        {negative, "Options.DrainTimeout"},
		"an index that is there": {func(runtime.Object) (anyOptions, error) {
			return anyOptions{Indexers: informer.Indexers[informer.AnyObject]{"twice": func(informer.AnyObject) ([]string, error) { return nil, nil }}}, nil
		}, "twice"},
		"a field that is not there": {func(runtime.Object) (anyOptions, error) {
			return anyOptions{Fields: map[string]string{"x": "spec.nodeName"}}, nil
		}, `Options.Fields["x"]: path "spec.nodeName": the object (v1.ConfigMap) has no field "spec"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var errs errorLog
				src := informertest.NewSource(object("a", "1"))
				inf := informer.ClientGo{Options: func(example runtime.Object) (anyOptions, error) {
					opts, err := test.configure(example)
					opts.ErrorHandler = errs.Handle
					return opts, err
				}}.NewSharedIndexInformer(src, &corev1.ConfigMap{}, 0, cache.Indexers{"twice": cache.MetaNamespaceIndexFunc})
				goShared(t, inf)
				err := inf.(interface{ WaitForSync(context.Context) error }).WaitForSync(within(t, time.Minute))
				if inf.HasSynced() || err == nil || !strings.Contains(err.Error(), test.reason) {
					t.Errorf("synced: %t, %v", inf.HasSynced(), err)
				}
				if got := errs.Take(); len(got) != 1 || !strings.Contains(got[0].Error(), test.reason) {
					t.Errorf("reported %v", got)
				}
				if got := src.Requests(); len(got) > 0 {
					t.Errorf("the source was asked for %v", got)
				}
			})
		})
	}
}

func TestWhatCannotBeASharedIndexInformerPanics(t *testing.T) {
	none := func(runtime.Object) (anyOptions, error) { return anyOptions{}, nil }
	var noSource *source
	for name, construct := range map[string]func(){
		"no source":                  func() { informer.ClientGo{}.NewSharedIndexInformer(nil, &corev1.Pod{}, 0, nil) },
		"a source that is a nil":     func() { informer.ClientGo{}.NewSharedIndexInformer(noSource, &corev1.Pod{}, 0, nil) },
		"a source without functions": func() { informer.ClientGo{}.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Pod{}, 0, nil) },
		"no source, and options":     func() { informer.ClientGo{Options: none}.NewSharedIndexInformer(nil, &corev1.Pod{}, 0, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if msg := fmt.Sprint(recover()); !strings.Contains(msg, "nil") && !strings.Contains(msg, "without") {
					t.Errorf("panicked with %q", msg)
				}
			}()
			construct()
			t.Error("did not panic")
		})
	}
}

func TestWatchersAndHandlersStandSideBySide(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"), object("b", "2"))
		inf := newInformer(t, src, options{Queue: queue})
		shared := inf.SharedIndexInformer()
		if shared != inf.SharedIndexInformer() {
			t.Error("two calls return two views")
		}
		var watcher recorder
		var handler heard
		addWatcher(t, inf, &watcher, informer.WatcherOptions{})
		reg := handle(t, shared, &handler)
		informertest.Run(t, inf)
		synctest.Wait()
		watcher.Expect(t, "added default/a", "added default/b")
		if got, want := sorted(handler.take()), []string{"add a@1 initial", "add b@2 initial"}; !slices.Equal(got, want) {
			t.Errorf("the handler got %v, want %v", got, want)
		}
		checkSynced(t, "the handler", true, reg)

		src.Apply(object("a", "3"))
		_, _ = src.Delete(keyOf("b"))
		synctest.Wait()
		watcher.Expect(t, "updated default/a", "deleted default/b")
		handler.expect(t, "update a@1->a@3", "delete b@4")
		if e := watcher.Events()[3]; e.Old.ResourceVersion != "1002" || e.New != nil {
			t.Errorf("the delete event has Old %v and New %v", e.Old, e.New)
		}
		if err := watcher.Err(); err != nil {
			t.Error(err)
		}
		if err := shared.SetTransform(nil); !errors.Is(err, informer.ErrAlreadyRun) {
			t.Errorf("SetTransform while running: %v", err)
		}
	})
}

func TestAnOddArgumentIsTakenAsClientGoDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		byNamespace := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		src := informertest.NewSource(object("a", "1"))
		inf := configured(src, anyOptions{Store: cache.NewIndexer(cache.MetaNamespaceKeyFunc, byNamespace)}, byNamespace)
		runShared(t, inf)
		if !inf.HasSynced() {
			t.Error("the informer does not sync with a store that already has the requested index")
		}
		var none configMap
		inf = informer.ClientGo{}.NewSharedIndexInformer(src, none, 0, nil) // even a nil pointer names the type
		runShared(t, inf)
		for _, alike := range []any{object("a", "1"), cache.ExplicitKey("default/a"), &object("a", "1").ObjectMeta, cache.DeletedFinalStateUnknown{Key: "default/a"}} {
			if _, exists, err := inf.GetStore().Get(alike); err != nil || !exists {
				t.Errorf("Get(%T): %t, %v", alike, exists, err)
			}
		}
		failing := cache.Indexers{"fails": func(any) ([]string, error) { return nil, errors.New("it always does") }}
		if err := inf.GetIndexer().AddIndexers(failing); err != nil {
			t.Error(err)
		}
	})
	if _, err := informer.NewFrom(informertest.NewSource[configMap](), options{Store: cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)}); err == nil {
		t.Error("New returned no error for a store that panics when an index is added")
	}
}

// While the store is behind, the events of different objects still come in the order of their
// versions, as with client-go's informer.
func TestHandlersAreToldInTheOrderOfVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := informertest.NewSource[configMap](), informertest.NewStore(nil)
		inf := configured(src, anyOptions{Store: store}, nil)
		var handler heard
		handle(t, inf, &handler)
		runShared(t, inf)
		release := store.Hang()
		for _, name := range []string{"first", "a", "b", "a"} {
			src.Apply(object(name, src.ResourceVersion()))
			synctest.Wait()
		}
		release()
		synctest.Wait()
		if diff := cmp.Diff([]string{"add first@1", "add a@2", "add b@3", "update a@2->a@4"}, handler.take()); diff != "" {
			t.Errorf("the handler got (-want +got):\n%s", diff)
		}
	})
}

// The final state of a refused delete must not be kept. Otherwise a handler would get it with
// the next delete of the object.
func TestTheFinalStateOfARefusedDeleteIsNotTold(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src, store := informertest.NewSource(object("a", "1"), object("b", "2")), informertest.NewStore(nil)
		inf := configured(src, anyOptions{Queue: queue, Store: store, ErrorHandler: func(context.Context, error) {}}, nil)
		var handler heard
		handle(t, inf, &handler)
		runShared(t, inf)
		if got, want := sorted(handler.take()), []string{"add a@1 initial", "add b@2 initial"}; !slices.Equal(got, want) {
			t.Errorf("the handler got %v, want %v", got, want)
		}

		store.Fail(func(op, key string) error {
			if op == "delete" && key == "default/a" {
				return informer.ErrPermanent
			}
			return nil
		})
		_, _ = src.Delete(keyOf("a"))
		_, _ = src.Delete(keyOf("b"))
		synctest.Wait()
		handler.expect(t, "delete b@4")
		store.Heal()
		src.Compact()
		src.Disconnect()
		sleepBubble(time.Minute)
		handler.expect(t, "tombstone a@1")
	})
}

// TestATombstoneOfWhichOnlyTheKeyIsKnown makes the store lose an object. The relist then knows
// only from the watchers that the object existed.
func TestATombstoneOfWhichOnlyTheKeyIsKnown(t *testing.T) {
	kinds := map[string]struct {
		example runtime.Object
		want    string
	}{
		"typed": {&corev1.ConfigMap{}, "*v1.ConfigMap"},
		"any":   {nil, "*v1.PartialObjectMetadata"},
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := informertest.NewSource(object("a", "1"))
				uid := src.Objects()[0].UID
				inner := cache.NewStore(cache.MetaNamespaceKeyFunc)
				store := informertest.NewStore(inner)
				inf := informer.ClientGo{Options: func(runtime.Object) (anyOptions, error) {
					return anyOptions{Store: store}, nil
				}}.NewSharedIndexInformer(src, kind.example, 0, nil)
				var gone []any
				_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) { gone = append(gone, obj) }})
				if err != nil {
					t.Fatal(err)
				}
				runShared(t, inf)
				_ = inner.Delete(object("a", ""))
				unreachable(src)
				_, _ = src.Delete(keyOf("a"))
				src.Compact()
				src.Heal()
				sleepBubble(time.Minute)
				if len(gone) != 1 {
					t.Fatalf("deleted %v", gone)
				}
				tombstone, ok := gone[0].(cache.DeletedFinalStateUnknown)
				if !ok || tombstone.Key != "default/a" || fmt.Sprintf("%T", tombstone.Obj) != kind.want {
					t.Fatalf("the tombstone is %#v", gone[0])
				}
				if obj := tombstone.Obj.(metav1.Object); obj.GetName() != "a" || obj.GetNamespace() != "default" || obj.GetUID() != uid {
					t.Errorf("the tombstone carries %v", obj)
				}
			})
		})
	}
}

func TestAnUnstructuredTombstoneHasAKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		widget := &unstructured.Unstructured{}
		widget.SetAPIVersion("example.com/v1")
		widget.SetKind("Widget")
		example := widget.DeepCopy()
		widget.SetNamespace("default")
		widget.SetName("a")
		src, inner := informertest.NewSource(widget), cache.NewStore(cache.MetaNamespaceKeyFunc)
		inf := informer.ClientGo{Options: func(runtime.Object) (anyOptions, error) {
			return anyOptions{Store: informertest.NewStore(inner)}, nil
		}}.NewSharedIndexInformer(src, example, 0, nil)
		if name := inf.HasSyncedChecker().Name(); !strings.Contains(name, "Widget") {
			t.Errorf("the informer is named %q", name)
		}
		var gone []any
		_, _ = inf.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) { gone = append(gone, obj) }})
		runShared(t, inf)
		_ = inner.Delete(widget)
		src.Fail("watch", syscall.ECONNREFUSED, 1)
		src.Disconnect()
		_, _ = src.Delete(keyOf("a"))
		src.Compact()
		src.Heal()
		sleepBubble(time.Minute)
		if len(gone) != 1 {
			t.Fatalf("deleted %v", gone)
		}
		obj, ok := gone[0].(cache.DeletedFinalStateUnknown).Obj.(*unstructured.Unstructured)
		if !ok || obj.GroupVersionKind() != example.GroupVersionKind() || obj.GetName() != "a" {
			t.Errorf("the tombstone carries %v", gone[0])
		}
	})
}

func TestTheTransformOfTheOptionsComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("fails", "1"), object("nothing", "1"), object("well", "1"))
		var errs errorLog
		inf := configured(src, anyOptions{ErrorHandler: errs.Handle, Transform: func(obj informer.AnyObject) (informer.AnyObject, error) {
			switch obj.GetName() {
			case "fails":
				return nil, errors.New("cannot be transformed")
			case "nothing":
				return nil, nil
			}
			return obj, nil
		}}, nil)
		var second []string
		_ = inf.SetTransform(func(obj any) (any, error) {
			second = append(second, obj.(configMap).Name)
			return obj, nil
		})
		runShared(t, inf)
		if diff := cmp.Diff([]string{"well"}, second); diff != "" {
			t.Errorf("the second transform got (-want +got):\n%s", diff)
		}
		if got := errs.Take(); len(got) != 2 {
			t.Errorf("reported %v", got)
		}
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

func TestAnExampleThatIsNoObjectLetsNothingPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, inner := informertest.NewSource[configMap](), cache.NewStore(cache.MetaNamespaceKeyFunc)
		src.SetFaults(informertest.Faults{HoldLists: true, RejectWatchList: true})
		release := func() { src.SetFaults(informertest.Faults{RejectWatchList: true}) }
		_ = inner.Add(object("before", "1"))
		var errs errorLog
		inf := informer.ClientGo{Options: func(runtime.Object) (anyOptions, error) {
			return anyOptions{Store: informertest.NewStore(inner), ErrorHandler: errs.Handle}, nil
		}}.NewSharedIndexInformer(src, &described{}, 0, nil)
		var gone []any
		_, _ = inf.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) { gone = append(gone, obj) }})
		runShared(t, inf)
		_ = inner.Delete(object("before", "1")) // now only the key is known
		release()
		opened(t, src)
		inject(src, &described{meta: metav1.ObjectMeta{Namespace: "default", Name: "d"}})
		synctest.Wait()
		if got := errs.Take(); len(got) != 1 || !strings.Contains(got[0].Error(), "is not of the informer's type") {
			t.Errorf("reported %v", got)
		}
		if len(gone) != 1 || fmt.Sprintf("%T", gone[0].(cache.DeletedFinalStateUnknown).Obj) != "*v1.PartialObjectMetadata" {
			t.Errorf("deleted %v", gone)
		}
	})
}
