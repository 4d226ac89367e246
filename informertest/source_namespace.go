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

// Namespace returns a client for one namespace of the source, or for all namespaces if the
// namespace is "". It can be passed to informer.NewInNamespaces:
//
//	informer.NewInNamespaces(source.Namespace, []string{"a", "b"}, opts)
//
// It does not block.
func (s *Source[T]) Namespace(namespace string) informer.UntypedClient[*metav1.List] {
	return &namespaceClient[T]{s, namespace}
}

// List is Source.ListWithContext with only the objects of the namespace.
func (c *namespaceClient[T]) List(ctx context.Context, opts metav1.ListOptions) (*metav1.List, error) {
	request := c.source.record(verbList, within(c.namespace, opts))
	return c.source.answerList(c.namespace, request, c.source.faults.lists.wait(ctx))
}

// Watch is Source.WatchWithContext with only the objects of the namespace.
func (c *namespaceClient[T]) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return c.source.watch(ctx, c.namespace, opts)
}
