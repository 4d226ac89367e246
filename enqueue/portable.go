package enqueue

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer/internal/object"
)

// portable reports whether values of a type mean the same in all processes, and can be written as
// JSON and read back.
func portable(t reflect.Type) bool {
	if t.Implements(reflect.TypeFor[json.Marshaler]()) || t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return false
	}
	switch t.Kind() {
	case reflect.String, reflect.Bool,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return true
	case reflect.Array:
		return portable(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); !f.IsExported() || f.Anonymous || f.Tag.Get("json") != "" || !portable(f.Type) {
				return false
			}
		}
		return true
	}
	return false
}

// text returns a key in the form in which replicas exchange it: "namespace/name",
// "cluster|namespace/name", or JSON.
func text[K comparable](key K) string {
	switch key := any(key).(type) {
	case types.NamespacedName:
		return nameText(key)
	case Key:
		return key.Cluster + object.ClusterMark + nameText(key.NamespacedName)
	}
	encoded, err := json.Marshal(key)
	if err != nil {
		panic(fmt.Sprintf("enqueue: a key of type %T, which is portable, cannot be written: %v", key, err))
	}
	return string(encoded)
}

// nameText returns "namespace/name", or only the name if there is no namespace. A name that contains the mark, as a key of no
// object may, still gets it in front.
func nameText(name types.NamespacedName) string {
	if strings.Contains(name.Name, "/") {
		return name.Namespace + "/" + name.Name
	}
	return object.KeyOf(name)
}

func parseKey[K comparable](text string) (key K, err error) {
	name, ok := any(&key).(*types.NamespacedName)
	if in, over := any(&key).(*Key); over {
		name, ok = &in.NamespacedName, true
		in.Cluster, text, _ = strings.Cut(text, object.ClusterMark)
	}
	if ok {
		namespace, rest, found := strings.Cut(text, "/")
		if !found {
			namespace, rest = "", text
		}
		name.Namespace, name.Name = namespace, rest
		return key, nil
	}
	err = json.Unmarshal([]byte(text), &key)
	return key, err
}

// shape describes the structure of a type, without its name.
func shape(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Array:
		return fmt.Sprintf("[%d]%s", t.Len(), shape(t.Elem()))
	case reflect.Struct:
		var fields []string
		for field := range t.Fields() {
			fields = append(fields, field.Name+" "+shape(field.Type))
		}
		return "{" + strings.Join(fields, ", ") + "}"
	}
	return t.Kind().String()
}
