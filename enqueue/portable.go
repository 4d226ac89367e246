package enqueue

import (
	"encoding"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

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

// text returns a key in the form in which replicas exchange it: "namespace/name", "cluster|namespace/name", or JSON. No two
// keys have the same text.
func text[K comparable](key K) string {
	switch key := any(key).(type) {
	case types.NamespacedName:
		return nameText(key)
	case Key:
		return armored(key.Cluster, object.ClusterMark) + object.ClusterMark + nameText(key.NamespacedName)
	}
	eachString(reflect.ValueOf(&key).Elem(), func(s string) string { return armored(s, "") })
	encoded, err := json.Marshal(key)
	if err != nil {
		panic(fmt.Sprintf("enqueue: a key of type %T, which is portable, cannot be written: %v", key, err))
	}
	return string(encoded)
}

func nameText(name types.NamespacedName) string {
	mark := "/" // would end a namespace
	name.Namespace = armored(name.Namespace, mark)
	if name.Namespace != "" {
		mark = ""
	}
	name.Name = armored(name.Name, mark)
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
	} else {
		err = json.Unmarshal([]byte(text), &key)
	}
	eachString(reflect.ValueOf(&key).Elem(), bare)
	return key, err
}

// armor begins a part of a key that is written as hexadecimal digits.
const armor = "\x00"

// armored returns a part of a key in the form in which it can be written. It is another form only for parts that no object
// has: those that contain a mark or a NUL, and those that are not UTF-8, which JSON would change.
func armored(part, mark string) string {
	if utf8.ValidString(part) && !strings.Contains(part, armor) && (mark == "" || !strings.Contains(part, mark)) {
		return part
	}
	return armor + hex.EncodeToString([]byte(part))
}

// bare returns the part of which armored has made the text.
func bare(text string) string {
	if digits, ok := strings.CutPrefix(text, armor); ok {
		if part, err := hex.DecodeString(digits); err == nil {
			return string(part)
		}
	}
	return text
}

// eachString replaces each string in a portable value by what f returns.
func eachString(v reflect.Value, f func(string) string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(f(v.String()))
	case reflect.Array:
		for i := range v.Len() {
			eachString(v.Index(i), f)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			eachString(field, f)
		}
	}
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
