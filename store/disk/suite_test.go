package disk_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/store/disk"
	"github.com/customcacheinformer/informer/store/storetest"
)

// Gadget is a custom resource with a Go type, which has only a JSON form.
type Gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              GadgetSpec `json:"spec"`
}

// GadgetSpec has fields that are hard to encode as JSON.
type GadgetSpec struct {
	Size     int64                 `json:"size"`
	Ratio    float64               `json:"ratio"`
	Nil      []string              `json:"nil"`
	Empty    []string              `json:"empty"`
	Text     string                `json:"text"`
	Data     []byte                `json:"data,omitempty"`
	Template runtime.RawExtension  `json:"template"`
	Next     *GadgetSpec           `json:"next,omitempty"`
	ByName   map[string]GadgetSpec `json:"byName,omitempty"`
}

// DeepCopyObject returns a copy.
func (g *Gadget) DeepCopyObject() runtime.Object {
	next := *g
	g.DeepCopyInto(&next.ObjectMeta)
	return &next
}

func newConfigMap(namespace, name string) informer.AnyObject {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string]string{"name": name},
	}
}

func newGadget(namespace, name string) informer.AnyObject {
	return &Gadget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Gadget"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       GadgetSpec{Size: 1<<62 + 1, Ratio: 1, Empty: []string{}, Text: "<&>\u2028", Data: []byte{0, 255}, Template: runtime.RawExtension{Raw: []byte(`{"a":"<&>","b":1.0}`)}},
	}
}

func newWidget(namespace, name string) informer.AnyObject {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"spec": map[string]any{"int": int64(1<<62 + 1), "float": 1.0, "small": 0.1, "null": nil, "yes": true,
			"text": "<&>\u2028", "none": []any{}, "empty": map[string]any{}, "list": []any{int64(-1), "a", map[string]any{"b": 2.5}}},
	}}
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

func newMetadata(namespace, name string) informer.AnyObject {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
	}
}

// open opens a store. The end of the test closes it.
func open(t *testing.T, path string, example runtime.Object, opts disk.Options) *disk.Store {
	t.Helper()
	s, err := tryOpen(t, path, example, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tryOpen fails the test if an error is reported and opts has no handler.
func tryOpen(t *testing.T, path string, example runtime.Object, opts disk.Options) (*disk.Store, error) {
	t.Helper()
	if opts.ErrorHandler == nil {
		opts.ErrorHandler = func(err error) { t.Errorf("reported: %v", err) }
	}
	s, err := disk.Open(path, example, opts)
	if err == nil {
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return s, err
}

func newPath(t *testing.T) string { return filepath.Join(t.TempDir(), "objects.db") }

// crashed returns the path of a copy of the file as it is now, as if the process had been
// killed.
func crashed(t *testing.T, path string) string {
	t.Helper()
	to := newPath(t)
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func TestAStoreIsWhatAnInformerAsksFor(t *testing.T) {
	for name, object := range map[string]func(namespace, name string) informer.AnyObject{
		"protobuf": newConfigMap, "JSON": newGadget, "CBOR": newWidget, "metadata": newMetadata,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			example, paths := object("", "").(runtime.Object), map[cache.Store]string{}
			at := func(t *testing.T, path string) *disk.Store {
				// SurviveProcess, because hardly any of these checks are about the disk.
				s := open(t, path, example, disk.Options{Durability: disk.SurviveProcess})
				paths[s] = path
				return s
			}
			storetest.Run(t, func(t *testing.T) cache.Store { return at(t, newPath(t)) }, storetest.Options{
				Object: object,
				Reopen: func(t *testing.T, s cache.Store) cache.Store {
					if err := s.(*disk.Store).Close(); err != nil {
						t.Fatal(err)
					}
					return at(t, paths[s])
				},
				Crash: func(t *testing.T, s cache.Store) cache.Store { return at(t, crashed(t, paths[s])) },
			})
		})
	}
}

func TestAClosedStoreSaysSo(t *testing.T) {
	var reported []error
	s := open(t, newPath(t), newConfigMap("", ""), disk.Options{
		Indexers:     cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		ErrorHandler: func(err error) { reported = append(reported, err) },
	})
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, resume := s.Resume(t.Context())
	_, scan := s.Scan(t.Context(), "", 1)
	_, tombstones := s.Tombstones(t.Context())
	_, _, get := s.GetByKey("a")
	_, byIndex := s.ByIndex(cache.NamespaceIndex, "a")
	for op, err := range map[string]error{
		"Apply": s.Apply(t.Context(), nil, "1"), "Forget": s.Forget(t.Context(), nil), "Add": s.Add(newConfigMap("a", "b")),
		"Resume": resume, "Scan": scan, "Tombstones": tombstones, "GetByKey": get, "ByIndex": byIndex,
		"AddIndexers": s.AddIndexers(cache.Indexers{"a": cache.MetaNamespaceIndexFunc}),
	} {
		if !errors.Is(err, disk.ErrClosed) {
			t.Errorf("%s: %v, want %v", op, err, disk.ErrClosed)
		}
	}
	if s.List() != nil || s.ListKeys() != nil || s.ListIndexFuncValues(cache.NamespaceIndex) != nil {
		t.Error("a list of a closed store has something")
	}
	if len(reported) != 3 || !errors.Is(reported[0], disk.ErrClosed) {
		t.Errorf("reported: %v, want three times that it is closed", reported)
	}
}
