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
)

// isFake reports whether c is controller-runtime's fake client, or an interceptor
// around it.
func isFake(c client.WithWatch) bool {
	for !isNil(c) {
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

// fakeResource does for the fake client what an API server does by itself.
//
// The fake's watch knows nothing of versions: what happens between a list and the
// watch after it would be lost. So the watch is opened first, for the one informer that
// reads from here.
//
// It does not wait for its reader either, but panics when 100 events are unread. So
// they are read at once, and kept.
type fakeResource[L client.ObjectList] struct {
	*resource[L]

	mu    sync.Mutex // protects ahead
	ahead *kept
}

// kept is a watch that has been opened for the next Watch.
type kept struct {
	watch.Interface
	forget func() bool // does not stop it when the ctx of the list ends
}

// IsWatchListSemanticsUnSupported is how client-go asks whether a client is unable
// to stream a first state.
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
		list.SetResourceVersion("1") // any will do, as the watch has begun; an empty one would be reported
	}
	if before := f.keep(&kept{w, context.AfterFunc(ctx, w.Stop)}); before != nil { // there may be no Watch after a List
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

// keep keeps w for the next Watch, and returns what was kept until now.
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

// answer returns an event of the fake as an API server would tell it: one of an
// object that is not selected is a delete, and the object is of the type asked for.
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
			break // the informer reports what it is given instead
		}
		u := &unstructured.Unstructured{Object: fields}
		u.SetGroupVersionKind(f.itemKind())
		e.Object = u
	}
	return e
}
