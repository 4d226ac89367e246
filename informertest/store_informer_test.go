package informertest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

func TestAnInformerUsesAStoreRightlyHoweverItEnds(t *testing.T) {
	for name, queue := range map[string]informer.QueueKind{"DeltaFIFO": informer.QueueDeltaFIFO, "RealFIFO": informer.QueueRealFIFO} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := informertest.NewStore(nil)
				src := informertest.NewSource(configMap("o1", "first"), configMap("o2", "first"))
				inf := must(informer.NewFrom(src, informer.Options[*corev1.ConfigMap]{
					Queue: queue, Store: s, ErrorHandler: func(context.Context, error) {},
				}))
				var r informertest.Recorder[*corev1.ConfigMap]
				must(inf.AddWatcher(&r, informer.WatcherOptions{}))
				informertest.Run(t, inf)
				s.FailRandomly(1, 0.3)
				s.Delay(time.Millisecond)
				for i := range 500 {
					name := fmt.Sprint("o", i%23)
					if i%5 == 4 {
						_, _ = src.Delete(keyOf(name))
					} else {
						src.Apply(configMap(name, fmt.Sprint(i)))
					}
					if i%100 == 99 {
						release := s.Hang()
						src.Expire()
						time.Sleep(time.Minute)
						release()
					}
				}
				time.Sleep(24 * time.Hour)
				s.Heal()
				if err := errors.Join(r.Err(), s.Err()); err != nil {
					t.Error(err)
				}
				wantSame(t, "the store", src, s.List())
				wantView(t, src, &r)
			})
		})
	}
}
