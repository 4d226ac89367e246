package manager_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/controllerruntime"
	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/manager/api"
	"github.com/customcacheinformer/informer/enqueue"
)

// installLeases gives the server the Leases that managers are elected with.
var installLeases = sync.OnceValue(func() error {
	_, err := server.Install(context.Background(), apiserver.Kind{GroupVersionKind: schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}})
	return err
})

// replica is a manager with a group that has an informer and a controller.
type replica struct {
	tally      // of the calls of the controller
	group      *informer.Group
	widgets    *informer.CustomCacheInformer[*api.Widget]
	controller *enqueue.Controller[types.NamespacedName]
	elected    <-chan struct{}
	stop       func()
}

func (w *world) replica(name string, release bool) *replica {
	w.Helper()
	w.OK(installLeases())
	config := server.Config()
	config.ContentType = runtime.ContentTypeJSON // see apiserver.Server.Install
	leases, err := coordinationv1.NewForConfig(config)
	w.OK(err)
	mgr := w.manager(func(o *manager.Options) {
		o.LeaderElection, o.LeaderElectionReleaseOnCancel = true, release
		// The manager's own lock would record events, which this server does not have.
		o.LeaderElectionResourceLockInterface = &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: w.group.Group},
			Client:     leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: name},
		}
		lease, deadline, retry := 10*time.Second, 8*time.Second, 100*time.Millisecond
		o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = &lease, &deadline, &retry
	})
	r := &replica{group: &informer.Group{}, elected: mgr.Elected()}
	r.widgets, err = informer.NewFrom(controllerruntime.ListWatch(w.WithWatch, &api.WidgetList{}), informer.Options[*api.Widget]{})
	w.OK(err)
	r.controller, err = enqueue.NewController(func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
		_, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: key})
		return 0, err
	}, enqueue.Options{Name: "widget", Elected: mgr.Elected()}, enqueue.For(r.widgets))
	w.OK(err)
	w.OK(errors.Join(r.group.Add(r.widgets), r.group.Add(r.controller)))
	w.OK(mgr.Add(controllerruntime.Runnable(r.group)))
	r.stop = w.start(mgr)
	w.OK(r.group.WaitForSync(w.Context()))
	return r
}

func (r *replica) have(w *world, objects int) {
	w.Helper()
	w.until(fmt.Sprintf("the informer has %d objects", objects), func() bool { return r.widgets.Health().Objects == objects })
}

// Each manager has a warm cache. The controller of its group works while it is the leader, and
// the next leader reconciles each object and each delete.
func TestAGroupOfTheNextLeaderReconcilesEverything(t *testing.T) {
	t.Parallel()
	for _, release := range []bool{true, false} {
		t.Run(fmt.Sprint("the lease is released ", release), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, informer.ClientGo{}.NewSharedIndexInformer)
			for i := range 4 {
				w.create(fmt.Sprint("w", i), i)
			}
			first := w.replica("first", release)
			w.until("the first has reconciled all", func() bool {
				return first.of("w0") == 1 && first.of("w1") == 1 && first.of("w2") == 1 && first.of("w3") == 1
			})
			second := w.replica("second", release)
			second.have(w, 4)
			w.OK(second.group.Ready())
			w.OK(w.Delete(w.Context(), w.widget("w0", 0)))
			w.until("the first has reconciled the delete", func() bool { return first.of("w0") == 2 })
			second.have(w, 3)
			if h := second.controller.Health(); !h.Standby || h.Succeeded+h.Busy > 0 {
				t.Errorf("the second is not on standby: %+v", h)
			}

			first.stop()
			w.OK(w.Delete(w.Context(), w.widget("w1", 0)))
			w.create("w4", 4)
			<-second.elected
			w.until("the second has reconciled everything", second.has("w0", "w1", "w2", "w3", "w4"))
			if h := second.controller.Health(); h.Standby || h.Dropped > 0 {
				t.Errorf("the second is on standby, or has dropped deletes: %+v", h)
			}
			second.have(w, 3)
			if n := first.of("w4"); n > 0 {
				t.Errorf("the first has reconciled %d times after its end", n)
			}
		})
	}
}
