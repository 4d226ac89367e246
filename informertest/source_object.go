package informertest

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/customcacheinformer/informer"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func keyOf[T informer.Object](obj T) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func sortedKeys[T any](objects map[types.NamespacedName]T) []types.NamespacedName {
	return slices.SortedFunc(maps.Keys(objects), compareKeys)
}

func copyOf[T informer.Object](obj T) T {
	return obj.DeepCopyObject().(T)
}

func withVersion[T informer.Object](obj T, version uint64) T {
	obj = copyOf(obj)
	obj.SetResourceVersion(formatVersion(version))
	return obj
}

func formatVersion(version uint64) string {
	return strconv.FormatUint(version, 10)
}

// learnType notes the Go type and the kind, which newObject and error messages need.
func (s *Source[T]) learnType(obj T) {
	if s.goType == nil {
		s.goType = reflect.TypeOf(obj)
	}
	if s.kind.Empty() {
		s.kind = obj.GetObjectKind().GroupVersionKind()
	}
}

// newObject returns an empty object of the same type and kind as those in the source.
func (s *Source[T]) newObject() T {
	obj := reflect.New(s.objectType().Elem()).Interface().(T)
	if !s.kind.Empty() {
		obj.GetObjectKind().SetGroupVersionKind(s.kind)
	}
	return obj
}

func (s *Source[T]) objectType() reflect.Type {
	if t := reflect.TypeFor[T](); t.Kind() == reflect.Pointer {
		return t
	}
	if s.goType != nil {
		return s.goType
	}
	return reflect.TypeFor[*metav1.PartialObjectMetadata]()
}

// guessKind returns a kind for an error message, if necessary from the Go type.
func (s *Source[T]) guessKind() schema.GroupVersionKind {
	if s.kind.Empty() {
		return schema.GroupVersionKind{Kind: s.objectType().Elem().Name()}
	}
	return s.kind
}

// resource returns a resource for an error message.
func (s *Source[T]) resource() schema.GroupResource {
	plural, _ := meta.UnsafeGuessKindToResource(s.guessKind())
	return plural.GroupResource()
}
