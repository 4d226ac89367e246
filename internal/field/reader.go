package field

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/customcacheinformer/informer/internal/object"
)

// Values returns an index function that returns the values of the field at a path, sorted and each once. Values
// returns an error if the path is malformed, or if objects of type t cannot have the field. If t is
// unstructured or an interface, the function returns that error for each object that cannot have the field. The
// function may be called from any goroutine.
func Values(t reflect.Type, text string) (func(any) ([]string, error), error) {
	p, err := parse(text)
	if err != nil {
		return nil, err
	}
	r := &reader{path: p, plans: make([]sync.Map, len(p.parts)+1)}
	known, err := r.plan(t, p.parts)
	return func(obj any) (values []string, err error) {
		if reflect.TypeOf(obj) == t {
			values, err = known(reflect.ValueOf(obj), nil)
		} else {
			values, err = r.search(obj, p.parts, nil)
		}
		if len(values) > 1 {
			slices.Sort(values)
			values = slices.Compact(values)
		}
		return values, err
	}, err
}

type reader struct {
	path
	plans []sync.Map // by the number of parts that are left, then by the type of a value: a plan or an error
}

// A plan appends the values that it finds in a value of one type.
type plan func(v reflect.Value, values []string) ([]string, error)

// plan returns the plan for values of type t and the parts in left. It returns an error if the path does not
// fit the type.
func (r *reader) plan(t reflect.Type, left []string) (plan, error) {
	wrong := func(format string, args ...any) (plan, error) {
		return nil, r.errorf("%s (%v) "+format, append([]any{r.before(left), t}, args...)...)
	}
	kind, unstructured := t.Kind(), reflect.TypeFor[runtime.Unstructured]()
	switch {
	case kind == reflect.Interface || t.Implements(unstructured):
		return func(v reflect.Value, values []string) ([]string, error) { return r.search(v.Interface(), left, values) }, nil
	case kind == reflect.Pointer:
		target, err := r.plan(t.Elem(), left)
		return func(v reflect.Value, values []string) ([]string, error) {
			if v.IsNil() {
				return values, nil
			}
			return target(v.Elem(), values)
		}, err
	case encodesItself(t), kind == reflect.Slice && t.Elem().Kind() == reflect.Uint8: // bytes are in base64
		if len(left) > 0 {
			return wrong("encodes itself, so that no path leads into it")
		}
		return r.encoded, nil
	case kind == reflect.Slice || kind == reflect.Array:
		element, err := r.plan(t.Elem(), left)
		return func(v reflect.Value, values []string) (_ []string, err error) {
			for i := 0; i < v.Len() && err == nil; i++ {
				values, err = element(v.Index(i), values)
			}
			return values, err
		}, err
	case kind == reflect.Map && t.Key().Kind() == reflect.String:
		if len(left) == 0 {
			return wrong("is a map: the path must go on with a key")
		}
		value, err := r.plan(t.Elem(), left[1:])
		if err != nil && len(left) > 1 {
			err = fmt.Errorf("%w; a key that contains dots is written ['a.b']", err)
		}
		key := reflect.ValueOf(left[0]).Convert(t.Key())
		return func(v reflect.Value, values []string) ([]string, error) {
			if v = v.MapIndex(key); !v.IsValid() {
				return values, nil
			}
			return value(v, values)
		}, err
	case kind == reflect.Struct:
		all := Of(t)
		names := strings.Join(slices.Sorted(maps.Keys(all)), ", ")
		if len(left) == 0 {
			return wrong("is not a single value: the path must go on with one of its fields, %s", names)
		}
		f, ok := all[left[0]]
		if !ok {
			return wrong("has no field %q, only %s", left[0], names)
		}
		value, err := r.plan(f.Type, left[1:])
		omit := omits(f)
		return func(v reflect.Value, values []string) ([]string, error) {
			v, err := v.FieldByIndexErr(f.Index)
			if err != nil || omit && (v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0) {
				return values, nil //nolint:nilerr // a nil pointer to an embedded struct means that the field is absent
			}
			return value(v, values)
		}, err
	case !isSingle(kind):
		return wrong("is of a type that no path can use")
	case len(left) > 0:
		return wrong("is a single value without a part %q", left[0])
	}
	return func(v reflect.Value, values []string) ([]string, error) { return append(values, textOf(v)), nil }, nil
}

// encoded is the plan for values that encode themselves as JSON.
func (r *reader) encoded(v reflect.Value, values []string) ([]string, error) {
	if v.CanAddr() {
		v = v.Addr()
	}
	var x any
	data, err := json.Marshal(v.Interface())
	if err == nil {
		err = utiljson.Unmarshal(data, &x)
	}
	if err != nil {
		return values, r.errorf("%s (%v): %w", r.before(nil), v.Type(), err)
	}
	return r.search(x, nil, values)
}

// search appends the values that it finds in x, along the parts in left.
func (r *reader) search(x any, left, values []string) (_ []string, err error) {
	if object.IsNil(x) {
		return values, nil
	}
	switch x := x.(type) {
	case runtime.Unstructured:
		return r.search(x.UnstructuredContent(), left, values)
	case map[string]any: // a plan would need much longer for it
		if len(left) > 0 {
			return r.search(x[left[0]], left[1:], values)
		}
	}
	t := reflect.TypeOf(x)
	made, ok := r.plans[len(left)].Load(t)
	if !ok {
		if made, err = r.plan(t, left); err != nil {
			made = err
		}
		r.plans[len(left)].Store(t, made)
	}
	if p, ok := made.(plan); ok {
		return p(reflect.ValueOf(x), values)
	}
	return values, made.(error)
}
