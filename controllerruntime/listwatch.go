package controllerruntime

import (
	"cmp"
	"context"
	"errors"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/object"
)

// ListWatch makes a source for informer.NewFrom from a controller-runtime client. These two
// sources do the same:
//
//	informer.ListWatch(clientset.CoreV1().Pods("default"))
//	controllerruntime.ListWatch(c, &corev1.PodList{}, client.InNamespace("default"))
//
// list gives the type to list. ListWatch copies list, which may also be an UnstructuredList
// or a PartialObjectMetadataList with its kind set. Their items have their own kind set, even
// where the API server leaves it out.
//
// Only the namespace and the selectors of opts are used. A selector of opts replaces the one that
// Options.TweakListOptions sets. The informer itself chooses the page size of lists, see
// Options.PageSize, and the version at which a watch starts.
//
// c must send its requests to the API server, as a client from client.NewWithWatch does. A
// client that reads from a cache does not show which version it has read, so the informer
// would miss changes.
//
// client-go decodes the answers, even if the client's configuration uses informer.Transport.
// Where that costs too much, use informer.ListWatch with a client of client-go.
//
// ListWatch does not block. If c is nil, informer.NewFrom returns an error. If list is nil,
// each list and watch returns an error.
func ListWatch[L client.ObjectList](c client.WithWatch, list L, opts ...client.ListOption) cache.ListerWatcher {
	if object.IsNil(c) {
		return informer.ListWatch((*resource[L])(nil))
	}
	r := &resource[L]{client: c, list: list}
	r.options.ApplyOptions(opts)
	r.options.Raw = r.options.Raw.DeepCopy() // it belongs to the caller
	if !object.IsNil(list) {
		r.list = list.DeepCopyObject().(L)
	}
	if isFake(c) {
		return informer.ListWatch(&fakeResource[L]{resource: r})
	}
	return informer.ListWatch(r)
}

// resource makes a controller-runtime client look like a client-go client for one resource.
type resource[L client.ObjectList] struct {
	client  client.WithWatch
	list    L
	options client.ListOptions
}

var errNilList = errors.New("the list given to ListWatch is nil")

func (r *resource[L]) List(ctx context.Context, request metav1.ListOptions) (L, error) {
	if object.IsNil(r.list) {
		return r.list, errNilList
	}
	list := r.list.DeepCopyObject().(L)
	if err := r.client.List(ctx, list, r.with(request)); err != nil {
		return list, err
	}
	if l, ok := any(list).(*metav1.PartialObjectMetadataList); ok {
		for i := range l.Items { // the API server gives them the kind PartialObjectMetadata
			l.Items[i].SetGroupVersionKind(r.itemKind())
		}
	}
	return list, nil
}

func (r *resource[L]) Watch(ctx context.Context, request metav1.ListOptions) (watch.Interface, error) {
	w, err := r.watch(ctx, request)
	if _, ok := any(r.list).(*metav1.PartialObjectMetadataList); !ok || err != nil {
		return w, err
	}
	kind := r.itemKind()
	return newConverter(w, 1, func(e watch.Event) watch.Event {
		if m, ok := e.Object.(*metav1.PartialObjectMetadata); ok {
			m.SetGroupVersionKind(kind)
		}
		return e
	}), nil
}

func (r *resource[L]) watch(ctx context.Context, request metav1.ListOptions) (watch.Interface, error) {
	if object.IsNil(r.list) {
		return nil, errNilList
	}
	return r.client.Watch(ctx, r.list.DeepCopyObject().(L), r.with(request))
}

// with returns the options for one request: the user's options and those of request. The
// client uses Raw, but ignores the limit and the continue token in it, so with sets these in
// both places.
func (r *resource[L]) with(request metav1.ListOptions) *client.ListOptions {
	o := r.options
	if o.Raw != nil {
		request.LabelSelector = cmp.Or(request.LabelSelector, o.Raw.LabelSelector)
		request.FieldSelector = cmp.Or(request.FieldSelector, o.Raw.FieldSelector)
	}
	o.Raw, o.Limit, o.Continue = &request, request.Limit, request.Continue
	return &o
}

func (r *resource[L]) itemKind() schema.GroupVersionKind {
	kind := r.list.GetObjectKind().GroupVersionKind()
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	return kind
}
