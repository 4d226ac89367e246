package share_test

import (
	"cmp"
	"flag"
	"math/rand"
	"reflect"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/customcacheinformer/informer/share"
)

var seed = flag.Int64("share-seed", 0, "the seed of random objects; 0 is a new one")

func filler(t *testing.T) func(obj any) {
	s := cmp.Or(*seed, time.Now().UnixNano())
	t.Logf("-share-seed=%d", s)
	f := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(s), scheme.Codecs)
	return func(obj any) { f.Fill(obj) }
}

// builtInTypes returns all types of k8s.io/api that are objects.
func builtInTypes() (all []schema.GroupVersionKind) {
	for gvk, t := range scheme.Scheme.AllKnownTypes() {
		if t.Kind() == reflect.Struct && reflect.PointerTo(t).Implements(reflect.TypeFor[runtime.Object]()) {
			all = append(all, gvk)
		}
	}
	slices.SortFunc(all, func(a, b schema.GroupVersionKind) int { return cmp.Compare(a.String(), b.String()) })
	return all
}

// pair is an object and a copy of it that shares nothing.
type pair struct{ obj, pristine runtime.Object }

func (p pair) check(t *testing.T) {
	t.Helper()
	if !equality.Semantic.DeepEqual(p.obj, p.pristine) {
		t.Errorf("%T: the shared object is\n%+v\nwant\n%+v", p.obj, p.obj, p.pristine)
	}
}

func TestObjectsOfEveryBuiltInTypeStayEqual(t *testing.T) {
	fill, table := filler(t), share.New()
	var kept []pair
	share := func(old, obj runtime.Object) {
		p := pair{obj: obj, pristine: obj.DeepCopyObject()}
		table.ShareUpdate(old, p.obj)
		p.check(t)
		kept = append(kept, p)
	}
	types := builtInTypes()
	if len(types) < 500 {
		t.Fatalf("there are only %d types", len(types))
	}
	for _, gvk := range types {
		first, err := scheme.Scheme.New(gvk)
		if err != nil {
			t.Fatal(err)
		}
		fill(first)
		other := first.DeepCopyObject()
		fill(other)
		copies := []runtime.Object{first.DeepCopyObject(), first.DeepCopyObject()}
		share(nil, first)
		share(nil, copies[0])
		share(other, copies[1]) // an update that changes everything
		share(first, first.DeepCopyObject())
		if stats := table.Stats(); stats.Refused > 0 {
			t.Fatalf("%v: refused", gvk)
		}
	}
	for _, p := range kept {
		p.check(t) // nothing that came later has changed it
	}
	t.Logf("%d types, %d objects: %+v", len(types), len(kept), table.Stats())
}
