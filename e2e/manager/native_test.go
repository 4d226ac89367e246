package manager_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/controllerruntime"
	"github.com/customcacheinformer/informer/e2e/internal/stage"
	"github.com/customcacheinformer/informer/e2e/manager/api"
)

// TestADeleteIsReadAlsoIfAnotherObjectHasItsName leaves client-go's informer out: with it, the
// read at the end would wait forever. client-go reports such an object as an update, and
// controller-runtime cannot see from an update that the object it deleted is gone.
func TestADeleteIsReadAlsoIfAnotherObjectHasItsName(t *testing.T) {
	t.Parallel()
	for _, side := range sides[1:] {
		t.Run(side.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, side.new)
			proxy, err := server.Proxy()
			w.OK(err)
			t.Cleanup(proxy.Close)
			mgr := w.managerAt(proxy.Config(), consistent, func(o *manager.Options) {
				o.NewClient = func(_ *rest.Config, options client.Options) (client.Client, error) {
					options.HTTPClient = nil // the manager's HTTP client goes through the proxy too
					return client.New(server.Config(), options)
				}
			})
			w.start(mgr)
			ctx, stop := context.WithTimeout(t.Context(), stage.Patience)
			defer stop()
			obj := w.widget("w", 1)
			w.OK(mgr.GetClient().Create(ctx, obj))
			w.OK(mgr.GetClient().Get(ctx, key("w"), obj))

			proxy.Refuse()
			w.OK(mgr.GetClient().Delete(ctx, obj))
			w.create("w", 2)
			w.OK(server.Expire(ctx, w.group.WithResource("widgets")))
			w.OK(proxy.Allow())

			w.OK(mgr.GetClient().Get(ctx, key("w"), obj))
			if obj.Spec.Size != 2 {
				t.Errorf("the size is %d, want that of the new object", obj.Spec.Size)
			}
		})
	}
}

func TestEachKindHasOptionsOfItsOwn(t *testing.T) {
	w := aWorld(t)
	reported := make(chan error, 100)
	w.new = informer.ClientGo{Options: func(example runtime.Object) (opts informer.Options[informer.AnyObject], err error) {
		opts.ErrorHandler = func(_ context.Context, err error) { reported <- err }
		if _, ok := example.(*api.Part); ok {
			return opts, errors.New("no parts here")
		}
		opts.Queue = informer.QueueRealFIFO
		opts.Transform = func(obj informer.AnyObject) (informer.AnyObject, error) {
			obj.(*api.Widget).Spec.Notes = "by the options"
			return obj, nil
		}
		return opts, nil
	}}.NewSharedIndexInformer
	mgr := w.manager()
	w.create("w", 1)
	w.start(mgr)
	if got := w.cached(mgr.GetClient(), key("w"), 1).Spec.Notes; got != "by the options" {
		t.Errorf("the notes are %q, want those of the options' Transform", got)
	}
	parts, err := mgr.GetCache().GetInformer(t.Context(), &api.Part{}, cache.BlockUntilSynced(false))
	w.OK(err)
	if err := <-reported; !strings.Contains(err.Error(), "no parts here") {
		t.Errorf("reported: %v, want the error that configure returned", err)
	}
	if parts.HasSynced() {
		t.Error("the informer whose options failed has synced")
	}
}

func TestAnInformerOfOnesOwnDrivesAController(t *testing.T) {
	w := aWorld(t)
	widgets, err := informer.NewFrom(controllerruntime.ListWatch(w.WithWatch, &api.WidgetList{}), informer.Options[*api.Widget]{})
	w.OK(err)
	told := make(chan informer.Event[*api.Widget], 100)
	_, err = widgets.AddWatcher(informer.WatcherFunc[*api.Widget](func(_ context.Context, e informer.Event[*api.Widget]) error {
		told <- e
		return nil
	}), informer.WatcherOptions{})
	w.OK(err)
	mgr, seen := w.manager(), &tally{}
	w.OK(mgr.Add(controllerruntime.Runnable(widgets)))
	src := &source.Informer{Informer: widgets.SharedIndexInformer(), Handler: &handler.EnqueueRequestForObject{}}
	w.OK(builder.ControllerManagedBy(mgr).Named("own").WatchesRawSource(controllerruntime.Synced(src, widgets)).Complete(seen))
	w.create("w", 1)
	w.start(mgr)
	w.until("the first state is reconciled", func() bool { return seen.of("w") == 1 })
	w.change("w", 2)
	w.until("a change is", func() bool { return seen.of("w") == 2 })
	w.OK(w.Delete(t.Context(), w.widget("w", 0)))
	w.until("a delete is", func() bool { return seen.of("w") == 3 })
	for _, want := range []informer.EventType{informer.EventAdded, informer.EventUpdated, informer.EventDeleted} {
		if e := <-told; e.Type != want {
			t.Errorf("the watcher got %v, want %v", e.Type, want)
		}
	}
}
