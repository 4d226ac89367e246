package parity_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/informertest"
)

func TestSharedFitsInto(t *testing.T) {
	sharedCases{
		"a factory, with others": func(t *testing.T, s shared) {
			factory := informers.NewSharedInformerFactory(fake.NewClientset(&corev1.Secret{}), 10*time.Minute)
			calls := 0
			construct := func(_ kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
				calls++
				return s.make(two(), &corev1.ConfigMap{}, resync, byNamespace())
			}
			inf := factory.InformerFor(&corev1.ConfigMap{}, construct)
			if again := factory.InformerFor(&corev1.ConfigMap{}, construct); again != inf || calls != 1 {
				t.Errorf("the factory made %d informers", calls)
			}
			h := listen(t, inf)
			lister := factory.Core().V1().ConfigMaps().Lister() // a lister of the factory's informer for the type
			secrets := factory.Core().V1().Secrets().Informer()
			ctx, cancel := context.WithCancel(t.Context())
			factory.StartWithContext(ctx)
			must(t, factory.WaitForCacheSyncWithContext(ctx).AsError())
			checkSynced(t, true, inf, secrets)
			equal(t, "the handler has synced", cache.WaitFor(ctx, "", h.reg.HasSyncedChecker()), true)
			h.expect(t, "add a@1 initial", "add b@2 initial")
			if obj, err := lister.ConfigMaps("default").Get("a"); err != nil || obj != cached(t, inf, "a") {
				t.Errorf("the factory's lister has %v (%v)", obj, err)
			}
			sleepBubble(15 * time.Minute)
			h.expect(t, "resync a@1", "resync b@2")
			cancel()
			factory.Shutdown()
			checkStopped(t, inf, true)
		},
		"filtering handlers": func(t *testing.T, s shared) {
			src, inf := s.over(informertest.NewSource(object("a", "in"), object("b", "out")))
			var h heard
			handle(t, inf, cache.FilteringResourceEventHandler{
				FilterFunc: func(obj any) bool {
					if tomb, ok := obj.(cache.DeletedFinalStateUnknown); ok {
						obj = tomb.Obj
					}
					return obj.(configMap).Data["value"] == "in"
				},
				Handler: &h,
			})
			runShared(t, inf)
			change(t, src, "b=in", "a=out")
			h.expect(t, "add a@1 initial", "delete a@1", "add b@3")
			missing(t, src, "-b")
			h.expect(t, "tombstone b@3")
		},
		"handlers of functions": func(t *testing.T, s shared) {
			src, inf := s.over(two())
			var funcs, detailed heard
			handle(t, inf, cache.ResourceEventHandlerFuncs{
				AddFunc:    func(obj any) { funcs.OnAdd(obj, false) },
				UpdateFunc: funcs.OnUpdate,
				DeleteFunc: funcs.OnDelete,
			})
			handle(t, inf, cache.ResourceEventHandlerDetailedFuncs{
				AddFunc:    detailed.OnAdd,
				UpdateFunc: detailed.OnUpdate,
				DeleteFunc: detailed.OnDelete,
			})
			handle(t, inf, cache.ResourceEventHandlerFuncs{}) // a handler without functions
			runShared(t, inf)
			change(t, src, "a=2", "-b")
			funcs.expect(t, "add a@1", "add b@2", "update a@1->a@3", "delete b@4")
			detailed.expect(t, "add a@1 initial", "add b@2 initial", "update a@1->a@3", "delete b@4")
		},
		"all ways to add a handler": func(t *testing.T, s shared) {
			inf := s.new(one(), 10*time.Minute)
			var handlers [4]heard
			logger, half := klog.Background(), 30*time.Minute
			add := func(_ sharedRegistration, err error) {
				t.Helper()
				wantError(t, false, "add", err)
			}
			add(inf.AddEventHandler(&handlers[0]))
			add(inf.AddEventHandlerWithOptions(&handlers[1], cache.HandlerOptions{}))
			add(inf.AddEventHandlerWithResyncPeriod(&handlers[2], half))
			add(inf.AddEventHandlerWithOptions(&handlers[3], cache.HandlerOptions{Logger: &logger, ResyncPeriod: &half}))
			runShared(t, inf)
			for i := range handlers {
				handlers[i].expect(t, "add a@1 initial")
			}
			sleepBubble(10*hour + time.Second)
			for i, want := range []int{60, 60, 20, 20} {
				about(t, fmt.Sprint("handler ", i), want, handlers[i].resyncs(t))
			}
		},
	}.inBubbles(t)
}
