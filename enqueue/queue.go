package enqueue

import (
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// NewQueue returns a workqueue for keys of type K. A key that fails waits only because of its
// own failures: 5 ms at first, twice as long after each further failure in a row, and 1000 s
// at most. client-go's metrics of workqueues use name; if name is "", the queue has no
// metrics. [Run] uses name, too, unless Options.Name is set.
//
// workqueue.DefaultTypedControllerRateLimiter has the same waits, and in addition a bucket for
// all keys together: 100 retries, and 10 a second from then on. If many keys fail at once, a
// key that fails for the first time waits behind them. To get that limiter, or any other, make
// the queue with package workqueue.
//
// The queue must be shut down, or its goroutines stay; [Run] does that.
func NewQueue[K comparable](name string) workqueue.TypedRateLimitingInterface[K] {
	return named[K]{newQueue[K](name, nil, defaultBaseDelay, defaultMaxDelay), name}
}

// named is a queue that knows its name.
type named[K comparable] struct {
	workqueue.TypedRateLimitingInterface[K]
	name string
}

// These are the pauses between attempts, those of client-go's default rate limiter. It takes the
// longest Duration for no pause at all, so none is longer than a year.
const (
	defaultBaseDelay = 5 * time.Millisecond
	defaultMaxDelay  = 1000 * time.Second
	year             = 365 * 24 * time.Hour
)

// newQueue returns a queue that keeps the keys that are ready in keys, or in a slice of its own
// if keys is nil. A key that fails waits for base at first, and for most in the end.
func newQueue[K comparable](name string, keys workqueue.Queue[K], base, most time.Duration) workqueue.TypedRateLimitingInterface[K] {
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[K]{Name: name, Queue: keys})
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[K](base, most),
		workqueue.TypedRateLimitingQueueConfig[K]{
			Name:          name,
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{Name: name, Queue: queue}),
		},
	)
}

// fifoRoom is how many keys that are taken out may keep their memory, or half of all keys if
// that is more.
const fifoRoom = 1024

// fifo holds the keys of a workqueue that are ready, and knows since when. The workqueue adds no
// key twice, and calls the methods of workqueue.Queue while it holds its own lock.
type fifo[K comparable] struct {
	mu   sync.Mutex
	keys []K
	at   []time.Time // when each key came
	head int         // the keys before it are taken out
}

func (*fifo[K]) Touch(K) {}

func (f *fifo[K]) Push(key K) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys, f.at = append(f.keys, key), append(f.at, time.Now())
}

func (f *fifo[K]) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.keys) - f.head
}

func (f *fifo[K]) Pop() K {
	f.mu.Lock()
	defer f.mu.Unlock()
	var none K
	key := f.keys[f.head]
	f.keys[f.head] = none
	switch f.head++; {
	case f.head == len(f.keys):
		f.keys, f.at, f.head = f.keys[:0], f.at[:0], 0
	case f.head >= fifoRoom && f.head > len(f.keys)/2: // after a burst, its memory is not kept
		f.keys, f.at, f.head = slices.Clone(f.keys[f.head:]), slices.Clone(f.at[f.head:]), 0
	}
	return key
}

// oldest returns how many keys there are, and how long the oldest has been waiting.
func (f *fifo[K]) oldest() (n int, age time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n = len(f.keys) - f.head; n > 0 {
		age = time.Since(f.at[f.head])
	}
	return n, age
}
