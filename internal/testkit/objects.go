package testkit

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// These are the types of the library for config maps.
type (
	// ConfigMap is the object type of nearly all tests.
	ConfigMap = *corev1.ConfigMap
	// Event is an event of a config map.
	Event = informer.Event[ConfigMap]
	// Options are the options of an [Informer].
	Options = informer.Options[ConfigMap]
	// Informer is an informer of config maps.
	Informer = informer.CustomCacheInformer[ConfigMap]
	// Recorder is a watcher that keeps the events it gets.
	Recorder = informertest.Recorder[ConfigMap]
	// Source is a simulated API server of config maps.
	Source = informertest.Source[ConfigMap]
	// Durable is a store that outlives the simulated process.
	Durable = informertest.Durable
)

// Object returns a config map in the namespace "default". It has value both in its data and as
// a label.
func Object(name, value string) ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"value": value}},
		Data:       map[string]string{"value": value},
	}
}

// Small returns a config map without labels or data, for tests with very many objects. Its
// name is "o" and n.
func Small(n, generation int) ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("o", n), Generation: int64(generation)}}
}

// KeyOf returns the key of the object with this name in the namespace "default".
func KeyOf(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

// NotBad is a Transform that fails for an [Object] with the value "bad".
func NotBad(obj ConfigMap) (ConfigMap, error) {
	if obj.Data["value"] == "bad" {
		return nil, errors.New("it is bad")
	}
	return obj, nil
}

// ByValueFunc is an index function. It returns the value of an [Object].
func ByValueFunc(obj any) ([]string, error) { return []string{obj.(ConfigMap).Data["value"]}, nil }

// ByValue returns indexers with the index "value". Each call returns a new map, because
// client-go's informer changes the map it is given.
func ByValue() cache.Indexers { return cache.Indexers{"value": ByValueFunc} }
