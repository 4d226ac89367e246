package informertest

import (
	"context"

	"github.com/customcacheinformer/informer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// NamespaceClient reads one namespace of a [Source], and can make the namespace fail. It is made by
// [Source.Namespace].
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
	request := c.source.record(verbList, within(c.namespace, opts))
	return c.source.answerList(c.namespace, request, c.source.faults.lists.wait(ctx))
}

// Watch opens a watch as Source.WatchWithContext, of the objects of the namespace.
func (c *NamespaceClient[T]) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return c.source.watch(ctx, c.namespace, opts)
}

// Fail does the same as Source.Fail for the requests of the namespace alone: those through any
// client that Source.Namespace returns for it, and those for it through a clientset that the source
// serves. Failures of the namespace come before those of Source.Fail, and after Down. Heal ends
// them.
//
// For the namespace "", these are the requests for all namespaces at once, including those
// through the Source itself. So a test can refuse a program the rights for the whole cluster, and
// leave it those for a namespace.
//
// It does not block. It panics if err is nil.
func (c *NamespaceClient[T]) Fail(verb string, err error, times int) {
	c.source.fail(target{verb: verb, namespace: c.namespace}, err, times)
}
