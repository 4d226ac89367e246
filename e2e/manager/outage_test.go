package manager_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/debug"
	"github.com/customcacheinformer/informer/e2e/internal/stage"
	"github.com/customcacheinformer/informer/e2e/manager/api"
)

func TestAManagerOutlivesAnOutage(t *testing.T) {
	onAll(t, func(w *world) {
		proxy, err := server.Proxy()
		w.OK(err)
		w.Cleanup(proxy.Close)
		mgr := w.managerAt(proxy.Config())
		w.create("changed", 1)
		w.create("deleted", 1)
		w.create("replaced", 1)
		inf, err := mgr.GetCache().GetInformer(w.Context(), &api.Widget{})
		w.OK(err)
		d, seen := &diary{}, &tally{}
		_, err = inf.AddEventHandler(d)
		w.OK(err)
		w.OK(builder.ControllerManagedBy(mgr).Named("outage").For(&api.Widget{}).Complete(seen))
		w.start(mgr)
		w.until("all are known", d.has("add changed 1 true", "add deleted 1 true", "add replaced 1 true"))
		w.until("all are reconciled", seen.has("changed", "deleted", "replaced"))

		proxy.Refuse()
		w.change("changed", 2)
		for _, name := range []string{"deleted", "replaced"} {
			w.OK(w.Delete(w.Context(), w.widget(name, 0)))
		}
		w.create("replaced", 2)
		w.create("new", 2)
		w.OK(server.Expire(w.Context(), w.group.WithResource("widgets")))
		w.OK(proxy.Allow())

		w.until("all missed changes are delivered", d.has("update changed 1 2", "add new 2 false"))
		w.until("deletes too", func() bool { return d.has("delete deleted 1")() || d.has("lost deleted 1")() })
		w.until("another object of a name too", func() bool {
			return d.has("update replaced 1 2")() || (d.has("delete replaced 1")() || d.has("lost replaced 1")()) && d.has("add replaced 2 false")()
		})
		w.until("and reconciled", func() bool {
			return seen.of("changed") > 1 && seen.of("deleted") > 1 && seen.of("replaced") > 1 && seen.of("new") > 0
		})
		d.mu.Lock()
		defer d.mu.Unlock()
		w.Logf("%q", d.lines)
	})
}

// TestAManagerThatCannotMakeItsInformersIsNotTakenForHealthy has a manager whose discovery
// fails. It then makes no informer, and keeps trying, while its own check of the cache reports that
// all has synced.
func TestAManagerThatCannotMakeItsInformersIsNotTakenForHealthy(t *testing.T) {
	t.Parallel()
	var group informer.Group
	w := newWorld(t, informer.ClientGo{Group: &group}.NewSharedIndexInformer)
	discovery := &failingMapper{RESTMapper: api.Mapper(w.group), asked: make(chan struct{})}
	discovery.down.Store(true)
	mgr := w.manager(func(o *manager.Options) {
		o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return discovery, nil }
	})
	seen := &tally{}
	w.OK(builder.ControllerManagedBy(mgr).Named("undiscovered").For(&api.Widget{}).Complete(seen))
	w.create("w", 1)
	w.start(mgr) // which returns: there is no informer that the manager could wait for
	<-discovery.asked
	page := debug.Handler(group.Health)
	shows := func() string {
		answer := httptest.NewRecorder()
		page.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
		return answer.Body.String()
	}
	if err := group.Ready(); err == nil || !strings.Contains(err.Error(), "no informers yet") {
		w.Errorf("without any informer, Ready: %v", err)
	}
	if page := shows(); !strings.Contains(page, "No informers: none was made yet") || strings.Contains(page, "All is well") {
		w.Errorf("without any informer, the page is\n%s", page)
	}

	discovery.down.Store(false)
	w.until("the object is reconciled", seen.has("w"))
	w.eventually("the group is ready", group.Ready)
	if page := shows(); !strings.Contains(page, "All is well: ") || !strings.Contains(page, ">1 informer</a>, ") || !strings.Contains(page, ">1 watcher</a>.") {
		w.Errorf("when the informer is there, the page is\n%s", page)
	}
}

// failingMapper is a mapper that discovers nothing while the API server is down.
type failingMapper struct {
	meta.RESTMapper
	down  atomic.Bool
	once  sync.Once
	asked chan struct{} // closed when it has failed
}

func (m *failingMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if m.down.Load() {
		defer m.once.Do(func() { close(m.asked) })
		return nil, fmt.Errorf("failed to get API group resources: %w", syscall.ECONNREFUSED)
	}
	return m.RESTMapper.RESTMapping(kind, versions...)
}

func TestTheWatchErrorHandlerGetsTheErrorOfAnUnservedKind(t *testing.T) {
	onAll(t, func(w *world) {
		group := schema.GroupVersion{Group: "none." + w.group.Group, Version: "v1"}
		told := make(chan error, 1)
		c, err := cache.New(server.Config(), cache.Options{
			Scheme: api.Scheme(group), Mapper: api.Mapper(group), NewInformer: w.new,
			DefaultWatchErrorHandler: func(_ context.Context, _ *toolscache.Reflector, err error) {
				select {
				case told <- err:
				default:
				}
			},
		})
		w.OK(err)
		inf, err := c.GetInformer(w.Context(), &api.Widget{})
		w.OK(err)
		ctx, stop := context.WithCancel(w.Context())
		var running sync.WaitGroup
		running.Go(func() { w.OK(c.Start(ctx)) })
		select {
		case err := <-told:
			if !apierrors.IsNotFound(err) {
				w.Errorf("the handler got %v, want a not-found error", err)
			}
		case <-time.After(stage.Patience):
			w.Error("the handler was not called")
		}
		if inf.HasSynced() {
			w.Error("the informer has synced although the kind is not served")
		}
		stop()
		running.Wait()
	})
}

// TestAStoppedManagerLeavesNothingRunning is not parallel, so that all goroutines are its own
// or the server's.
func TestAStoppedManagerLeavesNothingRunning(t *testing.T) {
	for _, side := range sides {
		t.Run(side.name, func(t *testing.T) {
			w := newWorld(t, side.new)
			w.create("w", 1)
			before := informersRunning()
			mgr, seen := w.manager(), &tally{}
			w.OK(builder.ControllerManagedBy(mgr).For(&api.Widget{}).Owns(&api.Part{}).Complete(seen))
			stop := w.start(mgr)
			w.until("it is at work", seen.has("w"))
			if during := informersRunning(); during <= before {
				w.Errorf("%d goroutines of informers, %d before the manager ran: this test does not see them", during, before)
			}
			stop()
			w.until("its goroutines have returned", func() bool { return informersRunning() <= before })
		})
	}
}

// informersRunning counts the goroutines of informers. The API server has some too, but their
// number does not change.
func informersRunning() (n int) {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(stack, "k8s.io/client-go/tools/cache.") || strings.Contains(stack, "customcacheinformer/informer.") {
			n++
		}
	}
	return n
}
