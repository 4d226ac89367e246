package informer

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/stopwatch"
)

// syncedKey has a worker call OnSynced. No object has it.
const syncedKey = ""

// maxWait is more than a program runs, and little enough to be added to a time.
const maxWait = 100 * 365 * 24 * time.Hour

// crew calls a watcher for several objects at once, never twice at a time for one
// of them, and again after it has failed. What waits is merged by object, what
// came after a failure with the event that failed. client-go's workqueue says
// which object is next, and when one is to be tried again.
type crew[T Object] struct {
	listener *informerProcessorListener[T]
	queue    workqueue.TypedDelayingInterface[string]

	mu       sync.Mutex // protects the rest
	waiting  *merged[T]
	busy     map[string]*entry[T] // in a worker's hands: in waiting.order, not in waiting.byKey
	marked   bool                 // the synced marker has come
	initial  int                  // entries from before it that were not attempted yet
	draining bool
	missed   int64         // the position before the first event that was given up because of the stop
	idle     chan struct{} // closed when nothing is left, once draining
}

func newCrew[T Object](l *informerProcessorListener[T]) *crew[T] {
	c := &crew[T]{
		listener: l,
		waiting:  newMerged[T](),
		busy:     map[string]*entry[T]{},
		idle:     make(chan struct{}),
		missed:   math.MaxInt64,
	}
	c.waiting.end = l.cursor.Position()
	return c
}

// run takes what there is and lets the workers handle it. It returns when they
// have, or when the listener is removed and their calls have returned.
func (c *crew[T]) run(ctx context.Context) {
	c.queue = workqueue.NewTypedDelayingQueue[string]()
	var workers sync.WaitGroup
	for range max(1, c.listener.opts.Workers) {
		workers.Go(func() { c.work(ctx) })
	}
	for s, ok := c.listener.take(); ok; s, ok = c.listener.take() {
		c.listener.countMerged(c.add(s))
	}
	c.drain()
	select {
	case <-c.idle:
	case <-c.listener.removed:
	}
	c.queue.ShutDown()
	workers.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = newMerged[T]() // the Registration may be kept
}

// add adds a segment to what waits, and returns how many events were merged away.
func (c *crew[T]) add(s segment[T]) (away int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.waiting.end // where s begins: one that was merged stands for more than its records
	for i := range s.Records {
		switch r := &s.Records[i]; {
		case r.kind == recordMarker:
			c.marked = true
			c.checkSyncedLocked()
		case r.isEvent():
			var first Event[T]
			if before := c.waiting.byKey[r.key]; before != nil {
				first = before.events[0]
			}
			e, n := c.waiting.add(r, at)
			away += n
			e.follow(first)
			if isNew := n == 0 && len(e.events) == 1; isNew && !c.marked {
				e.initial = true
				c.initial++
			}
			if len(e.events) == 0 {
				c.attemptedLocked(e)
			} else {
				c.queue.Add(e.key)
			}
		}
	}
	c.waiting.end = s.End
	c.listener.finished(c.reachedLocked())
	return away
}

// attemptedLocked notes that e was attempted, or has gone.
func (c *crew[T]) attemptedLocked(e *entry[T]) {
	if e.initial {
		e.initial = false
		c.initial--
		c.checkSyncedLocked()
	}
}

// checkSyncedLocked has a worker call OnSynced if the initial state has ended.
func (c *crew[T]) checkSyncedLocked() {
	if c.marked && c.initial == 0 {
		c.queue.Add(syncedKey)
	}
}

// work handles one object after the other.
func (c *crew[T]) work(ctx context.Context) {
	for {
		key, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		if key == syncedKey {
			c.listener.sync(ctx)
		} else if e := c.begin(key); e != nil {
			c.handle(ctx, e)
		}
		c.queue.Done(key)
	}
}

// begin takes what waits under key into the caller's hands. It returns nil if
// there is nothing, or not yet.
func (c *crew[T]) begin(key string) *entry[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.waiting.byKey[key]
	if e == nil || c.listener.gone.Load() {
		return nil
	}
	now := c.listener.processor.Now()
	if early := e.notBefore - now; early > 0 {
		c.queue.AddAfter(key, early) // it drops one if an earlier one of the key is about to come
		return nil
	}
	delete(c.waiting.byKey, key)
	c.busy[key] = e
	e.begun = now
	return e
}

// handle makes one attempt at the first event of e.
func (c *crew[T]) handle(ctx context.Context, e *entry[T]) {
	var none T
	l := c.listener
	event := e.events[0]
	if s, ok := l.watcher.(selection[T]); ok && e.tried != none {
		event = s.after(e.tried, event)
	}
	if e.failures > 0 {
		l.counts.retried.Add(1)
	}
	a := attempt[T]{event: event, failures: e.failures + 1}
	a.took, a.err = l.call(ctx, &event)
	draining := channel.Closed(l.processor.draining)
	var wait time.Duration
	again := interrupted(ctx, a.err) // nobody will, but it is not over
	if !again {
		wait, again = c.again(&a)
		l.settle(ctx, a)
	}
	l.countMerged(c.end(e, &a, wait, again, draining))
}

// again decides whether a failure is worth another attempt, and when. An attempt
// that would come after the end of a drain is none.
func (c *crew[T]) again(a *attempt[T]) (wait time.Duration, again bool) {
	retry := c.listener.opts.Retry
	if a.gaveUp = true; a.err == nil || retry == nil || errors.Is(a.err, ErrPermanent) {
		return 0, false
	}
	if wait, again = retry(a.failures, a.err); !again {
		return 0, false
	}
	p := c.listener.processor
	if wait = min(max(wait, 0), maxWait); channel.Closed(p.draining) && p.Now()+wait >= p.drained {
		a.stopped = true
		return 0, false
	}
	a.gaveUp = false
	return wait, true
}

// reachedLocked returns the position up to which everything has been handled.
func (c *crew[T]) reachedLocked() int64 { return min(c.waiting.reached(), c.missed) }

// end puts back what is left of e after an attempt, with what has come meanwhile, and
// returns how many events were merged away.
// A wait that was decided before a drain has begun is cut short by it.
func (c *crew[T]) end(e *entry[T], a *attempt[T], wait time.Duration, again, draining bool) (away int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attemptedLocked(e)
	delete(c.busy, e.key)
	c.putBackLocked(e, a.event.New, again)
	if newer := c.waiting.byKey[e.key]; newer != nil {
		if len(e.events) > 0 { // else newer keeps its own place
			c.attemptedLocked(newer)
			away = c.joinLocked(newer, e)
		}
	}
	switch {
	case len(e.events) == 0:
		c.waiting.order.Remove(e.place) // but not newer
	case again && wait > 0 && (draining || !c.draining):
		c.waiting.byKey[e.key] = e
		e.notBefore = c.listener.processor.Now() + wait
		c.queue.AddAfter(e.key, wait)
	default:
		c.waiting.byKey[e.key] = e
		c.queue.Add(e.key)
	}
	if a.stopped {
		c.missed = min(c.missed, e.first)
	}
	c.listener.finished(c.reachedLocked())
	c.checkIdleLocked()
	return away
}

// putBackLocked takes the first event off e, unless it is to be tried again.
func (c *crew[T]) putBackLocked(e *entry[T], told T, again bool) {
	var none T
	e.notBefore = 0
	if !again {
		e.events, e.failures, e.tried = e.events[1:], 0, none
		return
	}
	e.failures++
	if told != none {
		e.tried = told
	}
}

// joinLocked merges what came while e was in a worker's hands into e, and returns
// how many events were merged away.
func (c *crew[T]) joinLocked(newer, e *entry[T]) (away int) {
	n, first := len(e.events)+len(newer.events), e.events[0]
	for _, event := range newer.events {
		c.waiting.join(e, event)
	}
	e.follow(first)
	c.waiting.remove(newer)
	return n - len(e.events)
}

// follow has the failures counted anew if the first event is another one by now.
func (e *entry[T]) follow(first Event[T]) {
	if len(e.events) == 0 || e.events[0] != first {
		e.failures = 0
	}
}

// drain has what waits for a retry tried once more, at once.
func (c *crew[T]) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = true
	for key, e := range c.waiting.byKey {
		e.notBefore = 0
		c.queue.Add(key)
	}
	c.checkIdleLocked()
}

func (c *crew[T]) checkIdleLocked() {
	if c.draining && c.waiting.order.Len() == 0 && !channel.Closed(c.idle) {
		close(c.idle)
	}
}

// since returns since when the oldest event waits, or 0.
func (c *crew[T]) since() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting.since()
}

// calling returns the keys for which the watcher is being called now.
func (c *crew[T]) calling() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := make([]string, 0, len(c.busy))
	for _, e := range c.busy {
		keys = append(keys, e.events[0].Key().String())
	}
	return keys
}

// troubleDepth is how many of the objects that wait are looked at for those that wait for
// a retry: with the lock held, for which the workers wait.
const troubleDepth = 1000

// trouble returns whether a call has lasted for too long, whether the oldest of what
// waits waits for its retry, and the keys of the first that do, no more than most of
// those among the oldest.
func (c *crew[T]) trouble(most int) (hung, oldest bool, later []string) {
	now := c.listener.processor.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.busy {
		hung = hung || now-e.begun >= stopwatch.HungCall
	}
	at := c.waiting.order.Front()
	for n := 0; n < troubleDepth && at != nil && len(later) < most; n++ {
		if e := at.Value.(*entry[T]); e.notBefore > now {
			later = append(later, e.key)
			oldest = oldest || n == 0
		}
		at = at.Next()
	}
	return hung, oldest, later
}
