package disk

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"reflect"
)

// fingerprint returns a text that changes when the type does: its name, and the names,
// types and tags of what it has, all the way down. A program with a new field would find
// it empty in every object that an older one has stored, and nobody would ever know.
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
			// What is not exported is not encoded either, but for what it embeds.
			if f := t.Field(i); f.IsExported() || f.Anonymous {
				fmt.Fprintf(h, "%s|%s\n", f.Name, f.Tag)
				describeType(h, f.Type, seen)
			}
		}
	}
}
