package informertest

import (
	"context"

	"github.com/customcacheinformer/informer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// NamespaceClient reads one namespace of a [Source]. It is made by [Source.Namespace].
type NamespaceClient[T informer.Object] struct {
	source    *Source[T]
	namespace string
}

// Namespace returns a client for one namespace of the source, or for all if the namespace is
// "". It is the function that informer.NewInNamespaces asks for:
//
//	informer.NewInNamespaces(source.Namespace, []string{"a", "b"}, opts)
//
// It does not block.
func (s *Source[T]) Namespace(namespace string) *NamespaceClient[T] {
	return &NamespaceClient[T]{s, namespace}
}

// List answers as Source.ListWithContext, with the objects of the namespace.
func (c *NamespaceClient[T]) List(ctx context.Context, opts metav1.ListOptions) (*metav1.List, error) {
	request := c.source.record(VerbList, within(c.namespace, opts))
	return c.source.answerList(request, c.source.delayList(ctx))
}

// Watch opens a watch as Source.WatchWithContext, of the objects of the namespace.
func (c *NamespaceClient[T]) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return c.source.WatchWithContext(ctx, within(c.namespace, opts))
}
