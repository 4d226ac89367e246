package informertest

import (
	"context"

	"github.com/customcacheinformer/informer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

type namespaceClient[T informer.Object] struct {
	source    *Source[T]
	namespace string
}

// Namespace returns a client for one namespace of the source, or for all if the namespace is
// "". It is the function that informer.NewInNamespaces asks for:
//
//	informer.NewInNamespaces(source.Namespace, []string{"a", "b"}, opts)
//
// It does not block.
func (s *Source[T]) Namespace(namespace string) informer.UntypedClient[*metav1.List] {
	return &namespaceClient[T]{s, namespace}
}

// List answers as Source.ListWithContext, with the objects of the namespace.
func (c *namespaceClient[T]) List(ctx context.Context, opts metav1.ListOptions) (*metav1.List, error) {
	request := c.source.record(verbList, within(c.namespace, opts))
	return c.source.answerList(c.namespace, request, c.source.faults.lists.wait(ctx))
}

// Watch opens a watch as Source.WatchWithContext, of the objects of the namespace.
func (c *namespaceClient[T]) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return c.source.watch(ctx, c.namespace, opts)
}
