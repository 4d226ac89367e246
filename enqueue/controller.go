package enqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/longwait"
	"github.com/customcacheinformer/informer/internal/membership"
	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/internal/queues"
	"github.com/customcacheinformer/informer/internal/sharding"
)

// defaultStandbyDeletes is the default of Options.StandbyDeletes.
const defaultStandbyDeletes = 100_000

// ErrStandbyDeletesDropped indicates that a controller drops keys of deleted objects, because it has more
// of them than Options.StandbyDeletes. Options.ErrorHandler receives an error that wraps it, once.
var ErrStandbyDeletesDropped = errors.New("too many deletes on standby, the oldest are dropped")

// Controller owns a queue, the watchers that put keys of type K into it, and the workers that call a
// reconcile function for each key. It is a member of an [informer.Group], which starts and stops it and
// shows its Health. [NewController] makes one. Its methods may be called from any goroutine. It must not
// be copied.
//
// A Controller loses no delete of an informer over an [informer.Durable], except those that
// Options.StandbyDeletes drops, and those that still wait when a group removes the controller. A delete
// counts as handled when a call has finished the work for each key that it led to. The call must have
// begun after the key was queued. It must return nil and ask for no other call, or return an error that
// wraps [informer.ErrPermanent]. Until the delete is handled, the store keeps its tombstone (a record of
// the deleted object), and the controller gets the delete again after a restart or a crash. A delete that
// leads to no key is handled at once. reconcile gets only the key. So if the object was created again, a
// call for its key also counts for the delete.
//
// If reconcile always asks for another call, for example once an hour, no delete ever counts as handled,
// and the store keeps all tombstones. For regular calls, give a source a ResyncPeriod with [Source.With].
type Controller[K comparable] struct {
	hooks
	opts      Options
	reconcile reconciler[K]
	inputs    []input[K]
	scope     scope
	maps      bool         // there is a Watches
	set       sharding.Set // of Options.Shards; nil for none
	shard     *sharded[K]  // nil without a set
	ready     *fifo[K]     // the keys in queue that no worker has
	state     *state[K]
	synced    chan struct{} // closed when everything that reconcile reads has synced
	stopped   chan struct{} // closed when Run has returned, or when the controller is removed before

	mu      sync.Mutex         // protects the rest
	ctx     context.Context    // of Run; nil before
	cancel  context.CancelFunc // ends ctx
	read    int                // how many of Options.Reads have synced
	unread  error              // why the wait for the next one ended
	removed bool
	queue   *planned[K] // nil until the workers start
	early   []K         // the keys that came before, the oldest first
	isEarly map[K]int   // how often each is in early: on standby, once per delete
	dropped int         // how many keys were dropped from early
}

// hooks are the methods that only a group calls.
type hooks = membership.Worker

// NewController returns a controller that calls reconcile for the keys of the sources.
//
// reconcile does the work that the object with the key requires. It gets only the key, and reads the rest
// from an informer. If the informer has no such object, the object was deleted, or the informer does not
// read it, for example because of a selector or its namespace. The controller never calls reconcile twice
// at once for one key: if events put the key into the queue during a call, however often, one more call
// follows. The results of reconcile decide when it is called for the key again:
//
//   - An error: after a pause, see Options.BaseDelay. Meanwhile the workers continue with other keys.
//     NotFound and conflicts are errors like any other: the next attempt reads again.
//   - An error that wraps [informer.ErrPermanent] (see also [InClusters]): when an event queues the key.
//   - No error, and again more than 0: after that time, or earlier if an event puts the key into the
//     queue. A negative again, as time.Until returns for a time in the past, means at once. If several
//     calls for a key in a row ask for less than 5 ms, only the first gets that time. The pauses after
//     the others are at least as long as those after failures.
//   - No error, and again 0: when an event puts the key into the queue.
//
// Each call for a key cancels the pause that an earlier call has led to.
//
// The ctx of a call ends with the ctx of Run, or up to DrainTimeout later, or after CallTimeout; see also
// Options.Lost and Options.Shards. It carries a logger (klog.FromContext) with the key. If a call does
// not return after its ctx is done, Run cannot return either, and the key is logged after 10 s. A call
// must not end its goroutine, as runtime.Goexit and a test's FailNow do.
//
// NewController adds a watcher to the informer of each source. Make the controller before these informers
// run: over a Durable, it then also gets the deletes that happened while the program was down, see
// promise 5 of package informer. Once an informer has run with a watcher for more than a minute, a new
// controller gets only later deletes. If you never run a controller, add it to a group and remove it
// there: otherwise a Durable keeps tombstones for it.
//
// NewController returns an error if an argument or option cannot be used. If an informer has stopped, the
// error wraps informer.ErrStopped. NewController makes no request and does not block.
func NewController[K comparable](
	reconcile func(ctx context.Context, key K) (again time.Duration, err error),
	opts Options,
	sources ...Source[K],
) (*Controller[K], error) {
	c := &Controller[K]{
		opts: opts, reconcile: reconcile, ready: newFIFO(newShares[K](max(1, opts.Workers))), state: newState[K](), isEarly: map[K]int{},
		synced: make(chan struct{}), stopped: make(chan struct{}),
	}
	c.hooks, c.set = c.remove, sharding.Of(opts.Shards)
	err := c.divide()
	if err == nil {
		err = c.attach(sources)
	}
	if err == nil && c.shard != nil {
		err = c.set.Join(c.opts.Name, c.shard)
	}
	if err != nil {
		c.remove()
		return nil, fmt.Errorf("enqueue: NewController: %w", err)
	}
	return c, nil
}

// attach checks the arguments of NewController and registers the watchers.
func (c *Controller[K]) attach(sources []Source[K]) error {
	switch {
	case c.reconcile == nil:
		return errors.New("reconcile is nil")
	case c.opts.Name == "":
		return errors.New("Options.Name is empty")
	case len(sources) == 0:
		return errors.New("there is no source")
	}
	if err := c.opts.check(c.set != nil); err != nil {
		return err
	}
	c.opts.Reads = slices.Clone(c.opts.Reads) // the caller may change its slice
	for i, r := range c.opts.Reads {
		if object.IsNil(r) {
			return fmt.Errorf("Options.Reads[%d] is nil", i)
		}
	}
	c.opts.StandbyDeletes = cmp.Or(c.opts.StandbyDeletes, defaultStandbyDeletes)
	if c.opts.ErrorHandler == nil {
		c.opts.ErrorHandler = report
	}
	watchers := map[any]int{} // by informer
	own := false              // there is a For
	for i, s := range sources {
		switch {
		case s.err != nil:
			return fmt.Errorf("source %d: %w", i+1, s.err)
		case s.attach == nil:
			return fmt.Errorf("source %d is the zero Source", i+1)
		}
		name := c.opts.Name
		if watchers[s.informer]++; watchers[s.informer] > 1 {
			name = fmt.Sprintf("%s-%d", name, watchers[s.informer])
		}
		s.opts.Name = cmp.Or(s.opts.Name, name)
		in, err := s.attach(c, s.opts)
		if err != nil {
			return fmt.Errorf("source %d: %w", i+1, err)
		}
		c.inputs = append(c.inputs, in)
		c.maps = c.maps || s.maps
		if s.own && own { // their objects may differ in scope, so that nothing is excluded
			c.scope.saw("")
			c.scope.saw("any")
		}
		own = own || s.own
	}
	for i, s := range sources {
		if s.clusterScoped && c.scope.namespaced.Load() { // an informer over namespaces
			return fmt.Errorf("source %d: Owns: %w: Owners.ClusterScoped is set, and the objects of For have a namespace", i+1, errScope)
		}
	}
	return nil
}

// Run waits until the informers of the sources and the members of Options.Reads have synced, the set of
// Options.Shards has started, and the controller is elected. Then it calls reconcile for each key in the
// queue, with Options.Workers goroutines, until ctx ends. It returns when every call has returned.
//
// Run returns nil after ctx is done, or after a group has removed the controller. If the controller was
// run or removed before, Run returns at once an error that wraps informer.ErrAlreadyRun. If an informer
// stops before it has synced, the error wraps an [*informer.SyncError]. With Options.Elected, the error
// wraps informer.ErrStopped if an informer stops before it has delivered all objects after the election,
// or informer.ErrLeaseLost once Options.Lost is closed. Do not wait for the end of Run in a callback of
// the controller or of one of its informers.
func (c *Controller[K]) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := longwait.Announce(ctx, c.missing)
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "queue", c.opts.Name))
	if !c.begin(ctx, cancel) {
		over(nil)
		return fmt.Errorf("enqueue: controller %s: %w", c.opts.Name, informer.ErrAlreadyRun)
	}
	defer close(c.stopped)
	waiting, stop := c.untilLost(ctx)
	defer stop()
	err := c.await(waiting)
	if err == nil {
		close(c.synced)
		err = c.awaitElection(waiting)
	}
	base, most := c.opts.delays()
	queue, end := queues.Make(c.opts.Name, func() *planned[K] { return newQueue(c.opts.Name, c.ready, base, most) })
	defer end()
	defer queue.ShutDown()
	if err == nil {
		c.live(queue)
		var end func()
		end, err = c.replay(waiting)
		defer end()
	}
	over(err)
	switch {
	case err != nil && ctx.Err() != nil:
		klog.FromContext(ctx).Info("Stopped before the workers have started", "reason", err)
		return nil
	case err != nil && waiting.Err() != nil:
		return c.errLost()
	case err != nil:
		return err
	}
	w := &worker[K]{queue: queue, reconcile: c.reconcile, state: c.state, opts: &c.opts, refuses: c.refuses, engaged: c.engaged}
	if c.shard != nil {
		w.enter = c.shard.enter
	}
	w.work(ctx)
	if ctx.Err() == nil {
		return c.errLost()
	}
	return nil
}

// begin notes that Run was called. It reports whether Run may continue.
func (c *Controller[K]) begin(ctx context.Context, cancel context.CancelFunc) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx != nil || c.removed {
		return false
	}
	c.ctx, c.cancel = ctx, cancel
	return true
}

// await waits until everything that reconcile reads has synced, and the set has started.
func (c *Controller[K]) await(ctx context.Context) error {
	for _, in := range c.inputs {
		if channel.Closed(in.reg.Synced()) {
			continue // even if ctx is done
		}
		select {
		case <-in.reg.Synced():
		case <-in.reg.Stopped():
			return c.syncError(informer.ErrStopped)
		case <-ctx.Done():
			return c.syncError(ctx.Err())
		}
	}
	for i, r := range c.opts.Reads {
		err := r.WaitForSync(longwait.Quiet(ctx))
		if err != nil {
			err = fmt.Errorf("Options.Reads[%d]: %w", i, err)
		}
		c.readNext(err)
		if err != nil {
			return fmt.Errorf("enqueue: controller %s: %w", c.opts.Name, err)
		}
	}
	if c.shard != nil {
		select {
		case <-c.set.Started():
		case <-ctx.Done():
			return c.syncError(ctx.Err())
		}
	}
	return nil
}

func (c *Controller[K]) readNext(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unread = err; err == nil {
		c.read++
	}
}

// syncError returns the error of a wait that ended because of err.
func (c *Controller[K]) syncError(err error) error {
	late, reason := c.late()
	return &informer.SyncError{Informer: c.opts.Name, Late: late, Reason: reason, Err: err}
}

// late returns the names of everything that has not synced, and the first reason that is known.
func (c *Controller[K]) late() (late []string, reason error) {
	c.mu.Lock()
	begun, read, reason := c.ctx != nil, c.read, c.unread
	c.mu.Unlock()
	if !begun {
		late = append(late, "Run")
	}
	note := func(l lateness) {
		if !slices.Contains(late, l.what) { // several sources may have the same informer
			late = append(late, l.what)
		}
		if l.hasRun || begun { // before the group runs, an informer that does not run is not a failure
			reason = cmp.Or(reason, l.reason)
		}
	}
	for _, in := range c.inputs {
		if !channel.Closed(in.reg.Synced()) {
			note(lateInformer(in.health()))
		}
	}
	for i, r := range c.opts.Reads[read:] {
		name := fmt.Sprintf("Options.Reads[%d] (%s)", read+i, r.Name())
		if l := lateMember(name, r.MemberHealth()); l.what != "" {
			note(l)
		} else if i == 0 && len(late) == 0 { // something else keeps its WaitForSync
			late = append(late, name)
		}
	}
	if s := c.set; s != nil && !channel.Closed(s.Started()) {
		late = append(late, "Run of set "+s.Name())
		if begun && reason == nil {
			reason = fmt.Errorf("set %s has not started: add it to the group, or call its Run", s.Name())
		}
	}
	return late, reason
}

// missing returns what Run waits for, as values of a log line.
func (c *Controller[K]) missing() []any {
	if channel.Closed(c.synced) {
		late := "the keys of all objects"
		if c.onStandby() {
			late = "the election"
		}
		return []any{"queue", c.opts.Name, "late", []string{late}}
	}
	late, reason := c.late()
	values := []any{"queue", c.opts.Name, "late", late}
	if reason != nil {
		values = append(values, "reason", reason)
	}
	return values
}

// live ends the time before the workers start: from now on, keys go into queue.
func (c *Controller[K]) live(queue *planned[K]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range c.early {
		queue.Add(key)
	}
	c.queue, c.early, c.isEarly = queue, nil, nil
}

// add queues keys. It leaves out the keys that another replica has.
func (c *Controller[K]) add(keys []K) {
	if c.shard != nil {
		keys = slices.DeleteFunc(keys, c.shard.foreign)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addLocked(keys)
}

func (c *Controller[K]) addLocked(keys []K) {
	if c.queue == nil && (c.removed || c.ctx != nil && c.ctx.Err() != nil) {
		return // the workers will not start
	}
	for _, key := range keys {
		if c.queue != nil {
			c.queue.Add(key)
		} else if c.isEarly[key] == 0 || c.opts.Elected != nil {
			c.isEarly[key]++
			c.early = append(c.early, key)
		}
	}
}

// addDeleted queues the keys of a delete. kept reports whether a store keeps the tombstone of the
// delete.
func (c *Controller[K]) addDeleted(ctx context.Context, d deletion, kept bool, keys []K) {
	c.mu.Lock()
	if kept {
		c.supersedeLocked(keys)
		c.state.deleted(d, span{}, keys) // before a worker, or a standby that drops keys, can take them
	}
	c.addLocked(keys)
	first := c.dropLocked()
	c.mu.Unlock()
	if first {
		c.reportDropped(ctx)
	}
}

// WaitForSync blocks until Run has seen that the informers of the sources and Options.Reads have synced,
// and the set of Options.Shards has started. It does not wait for the election, and may be called before
// Run. If ctx ends first, or the controller stops or is removed, it returns an [*informer.SyncError] that
// wraps the error of ctx or informer.ErrStopped.
func (c *Controller[K]) WaitForSync(ctx context.Context) error {
	if channel.Closed(c.synced) {
		return nil // even if ctx is done
	}
	select {
	case <-c.synced:
		return nil
	case <-c.stopped:
		return c.syncError(informer.ErrStopped)
	case <-ctx.Done():
		return c.syncError(ctx.Err())
	}
}

// remove ends the ctx of Run and removes the watchers of the sources. Deletes that are not reconciled
// then count as handled. It does not block, and may be called more than once. A group calls it after
// the controller has stopped.
func (c *Controller[K]) remove() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.cancel != nil:
		c.cancel()
	case !c.removed: // it will not run
		close(c.stopped)
	}
	c.removed = true
	for _, in := range c.inputs {
		in.reg.Remove()
	}
	if c.shard != nil {
		c.shard.end()
	}
}

// refuses reports whether key is of the wrong scope and must not be reconciled. It reports the first
// such key.
func (c *Controller[K]) refuses(ctx context.Context, key K) bool {
	if !c.scope.excludes(key) {
		return false
	}
	if !c.scope.reported.Swap(true) {
		c.opts.ErrorHandler(ctx, fmt.Errorf("controller %s: %v: %w (see Owners.ClusterScoped)", c.opts.Name, key, errScope))
	}
	return !c.maps
}

// Name returns Options.Name. It does not block.
func (c *Controller[K]) Name() string { return c.opts.Name }

// MemberHealth returns the result of Health, for an [informer.Group]. It does not block.
func (c *Controller[K]) MemberHealth() informer.MemberHealth { return c.Health() }

// Health returns the state of the controller. It does not block, and may be called at any time.
func (c *Controller[K]) Health() Health {
	c.mu.Lock()
	h := Health{
		Name: c.opts.Name, Started: c.ctx != nil, Stopped: c.removed || c.ctx != nil && c.ctx.Err() != nil, Synced: channel.Closed(c.synced),
		Standby: c.opts.Elected != nil && c.queue == nil, Workers: max(1, c.opts.Workers), Queued: len(c.isEarly), Dropped: c.dropped,
	}
	queue := c.queue
	c.mu.Unlock()
	if queue != nil {
		h.Queued, h.OldestQueued = c.ready.oldest()
		var foreign func(K) bool
		if c.shard != nil {
			foreign = c.shard.foreign
			c.state.leaveGivenUp(foreign)
		}
		h.Waiting = queue.waiting(foreign)
	}
	if limit := cmp.Or(c.opts.HangTimeout, defaultHangTimeout); limit > 0 {
		h.Stuck = c.state.stuck(h.Workers, c.ready.mayTake(), limit)
	}
	if h.Started && !h.Synced {
		h.Late, h.Reason = c.late()
	}
	c.state.health(&h, queue.next)
	return h
}
