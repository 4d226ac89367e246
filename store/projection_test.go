package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/storetest"
)

type object = corev1.ConfigMap

func configMap(name, value string) *object {
	return &object{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1", Labels: map[string]string{"value": value}},
		Data:       map[string]string{"value": value},
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// withoutData keeps the metadata of a ConfigMap.
func withoutData(obj *object) *object { return &object{ObjectMeta: *obj.ObjectMeta.DeepCopy()} }

func TestAProjectionPasses(t *testing.T) {
	keep := func(obj *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: obj.Namespace, Name: obj.Name, UID: obj.UID, ResourceVersion: obj.ResourceVersion, Labels: obj.Labels,
		}}
	}
	storetest.Run(t, func(*testing.T) cache.Store { return store.NewProjection(keep) }, storetest.Options{
		Kept: func(obj informer.AnyObject) informer.AnyObject { return keep(obj.(*metav1.PartialObjectMetadata)) },
	})
	t.Run("that keeps everything", func(t *testing.T) {
		all := func(obj informer.AnyObject) informer.AnyObject { return obj }
		storetest.Run(t, func(*testing.T) cache.Store { return store.NewProjection(all) }, storetest.Options{})
	})
}

func TestAProjectionRefusesFieldsThatItCannotKeep(t *testing.T) {
	without := func(change func(*object)) func(*object) *object {
		return func(obj *object) *object {
			kept := obj.DeepCopy()
			change(kept)
			return kept
		}
	}
	for name, c := range map[string]struct {
		keep func(*object) *object
		obj  any
		want []string // texts that the error must contain
	}{
		"nil result":              {func(*object) *object { return nil }, configMap("a", "2"), []string{"default/a", "nil"}},
		"without namespace":       {without(func(o *object) { o.Namespace = "" }), configMap("a", "2"), []string{"default/a", "namespace"}},
		"with another name":       {without(func(o *object) { o.Name = "b" }), configMap("a", "2"), []string{"default/a", `name "b"`}},
		"without UID":             {without(func(o *object) { o.UID = "" }), configMap("a", "2"), []string{"default/a", "UID"}},
		"without resourceVersion": {without(func(o *object) { o.ResourceVersion = "" }), configMap("a", "2"), []string{"default/a", "resourceVersion"}},
		"of another type":         {withoutData, &corev1.Pod{}, []string{"*v1.Pod"}},
		"of nothing":              {withoutData, nil, []string{"nil"}},
		"of a nil pointer":        {withoutData, (*object)(nil), []string{"nil"}},
		"of a tombstone":          {withoutData, cache.DeletedFinalStateUnknown{Key: "default/a"}, []string{"DeletedFinalStateUnknown"}},
	} {
		t.Run(name, func(t *testing.T) {
			refuse := false
			s := store.NewProjection(func(obj *object) *object {
				if refuse {
					return c.keep(obj)
				}
				return obj
			})
			testkit.Must(t, s.Add(configMap("a", "1")))
			refuse = true
			for op, err := range map[string]error{"add": s.Add(c.obj), "update": s.Update(c.obj), "replace": s.Replace([]any{c.obj}, "")} {
				if !errors.Is(err, informer.ErrPermanent) {
					t.Errorf("%s: %v does not wrap ErrPermanent", op, err)
				}
				for _, want := range append(c.want, op) {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("%s: %v does not say %q", op, err, want)
					}
				}
			}
			got, exists, err := s.GetByKey("default/a")
			if err != nil || !exists || got.(*object).Data["value"] != "1" || len(s.ListKeys()) != 1 {
				t.Errorf("then the store holds %v, %v, %v", got, exists, err)
			}
		})
	}
}

func TestAProjectionRefusesANilOfAnyType(t *testing.T) {
	p := store.NewProjection(func(obj informer.AnyObject) informer.AnyObject {
		pod, _ := obj.(*corev1.Pod)
		return pod
	})
	if err := errors.Join(p.Add(configMap("a", "1")), p.Update((*corev1.Pod)(nil))); strings.Count(fmt.Sprint(err), "nil") < 2 || !errors.Is(err, informer.ErrPermanent) {
		t.Error(err)
	}
}

func TestAProjectionOfNothingPanics(t *testing.T) {
	defer func() {
		if got, _ := recover().(string); !strings.Contains(got, "keep is nil") {
			t.Errorf("it panicked with %q", got)
		}
	}()
	store.NewProjection[*object](nil)
}

func TestIndexesOfAProjectionAreOfKeptFields(t *testing.T) {
	s := store.NewProjection(withoutData)
	err := s.AddIndexers(cache.Indexers{"data": func(obj any) ([]string, error) {
		return []string{fmt.Sprint(len(obj.(*object).Data))}, nil
	}})
	testkit.Must(t, err)
	testkit.Must(t, s.Add(configMap("a", "1")))
	if found := must(s.ByIndex("data", "0")); len(found) != 1 {
		t.Errorf("the index values are %q", s.ListIndexFuncValues("data"))
	}
}

// TestWatchersOverAProjection shows which events and calls see full objects, and which see
// reduced ones.
func TestWatchersOverAProjection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(configMap("a", "1"), configMap("b", "1"))
		inf := must(informer.NewFrom(src, informer.Options[*object]{Store: store.NewProjection(withoutData)}))
		var early, late, resynced []string
		watcher := func(told *[]string) informer.ResourceWatcher[*object] {
			return informer.WatcherFunc[*object](func(_ context.Context, e informer.Event[*object]) error {
				value := func(obj *object) string {
					if obj == nil {
						return "none"
					}
					return obj.Labels["value"] + "+" + obj.Data["value"]
				}
				*told = append(*told, fmt.Sprint(e.Origin, " ", e.Type, " ", e.Key().Name, " ", value(e.Old), " ", value(e.New)))
				return nil
			})
		}
		must(inf.AddWatcher(watcher(&early), informer.WatcherOptions{}))
		stop := informertest.Run(t, inf)
		must(inf.AddWatcher(watcher(&late), informer.WatcherOptions{}))
		synctest.Wait()
		src.Apply(configMap("a", "2"))
		time.Sleep(time.Second)
		must(src.Delete(types.NamespacedName{Namespace: "default", Name: "b"}))
		time.Sleep(time.Second)
		src.Expire() // a relist sends no event for an unchanged object
		time.Sleep(10 * time.Minute)
		must(inf.AddWatcher(watcher(&resynced), informer.WatcherOptions{ResyncPeriod: time.Hour}))
		time.Sleep(90 * time.Minute)
		stop()

		wantTold(t, "from the first", early,
			"initial added a none 1+1", "initial added b none 1+1", "watch updated a 1+ 2+2", "watch deleted b 1+ none")
		wantTold(t, "later", late,
			"initial added a none 1+", "initial added b none 1+", "watch updated a 1+ 2+2", "watch deleted b 1+ none")
		wantTold(t, "with a resync", resynced, "initial added a none 2+", "resync updated a 2+ 2+")
		got, _, err := inf.Get(types.NamespacedName{Namespace: "default", Name: "a"})
		if err != nil || got.Data != nil || got.Labels["value"] != "2" {
			t.Errorf("Get: %v, %v", got, err)
		}
	})
}

// wantTold fails the test unless a watcher got exactly the events of want. The order does not
// count, because the objects of a state come in no order.
func wantTold(t *testing.T, who string, got []string, want ...string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("a watcher %s was told\n%s\nwant\n%s", who, g, w)
	}
}
