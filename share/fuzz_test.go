package share_test

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/customcacheinformer/informer/share"
)

func FuzzShare(f *testing.F) {
	const small = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"app":"a","tier":"web"},` +
		`"managedFields":[{"manager":"m","time":"2026-03-02T08:15:01Z","fieldsV1":{"f:a":{".":{}}}}]},` +
		`"spec":{"containers":[{"name":"c","image":"i","args":["a","b"],"resources":{"limits":{"cpu":"500m","memory":"1e50"}},` +
		`"livenessProbe":{"httpGet":{"path":"/","port":"http"}}}],"priority":1},"status":{"phase":"Running"}}`
	f.Add([]byte(small), []byte(`{"kind":"Pod","metadata":{"name":"b"},"spec":{"containers":[{"name":"c"},{"name":"d"}]}}`))
	f.Add([]byte(`{"a":[1,2.5,true,null,"",[],{}],"b":{"c":["x","x"]}}`), []byte(`{"a":[1,2.5,false,"y"],"b":null}`))
	f.Add([]byte(`{"metadata":{"labels":{}},"spec":{"volumes":[]}}`), []byte(small))
	f.Fuzz(func(t *testing.T, one, other []byte) {
		shareDecoded(t, one, other, func(data []byte) runtime.Object {
			obj := map[string]any{}
			if json.Unmarshal(data, &obj) != nil {
				return nil
			}
			return &unstructured.Unstructured{Object: obj}
		})
		shareDecoded(t, one, other, func(data []byte) runtime.Object {
			obj := new(corev1.Pod)
			if json.Unmarshal(data, obj) != nil {
				return nil
			}
			return obj
		})
		shareDecoded(t, one, other, func(data []byte) runtime.Object {
			obj := new(corev1.Pod)
			if obj.Unmarshal(data) != nil {
				return nil
			}
			return obj
		})
	})
}

// shareDecoded shares objects that decode returns, and checks all of them in the end.
func shareDecoded(t *testing.T, one, other []byte, decode func([]byte) runtime.Object) {
	if decode(one) == nil {
		return
	}
	table := share.New()
	var all []pair
	add := func(old runtime.Object, data []byte) runtime.Object {
		obj := decode(data)
		if obj == nil {
			return nil
		}
		p := pair{obj, decode(data)}
		if old == nil {
			table.Share(obj)
		} else {
			table.ShareUpdate(old, obj)
		}
		all = append(all, p)
		return obj
	}
	first := add(nil, one)
	add(nil, one)
	add(first, one)
	if second := add(first, other); second != nil {
		add(second, one)
		add(nil, other)
	}
	for _, p := range all {
		p.check(t)
	}
}
