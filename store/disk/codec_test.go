package disk_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/sample"
	"github.com/customcacheinformer/informer/store/disk"
)

func TestObjectsThatCannotBeStoredAreRefused(t *testing.T) {
	widget := func(field any) informer.AnyObject {
		u := sample.Widget("default", "a").(*unstructured.Unstructured)
		u.Object["field"] = field
		return u
	}
	fails := errors.New("the index function fails")
	for name, c := range map[string]struct {
		obj  informer.AnyObject
		want string
	}{
		"of another type":        {sample.ConfigMap("default", "a"), "ConfigMap"},
		"nil":                    {nil, "nil"},
		"a nil pointer":          {(*unstructured.Unstructured)(nil), "nil"},
		"without a key":          {&unstructured.Unstructured{}, "key"},
		"with too long a name":   {sample.Widget("default", strings.Repeat("n", disk.MaxKey)), "key"},
		"with too long a UID":    {withUID(sample.Widget("default", "a"), strings.Repeat("u", 2000)), "UID"},
		"that is too large":      {widget(strings.Repeat("x", 33<<20)), "bytes"},
		"that has no encoding":   {widget(math.NaN()), "NaN"},
		"that cannot be indexed": {widget("unindexable"), fails.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "that is too large" {
				t.Skip("33 MiB take seconds to encode: make test-long")
			}
			s := open(t, newPath(t), &unstructured.Unstructured{}, disk.Options{Identity: thisIdentity, Indexers: cache.Indexers{"field": func(obj any) ([]string, error) {
				field, _, _ := unstructured.NestedString(obj.(*unstructured.Unstructured).Object, "field")
				if field == "unindexable" {
					return nil, fails
				}
				return []string{field}, nil
			}}})
			good := sample.Widget("default", "good")
			must(t, s.Apply(t.Context(), []informer.Change{adding(good)}, "1"))
			key := "default/a"
			if u, ok := c.obj.(*unstructured.Unstructured); ok && u != nil {
				key = keyOf(u)
			}
			err := s.Apply(t.Context(), []informer.Change{deleting(good), {Entry: informer.Entry{Key: key, Object: c.obj}}}, "2")
			if !errors.Is(err, informer.ErrPermanent) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Apply: %v, want a permanent error that says %q", err, c.want)
			}
			if rv, err := s.Resume(t.Context()); rv != "1" || err != nil {
				t.Errorf("the bookmark is %q, %v, want that of before", rv, err)
			}
			if all := stored(t, s); len(all) != 1 || all[0].Key != "default/good" {
				t.Errorf("there is %v, want what was before", all)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	examples := map[byte]runtime.Object{}
	for _, obj := range sample.Odd() {
		record, err := disk.Encode([]byte("default/a"), obj)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte("default/a"), record, false)
		f.Add([]byte("default/b"), record, false)
		f.Add([]byte("default/a"), record[4:], true)
		examples[record[4]] = obj
	}
	f.Fuzz(func(t *testing.T, key, record []byte, sealed bool) {
		if sealed { // so that the decoders get incomplete payloads too
			record = disk.Put(key, record)
		}
		for _, example := range examples {
			obj, err := disk.Decode(key, record, example)
			if err != nil {
				continue
			}
			again, err := disk.Encode(key, obj)
			if err != nil {
				t.Fatalf("what was read cannot be stored: %v", err)
			}
			if _, err := disk.Decode(key, again, example); err != nil {
				t.Fatalf("what was read and stored cannot be read: %v", err)
			}
		}
	})
}
