package enqueue

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A cluster becomes slow at any moment, also between the two looks of the workqueue.
func TestWorkersTakeKeysWhileClustersBecomeSlow(t *testing.T) {
	keys := newFIFO(newShares[Key](4))
	q := newQueue("q", keys, time.Millisecond, time.Second)
	for i := range 20 {
		q.Add(Key{"east", types.NamespacedName{Name: fmt.Sprint(i)}})
	}
	calls := 20_000
	if testing.Short() {
		calls /= 10
	}
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			for i := range calls {
				key, down := q.Get()
				if down {
					t.Error("the queue is down")
					return
				}
				if (i+w)%3 == 0 {
					keys.noteSlow(key)
				}
				q.Add(key)
				q.Done(key)
			}
		})
	}
	workers.Wait()
	if n, _ := keys.oldest(); n != 20 {
		t.Errorf("%d of 20 keys are left", n)
	}
	q.ShutDown()
	for range 20 {
		if key, down := q.Get(); !down {
			q.Done(key)
		}
	}
	if _, down := q.Get(); !down {
		t.Error("the queue is not down")
	}
}
