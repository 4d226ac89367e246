package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/customcacheinformer/informer/e2e/manager/api"
	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/lab"
)

// progress knows which generation of every object each controller has reached. It does not
// rely on the number of calls, because queues merge keys that wait to be reconciled.
type progress struct {
	reached  [][]atomic.Int64 // generations by controller and object
	missing  atomic.Int64     // how many of these are still zero
	complete chan struct{}    // closed when none is missing
	calls    atomic.Int64

	mu   sync.Mutex
	took []float64 // the seconds from the write of each update until each controller had it
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
	switch before := p.reached[controller][number].Swap(obj.Generation); {
	case before == 0 && p.missing.Add(-1) == 0:
		close(p.complete)
	case before > 0 && before < obj.Generation:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.took = append(p.took, time.Since(time.Unix(0, int64(obj.Spec.Size))).Seconds())
	}
}

// late returns the median and the 99th percentile of the times that updates took to arrive, and 0 if there were none.
func (p *progress) late() (median, p99 float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.took) == 0 {
		return 0, 0
	}
	late := lab.Quantiles(p.took, 0.5, 0.99)
	return late[0], late[1]
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

// addController adds a controller whose reconciler reads the object from the cache. If it lists, it reads all objects
// after each update.
func (m *measured) addController(mgr manager.Manager, n int) error {
	c := mgr.GetClient()
	return builder.ControllerManagedBy(mgr).Named(fmt.Sprint("controller-", n)).For(&api.Widget{}).Complete(reconcile.Func(
		func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			obj := &api.Widget{}
			if err := c.Get(ctx, r.NamespacedName, obj); err != nil {
				return reconcile.Result{}, err
			}
			m.note(n, obj)
			if m.List && channel.Closed(m.complete) {
				return reconcile.Result{}, c.List(ctx, &api.WidgetList{}, client.UnsafeDisableDeepCopy)
			}
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
