package share

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// nested returns maps in maps, each under the key, which are levels deep.
func nested(key string, levels int) map[string]any {
	m := map[string]any{"value": "text"}
	for range levels {
		m = map[string]any{key: []any{m}}
	}
	return m
}

func TestObjectsWithEverNewKeysDoNotMakePlacesWithoutEnd(t *testing.T) {
	table := New()
	for i := 0; table.Stats().Places < maxPlaces; i++ {
		table.Share(&unstructured.Unstructured{Object: nested(fmt.Sprint("first", i), 100)})
	}
	table.Share(&unstructured.Unstructured{Object: nested("new", 10)}) // makes those of each type
	before := table.Stats().Places
	for i := range 500 {
		obj := &unstructured.Unstructured{Object: nested(fmt.Sprint("first", i%200), 50)}
		obj.Object[fmt.Sprint("more", i)] = nested(fmt.Sprint("then", i), 200)
		table.Share(obj)
	}
	if after := table.Stats().Places; after > before+100 {
		t.Errorf("%d places have become %d", before, after)
	}
}

func TestOnlyShortKeysHaveAPlaceOfTheirOwn(t *testing.T) {
	table := New()
	p := table.newPlace(reflect.TypeFor[map[string]any]())
	long := strings.Repeat("k", maxKeySize)
	if table.value(p, long+"1") != table.value(p, long+"2") {
		t.Error("each long key has a place")
	}
	one := table.value(p, "1")
	if one == table.value(p, "2") || one != table.value(p, "1") {
		t.Error("a short key has no place of its own")
	}
	for i := range 2 * maxKeys {
		table.value(p, fmt.Sprint(i))
	}
	if n := len(*p.byKey.Load()); n != maxKeys {
		t.Errorf("%d keys have a place, want %d", n, maxKeys)
	}
}
