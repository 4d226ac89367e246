package controllerruntime

import (
	"context"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/customcacheinformer/informer/internal/object"
)

// isFake reports whether c, or a client that its Unwrap returns, has a type of a package whose path ends in /client/fake.
func isFake(c client.WithWatch) bool {
	for !object.IsNil(c) {
		t := reflect.TypeOf(c)
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if strings.HasSuffix(t.PkgPath(), "/client/fake") {
			return true
		}
		outer, ok := c.(interface{ Unwrap() client.WithWatch })
		if !ok {
			return false
		}
		c = outer.Unwrap()
	}
	return false
}

// fakeResource makes the fake client behave like an API server.
//
// The fake's watch ignores resource versions, so changes between a list and the following
// watch would be lost. List therefore opens the watch before it lists, and keeps it for the
// next Watch. So each informer needs its own fakeResource.
//
// The fake panics if 100 events of a watch are unread. A converter therefore reads the events
// at once and keeps them until the informer takes them.
type fakeResource[L client.ObjectList] struct {
	*resource[L]

	mu    sync.Mutex // protects ahead
	ahead *kept
}

// kept is an open watch that the next call of Watch will return.
type kept struct {
	watch.Interface
	forget func() bool // keeps the watch open when the ctx of the list ends
}

// IsWatchListSemanticsUnSupported returns true: client-go then knows that this client cannot
// stream the first state.
func (*fakeResource[L]) IsWatchListSemanticsUnSupported() bool { return true }

func (f *fakeResource[L]) List(ctx context.Context, request metav1.ListOptions) (list L, err error) {
	w, err := f.open(ctx, request)
	if err != nil {
		return list, err
	}
	if list, err = f.resource.List(ctx, request); err != nil {
		w.Stop()
		return list, err
	}
	if list.GetResourceVersion() == "" {
		list.SetResourceVersion("1") // any version works, because the watch is already open; the informer would report an empty one
	}
	if before := f.keep(&kept{w, context.AfterFunc(ctx, w.Stop)}); before != nil { // a List need not be followed by a Watch
		before.forget()
		before.Stop()
	}
	return list, nil
}

func (f *fakeResource[L]) Watch(ctx context.Context, request metav1.ListOptions) (watch.Interface, error) {
	if w := f.keep(nil); w != nil {
		w.forget()
		return w.Interface, nil
	}
	return f.open(ctx, request)
}

// keep stores w for the next Watch, and returns the watch that it replaces, or nil.
func (f *fakeResource[L]) keep(w *kept) (before *kept) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, f.ahead = f.ahead, w
	return before
}

func (f *fakeResource[L]) open(ctx context.Context, request metav1.ListOptions) (watch.Interface, error) {
	w, err := f.watch(ctx, request)
	if err != nil {
		return nil, err
	}
	return newConverter(w, 0, f.answer), nil
}

// answer converts an event of the fake to the event that an API server would send. If the
// label selector does not match the object, the event becomes a delete. The object gets the type of
// the list.
func (f *fakeResource[L]) answer(e watch.Event) watch.Event {
	obj, ok := e.Object.(client.Object)
	if !ok {
		return e
	}
	if s := f.options.LabelSelector; s != nil && !s.Matches(labels.Set(obj.GetLabels())) {
		e.Type = watch.Deleted
	}
	switch any(f.list).(type) {
	case *metav1.PartialObjectMetadataList:
		partial := meta.AsPartialObjectMetadata(obj)
		partial.SetGroupVersionKind(f.itemKind())
		e.Object = partial
	case *unstructured.UnstructuredList:
		if _, ok := obj.(runtime.Unstructured); ok {
			break
		}
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			break // the informer reports the object as one of an unexpected type
		}
		u := &unstructured.Unstructured{Object: fields}
		u.SetGroupVersionKind(f.itemKind())
		e.Object = u
	}
	return e
}
