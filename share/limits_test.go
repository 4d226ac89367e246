package share_test

import (
	"fmt"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/share"
)

// linked is a type whose objects can have cycles of every kind, which objects of an API have not.
type linked struct {
	Next  *linked
	Both  [2]*linked
	Many  []*linked
	Named map[name]*linked
	Any   any
	Text  string
}

type name string

func TestAnObjectWithACycleIsRefused(t *testing.T) {
	for what, link := range map[string]func(*linked){
		"a pointer":      func(l *linked) { l.Next = l },
		"an array":       func(l *linked) { l.Both[1] = l },
		"a slice":        func(l *linked) { l.Many = []*linked{l} },
		"a map":          func(l *linked) { l.Named = map[name]*linked{"self": l} },
		"an any":         func(l *linked) { l.Any = l },
		"a map of any":   func(l *linked) { m := map[string]any{}; m["self"], l.Any = m, m },
		"a slice of any": func(l *linked) { s := []any{nil}; s[0], l.Any = s, s },
	} {
		t.Run(what, func(t *testing.T) {
			table := share.New()
			newLinked := func() *linked { l := &linked{Text: "text"}; link(l); return l }
			first, second := newLinked(), newLinked()
			table.Share(first)
			table.Share(second)
			table.ShareUpdate(first, second)
			if got := table.Stats().Refused; got != 3 {
				t.Errorf("%d of 3 objects were refused", got)
			}
		})
	}
}

// A graph in which each node has the next one twice has 2^60 paths.
func TestAGraphWithManyPathsIsRefusedSoon(t *testing.T) {
	for what, fork := range map[string]func(of *linked) *linked{
		"an array": func(of *linked) *linked { return &linked{Both: [2]*linked{of, of}} },
		"a slice":  func(of *linked) *linked { return &linked{Many: []*linked{of, of}} },
		"a map":    func(of *linked) *linked { return &linked{Named: map[name]*linked{"a": of, "b": of}} },
		"an any":   func(of *linked) *linked { return &linked{Any: map[string]any{"a": of, "b": of}} },
	} {
		t.Run(what, func(t *testing.T) {
			newGraph := func(text string) *linked {
				l := &linked{Text: text}
				for range 60 {
					l = fork(l)
				}
				return l
			}
			table := share.New()
			old := newGraph("old")
			table.Share(old)
			table.ShareUpdate(old, newGraph("old"))
			table.ShareUpdate(old, newGraph("new"))
			if got := table.Stats().Refused; got != 3 {
				t.Errorf("%d of 3 objects were refused", got)
			}
		})
	}
}

func TestAnObjectMayBeDeepButNotTooDeep(t *testing.T) {
	deep := func(levels int) *linked {
		l := &linked{Text: "innermost"}
		for range levels {
			l = &linked{Next: l}
		}
		return l
	}
	table := share.New()
	first := deep(998) // the text is a part as well
	table.Share(first)
	second := deep(998)
	table.Share(second)
	if got := table.Stats(); got.Refused > 0 || first.Next != second.Next {
		t.Errorf("objects of 1,000 levels are not shared: %+v", got)
	}
	table.Share(deep(1_000))
	table.ShareUpdate(first, deep(1_001))
	if got := table.Stats().Refused; got != 2 {
		t.Errorf("%d of 2 objects were refused that are too deep", got)
	}
}

func TestAnObjectMayBeLargeButNotTooLarge(t *testing.T) {
	large := func(parts int) *corev1.ConfigMap {
		obj := &corev1.ConfigMap{}
		for i := range parts {
			obj.Finalizers = append(obj.Finalizers, fmt.Sprint(i))
		}
		return obj
	}
	table := share.New()
	first, second := large(900_000), large(900_000)
	table.Share(first)
	table.Share(second)
	if got := table.Stats(); got.Refused > 0 || &first.Finalizers[0] != &second.Finalizers[0] || second.Finalizers[899_999] != "899999" {
		t.Errorf("an object with 900,000 parts is not shared: %+v", got)
	}
	huge := large(1_100_000)
	table.Share(huge)
	if got := table.Stats().Refused; got != 1 || huge.Finalizers[1_099_999] != "1099999" {
		t.Errorf("an object with 1,100,000 parts is not refused")
	}
}

// Nothing but pointers to structs are objects.
func TestOtherValuesAreLeftAlone(t *testing.T) {
	number, text, list := 1, "text", []string{"text"}
	object := func() *corev1.ConfigMap { return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}} }
	table := share.New()
	for _, obj := range []any{
		nil, 1, "text", list, &number, &text, &list, map[string]any{"a": "b"}, func() {}, make(chan int),
		(*corev1.ConfigMap)(nil), corev1.ConfigMap{}, cache.DeletedFinalStateUnknown{Key: "a", Obj: object()},
	} {
		table.Share(obj)
		table.ShareUpdate(object(), obj)
		got, err := table.Transform(obj)
		if err != nil || fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", obj) {
			t.Errorf("%T: Transform returns %v, %v", obj, got, err)
		}
	}
	if got := table.Stats(); got.Objects != 0 {
		t.Errorf("it has shared %d objects", got.Objects)
	}
	for _, old := range []any{nil, 1, corev1.ConfigMap{}, (*corev1.ConfigMap)(nil), &corev1.Secret{}} {
		table.ShareUpdate(old, object())
	}
	if got := table.Stats(); got.Objects != 5 || got.Refused != 0 {
		t.Errorf("after 5 objects without an earlier state: %+v", got)
	}
	obj := object()
	if got, err := table.Transform(obj); err != nil || got != any(obj) {
		t.Errorf("Transform returns %v, %v", got, err)
	}
	table.Share(obj)
	table.ShareUpdate(obj, obj)
	if !reflect.DeepEqual(obj, object()) {
		t.Errorf("shared again, the object is %v", obj)
	}
	table.Share(&struct{}{})
	table.Share(&unstructured.Unstructured{})
	table.Share(&corev1.ConfigMap{})
}
