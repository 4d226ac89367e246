package share_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/customcacheinformer/informer/share"
)

// node is an object whose parts are objects of the same type.
type node struct {
	Name        string
	Left, Right *node
	List        []*node
	Map         map[string]*node
	Any         any
	Anys        []any
	Content     map[string]any
}

// chain returns an object whose Left is n pointers deep.
func chain(n int) *node {
	obj := &node{Name: "last"}
	for range n {
		obj = &node{Left: obj}
	}
	return obj
}

// changed returns a function that makes an object and changes it.
func changed(change func(obj *node)) func() *node {
	return func() *node {
		obj := &node{Name: "a"}
		change(obj)
		return obj
	}
}

// endless are objects that no walk over all paths comes to the end of.
var endless = map[string]func() *node{
	"a pointer to itself":        changed(func(obj *node) { obj.Left = obj }),
	"two pointers to itself":     changed(func(obj *node) { obj.Left, obj.Right = obj, obj }),
	"a list that has its object": changed(func(obj *node) { obj.List = []*node{obj, {Name: "b"}, obj} }),
	"a map that has its object":  changed(func(obj *node) { obj.Map = map[string]*node{"a": obj, "b": obj} }),
	"an any that has its object": changed(func(obj *node) { obj.Any = obj }),
	"a slice of any that contains itself": changed(func(obj *node) {
		obj.Anys = make([]any, 2)
		obj.Anys[0], obj.Anys[1] = obj.Anys, obj.Anys
	}),
	"a map of any that contains itself": changed(func(obj *node) {
		obj.Content = map[string]any{}
		obj.Content["a"], obj.Content["b"] = obj.Content, obj.Content
	}),
	"2^60 paths": func() *node {
		obj := &node{Name: "last"}
		for range 60 { // each level has the next one twice
			obj = &node{Left: obj, Right: obj}
		}
		return obj
	},
	"2^60 paths in maps of any": func() *node {
		m := map[string]any{"last": "one"}
		for range 60 {
			m = map[string]any{"left": m, "right": m}
		}
		return &node{Content: m}
	},
	"2^60 paths in slices of any": func() *node {
		s := []any{"last"}
		for range 60 {
			s = []any{s, s}
		}
		return &node{Anys: s}
	},
	"1,001 pointers": func() *node { return chain(1_001) },
}

func TestAnObjectWithoutAnEndIsRefused(t *testing.T) {
	for name, object := range endless {
		t.Run(name, func(t *testing.T) {
			table := share.New()
			table.Share(object())
			if s := table.Stats(); s.Objects != 1 || s.Refused != 1 || s.Parts != 1 {
				t.Errorf("Share: %+v", s)
			}
			table.ShareUpdate(object(), object())
			if s := table.Stats(); s.Objects != 2 || s.Refused != 2 {
				t.Errorf("ShareUpdate: %+v", s)
			}
			other := object()
			other.Name += " changed"
			table.ShareUpdate(object(), other)
			if s := table.Stats(); s.Objects != 3 || s.Refused != 3 {
				t.Errorf("ShareUpdate of another: %+v", s)
			}
		})
	}
}

func TestAnObjectMayBeAThousandDeep(t *testing.T) {
	table := share.New()
	first, second, third := chain(999), chain(999), chain(999) // and the name of the last is a part
	table.Share(first)
	table.Share(second)
	table.ShareUpdate(first, third)
	if s := table.Stats(); s.Refused != 0 {
		t.Fatalf("refused: %+v", s)
	}
	if first.Left != second.Left || first.Left != third.Left {
		t.Error("the objects share nothing")
	}
	table.ShareUpdate(first, chain(1_000))
	table.Share(chain(1_000))
	if s := table.Stats(); s.Refused != 2 {
		t.Errorf("objects that are 1,001 deep: %+v", s)
	}
}

// many returns an object with n parts in a list, and one for the list.
func many(n int) *node {
	obj := &node{Anys: make([]any, n)}
	for i := range obj.Anys {
		obj.Anys[i] = int64(i % 100)
	}
	return obj
}

func TestAnObjectMayHaveHalfAMillionParts(t *testing.T) {
	table := share.New()
	first := many(500_000)
	table.Share(first)
	table.ShareUpdate(first, many(500_000))
	if s := table.Stats(); s.Refused != 0 {
		t.Errorf("half a million parts: %+v", s)
	}
	for i, v := range first.Anys {
		if v != int64(i%100) {
			t.Fatalf("number %d is %v", i, v)
		}
	}
	table.Share(many(1 << 19))
	if s := table.Stats(); s.Refused != 1 {
		t.Errorf("more than 2^19 parts: %+v", s)
	}
}

func TestNestedContentOfAnyIsShared(t *testing.T) {
	table := share.New()
	object := func(levels int) *unstructured.Unstructured {
		m := map[string]any{"last": "one"}
		for i := range levels {
			m = map[string]any{"in": m, "level": fmt.Sprint(i)}
		}
		return &unstructured.Unstructured{Object: m}
	}
	for range 2 {
		p := object(400)
		pristine := p.DeepCopy()
		table.Share(p)
		pair{p, pristine}.check(t)
	}
	if s := table.Stats(); s.Refused != 0 || s.Hits == 0 {
		t.Errorf("%+v", s)
	}
}
