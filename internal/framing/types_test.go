package framing_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer/internal/framing"
)

// TestAllTypes compares lists and watches of random objects of each type of k8s.io/api.
func TestAllTypes(t *testing.T) {
	seed := rand.Uint64()
	t.Log("the seed is", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	types, known := 0, scheme.Scheme.AllKnownTypes()
	for _, gvk := range slices.SortedFunc(maps.Keys(known), func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) }) {
		list := known[gvk]
		typ, ok := framing.TypeOf(reflect.PointerTo(list))
		if gvk.Version == runtime.APIVersionInternal || !ok {
			continue
		}
		types++
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
		t.Run(gvk.Version+"/"+gvk.Kind, func(t *testing.T) {
			for _, c := range clientsOf(gvk, list, typ) {
				items := make([]runtime.Object, 3)
				var live []byte
				for i := range items {
					items[i] = must(scheme.Scheme.New(gvk))
					fill(random, reflect.ValueOf(items[i]).Elem(), 0)
					live = append(live, c.event("MODIFIED", c.encode(c.apiVersion, c.kind, items[i]))...)
				}
				all := reflect.New(list).Interface().(runtime.Object)
				check(meta.SetList(all, items))
				for i, body := range [][]byte{c.encode(c.apiVersion, c.kind+"List", all), live} {
					isLive := i == 1
					read := readers[random.IntN(len(readers))]
					_, tap := c.both(t, isLive, func() io.Reader { return read(bytes.NewReader(body)) })
					if tap.Count() != len(items) || tap.Misfit() || tap.Why() != "" {
						t.Errorf("%s, watch %t, %d bytes: %d objects tapped, %q", c.name, isLive, len(body), tap.Count(), tap.Why())
					}
				}
			}
		})
	}
	if types < 100 {
		t.Errorf("only %d types", types)
	}
}

// clientsOf returns the typed clients of a type, as client-go generates them, and its dynamic one.
func clientsOf(gvk schema.GroupVersionKind, list reflect.Type, typ framing.Type) []client {
	gv := gvk.GroupVersion()
	typed := func(name, contentType string) client {
		config := &rest.Config{Host: "http://server", Transport: framing.Transport(answers{}), QPS: -1, APIPath: "/apis"}
		config.GroupVersion, config.ContentType, config.NegotiatedSerializer = &gv, contentType, scheme.Codecs.WithoutConversion()
		if gv.Group == "" {
			config.APIPath = "/api"
		}
		r := must(rest.RESTClientFor(config))
		return client{
			name, contentType == mediaProtobuf, gv.String(), gvk.Kind, typ,
			func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
				result := reflect.New(list).Interface().(runtime.Object)
				return result, r.Get().Resource("things").Do(ctx).Into(result)
			},
			func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
				return r.Get().Resource("things").Param("watch", "true").Watch(ctx)
			},
		}
	}
	raw := must(dynamic.NewForConfig(&rest.Config{Host: "http://server", Transport: framing.Transport(answers{}), QPS: -1})).
		Resource(gv.WithResource("things"))
	return []client{
		typed("protobuf", mediaProtobuf), typed("JSON", mediaJSON),
		{"dynamic", false, gv.String(), gvk.Kind, inMemory[2].typ, lister(raw.List), raw.Watch},
	}
}

var words = []string{"", "a", "name", "}]\"\\", "ñ\u2028", "items", "\x00\n", strings.Repeat("long ", 200)}

// deepest keeps the objects of types that nest far below the 16 MiB that client-go reads of an event.
const deepest = 6

// fill gives a value random contents.
func fill(r *rand.Rand, v reflect.Value, depth int) {
	switch p := v.Addr().Interface().(type) {
	case *metav1.TypeMeta: // it is not a part of each encoding
		return
	case *metav1.Time:
		*p = metav1.Unix(r.Int64N(4e9), 0)
		return
	case *metav1.MicroTime:
		*p = metav1.NewMicroTime(time.UnixMicro(r.Int64N(4e15)))
		return
	case *resource.Quantity:
		*p = *resource.NewMilliQuantity(r.Int64N(1e9), resource.BinarySI)
		return
	case *intstr.IntOrString:
		*p = []intstr.IntOrString{intstr.FromInt32(r.Int32()), intstr.FromString("10%")}[r.IntN(2)]
		return
	case *metav1.FieldsV1:
		p.Raw = []byte(`{"f:a":{"k:{\"x\":1}":{}}}`)
		return
	case *runtime.RawExtension:
		p.Raw = []byte(`{"apiVersion":"v1","kind":"Thing","items":["]}"]}`)
		return
	}
	few := r.IntN(3)
	if depth >= deepest {
		few = 0
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(r.Int32()))
	case reflect.Uint8:
		v.SetUint(uint64(r.IntN(256)))
	case reflect.String:
		v.SetString(words[r.IntN(len(words))])
	case reflect.Pointer:
		if depth < deepest && r.IntN(2+depth) < 2 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem(), depth+1)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), few, 3))
		for i := range v.Len() {
			fill(r, v.Index(i), depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range few {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(r, key, depth+1)
			fill(r, value, depth+1)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(r, v.Field(i), depth)
		}
	default:
		panic(v.Type().String())
	}
}
