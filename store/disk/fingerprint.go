package disk

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"reflect"
)

// fingerprint returns a text that changes when the type does: it covers the name of the type,
// and the names, types and tags of its fields, all the way down. Without it, a program with a
// new field would find that field empty in every object stored by an older program, and nobody
// would notice.
func fingerprint(t reflect.Type) string {
	h := sha256.New()
	describeType(h, t, map[reflect.Type]bool{})
	return hex.EncodeToString(h.Sum(nil)[:8])
}

func describeType(h hash.Hash, t reflect.Type, seen map[reflect.Type]bool) {
	fmt.Fprintf(h, "%s|%s|%v\n", t.PkgPath(), t.Name(), t.Kind())
	if seen[t] {
		return
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Map:
		describeType(h, t.Key(), seen)
		describeType(h, t.Elem(), seen)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		describeType(h, t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			// Unexported fields are not encoded, except embedded ones.
			if f := t.Field(i); f.IsExported() || f.Anonymous {
				fmt.Fprintf(h, "%s|%s\n", f.Name, f.Tag)
				describeType(h, f.Type, seen)
			}
		}
	}
}
