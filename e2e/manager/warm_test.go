package manager_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/manager/api"
	"github.com/customcacheinformer/informer/informertest"
)

// TestAManagerIsToldWhatWasDeletedWhileNoneRan runs managers over a store that outlives them.
// Two controllers are told of the objects that were deleted while no manager ran, although
// these controllers register after the cache has synced.
func TestAManagerIsToldWhatWasDeletedWhileNoneRan(t *testing.T) {
	t.Parallel()
	store := informertest.NewDurable()
	w := newWorld(t, informer.ClientGo{Options: func(example runtime.Object) (informer.Options[informer.AnyObject], error) {
		if _, ok := example.(*api.Widget); !ok {
			return informer.Options[informer.AnyObject]{}, fmt.Errorf("there is no store for a %T", example)
		}
		return informer.Options[informer.AnyObject]{Durable: store}, nil
	}}.NewSharedIndexInformer)
	for i := range 3 {
		w.create(fmt.Sprint("w", i), i)
	}
	live := func() (controllers [2]*tally, stop func()) {
		mgr := w.manager()
		for i := range controllers {
			controllers[i] = &tally{}
			w.ok(builder.ControllerManagedBy(mgr).Named(fmt.Sprint("c", i)).For(&api.Widget{}).Complete(controllers[i]))
		}
		return controllers, w.start(mgr)
	}
	told := func(controllers [2]*tally, names ...string) func() bool {
		return func() bool {
			for _, c := range controllers {
				for _, name := range names {
					if c.of(name) == 0 {
						return false
					}
				}
			}
			return true
		}
	}
	controllers, stop := live()
	w.until("all are reconciled", told(controllers, "w0", "w1", "w2"))
	stop()
	w.ok(w.Delete(w.Context(), w.widget("w1", 0)))
	store = store.Reopen()

	controllers, stop = live()
	w.until("the controllers are told of existing and of deleted objects", told(controllers, "w0", "w1", "w2"))
	stop()
	if err := store.Err(); err != nil {
		t.Error(err)
	}
}
