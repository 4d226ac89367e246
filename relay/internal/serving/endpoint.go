package serving

import (
	"context"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
)

// endpoint is one resource as the generic API server sees it. It has only the methods for get,
// list and watch, so the server answers 405 to everything else. The store has more methods, so
// endpoint embeds it as the interface readable.
type endpoint struct {
	readable // the store
	resource *Resource
	cache    *watchCache
	refuse   bool
}

type readable interface {
	rest.Storage
	rest.Getter
	rest.Lister
	rest.Watcher
	rest.SingularNameProvider
}

var (
	_ rest.Scoper                   = &endpoint{}
	_ rest.ShortNamesProvider       = &endpoint{}
	_ rest.GroupVersionKindProvider = &endpoint{}
)

func newEndpoint(r *Resource, t *types, all []field, cache *watchCache, refuse bool) *endpoint {
	attrs := attributes(r.Namespaced, all)
	store := &registry.Store{
		NewFunc:                   newFunc(t, r, false),
		NewListFunc:               newFunc(t, r, true),
		DefaultQualifiedResource:  r.GroupResource(),
		SingularQualifiedResource: schema.GroupResource{Group: r.Group, Resource: r.singular()},
		PredicateFunc: func(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
			predicate := storage.SelectionPredicate{Label: label, Field: field, GetAttrs: attrs}
			if r.Index != "" {
				predicate.IndexFields = []string{r.Index}
			}
			return predicate
		},
		TableConvertor: rest.NewDefaultTableConvertor(r.GroupResource()),
		Storage:        registry.DryRunnableStorage{Storage: cache},
	}
	store.KeyRootFunc, store.KeyFunc = keys(r)
	return &endpoint{store, r, cache, refuse}
}

func newFunc(t *types, r *Resource, list bool) func() runtime.Object {
	kind := r.kind()
	if list {
		kind = r.listKind()
	}
	return func() runtime.Object {
		obj, err := t.newObject(kind)
		if err != nil {
			panic(err) // New of this package has made one
		}
		return obj
	}
}

// keys returns a function for the prefix of all keys of a request, and one for the key of a name.
// The registry's functions refuse names that cannot be part of a path.
func keys(r *Resource) (func(context.Context) string, func(context.Context, string) (string, error)) {
	prefix := r.prefix()
	if r.Namespaced {
		return func(ctx context.Context) string { return registry.NamespaceKeyRootFunc(ctx, prefix) },
			func(ctx context.Context, name string) (string, error) {
				return registry.NamespaceKeyFunc(ctx, prefix, name)
			}
	}
	return func(context.Context) string { return prefix },
		func(ctx context.Context, name string) (string, error) {
			return registry.NoNamespaceKeyFunc(ctx, prefix, name)
		}
}

func (e *endpoint) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	if e.refuse && options.ResourceVersion == "" {
		return nil, errConsistentRead()
	}
	if err := e.resource.absent(); err != nil {
		return nil, err
	}
	return e.readable.Get(ctx, name, options)
}

func (e *endpoint) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	// The version of a list that continues is in its token.
	if e.refuse && options.ResourceVersion == "" && options.Continue == "" {
		return nil, errConsistentRead()
	}
	if err := e.resource.absent(); err != nil {
		return nil, err
	}
	return e.readable.List(ctx, options)
}

func (e *endpoint) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	// The generic server asks for initial events if the client does not set this.
	if e.refuse && options.ResourceVersion == "" && options.SendInitialEvents != nil && *options.SendInitialEvents {
		return nil, errConsistentRead()
	}
	if err := e.resource.absent(); err != nil {
		return nil, err
	}
	w, err := e.readable.Watch(ctx, options)
	if err != nil {
		return nil, err
	}
	// The open watches may have been ended just before this one began.
	if err := e.resource.absent(); err != nil {
		w.Stop()
		return nil, err
	}
	return w, nil
}

func (e *endpoint) NamespaceScoped() bool { return e.resource.Namespaced }

func (e *endpoint) ShortNames() []string { return e.resource.ShortNames }

func (e *endpoint) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return e.resource.kind()
}
