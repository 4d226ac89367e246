package enqueue

import (
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// These are the pauses between attempts. The defaults are those of client-go's default rate limiter. No
// pause is longer than a year, because the limiter treats the longest Duration as no pause at all.
const (
	defaultBaseDelay = 5 * time.Millisecond
	defaultMaxDelay  = 1000 * time.Second
	year             = 365 * 24 * time.Hour
)

// newQueue returns a queue that keeps the keys that are ready in keys. The first pause of a key that
// fails is base, and the longest is most. Unlike with client-go's default, a key does not wait because
// others fail.
func newQueue[K comparable](name string, keys *fifo[K], base, most time.Duration) *planned[K] {
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[K]{Name: name, Queue: keys})
	return &planned[K]{
		ready:                  keys,
		TypedDelayingInterface: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{Name: name, Queue: queue}),
		failures:               workqueue.NewTypedItemExponentialFailureRateLimiter[K](base, most),
		soon:                   workqueue.NewTypedItemExponentialFailureRateLimiter[K](base, most),
		plans:                  map[K]*plan{},
	}
}

// planned is a queue in which a call can replace the time that an earlier call has set for its key.
// AddAfter of client-go always keeps the earliest time.
type planned[K comparable] struct {
	workqueue.TypedDelayingInterface[K]
	ready    *fifo[K]                      // the keys that no worker has
	failures workqueue.TypedRateLimiter[K] // sets the pauses after failures
	soon     workqueue.TypedRateLimiter[K] // sets the pauses of keys whose calls ask for another call at once, again and again

	mu     sync.Mutex // protects the rest
	plans  map[K]*plan
	firing sync.WaitGroup // the timers that have not been stopped
	down   bool           // no plan is made any more
}

// plan is the time for which a key waits.
type plan struct {
	timer *time.Timer
	at    time.Time
}

// Done marks a key from Get as done, so that a worker may take it again.
func (q *planned[K]) Done(key K) {
	q.ready.done(key)
	q.TypedDelayingInterface.Done(key)
}

// Get blocks until there is a key that a worker may take, and returns the key. After a shutdown it returns
// the keys that are left. Once none is left, shutdown is true.
func (q *planned[K]) Get() (key K, shutdown bool) {
	q.ready.reserve()
	return q.TypedDelayingInterface.Get()
}

// plan adds key after a time. It replaces an earlier plan for the key.
func (q *planned[K]) plan(key K, after time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dropLocked(key)
	switch {
	case q.down:
		return
	case after <= 0:
		q.AddAfter(key, 0) // and not Add, so that client-go counts a retry
		return
	}
	p := &plan{at: time.Now().Add(after)}
	q.plans[key] = p
	q.firing.Add(1)
	p.timer = time.AfterFunc(after, func() {
		defer q.firing.Done()
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.plans[key] == p {
			delete(q.plans, key)
			q.AddAfter(key, 0)
		}
	})
}

func (q *planned[K]) forget(key K) {
	q.failures.Forget(key)
	q.soon.Forget(key)
	q.drop(key)
}

func (q *planned[K]) drop(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dropLocked(key)
}

func (q *planned[K]) dropLocked(key K) {
	if p := q.plans[key]; p != nil {
		delete(q.plans, key)
		if p.timer.Stop() {
			q.firing.Done()
		}
	}
}

// next returns when the pause of key ends, or the zero time if key has none. q may be nil.
func (q *planned[K]) next(key K) time.Time {
	if q == nil {
		return time.Time{}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if p := q.plans[key]; p != nil {
		return p.at.Round(0)
	}
	return time.Time{}
}

// waiting returns how many keys wait for their time. Before that, it adds the keys that are foreign to
// the queue, where a worker drops them. foreign may be nil.
func (q *planned[K]) waiting(foreign func(K) bool) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key := range q.plans {
		if foreign != nil && foreign(key) {
			q.dropLocked(key)
			q.Add(key)
		}
	}
	return len(q.plans)
}

// ShutDown cancels all pauses and shuts down the queue. Keys that wait for a pause to end are dropped.
func (q *planned[K]) ShutDown() {
	q.mu.Lock()
	q.down = true
	for key := range q.plans {
		q.dropLocked(key)
	}
	q.mu.Unlock()
	q.firing.Wait()
	q.TypedDelayingInterface.ShutDown()
	q.ready.shutDown()
}

// fifoRoom is how many keys that are taken out may keep their memory. If half of all keys is more, that
// is the limit.
const fifoRoom = 1024

// fifo holds the ready keys of a workqueue, with the time at which each became ready. The workqueue adds no
// key twice, and calls the methods of workqueue.Queue while it holds its own lock.
type fifo[K comparable] struct {
	mu   sync.Mutex
	keys []K
	at   []time.Time // when each key came
	head int         // the keys before it are taken out

	// If the keys have clusters, shares holds them. The workqueue first asks for the length and then
	// takes a key, but which keys a worker may take can change in between. So a worker first reserves a
	// key, and the workqueue sees only reserved keys.
	shares   *shares[K] // nil if the keys have no clusters
	reserved []K
	down     bool
	changed  *sync.Cond // of mu; when reserve may continue
}

// newFIFO returns an empty fifo. shares is nil if the keys have no clusters.
func newFIFO[K comparable](shares *shares[K]) *fifo[K] {
	f := &fifo[K]{shares: shares}
	f.changed = sync.NewCond(&f.mu)
	return f
}

func (*fifo[K]) Touch(K) {}

// reserve blocks until a worker may take a key of a cluster, and reserves the key. After the shutdown, it
// returns when no key is left.
func (f *fifo[K]) reserve() {
	if f.shares == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.shares.count() == 0 {
		if n, _ := f.shares.oldest(); f.down && n == 0 {
			return
		}
		f.changed.Wait()
	}
	f.reserved = append(f.reserved, f.shares.pop())
}

// shutDown wakes the workers that wait for a key.
func (f *fifo[K]) shutDown() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = true
	f.changed.Broadcast()
}

func (f *fifo[K]) Push(key K) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shares != nil {
		f.shares.push(key, time.Now())
		f.changed.Signal()
		return
	}
	f.keys, f.at = append(f.keys, key), append(f.at, time.Now())
}

// done notes that a worker has finished with a key.
func (f *fifo[K]) done(key K) {
	if f.shares == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shares.done(key)
	f.changed.Broadcast()
}

// isSlow reports whether the last call in the cluster of key was slow.
func (f *fifo[K]) isSlow(key K) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shares.of(key).slow
}

// mayTake reports whether a worker could take a key. Keys without clusters may always be taken.
func (f *fifo[K]) mayTake() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shares != nil {
		return f.shares.count() > 0
	}
	return len(f.keys) > f.head
}

// noteSlow notes that the call for a key lasts longer than patience.
func (f *fifo[K]) noteSlow(key K) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shares.noteSlow(key)
}

func (f *fifo[K]) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shares != nil {
		return len(f.reserved)
	}
	return len(f.keys) - f.head
}

func (f *fifo[K]) Pop() K {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shares != nil {
		key := f.reserved[0]
		f.reserved = f.reserved[1:]
		return key
	}
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
	var at time.Time
	if f.shares != nil {
		n, at = f.shares.oldest()
	} else if n = len(f.keys) - f.head; n > 0 {
		at = f.at[f.head]
	}
	if n > 0 {
		age = time.Since(at)
	}
	return n, age
}
