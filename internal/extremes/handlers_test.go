package extremes_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/extremes"
)

type constructor = func(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer

// handlerTrials returns the trials of the resync periods of client-go's handlers, for each way to
// get a cache.SharedIndexInformer.
func handlerTrials() map[string]extremes.Trial {
	trials := map[string]extremes.Trial{}
	for name, construct := range map[string]constructor{
		"informer.ClientGo.NewSharedIndexInformer": informer.ClientGo{}.NewSharedIndexInformer,
		"informer.CustomCacheInformer.SharedIndexInformer": func(lw cache.ListerWatcher, _ runtime.Object, _ time.Duration, _ cache.Indexers) cache.SharedIndexInformer {
			inf, err := informer.NewFrom(lw, options{})
			if err != nil {
				panic(err)
			}
			return inf.SharedIndexInformer()
		},
	} {
		byPeriod := func(s cache.SharedIndexInformer, h cache.ResourceEventHandler, period time.Duration) (cache.ResourceEventHandlerRegistration, error) {
			return s.AddEventHandlerWithResyncPeriod(h, period)
		}
		byOptions := func(s cache.SharedIndexInformer, h cache.ResourceEventHandler, period time.Duration) (cache.ResourceEventHandlerRegistration, error) {
			return s.AddEventHandlerWithOptions(h, cache.HandlerOptions{ResyncPeriod: &period})
		}
		byDefault := func(s cache.SharedIndexInformer, h cache.ResourceEventHandler, _ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
			return s.AddEventHandler(h)
		}
		handled := func(add addHandler, resync func(period time.Duration) time.Duration) extremes.Trial {
			return extremes.Number("", inBubble(func(t *testing.T, period time.Duration) error {
				return isHandled(t, construct, add, resync(period), period)
			}))
		}
		minute := func(time.Duration) time.Duration { return time.Minute }
		trials[name+"().AddEventHandlerWithResyncPeriod(resyncPeriod)"] = handled(byPeriod, minute)
		trials[name+"().AddEventHandlerWithOptions(options).ResyncPeriod"] = handled(byOptions, minute)
		if name == "informer.ClientGo.NewSharedIndexInformer" {
			trials[name+"(resync)"] = handled(byDefault, func(period time.Duration) time.Duration { return period })
		}
	}
	return trials
}

type addHandler = func(s cache.SharedIndexInformer, h cache.ResourceEventHandler, period time.Duration) (cache.ResourceEventHandlerRegistration, error)

// isHandled checks that a handler with that resync period gets changes, and no resync.
func isHandled(t *testing.T, construct constructor, add addHandler, resync, period time.Duration) error {
	src := informertest.NewSource(object("a", "1"))
	s := construct(src, &corev1.ConfigMap{}, resync, cache.Indexers{})
	var got []string
	handle, err := add(s, cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { got = append(got, "added "+obj.(configMap).Data["value"]) },
		UpdateFunc: func(_, obj any) { got = append(got, "updated "+obj.(configMap).Data["value"]) },
	}, period)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.RunWithContext(ctx) }()
	want := []string{"added 1"}
	for n := range 3 {
		time.Sleep(hour)
		src.Apply(object("a", fmt.Sprint("v", n)))
		want = append(want, fmt.Sprint("updated v", n))
	}
	synctest.Wait()
	if !handle.HasSynced() || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("has synced: %v, and got %v, want %v", handle.HasSynced(), got, want)
	}
	cancel()
	<-done
	return nil
}
