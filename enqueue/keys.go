package enqueue

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/object"
)

// Key is the key of an object in one of several clusters, see [InClusters].
type Key struct {
	Cluster string // the name of the cluster, as [informer.Event.Cluster] returns it
	types.NamespacedName
}

// String returns the key in the form that logs and errors use, such as "east|default/web".
func (k Key) String() string { return k.Cluster + object.ClusterMark + k.NamespacedName.String() }

func keyOf[T informer.Object](_ context.Context, _ string, obj T) ([]types.NamespacedName, error) {
	return []types.NamespacedName{{Namespace: obj.GetNamespace(), Name: obj.GetName()}}, nil
}

// Owners selects the owners whose keys [Owns] puts into the queue.
type Owners struct {
	// Kind is the kind of the owners. Owners of other kinds are ignored. The version in an owner
	// reference does not matter. Kind.Kind must be set.
	Kind schema.GroupKind

	// All chooses whether all owners of the kind count. Defaults to false: only the owner whose
	// reference has controller set to true counts, and an object has at most one. With All, a
	// client that may write an object decides how many keys each of its events queues. Tens of
	// thousands of references fit into one object, and their owners need not exist. An event
	// queues each key once.
	All bool

	// ClusterScoped must be true if the owners have no namespace, because an owner reference does
	// not show that. Defaults to false: the owners have the namespace of the object. See [Owns]
	// for what happens if ClusterScoped is wrong.
	ClusterScoped bool
}

func ownersOf[T informer.Object](owners Owners) func(context.Context, string, T) ([]types.NamespacedName, error) {
	return func(_ context.Context, _ string, obj T) ([]types.NamespacedName, error) { return owners.of(obj), nil }
}

func (o Owners) of(obj metav1.Object) (keys []types.NamespacedName) {
	namespace := obj.GetNamespace()
	if o.ClusterScoped {
		namespace = ""
	}
	for _, ref := range obj.GetOwnerReferences() {
		version, err := schema.ParseGroupVersion(ref.APIVersion)
		controls := ref.Controller != nil && *ref.Controller
		if err == nil && version.Group == o.Kind.Group && ref.Kind == o.Kind.Kind && (controls || o.All) {
			keys = append(keys, types.NamespacedName{Namespace: namespace, Name: ref.Name})
		}
	}
	return keys
}

// mapper finds the keys that an event leads to.
type mapper[T informer.Object, K comparable] struct {
	changes []Change
	keys    func(ctx context.Context, cluster string, obj T) ([]K, error)
}

// wants reports whether an update matters. A merged event may hide a state in between that was
// reconciled. So it matters even if before and after are alike. A resync comes only if the
// program has asked for it.
func (m mapper[T, K]) wants(e informer.Event[T]) bool {
	return e.Merged || e.Origin == informer.OriginResync || passes(m.changes, e.Old, e.New)
}

// of returns the keys of all states, or an error and no keys if the function of the mapper fails.
// It returns each key once: if a quick worker already had the key, adding it again would lead to
// a second call.
func (m mapper[T, K]) of(ctx context.Context, cluster string, states ...T) ([]K, error) {
	var all []K
	for _, obj := range states {
		keys, err := m.keys(ctx, cluster, obj)
		if err != nil {
			return nil, err
		}
		all = append(all, keys...)
	}
	if len(all) < 2 {
		return all, nil
	}
	seen, distinct := make(sets.Set[K], len(all)), all[:0:0]
	for _, key := range all {
		if !seen.Has(key) {
			seen.Insert(key)
			distinct = append(distinct, key)
		}
	}
	return distinct, nil
}

// lift returns a mapper that adds their clusters to the keys of m.
func lift[T informer.Object](m mapper[T, types.NamespacedName]) mapper[T, Key] {
	return mapper[T, Key]{m.changes, func(ctx context.Context, cluster string, obj T) ([]Key, error) {
		keys, err := m.keys(ctx, cluster, obj)
		in := make([]Key, len(keys))
		for n, key := range keys {
			in[n] = Key{cluster, key}
		}
		return in, err
	}}
}
