package manager_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/customcacheinformer/informer/e2e/internal/stage"
	"github.com/customcacheinformer/informer/e2e/manager/api"
)

// diary is an event handler that writes down its calls.
type diary struct {
	mu    sync.Mutex // protects lines
	lines []string
}

func (d *diary) write(line string, parts ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(line, parts...))
}

func (d *diary) OnAdd(obj any, initial bool) {
	o := obj.(*api.Widget)
	d.write("add %s %d %t", o.Name, o.Spec.Size, initial)
}

func (d *diary) OnUpdate(before, after any) {
	o, n := before.(*api.Widget), after.(*api.Widget)
	if o.ResourceVersion == n.ResourceVersion {
		d.write("resync %s %d", n.Name, n.Spec.Size)
		return
	}
	d.write("update %s %d %d", n.Name, o.Spec.Size, n.Spec.Size)
}

func (d *diary) OnDelete(obj any) {
	switch o := obj.(type) {
	case *api.Widget:
		d.write("delete %s %d", o.Name, o.Spec.Size)
	case toolscache.DeletedFinalStateUnknown:
		d.write("lost %s %d", o.Obj.(*api.Widget).Name, o.Obj.(*api.Widget).Spec.Size)
	}
}

func (d *diary) has(lines ...string) func() bool {
	return func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, line := range lines {
			if !slices.Contains(d.lines, line) {
				return false
			}
		}
		return true
	}
}

// is returns a function that reports whether these are all lines, in this order.
func (d *diary) is(lines ...string) func() bool {
	return func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return slices.Equal(d.lines, lines)
	}
}

func TestHandlersComeAndGo(t *testing.T) {
	onAll(t, func(w *world) {
		mgr := w.manager()
		w.create("old", 1)
		inf, err := mgr.GetCache().GetInformer(w.Context(), &api.Widget{})
		w.OK(err)
		early, late := &diary{}, &diary{}
		first, err := inf.AddEventHandler(early)
		w.OK(err)
		if first.HasSynced() || inf.HasSynced() {
			w.Error("a handler or the informer has synced before the manager started")
		}
		stop := w.start(mgr)
		w.until("the handler has synced", first.HasSynced)
		select {
		case <-first.HasSyncedChecker().Done():
		case <-time.After(stage.Patience):
			w.Error("the handler has synced, but its checker is not done")
		}
		w.create("new", 1)
		w.until("it gets each", early.is("add old 1 true", "add new 1 false"))

		second, err := inf.AddEventHandler(late)
		w.OK(err)
		w.until("the late handler has synced", second.HasSynced)
		w.until("it gets both as initial", late.has("add old 1 true", "add new 1 true"))
		w.change("old", 2)
		w.until("both get the change", func() bool { return early.has("update old 1 2")() && late.has("update old 1 2")() })

		w.OK(inf.RemoveEventHandler(first))
		w.OK(inf.RemoveEventHandler(first)) // the second call makes no difference
		w.change("old", 3)
		w.OK(w.Delete(w.Context(), w.widget("new", 0)))
		w.until("the late one gets the rest", late.has("update old 2 3", "delete new 1"))
		if !early.is("add old 1 true", "add new 1 false", "update old 1 2")() {
			w.Errorf("the removed handler has %q", early.lines)
		}
		if inf.IsStopped() {
			w.Error("the informer reports that it has stopped while it runs")
		}
		stop()
		if !inf.IsStopped() {
			w.Error("the informer reports that it runs after the manager has stopped")
		}
		if _, err := inf.AddEventHandler(early); err == nil {
			w.Error("a stopped informer accepts a handler")
		}
	})
}

func TestResyncTellsOfEveryObjectAgain(t *testing.T) {
	onAll(t, func(w *world) {
		mgr := w.manager(func(o *manager.Options) {
			o.Cache.ByObject = map[client.Object]cache.ByObject{&api.Widget{}: {SyncPeriod: ptr.To(time.Second)}}
		})
		w.create("a", 1)
		w.create("b", 2)
		inf, err := mgr.GetCache().GetInformer(w.Context(), &api.Widget{})
		w.OK(err)
		d := &diary{}
		_, err = inf.AddEventHandler(d)
		w.OK(err)
		w.start(mgr)
		w.until("a resync is delivered", d.has("add a 1 true", "add b 2 true", "resync a 1", "resync b 2"))
		w.change("a", 3)
		w.until("one of the new state has", d.has("update a 1 3", "resync a 3"))
	})
}
