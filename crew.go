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

// syncedKey is the key in the queue that makes a worker call OnSynced. No object has this key.
const syncedKey = ""

// crew calls a watcher for several objects at the same time, and repeats calls that have failed. It never
// makes two calls for one object at the same time. Waiting events are merged by object. A failed event is
// merged with newer events of its object. client-go's workqueue decides which object is next, and when a
// retry is due.
type crew[T Object] struct {
	listener *informerProcessorListener[T]
	queue    workqueue.TypedDelayingInterface[string]

	mu             sync.Mutex // protects the rest
	waiting        *mergeQueue[T]
	busy           map[string]*entry[T] // claimed by a worker: in waiting.order, not in waiting.byKey
	stateSeen      bool                 // the whole initial state was enqueued
	markerSeen     bool                 // the synced marker was enqueued
	blockingSynced int                  // number of entries with blocksSynced
	draining       bool
	idle           chan struct{} // closed when the crew is draining and no event waits
	// abandonedAt is the log position before the first event that is not retried because the informer
	// stops.
	abandonedAt int64
}

func newCrew[T Object](l *informerProcessorListener[T]) *crew[T] {
	c := &crew[T]{
		listener:    l,
		waiting:     newMergeQueue[T](),
		busy:        map[string]*entry[T]{},
		idle:        make(chan struct{}),
		abandonedAt: math.MaxInt64,
	}
	c.waiting.end = l.cursor.Position()
	return c
}

// run takes the listener's events and lets the workers handle them. It returns when every event is
// handled and none can follow, or when the listener is removed and all calls of its watcher have
// returned.
func (c *crew[T]) run(ctx context.Context) {
	c.queue = workqueue.NewTypedDelayingQueue[string]()
	var workers sync.WaitGroup
	for range max(1, c.listener.opts.Workers) {
		workers.Go(func() { c.work(ctx) })
	}
	for s, ok := c.listener.take(); ok; s, ok = c.listener.take() {
		c.listener.countMerged(c.enqueue(s))
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
	c.waiting, c.listener.ahead = newMergeQueue[T](), ahead{} // the program may keep the Registration
}

// enqueue adds a segment to the waiting events. It returns how many events will not be delivered
// because of merging.
func (c *crew[T]) enqueue(s segment[T]) (away int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Every event of s gets the position where s begins: s may be merged from more records
	// than it has.
	at := c.waiting.end
	away = c.lookLocked()
	for i := range s.Records {
		switch r := &s.Records[i]; {
		case c.listener.voids(s, i):
			if r.isEvent() {
				away++
			}
		case r.kind == recordTold:
			c.stateSeen = true
		case r.kind == recordMarker:
			c.markerSeen = true
			c.checkSyncedLocked()
		case r.isEvent():
			away += c.enqueueEventLocked(r, at)
		}
	}
	c.waiting.end = s.End
	c.listener.reach(s.End)
	c.finishedLocked()
	return away
}

// look drops the events of objects that have left, and returns how many events it has dropped. The workers call it
// too, because run may be blocked.
func (c *crew[T]) look() (away int) {
	if !c.listener.life.interrupts() {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lookLocked()
}

// lookLocked does the work of look. All waiting events are older than the leaves that it finds.
func (c *crew[T]) lookLocked() (away int) {
	for _, l := range c.listener.ahead.look() {
		for key := range l.keys {
			if e, n := c.waiting.drop(key); e != nil {
				away += n
				c.unblockSyncedLocked(e)
			}
			if e := c.busy[key]; e != nil {
				e.left = true
			}
		}
	}
	return away
}

// enqueueEventLocked adds one event to the waiting events. It returns how many events will not be
// delivered because of merging.
func (c *crew[T]) enqueueEventLocked(r *record[T], at int64) (away int) {
	var first Event[T]
	if before := c.waiting.byKey[r.key]; before != nil {
		first = before.events[0]
	}
	e, away := c.waiting.mergeRecord(r, at)
	e.initial = e.initial || !c.stateSeen
	e.resetFailures(first)
	if isNew := away == 0 && len(e.events) == 1; isNew && !c.markerSeen {
		e.blocksSynced = true
		c.blockingSynced++
	}
	if len(e.events) == 0 {
		c.unblockSyncedLocked(e)
	} else {
		c.queue.Add(e.key)
	}
	return away
}

// unblockSyncedLocked notes that Synced no longer waits for e, because an attempt was made or no event
// is left.
func (c *crew[T]) unblockSyncedLocked(e *entry[T]) {
	if e.blocksSynced {
		e.blocksSynced = false
		c.blockingSynced--
		c.checkSyncedLocked()
	}
}

// checkSyncedLocked makes a worker call OnSynced if the watcher was called for every object of the
// initial state.
func (c *crew[T]) checkSyncedLocked() {
	if c.markerSeen && c.blockingSynced == 0 {
		c.queue.Add(syncedKey)
	}
}

// work handles one object after another, until the queue is shut down.
func (c *crew[T]) work(ctx context.Context) {
	for {
		key, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		if key == syncedKey {
			c.listener.sync(ctx)
			c.queue.Done(key)
			continue
		}
		c.listener.countMerged(c.look())
		if e := c.claim(key); e != nil {
			c.attempt(ctx, e)
		}
		c.queue.Done(key)
	}
}

// claim gives the waiting events of an object to the caller, which must then call release. It returns
// nil if there are none, if their retry is not due, or if the listener is removed.
func (c *crew[T]) claim(key string) *entry[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.waiting.byKey[key]
	if e == nil || c.listener.life.removed() {
		return nil
	}
	now := c.listener.processor.Now()
	if early := e.notBefore - now; early > 0 {
		c.queue.AddAfter(key, early) // the queue keeps only the earliest of several waits for a key
		return nil
	}
	delete(c.waiting.byKey, key)
	c.busy[key] = e
	e.callBegan = now
	return e
}

// attempt calls the watcher for the first event of e, and then releases e. The caller has claimed e.
func (c *crew[T]) attempt(ctx context.Context, e *entry[T]) {
	l := c.listener
	event := c.eventToTell(e)
	if e.failures > 0 {
		l.counts.retried.Add(1)
	}
	a := attempt[T]{event: event, failures: e.failures + 1}
	a.took, a.err = l.call(ctx, &event)
	draining := channel.Closed(l.processor.draining)
	var wait time.Duration
	retry := interrupted(ctx, a.err) // the event stays undelivered, although no attempt follows
	if !retry {
		wait, retry = c.decideRetry(&a)
		l.settle(ctx, a)
	}
	l.countMerged(c.release(e, &a, wait, retry, draining))
}

// eventToTell returns the event that the watcher must get next for e. Usually that is the first event of e.
// But a failed attempt may have taken effect. If it has given the watcher of a Select an object that is no
// longer selected, eventToTell returns a delete of that object. This is not decided when events are merged,
// for two reasons. selected is the program's code, which must not run under the lock, and the object may be
// selected again before the attempt.
func (c *crew[T]) eventToTell(e *entry[T]) (event Event[T]) {
	var none T
	if e.failedNew == none {
		return e.events[0]
	}
	s, ok := unwrap(c.listener.watcher).(selection[T])
	if !ok {
		return e.events[0]
	}
	if c.listener.opts.RecoverPanics {
		defer func() {
			if recover() != nil { // the call of the watcher panics again, and reports it
				event = e.events[0]
			}
		}()
	}
	return s.after(e.failedNew, e.events[0])
}

// decideRetry decides whether another attempt follows a, and after what wait, and sets a.gaveUp and
// a.stopped. During a drain, no attempt is made that would begin after the drain's end.
func (c *crew[T]) decideRetry(a *attempt[T]) (wait time.Duration, retry bool) {
	policy := c.listener.opts.Retry
	if a.gaveUp = true; a.err == nil || policy == nil || errors.Is(a.err, ErrPermanent) {
		return 0, false
	}
	if wait, retry = policy(a.failures, a.err); !retry {
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

// reachedLocked returns the log position up to which every event was handled.
func (c *crew[T]) reachedLocked() int64 { return min(c.waiting.reached(), c.abandonedAt) }

// finishedLocked notes up to which log position every event was handled. The entries of the initial
// state come first in the order.
func (c *crew[T]) finishedLocked() {
	if c.stateSeen && c.abandonedAt == math.MaxInt64 && !c.listener.initialHandled.Load() {
		oldest := c.waiting.oldest()
		c.listener.initialHandled.Store(oldest == nil || !oldest.initial)
	}
	c.listener.finished(c.reachedLocked())
}

// release takes back e after an attempt and merges its remaining events with newer ones of the object.
// It returns how many events will not be delivered because of that. draining is true if the drain had
// begun when the wait was decided. If the drain began since then, there is no wait.
func (c *crew[T]) release(e *entry[T], a *attempt[T], wait time.Duration, retry, draining bool) (away int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unblockSyncedLocked(e)
	delete(c.busy, e.key)
	e.noteAttempt(a.event.New, retry)
	if e.left {
		e.events, away = nil, len(e.events)
	}
	// If no event of e is left, newer keeps its own place in the order.
	if newer := c.waiting.byKey[e.key]; newer != nil && len(e.events) > 0 {
		c.unblockSyncedLocked(newer)
		away += c.mergeNewerLocked(e, newer)
	}
	switch {
	case len(e.events) == 0:
		c.waiting.order.Remove(e.place) // byKey may have newer
	case retry && wait > 0 && (draining || !c.draining):
		c.waiting.byKey[e.key] = e
		e.notBefore = c.listener.processor.Now() + wait
		c.queue.AddAfter(e.key, wait)
	default:
		c.waiting.byKey[e.key] = e
		c.queue.Add(e.key)
	}
	if a.stopped {
		c.abandonedAt = min(c.abandonedAt, e.position)
	}
	c.finishedLocked()
	c.checkIdleLocked()
	return away
}

// noteAttempt notes that the watcher was called for the first event of e, with sent as New. If retry is
// false, it drops that event.
func (e *entry[T]) noteAttempt(sent T, retry bool) {
	var none T
	e.notBefore = 0
	if !retry {
		e.events, e.failures, e.failedNew = e.events[1:], 0, none
		return
	}
	e.failures++
	if sent != none {
		e.failedNew = sent
	}
}

// mergeNewerLocked merges the events of newer into e. They were enqueued while a worker had e. It
// returns how many events will not be delivered because of that.
func (c *crew[T]) mergeNewerLocked(e, newer *entry[T]) (away int) {
	n, first := len(e.events)+len(newer.events), e.events[0]
	for _, event := range newer.events {
		c.waiting.mergeEvent(e, event)
	}
	e.resetFailures(first)
	c.waiting.remove(newer)
	return n - len(e.events)
}

// resetFailures sets the number of failures to 0 unless first is still the first event of e.
func (e *entry[T]) resetFailures(first Event[T]) {
	if len(e.events) == 0 || e.events[0] != first {
		e.failures = 0
	}
}

// drain makes every waiting retry due now.
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

// waitingSince returns when the oldest waiting event was appended to the log, or 0 if no event waits.
func (c *crew[T]) waitingSince() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting.waitingSince()
}

// calling returns the keys for which the watcher is being called now.
func (c *crew[T]) calling() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := make([]string, 0, len(c.busy))
	for _, e := range c.busy {
		keys = append(keys, e.events[0].where())
	}
	return keys
}

// healthDepth is how many of the oldest objects health looks at. Meanwhile the workers wait for the
// lock.
const healthDepth = 1000

// health reports whether a call has lasted for stopwatch.HungCall, and whether the oldest event waits for a
// retry. It also returns the keys of up to limit objects that wait for a retry, the oldest first. It looks
// only at the healthDepth oldest objects.
func (c *crew[T]) health(limit int) (hung, retrying bool, retries []string) {
	now := c.listener.processor.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.busy {
		hung = hung || now-e.callBegan >= stopwatch.HungCall
	}
	at := c.waiting.order.Front()
	for n := 0; n < healthDepth && at != nil && len(retries) < limit; n++ {
		if e := at.Value.(*entry[T]); e.notBefore > now {
			retries = append(retries, e.key)
			retrying = retrying || n == 0
		}
		at = at.Next()
	}
	return hung, retrying, retries
}
