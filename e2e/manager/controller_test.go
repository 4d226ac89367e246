package manager_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/customcacheinformer/informer/e2e/manager/api"
)

// tally counts reconciles by name.
type tally struct {
	mu     sync.Mutex // protects counts
	counts map[string]int
}

func (t *tally) Reconcile(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[string]int{}
	}
	t.counts[r.Name]++
	return reconcile.Result{}, nil
}

func (t *tally) of(name string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[name]
}

// has returns a function that reports whether the objects with these names were reconciled.
func (t *tally) has(names ...string) func() bool {
	return func() bool {
		return !slices.ContainsFunc(names, func(name string) bool { return t.of(name) == 0 })
	}
}

func TestPredicatesSeeTheChange(t *testing.T) {
	onAll(t, func(w *world) {
		mgr, specs, all := w.manager(), &tally{}, &tally{}
		w.OK(builder.ControllerManagedBy(mgr).Named("specs").
			For(&api.Widget{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).Complete(specs))
		w.OK(builder.ControllerManagedBy(mgr).Named("all").For(&api.Widget{}).Complete(all))
		w.start(mgr)
		obj := w.create("w", 1)
		w.until("both get a new object", func() bool { return specs.of("w") == 1 && all.of("w") == 1 })

		obj.Status.Size = 1
		w.OK(w.Status().Update(w.Context(), obj))
		w.until("one gets its status", func() bool { return all.of("w") == 2 })
		w.create("fence", 1) // both controllers see this object after the status
		w.until("both get the next object", func() bool { return specs.of("fence") == 1 && all.of("fence") == 1 })
		if got := specs.of("w"); got != 1 {
			w.Errorf("the controller for specs has reconciled %d times, want once", got)
		}
		w.change("w", 2)
		w.until("both get the spec", func() bool { return specs.of("w") == 2 && all.of("w") == 3 })
		w.OK(w.Delete(w.Context(), obj))
		w.until("both get the delete", func() bool { return specs.of("w") == 3 && all.of("w") == 4 })
	})
}

func TestIndexesFollowTheirObjects(t *testing.T) {
	onAll(t, func(w *world) {
		mgr := w.manager()
		byColor := func(obj client.Object) []string { return []string{obj.(*api.Widget).Spec.Color} }
		bySize := func(obj client.Object) []string { return []string{fmt.Sprint(obj.(*api.Widget).Spec.Size)} }
		w.OK(mgr.GetFieldIndexer().IndexField(w.Context(), &api.Widget{}, "color", byColor))
		for i, color := range []string{"red", "red", "blue"} {
			obj := w.widget(fmt.Sprint("w", i), i)
			obj.Spec.Color = color
			w.OK(w.Create(w.Context(), obj))
		}
		elsewhere := w.widget("elsewhere", 0)
		elsewhere.Namespace, elsewhere.Spec.Color = "other", "red"
		w.OK(w.Create(w.Context(), elsewhere))
		w.start(mgr)

		finds := func(want []string, opts ...client.ListOption) {
			w.Helper()
			w.eventually("the index has "+fmt.Sprint(want), func() error {
				list := &api.WidgetList{}
				w.OK(mgr.GetClient().List(w.Context(), list, opts...))
				names := []string{}
				for _, obj := range list.Items {
					names = append(names, obj.Name)
				}
				if slices.Sort(names); !slices.Equal(names, want) {
					return fmt.Errorf("found %v", names)
				}
				return nil
			})
		}
		red, blue := client.MatchingFields{"color": "red"}, client.MatchingFields{"color": "blue"}
		finds([]string{"elsewhere", "w0", "w1"}, red)
		finds([]string{"w0", "w1"}, red, client.InNamespace(namespace))
		finds([]string{"w2"}, blue)

		obj := &api.Widget{}
		w.OK(w.Get(w.Context(), key("w0"), obj))
		obj.Spec.Color = "blue"
		w.OK(w.Update(w.Context(), obj))
		w.OK(w.Delete(w.Context(), w.widget("w1", 0)))
		finds([]string{"w0", "w2"}, blue)
		finds([]string{}, red, client.InNamespace(namespace))

		w.OK(mgr.GetFieldIndexer().IndexField(w.Context(), &api.Widget{}, "size", bySize)) // while the manager runs
		finds([]string{"w2"}, client.MatchingFields{"size": "2"})
		w.change("w2", 3)
		finds([]string{"w2"}, client.MatchingFields{"size": "3"})
		finds([]string{}, client.MatchingFields{"size": "2"})
		finds([]string{"w2"}, client.MatchingFields{"size": "3", "color": "blue"}, client.InNamespace(namespace))
	})
}

// partsOf gives a widget as many parts as it wants, each of its size.
func (w *world) partsOf(mgr manager.Manager) reconcile.Func {
	c := mgr.GetClient()
	return func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
		owner := &api.Widget{}
		if err := c.Get(ctx, r.NamespacedName, owner); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		for i := range owner.Spec.Parts {
			part := &api.Part{ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: fmt.Sprint(owner.Name, "-", i)}}
			_, err := controllerutil.CreateOrUpdate(ctx, c, part, func() error {
				part.Spec.Size = owner.Spec.Size
				return controllerutil.SetControllerReference(owner, part, w.scheme)
			})
			if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
				return reconcile.Result{RequeueAfter: 1}, nil // the cache is behind
			} else if err != nil {
				return reconcile.Result{}, err
			}
		}
		return reconcile.Result{}, nil
	}
}

func (w *world) havePart(name string, size int) {
	w.Helper()
	w.until(fmt.Sprintf("the part %s has size %d", name, size), func() bool {
		part := &api.Part{}
		return w.Get(w.Context(), key(name), part) == nil && part.Spec.Size == size
	})
}

func TestAnOwnerRepairsItsChildren(t *testing.T) {
	onAll(t, func(w *world) {
		mgr := w.manager()
		w.OK(builder.ControllerManagedBy(mgr).For(&api.Widget{}).Owns(&api.Part{}).Complete(w.partsOf(mgr)))
		owner := w.widget("w", 1)
		owner.Spec.Parts = 3
		w.OK(w.Create(w.Context(), owner))
		w.start(mgr)
		for i := range 3 {
			w.havePart(fmt.Sprint("w-", i), 1)
		}
		part := &api.Part{}
		w.OK(w.Get(w.Context(), key("w-0"), part))
		w.OK(w.Delete(w.Context(), part))
		w.havePart("w-0", 1)
		w.OK(w.Get(w.Context(), key("w-1"), part))
		part.Spec.Size = 99
		w.OK(w.Update(w.Context(), part))
		w.havePart("w-1", 1)
		w.change("w", 2)
		for i := range 3 {
			w.havePart(fmt.Sprint("w-", i), 2)
		}
	})
}

func TestAnInformerIsASource(t *testing.T) {
	onAll(t, func(w *world) {
		mgr, seen := w.manager(), &tally{}
		w.create("before", 1)
		inf, err := mgr.GetCache().GetInformer(w.Context(), &api.Widget{})
		w.OK(err)
		w.OK(builder.ControllerManagedBy(mgr).Named("source").WatchesRawSource(&source.Informer{
			Informer:   inf,
			Handler:    &handler.EnqueueRequestForObject{},
			Predicates: []predicate.Predicate{predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetName() != "ignored" })},
		}).Complete(seen))
		w.start(mgr)
		w.create("ignored", 1)
		w.create("after", 1)
		w.until("all but one are reconciled", func() bool { return seen.of("before") == 1 && seen.of("after") == 1 })
		w.change("before", 2)
		w.OK(w.Delete(w.Context(), w.widget("after", 0)))
		w.until("changes and deletes are", func() bool { return seen.of("before") == 2 && seen.of("after") == 2 })
		if seen.of("ignored") > 0 {
			w.Error("an object that the predicate ignores was reconciled")
		}
	})
}

func TestALateControllerGetsTheExistingObjects(t *testing.T) {
	onAll(t, func(w *world) {
		mgr, early, late := w.manager(), &tally{}, &tally{}
		w.OK(builder.ControllerManagedBy(mgr).Named("early").For(&api.Widget{}).Complete(early))
		w.create("w0", 1)
		w.start(mgr)
		w.create("w1", 1)
		w.until("the first has seen both", early.has("w0", "w1"))
		w.OK(builder.ControllerManagedBy(mgr).Named("late").For(&api.Widget{}).
			Watches(&api.Part{}, &handler.EnqueueRequestForObject{}).Complete(late))
		w.OK(w.Create(w.Context(), &api.Part{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}}))
		w.until("the second has too", func() bool { return late.of("w0") == 1 && late.of("w1") == 1 && late.of("p") == 1 })
	})
}
