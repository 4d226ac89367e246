package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/customcacheinformer/informer/e2e/manager/api"
)

// progress knows which generation of every object each controller has reached. It does not
// rely on the number of calls, because queues merge keys that wait to be reconciled.
type progress struct {
	reached  [][]atomic.Int64 // generations by controller and object
	missing  atomic.Int64     // how many of these are still zero
	complete chan struct{}    // closed when none is missing
	calls    atomic.Int64
}

func newProgress(w work) *progress {
	p := &progress{reached: make([][]atomic.Int64, w.Controllers), complete: make(chan struct{})}
	for c := range p.reached {
		p.reached[c] = make([]atomic.Int64, w.Objects)
	}
	p.missing.Store(int64(w.Controllers) * int64(w.Objects))
	return p
}

// note records that a controller has seen an object.
func (p *progress) note(controller int, obj *api.Widget) {
	p.calls.Add(1)
	number, err := strconv.Atoi(strings.TrimPrefix(obj.Name, namePrefix))
	if err != nil || number >= len(p.reached[controller]) {
		return
	}
	if p.reached[controller][number].Swap(obj.Generation) == 0 && p.missing.Add(-1) == 0 {
		close(p.complete)
	}
}

// reachedAll reports whether every controller has reached these generations.
func (p *progress) reachedAll(generations map[int]int64) bool {
	for c := range p.reached {
		for object, generation := range generations {
			if p.reached[c][object].Load() < generation {
				return false
			}
		}
	}
	return true
}

// addController adds a controller whose reconciler reads the object from the cache.
func (p *progress) addController(mgr manager.Manager, n int) error {
	c := mgr.GetClient()
	return builder.ControllerManagedBy(mgr).Named(fmt.Sprint("controller-", n)).For(&api.Widget{}).Complete(reconcile.Func(
		func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			obj := &api.Widget{}
			if err := c.Get(ctx, r.NamespacedName, obj); err != nil {
				return reconcile.Result{}, err
			}
			p.note(n, obj)
			return reconcile.Result{}, nil
		}))
}

// addHandler adds the event handler that a controller has, without queue and worker.
func (p *progress) addHandler(mgr manager.Manager, n int) error {
	inf, err := mgr.GetCache().GetInformer(context.Background(), &api.Widget{})
	if err != nil {
		return err
	}
	_, err = inf.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { p.note(n, obj.(*api.Widget)) },
		UpdateFunc: func(_, obj any) { p.note(n, obj.(*api.Widget)) },
	})
	return err
}
