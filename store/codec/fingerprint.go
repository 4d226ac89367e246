package codec

import (
	"crypto/sha256"
	stdencoding "encoding"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
)

// fingerprint returns a text that changes when the type does. It covers the name of the type,
// the types that it consists of, the names and tags of their fields, and which of these types
// encode themselves. See [Codec.Fingerprint] for the reason.
func fingerprint(t reflect.Type) string {
	h := sha256.New()
	describeType(h, t, map[reflect.Type]int{})
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// describeType writes a description of t. A type may contain itself, so each type is
// described once, and then has a number. Its kind and name would not be enough, because many
// types have no name.
func describeType(w io.Writer, t reflect.Type, numbers map[reflect.Type]int) {
	if n, described := numbers[t]; described {
		fmt.Fprintf(w, "#%d;", n)
		return
	}
	numbers[t] = len(numbers)
	fmt.Fprintf(w, "%q %q %s %v{", t.PkgPath(), t.Name(), ownEncoding(t), t.Kind())
	switch t.Kind() {
	case reflect.Map:
		describeType(w, t.Key(), numbers)
		describeType(w, t.Elem(), numbers)
	case reflect.Array:
		fmt.Fprintf(w, "%d ", t.Len())
		describeType(w, t.Elem(), numbers)
	case reflect.Pointer, reflect.Slice:
		describeType(w, t.Elem(), numbers)
	case reflect.Interface:
		for i := range t.NumMethod() {
			fmt.Fprintf(w, "%q ", t.Method(i).Name)
		}
	case reflect.Struct:
		for i := range t.NumField() {
			// Unexported fields are not encoded, except embedded ones. Of a tag, any part may
			// count: a type that encodes itself may have tags of its own.
			if f := t.Field(i); f.IsExported() || f.Anonymous {
				fmt.Fprintf(w, "%q %q %t ", f.Name, f.Tag, f.Anonymous)
				describeType(w, f.Type, numbers)
			}
		}
	}
	fmt.Fprintln(w, "}")
}

// encoders are the interfaces that change how a type is encoded as JSON or decoded.
var encoders = []reflect.Type{
	reflect.TypeFor[json.Marshaler](),
	reflect.TypeFor[json.Unmarshaler](),
	reflect.TypeFor[stdencoding.TextMarshaler](),
	reflect.TypeFor[stdencoding.TextUnmarshaler](),
	reflect.TypeFor[interface{ IsZero() bool }](), // with the option omitzero of a tag
}

// ownEncoding returns, for each of the encoders, 'v' if a type implements it, 'p' if only a
// pointer to the type does, and '-' otherwise.
func ownEncoding(t reflect.Type) (all []byte) {
	for _, encoder := range encoders {
		switch {
		case t.Implements(encoder):
			all = append(all, 'v')
		case reflect.PointerTo(t).Implements(encoder):
			all = append(all, 'p')
		default:
			all = append(all, '-')
		}
	}
	return all
}
