package field

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// isSingle reports whether a value of this kind is a string, a bool or a number.
func isSingle(kind reflect.Kind) bool {
	return kind == reflect.String || kind >= reflect.Bool && kind <= reflect.Float64
}

func textOf(v reflect.Value) string {
	switch {
	case v.CanInt():
		return strconv.FormatInt(v.Int(), 10)
	case v.CanUint():
		return strconv.FormatUint(v.Uint(), 10)
	case v.CanFloat():
		return strconv.FormatFloat(v.Float(), 'f', -1, v.Type().Bits())
	case v.Kind() == reflect.Bool:
		return strconv.FormatBool(v.Bool())
	}
	return v.String()
}

var encoders = []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()}

func encodesItself(t reflect.Type) bool {
	return slices.ContainsFunc(encoders, func(e reflect.Type) bool { return reflect.PointerTo(t).Implements(e) })
}

// Of returns the fields that a struct has in JSON, by name. The fields of an embedded struct without a
// name count as fields of the struct, unless a field at a higher level has the same name. The Index of
// each field is for FieldByIndex.
func Of(t reflect.Type) map[string]reflect.StructField {
	all, seen := map[string]reflect.StructField{}, map[reflect.Type]bool{t: true}
	for level := []reflect.StructField{{Type: t}}; len(level) > 0; {
		var embedded []reflect.StructField
		for _, in := range level {
			for i := range in.Type.NumField() {
				f := in.Type.Field(i)
				f.Index = append(slices.Clone(in.Index), i)
				tag := f.Tag.Get("json")
				name, _, _ := strings.Cut(tag, ",")
				if target := targetOf(f.Type); f.Anonymous && name == "" && target.Kind() == reflect.Struct {
					if f.Type = target; !seen[target] {
						seen[target] = true
						embedded = append(embedded, f)
					}
					continue
				}
				if name == "" {
					name = f.Name
				}
				if _, hidden := all[name]; !hidden && tag != "-" && f.IsExported() {
					all[name] = f
				}
			}
		}
		level = embedded
	}
	return all
}

func targetOf(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// omits reports whether JSON omits the field if it is empty. With omitempty, structs and arrays are
// never empty.
func omits(f reflect.StructField) bool {
	options := strings.Split(f.Tag.Get("json"), ",")[1:]
	return slices.Contains(options, "omitzero") ||
		slices.Contains(options, "omitempty") && f.Type.Kind() != reflect.Struct && f.Type.Kind() != reflect.Array
}
