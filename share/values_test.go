package share_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/share"
)

type named string

// box is an object that has one value.
type box[T any] struct{ Value T }

func TestANaNAndAFunctionAreKept(t *testing.T) {
	type odd struct {
		Map     map[float64]string
		Func    func() int
		Any     any
		Channel chan int
	}
	table, channel := share.New(), make(chan int)
	for range 2 {
		obj := &odd{Map: map[float64]string{math.NaN(): "a"}, Func: func() int { return 1 }, Any: channel, Channel: channel}
		table.Share(obj)
		if len(obj.Map) != 1 || obj.Func() != 1 || obj.Any != channel || obj.Channel != channel {
			t.Errorf("%+v", obj)
		}
	}
}

// private has fields that are not exported.
type private struct {
	Text    string
	mu      sync.Mutex
	builder strings.Builder
	cache   map[string]string
}

func TestAValueWithFieldsThatAreNotExportedIsNeverMerged(t *testing.T) {
	type owner struct {
		Pointer *private
		Slice   []private
		Map     map[string]*private
		Any     any
		Anys    []any
	}
	table := share.New()
	var met []*private
	var before *owner
	for range 3 {
		obj := &owner{Pointer: new(private), Slice: make([]private, 1, 8), Map: map[string]*private{"k": new(private)}, Any: new(private)}
		obj.Anys = []any{new(private)}
		all := func() []*private {
			return []*private{obj.Pointer, &obj.Slice[0], obj.Map["k"], obj.Any.(*private), obj.Anys[0].(*private)}
		}
		was := all()
		for _, p := range was {
			p.Text = "text"
			p.builder.WriteString("built")
			p.cache = map[string]string{"k": "v"}
			p.mu.Lock()
		}
		table.ShareUpdate(before, obj)
		if now := all(); !reflect.DeepEqual(now, was) {
			t.Errorf("%v have become %v", was, now)
		}
		for i, p := range all() {
			if p != was[i] {
				t.Errorf("number %d is a copy", i)
			}
			p.builder.WriteString("again") // it panics in a copy
			p.mu.Unlock()
			if slices.Contains(met, p) {
				t.Errorf("number %d is that of another object", i)
			}
		}
		met, before = append(met, was...), obj
	}
}

func TestValuesOfEveryKindThatAreNoObjects(t *testing.T) {
	table, number := share.New(), 1
	for _, obj := range []any{
		nil, (*corev1.Pod)(nil), corev1.Pod{}, &number, "text", []any{"a"}, map[string]any{"a": "b"},
		cache.DeletedFinalStateUnknown{Key: "a", Obj: &corev1.Pod{}}, func() {}, make(chan int),
	} {
		if got, err := table.Transform(obj); err != nil || reflect.TypeOf(got) != reflect.TypeOf(obj) {
			t.Errorf("Transform(%T) returns %T, %v", obj, got, err)
		}
		table.ShareUpdate(obj, obj)
		table.ShareUpdate(obj, &box[string]{"old is of another type"})
	}
	if s := table.Stats(); s.Objects != 10 {
		t.Errorf("%d objects, want 10", s.Objects)
	}
	obj := &box[[]string]{[]string{"a", "b"}}
	for range 3 {
		table.Share(obj)
		table.ShareUpdate(obj, obj)
	}
	if !reflect.DeepEqual(obj.Value, []string{"a", "b"}) {
		t.Errorf("%v", obj.Value)
	}
}

func TestASharedSliceHasNoRoom(t *testing.T) {
	table := share.New()
	var objects []*box[[]string]
	for range 3 {
		objects = append(objects, &box[[]string]{append(make([]string, 0, 9), "a", "b")})
	}
	table.Share(objects[0])
	table.Share(objects[1])
	table.ShareUpdate(objects[0], objects[2])
	for n, obj := range objects {
		if cap(obj.Value) != 2 || &obj.Value[0] != &objects[0].Value[0] {
			t.Errorf("number %d has a capacity of %d, or memory of its own", n, cap(obj.Value))
		}
	}
}

// Share is called twice where client-go transforms an object twice. By then others have its parts.
func TestAnObjectIsSharedOnce(t *testing.T) {
	table := share.New()
	list := &corev1.ConfigMapList{Items: make([]corev1.ConfigMap, 3)}
	for i := range list.Items {
		obj := &list.Items[i]
		obj.Data = map[string]string{"key": strings.Repeat("a", i+1)}
		table.Share(obj)
		key := reflect.ValueOf(obj.Data)
		obj.Data = map[string]string{"key": strings.Clone(obj.Data["key"])} // a change that shows a second walk
		before := unsafe.StringData(obj.Data["key"])
		table.Share(obj)
		table.ShareUpdate(&corev1.ConfigMap{Data: key.Interface().(map[string]string)}, obj)
		if unsafe.StringData(obj.Data["key"]) != before {
			t.Errorf("object %d has been shared again", i)
		}
	}
	if s := table.Stats(); s.Objects != 3 {
		t.Errorf("%d objects were shared, want 3", s.Objects)
	}
}

// Equal quantities may be written in different ways, and each keeps its own.
func TestAQuantityKeepsItsText(t *testing.T) {
	for _, texts := range [][2]string{{"1e3", "1E3"}, {"1k", "1000"}, {"1Gi", "1024Mi"}, {"0.5", "500m"}, {"1", "01"}, {"0", "0Ki"}} {
		decode := func(text string) *corev1.ResourceRequirements {
			obj := &corev1.ResourceRequirements{}
			if err := json.Unmarshal([]byte(`{"limits":{"cpu":"`+text+`"}}`), obj); err != nil {
				t.Error(err)
			}
			return obj
		}
		table, pristine := share.New(), decode(texts[1])
		first, second, third := decode(texts[0]), decode(texts[1]), decode(texts[1])
		table.Share(first)
		table.Share(second)
		table.ShareUpdate(first, third)
		want := pristine.Limits["cpu"]
		for _, obj := range []*corev1.ResourceRequirements{second, third} {
			if got := obj.Limits["cpu"]; got.String() != want.String() {
				t.Errorf("%s is %s after %s", texts[1], got.String(), texts[0])
			}
		}
	}
}

// A map that an object has in two places goes into the table at the first. At the second, which is
// cold, others read it.
func TestAMapInTwoPlacesIsNotWrittenAgain(t *testing.T) {
	type twice struct{ First, Second map[string]string }
	large := func(round int) map[string]string {
		m := map[string]string{"round": fmt.Sprint(round)}
		for i := range 500 {
			m[fmt.Sprint("key", i)] = fmt.Sprint("value", i)
		}
		return m
	}
	table := share.New()
	for i := range 2_000 {
		table.Share(&twice{Second: map[string]string{fmt.Sprint("key", i): "value"}})
	}
	if table.Stats().ColdPlaces == 0 {
		t.Fatal("the second place is not cold")
	}
	for round := range 50 {
		m := large(round)
		var both sync.WaitGroup
		both.Go(func() { table.Share(&twice{First: m, Second: m}) })
		both.Go(func() {
			for range 10 {
				table.Share(&twice{First: large(round)})
			}
		})
		both.Wait()
	}
}

// All objects may get the same label, one after the other.
func TestAnUpdatedMapIsShared(t *testing.T) {
	table := share.New()
	object := func(labels ...string) *corev1.ConfigMap {
		obj := &corev1.ConfigMap{}
		obj.Labels = map[string]string{}
		for _, label := range labels {
			obj.Labels[strings.Clone(label)] = strings.Clone(label)
		}
		return obj
	}
	maps := map[uintptr]bool{}
	var kept []*corev1.ConfigMap
	for range 20 {
		old, obj := object("one"), object("one", "new")
		table.Share(old)
		table.ShareUpdate(old, obj)
		kept = append(kept, obj)
		maps[reflect.ValueOf(obj.Labels).Pointer()] = true
	}
	if len(maps) != 1 || len(kept[0].Labels) != 2 {
		t.Errorf("%d objects have %d maps of labels", len(kept), len(maps))
	}
}
