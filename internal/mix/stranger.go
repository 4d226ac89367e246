package mix

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Stranger returns the i-th Pod of a cluster in which no two values are equal: each string and each
// number is random. The strings are as long as those of Pod.
func (m *Mix) Stranger(i int) *corev1.Pod {
	p := m.Pod(i, 0)
	scramble(m.numbers(ofStranger, i, 0), reflect.ValueOf(p).Elem())
	return p
}

// scramble replaces all strings, numbers and times inside of v.
func scramble(r *rand.Rand, v reflect.Value) {
	switch of := v.Addr().Interface().(type) {
	case *time.Time:
		*of = moment(r).Time
		return
	case *resource.Quantity:
		*of = *resource.NewMilliQuantity(r.Int64N(1<<40), resource.DecimalSI)
		return
	}
	switch v.Kind() {
	case reflect.String:
		if v.Len() > 0 {
			v.SetString(letters(r, v.Len()))
		}
	case reflect.Int32, reflect.Int64:
		v.SetInt(r.Int64N(1 << 31))
	case reflect.Uint8:
		v.SetUint(r.Uint64N(1 << 8))
	case reflect.Pointer:
		if !v.IsNil() {
			scramble(r, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			scramble(r, v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				scramble(r, v.Field(i))
			}
		}
	case reflect.Map:
		others := reflect.MakeMap(v.Type())
		keys := v.MapKeys()
		// The order of a map is random, and a seed must always make the same object.
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			key.Set(k)
			value.Set(v.MapIndex(k))
			scramble(r, key)
			scramble(r, value)
			others.SetMapIndex(key, value)
		}
		if v.Len() > 0 {
			v.Set(others)
		}
	}
}
