package enqueue

import (
	"time"

	"k8s.io/client-go/util/workqueue"
)

// NewQueue returns a workqueue for keys of type K, in which each key that fails waits for
// itself alone: 5 ms at first, twice as long after each failure in a row, and 1000 s at
// most. client-go's metrics of workqueues have it under name; with "" it has none.
//
// workqueue.DefaultTypedControllerRateLimiter has the same waits, and beside them a
// bucket for all keys together, of 100 retries and 10 a second from then on: when many
// fail at once, what fails for the first time waits behind them. To have that, or any
// other limiter, make the queue with package workqueue.
//
// The queue must be shut down, or its goroutines stay; [Run] does that.
func NewQueue[K comparable](name string) workqueue.TypedRateLimitingInterface[K] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[K](5*time.Millisecond, 1000*time.Second),
		workqueue.TypedRateLimitingQueueConfig[K]{Name: name},
	)
}
