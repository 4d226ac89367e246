package framing

import (
	"bytes"
	stdjson "encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/customcacheinformer/informer/internal/mix"
)

var (
	podType = TypeOfObject(reflect.TypeFor[*corev1.Pod]())
	anyType = TypeOfObject(reflect.TypeFor[*unstructured.Unstructured]())
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func newOmission(of reflect.Type, paths ...string) *Omission { return must(NewOmission(of, paths)) }

// Whatever is left out, an object that was decoded without its fields is the whole object without them.
func TestObjectsAreDecodedWithoutOmittedFields(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pods := mix.New(1, 200)
	for n := range 200 {
		pod := pods.Pod(n, n%3)
		raw, encoded := must(json.Marshal(pod)), must(pod.Marshal())
		if n%2 == 0 {
			var spaced bytes.Buffer
			if err := stdjson.Indent(&spaced, raw, "\t", " "); err != nil {
				t.Fatal(err)
			}
			raw = spaced.Bytes()
		}
		all := []string{
			"metadata.managedFields", "metadata.generation", "metadata.annotations", "metadata.creationTimestamp", "metadata.generateName", "metadata.ownerReferences", "metadata.labels",
			"spec", "spec.containers", "spec.nodeName", "spec.securityContext.seccompProfile", "status", "status.conditions", "status.startTime",
		}
		random.Shuffle(len(all), reflect.Swapper(all))
		paths := all[:1+random.IntN(len(all)-1)]
		o := newOmission(reflect.TypeFor[*corev1.Pod](), paths...)
		for name, of := range map[string]Type{"typed": podType, "unstructured": anyType, "protobuf": podType} {
			decode := Type.json
			body := raw
			if name == "protobuf" {
				decode, body = Type.binary, encoded
			}
			want, got := decode(of, body), decode(of.Without(o), body)
			o.From(want)
			o.From(got) // of the last object, an empty struct may be left
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s without %q (-whole +cut):\n%s", name, paths, diff)
			}
		}
	}
}

// From is not needed for a field that was found, so that it is not decoded.
func TestOmittedFieldsAreNotDecoded(t *testing.T) {
	const broken = `{"apiVersion":"v1","kind":"Pod","metadata":{"managedFields":"no list","name":"a"},"spec":{"nodeName":5,"hostname":"h"}}`
	o := newOmission(reflect.TypeFor[*corev1.Pod](), "metadata.managedFields", "spec.nodeName")
	pod, ok := podType.Without(o).json([]byte(broken)).(*corev1.Pod)
	if !ok || pod.Name != "a" || pod.Spec.Hostname != "h" {
		t.Errorf("decoded %+v", pod)
	}
	sent := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: strings.Repeat("m", 100)}}}}
	if rest, ok := cutBinary(&o.root, nil, must(sent.Marshal())); !ok || strings.Contains(string(rest), "mmm") {
		t.Errorf("protobuf without managed fields: %q, %t", rest, ok)
	}
}

func TestJSONIsCutWithItsCommas(t *testing.T) {
	o := newOmission(nil, "a", "b.c", "b.d", "e", "m['x.y/z']")
	for in, want := range map[string]string{
		`{}`:                                `{}`,
		`{"a":1}`:                           `{}`,
		`{"a":1,"x":2}`:                     `{"x":2}`,
		`{"x":2,"a":1}`:                     `{"x":2}`,
		`{ "x" : 2 , "a" : [1,{"a":"}"}] }`: `{ "x" : 2  }`,
		`{"a":1,"e":2,"x":3}`:               `{"x":3}`,
		`{"a":1,"e":2}`:                     `{}`,
		`{"x":3,"a":1,"e":2}`:               `{"x":3}`,
		`{"x":3,"a":1,"y":2}`:               `{"x":3,"y":2}`,
		`{"b":{"c":1,"d":2},"x":3}`:         `{"b":{},"x":3}`,
		`{"b":{"x":0,"c":1,"d":2},"e":3}`:   `{"b":{"x":0}}`,
		`{"b":{"c":1,"x":0,"d":2},"a":3}`:   `{"b":{"x":0}}`,
		`{"b":[{"c":1}],"a":null}`:          `{"b":[{"c":1}]}`,
		`{"x":{"a":1},"a":"\""}`:            `{"x":{"a":1}}`,
		`{"a":1,"a":2}`:                     `{}`,
		`{"m":{"x":{"y/z":1},"x.y/z":2}}`:   `{"m":{"x":{"y/z":1}}}`,
		`{"b":{"c":1},"b":{"c":2}}`:         `{"b":{},"b":{}}`,
	} {
		if got, ok := cutJSON(&o.root, nil, []byte(in)); !ok || string(got) != want {
			t.Errorf("%s: %s, %t, want %s", in, got, ok, want)
		}
	}
	for _, in := range []string{``, `[]`, `{"a"`, `{"a":`, `{"a":1`, `{"a" 1}`, `{"b":{"c":1`, `{"x":1;"a":2}`, `null`, `{a:1}`} {
		if got, ok := cutJSON(&o.root, nil, []byte(in)); ok {
			t.Errorf("%s was cut to %s", in, got)
		}
	}
}

func TestPathsOfFieldsThatCannotBeLeftOut(t *testing.T) {
	pod := reflect.TypeFor[*corev1.Pod]()
	for _, path := range []string{
		"", ".", "metadata.labels['app']", "metadata.", ".metadata", "metadata..labels", "metadata", "kind", "apiVersion", "metadata.name", "metadata.uid",
		"metadata.resourceVersion", "metadata.namespace", "spec.nodename", "spec.containers.image", "metadata.labels.app", "ObjectMeta", "TypeMeta.kind",
		"name", "labels", "metadata['name']", "['metadata']",
	} {
		if o, err := NewOmission(pod, []string{path}); err == nil || !strings.Contains(err.Error(), `"`+path+`"`) {
			t.Errorf("%q: %v, %v", path, o, err)
		}
	}
	if o, err := NewOmission(pod, nil); o != nil || err != nil {
		t.Errorf("no paths: %v, %v", o, err)
	}
}

// A number in protobuf belongs to a message. The one of a field of an embedded struct is not that of the object.
func TestFieldsOfEmbeddedStructsAreNotTakenForOthers(t *testing.T) {
	sent := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PersistentVolumeSpec{
		AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d"}, HostPath: &corev1.HostPathVolumeSource{Path: "/"}},
	}}
	of := reflect.TypeFor[*corev1.PersistentVolume]()
	o := newOmission(of, "spec.awsElasticBlockStore", "spec.hostPath")
	got := TypeOfObject(of).Without(o).binary(must(sent.Marshal()))
	o.From(got)
	sent.Spec.HostPath = nil
	if diff := cmp.Diff(sent, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestNothingOfAnOmittedFieldIsKept(t *testing.T) {
	for _, paths := range [][]string{{"spec", "spec.nodeName"}, {"spec.nodeName", "spec"}, {"spec", "spec"}} {
		o := newOmission(reflect.TypeFor[*corev1.Pod](), paths...)
		if rest, ok := cutJSON(&o.root, nil, []byte(`{"spec":{"nodeName":"n","hostname":"h"},"x":1}`)); !ok || string(rest) != `{"x":1}` {
			t.Errorf("%q: %s, %t", paths, rest, ok)
		}
	}
}

// A message that is cut somewhere is left to the decoder.
func TestABrokenMessageIsNotCut(t *testing.T) {
	raw := must(mix.New(1, 1).Pod(0, 1).Marshal())
	o := newOmission(reflect.TypeFor[*corev1.Pod](), "metadata.managedFields", "spec.nodeName")
	for n := range raw {
		want, got := podType.binary(raw[:n]), podType.Without(o).binary(raw[:n])
		if _, decoded := want.(*corev1.Pod); decoded {
			o.From(want)
			o.From(got)
		}
		_, broken := want.(*Undecodable)
		if _, too := got.(*Undecodable); broken && too {
			continue // the errors may differ
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%d of %d bytes (-whole +cut):\n%s", n, len(raw), diff)
		}
	}
	for _, odd := range []string{"\x0b", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x09\x01", "\x0a", "\x0a\x05\x8a\x01\x7f"} {
		if rest, ok := cutBinary(&o.root, nil, []byte(odd)); ok {
			t.Errorf("%q was cut to %q", odd, rest)
		}
	}
}

// An object whose spec is broken, and whose managed fields are, is still known by its metadata.
func TestTheMetadataOfABrokenObjectIsReadWithoutOmittedFields(t *testing.T) {
	o := newOmission(reflect.TypeFor[*corev1.Pod](), "metadata.managedFields")
	got := podType.Without(o).json([]byte(`{"metadata":{"name":"a","managedFields":5},"spec":{"nodeName":5}}`))
	if u, ok := got.(*Undecodable); !ok || u.Name != "a" {
		t.Errorf("decoded %+v", got)
	}
}

// From leaves alone what is nil, and objects that do not have the field.
func TestFromLeavesOtherObjectsAlone(t *testing.T) {
	o := newOmission(nil, "metadata.labels", "spec.x", "spec.securityContext.runAsUser")
	for _, obj := range []any{nil, 5, (*corev1.Pod)(nil), "text"} {
		o.From(obj)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"b": "c"}}}
	if o.From(pod); pod.Name != "a" || pod.Labels != nil {
		t.Errorf("a Pod: %+v", pod)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": "text", "metadata": map[string]any{"labels": 5, "name": "a"}}}
	o.From(u)
	if diff := cmp.Diff(map[string]any{"spec": "text", "metadata": map[string]any{"name": "a"}}, u.Object); diff != "" {
		t.Error(diff)
	}
	var _ runtime.Object = u
}
