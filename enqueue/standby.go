package enqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/channel"
)

// untilLost returns a ctx that also ends when Options.Lost is closed. The caller must call stop.
func (c *Controller[K]) untilLost(ctx context.Context) (waiting context.Context, stop func()) {
	if c.opts.Lost == nil {
		return ctx, func() {}
	}
	waiting, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-c.opts.Lost:
			cancel()
		case <-waiting.Done():
		}
	})
	return waiting, func() { cancel(); watching.Wait() }
}

func (c *Controller[K]) errLost() error {
	return fmt.Errorf("enqueue: controller %s: %w", c.opts.Name, informer.ErrLeaseLost)
}

func (c *Controller[K]) awaitElection(ctx context.Context) error {
	if c.opts.Elected == nil {
		return nil
	}
	select {
	case <-c.opts.Elected:
	case <-c.opts.Lost:
	case <-ctx.Done():
	}
	if channel.Closed(c.opts.Lost) { // also a controller that was elected before must make no call
		return c.errLost()
	}
	return ctx.Err()
}

// onStandby reports whether the controller waits for its election. Then it keeps only the keys of
// deletes, because it reads all objects again later.
func (c *Controller[K]) onStandby() bool {
	if c.opts.Elected == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue == nil
}

// supersedeLocked makes earlier deletes no longer wait for keys, on standby: the delete that comes
// now leads to the same keys, and has a tombstone, too. Otherwise a standby would keep every delete
// of an object that is created again and again.
func (c *Controller[K]) supersedeLocked(keys []K) {
	if c.queue != nil || c.opts.Elected == nil {
		return
	}
	for _, key := range keys {
		c.state.drop(key)
	}
}

// dropLocked drops the oldest keys if a standby has too many. It reports whether it has dropped keys
// for the first time. A key is as old as its last delete.
func (c *Controller[K]) dropLocked() (first bool) {
	if c.queue != nil || c.opts.Elected == nil {
		return false
	}
	for len(c.isEarly) > c.opts.StandbyDeletes {
		key := c.early[0]
		c.early = c.early[1:]
		if c.isEarly[key]--; c.isEarly[key] > 0 {
			continue // it was deleted again
		}
		delete(c.isEarly, key)
		c.state.drop(key)
		first = first || c.dropped == 0
		c.dropped++
	}
	if len(c.early) > 2*len(c.isEarly)+1000 { // keys that are deleted often take no room
		c.early = slices.DeleteFunc(c.early, func(key K) bool {
			if c.isEarly[key] > 1 {
				c.isEarly[key]--
				return true
			}
			return false
		})
	}
	return first
}

// reportDropped reports that keys of deletes are dropped. ctx is the ctx of a watcher, which leads to a
// group only if the informer is a member. The ctx of Run leads to one if the controller is a member.
func (c *Controller[K]) reportDropped(ctx context.Context) {
	c.mu.Lock()
	if c.ctx != nil {
		ctx = c.ctx
	}
	c.mu.Unlock()
	c.opts.ErrorHandler(ctx, fmt.Errorf("controller %s: %w: %d keys are kept", c.opts.Name, ErrStandbyDeletesDropped, c.opts.StandbyDeletes))
}

// replay queues the keys of all objects after an election. It returns when every object was delivered
// once, so that a key to which several sources lead is reconciled once. Objects for which a mapper
// fails are tried again until the caller calls end. The caller must call end.
func (c *Controller[K]) replay(ctx context.Context) (end func(), err error) {
	if c.opts.Elected == nil {
		return func() {}, nil
	}
	replays, err := c.replayAll(ctx, nil)
	return func() {
		for _, r := range replays {
			r.reg.Remove()
		}
	}, err
}

// replayAll queues the wanted keys of all objects, or all keys if wanted is nil. It returns when
// every object was delivered once. Objects for which a mapper fails are tried again until the caller
// removes the replays. The caller must remove them, also after an error.
func (c *Controller[K]) replayAll(ctx context.Context, wanted func(K) bool) (replays []replay, err error) {
	for _, in := range c.inputs {
		r, err := in.replay(wanted)
		if err != nil {
			return replays, fmt.Errorf("enqueue: controller %s: %w", c.opts.Name, err)
		}
		replays = append(replays, r)
	}
	for i, r := range replays {
		select {
		case <-r.delivered:
		case <-c.inputs[i].reg.Stopped():
			return replays, fmt.Errorf("enqueue: controller %s: informer %s: %w", c.opts.Name, c.inputs[i].health().Name, informer.ErrStopped)
		case <-ctx.Done():
			return replays, ctx.Err()
		}
	}
	return replays, nil
}

// replay is a temporary watcher that gets all objects.
type replay struct {
	reg       *informer.Registration // removes itself when it has queued the keys of all objects
	delivered chan struct{}          // closed when every object was delivered at least once
}

// replay registers a watcher that queues the keys of all objects, as they are now, and then removes
// itself. It leaves out the keys for which wanted returns false. If wanted is nil, it queues all
// keys.
func (f *feed[T, K]) replay(wanted func(K) bool) (replay, error) {
	r := &replayer[T, K]{feed: f, wanted: wanted, open: sets.Set[Key]{}, delivered: make(chan struct{}), registered: make(chan struct{})}
	defer close(r.registered)
	opts := f.opts // also its Workers, because a replay should take no longer than a start
	opts.Name += " (all objects)"
	opts.Retry, opts.ResyncPeriod, opts.OnSynced = mapRetry, 0, r.synced
	var err error
	r.reg, err = f.informer.AddWatcher(informer.WatcherFunc[T](r.handle), opts)
	return replay{r.reg, r.delivered}, err
}

// replayer is the watcher of a replay. It gets all objects once.
type replayer[T informer.Object, K comparable] struct {
	feed       *feed[T, K]
	wanted     func(K) bool           // nil for all
	reg        *informer.Registration // set when registered is closed
	registered chan struct{}
	delivered  chan struct{} // closed when every object was delivered at least once

	mu   sync.Mutex    // protects the rest
	done bool          // delivered is closed
	open sets.Set[Key] // the objects that were delivered and whose keys are not queued
	look time.Time     // forgetLeft looks again after this time
}

// handle queues the keys of an object that comes for the first time, or for which earlier attempts have
// failed. The feed itself gets all other events.
func (r *replayer[T, K]) handle(ctx context.Context, e informer.Event[T]) error {
	key := Key{e.Cluster(), e.Key()}
	if !r.begin(key) {
		r.forgetLeft()
		return nil
	}
	var err error
	if e.Type != informer.EventDeleted {
		var keys []K
		keys, err = r.feed.mapper.of(ctx, e.Cluster(), e.New)
		if r.wanted != nil {
			keys = slices.DeleteFunc(keys, func(key K) bool { return !r.wanted(key) })
		}
		r.feed.controller.add(keys)
	}
	if err == nil || errors.Is(err, informer.ErrPermanent) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.open.Delete(key)
		r.checkLocked()
	}
	return err
}

// begin reports whether the keys of the object must be queued. If so, it adds the object to open. The
// caller calls it before the mapper, which may panic.
func (r *replayer[T, K]) begin(key Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done && !r.open.Has(key) {
		return false
	}
	r.open.Insert(key)
	return true
}

// forgetLeft forgets the objects that have left silently, at most once a second. The informer makes no other attempt for them,
// and they would keep the watcher. If such an object comes back, the feed gets it.
func (r *replayer[T, K]) forgetLeft() {
	r.mu.Lock()
	if time.Now().Before(r.look) {
		r.mu.Unlock()
		return
	}
	r.look = time.Now().Add(time.Second)
	left := r.open.UnsortedList()
	r.mu.Unlock()
	left = slices.DeleteFunc(left, r.feed.reads) // may read from the store
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open.Delete(left...)
	r.checkLocked()
}

// reads reports whether the informer may have the object.
func (f *feed[T, K]) reads(key Key) bool {
	if key.Cluster == "" {
		_, exists, err := f.informer.Get(key.NamespacedName)
		return exists || err != nil
	}
	return slices.ContainsFunc(f.informer.Versions(), func(v informer.SourceVersions) bool { return v.Cluster == key.Cluster })
}

func (r *replayer[T, K]) synced(context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = true
	close(r.delivered)
	r.checkLocked()
}

// checkLocked removes the watcher if all keys are queued.
func (r *replayer[T, K]) checkLocked() {
	if r.done && len(r.open) == 0 {
		<-r.registered
		r.reg.Remove()
	}
}
