package enqueue

import (
	"time"

	"k8s.io/client-go/util/workqueue"
)

// NewQueue returns a workqueue for keys of type K. A key that fails waits only because of its
// own failures: 5 ms at first, twice as long after each further failure in a row, and 1000 s
// at most. client-go's metrics of workqueues use name; if name is "", the queue has no
// metrics.
//
// workqueue.DefaultTypedControllerRateLimiter has the same waits, and in addition a bucket for
// all keys together: 100 retries, and 10 a second from then on. If many keys fail at once, a
// key that fails for the first time waits behind them. To get that limiter, or any other, make
// the queue with package workqueue.
//
// The queue must be shut down, or its goroutines stay; [Run] does that.
func NewQueue[K comparable](name string) workqueue.TypedRateLimitingInterface[K] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[K](5*time.Millisecond, 1000*time.Second),
		workqueue.TypedRateLimitingQueueConfig[K]{Name: name},
	)
}
