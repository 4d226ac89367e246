package share_test

import (
	"fmt"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/customcacheinformer/informer/share"
)

func TestAPlaceAtWhichNothingIsEqualIsCold(t *testing.T) {
	table, n := share.New(), 0
	var kept []*box[string]
	add := func(text string) {
		kept = append(kept, &box[string]{text})
		table.Share(kept[len(kept)-1])
	}
	for range 20_000 {
		n++
		add(fmt.Sprint("unlike all others ", n))
	}
	// Each object counts as well.
	if s := table.Stats(); s.ColdPlaces != 1 || s.Parts > 20_000+2_000 {
		t.Errorf("nothing was equal: %+v", s)
	}
	for range 200_000 {
		n++
		add(fmt.Sprint("one of a few thousand ", n%3000)) // a cold place looks at one in 64
	}
	if s := table.Stats(); s.ColdPlaces != 0 || s.Hits == 0 {
		t.Errorf("most were equal: %+v", s)
	}
}

func TestASharedQuantityHasItsText(t *testing.T) {
	table := share.New()
	obj := &box[*resource.Quantity]{resource.NewMilliQuantity(500, resource.DecimalSI)}
	list := &box[corev1.ResourceList]{corev1.ResourceList{"cpu": *resource.NewMilliQuantity(500, resource.DecimalSI)}}
	table.Share(obj)
	table.Share(list)
	for _, q := range []resource.Quantity{*obj.Value, list.Value["cpu"]} {
		before := q
		if _ = q.String(); !reflect.DeepEqual(q, before) {
			t.Error("String has changed the quantity")
		}
	}
}

func TestTheFiguresCountTheMemoryOfAnUpdate(t *testing.T) {
	table := share.New()
	object := func() *corev1.ConfigMap {
		obj := &corev1.ConfigMap{Data: map[string]string{"key": "value"}, BinaryData: map[string][]byte{"key": []byte("bytes")}}
		obj.Name, obj.Finalizers, obj.Immutable = "name", []string{"finalizer"}, new(bool)
		return obj
	}
	old := object()
	table.Share(old)
	before := table.Stats()
	table.ShareUpdate(old, object())
	if s := table.Stats(); s.Hits-before.Hits != 5 || s.SavedBytes-before.SavedBytes < 100 {
		t.Errorf("an update that changes nothing: %+v, before %+v", s, before)
	}
}
