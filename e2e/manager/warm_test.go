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

// TestAManagerGetsTheDeletesOfTheTimeBeforeItsStart runs managers over a store that outlives them.
// Two controllers get the deletes of the objects that were deleted while no manager ran, although
// these controllers register after the cache has synced.
func TestAManagerGetsTheDeletesOfTheTimeBeforeItsStart(t *testing.T) {
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
	live := func() {
		mgr := w.manager()
		var controllers [2]tally
		for i := range controllers {
			w.OK(builder.ControllerManagedBy(mgr).Named(fmt.Sprint("c", i)).For(&api.Widget{}).Complete(&controllers[i]))
		}
		stop := w.start(mgr)
		for i := range controllers {
			w.until("a controller gets all objects", controllers[i].has("w0", "w1", "w2"))
		}
		stop()
	}
	live()
	w.OK(w.Delete(w.Context(), w.widget("w1", 0)))
	store = store.Reopen()
	live()
	w.OK(store.Err())
}
