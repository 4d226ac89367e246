package enqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/shards"
)

// grace is how long Run, once stopped, waits for calls before it logs their keys.
const grace = 10 * time.Second

// maxWorkers is the largest Options.Workers. All of these goroutines are started at once.
const maxWorkers = 1 << 16

// Options are the options of [NewController] and of [Run]. Some are for a controller
// alone; Run returns an error if they are set.
type Options struct {
	// Name is the one name of controller and queue, such as "website": in each log line, as
	// "queue", in each [*Error], in Health and in all metrics. A controller must have one. With
	// Run it defaults to the name given to [NewQueue], or to "reconcile".
	Name string

	// Workers is the number of keys that are reconciled at once, at most 65,536. Defaults to 1.
	Workers int

	// MaxAttempts is how often in a row reconcile may fail for a key before the key is given
	// up. With the default BaseDelay, 5 attempts are over after 75 ms, 10 after 2.6 s, 15 after
	// 82 s. So a small number gives up in a short outage of the API server.
	// Then the key is reconciled again when an event puts it into the queue, or after the next
	// start. Meanwhile it stays in Health as failing. A delete that led to the key is not
	// handled, so a Durable keeps its tombstone. Defaults to 0: a key is never given up.
	MaxAttempts int

	// BaseDelay and MaxDelay are for a controller alone: the pauses before a key that has failed
	// is tried again. The first pause is BaseDelay. Each further failure in a row doubles it, up
	// to MaxDelay. They do not change when a key comes again that an event has put into the queue,
	// or for which reconcile has asked, except that calls which ask for another one at once, again
	// and again, get the same pauses from the second on. BaseDelay defaults to 5 ms, or to MaxDelay
	// if that is less. MaxDelay defaults to 1000 s, or to BaseDelay if that is more. A pause of
	// more than a year counts as a year.
	BaseDelay, MaxDelay time.Duration

	// CallTimeout is how long a call may take until its ctx ends. A call that then returns an error
	// has failed, and is tried again. A call that does not heed its ctx goes on. Defaults to 0: no
	// limit.
	CallTimeout time.Duration

	// HangTimeout is for a controller alone: if all workers have been in their calls for that long,
	// and keys wait for them, Live of the controller's Health fails, so that a kubelet starts
	// the program again. Live also fails if a call is still under way a minute after a stop has
	// ended its ctx, or after HangTimeout if that is shorter. Defaults to an hour. If it is less
	// than 0, Live does not look at calls.
	HangTimeout time.Duration

	// RecoverPanics turns a panic of reconcile into an error that wraps
	// [*informer.PanicError], so that the key is retried as after any error. Defaults to
	// false: a panic ends the process, because nobody knows which state the panic left behind.
	RecoverPanics bool

	// DrainTimeout is how long, after ctx has ended, the ctx of the calls stays alive. For
	// that long, workers still take keys from the queue if they are in it when ctx ends; keys
	// that wait for a retry, or for their time, are dropped. A Group stops its informers when
	// its controllers have drained. With Run, give the informers a ctx that ends when Run has
	// returned if calls must see the changes of that time. Defaults to 0: calls are cancelled
	// at once, and no other call is made.
	//
	// A replica that has lost its lease must not drain. So DrainTimeout does not count if the cause
	// of the end wraps informer.ErrLeaseLost. With Elected it counts only while Lost is open.
	DrainTimeout time.Duration

	// ErrorHandler is called with an [*Error] for each call of reconcile that fails. The
	// worker calls it with the ctx of the failed call, and waits for it. Several workers may
	// call it at once. It is not called for a call that returns the error of its ctx after a
	// stop; the end of a CallTimeout is a failure. Nor is it called for a conflict
	// (apierrors.IsConflict) that is the first failure of its key in a row: reconcile then wrote
	// from a state that is not the newest, which happens every day and is over with the next
	// attempt. A controller also reports with it that a standby drops deletes, and the first key of
	// the wrong scope ([ErrScope]). Defaults to Group.ErrorHandler, if a controller is a member of
	// a group that has one, and otherwise to logging the error.
	ErrorHandler func(ctx context.Context, err error)

	// Reads is for a controller alone: informers that reconcile reads, and that are no Source of
	// the controller. Workers start when these have synced, too, as their WaitForSync says. Do
	// not name the group of the controller, which waits for the controller: Run then returns an
	// error. Defaults to none.
	Reads []Informers

	// Elected is for a controller alone. Until this channel is closed, the controller is on
	// standby: it makes no call. When its informers have synced and the channel is closed, it
	// reconciles the key of every object, and the keys of the deletes that have come on
	// standby. With controller-runtime, it is the channel of the manager's method Elected. With
	// client-go's leaderelection, close a channel in OnStartedLeading. Defaults to nil: no standby.
	Elected <-chan struct{}

	// Lost is for a controller with Elected. When this channel is closed, another replica may be the
	// leader. No call begins any more, the ctx of those under way ends at once with a cause that
	// wraps informer.ErrLeaseLost, and Run returns such an error if its ctx has not ended. With
	// client-go's leaderelection, close it in OnStoppedLeading, and then end the process. With nil, the
	// default, the end of the ctx of Run counts as a lost lease.
	Lost <-chan struct{}

	// StandbyDeletes is for a controller with Elected or Shards: how many keys of deletes it keeps
	// on standby, or that other replicas have to handle. Beyond that the oldest are dropped: they
	// count in Health, the first is reported to ErrorHandler, and a Durable may forget their
	// tombstones. A program that needs more needs finalizers. 0, the default, means 100,000.
	StandbyDeletes int

	// Shards is for a controller alone: a set that divides the keys over the replicas of the
	// program. The controller reconciles the keys of the buckets that this replica has. When the
	// replica gets a bucket, all keys of it are reconciled. The ctx of a call also ends when the
	// replica may no longer work on the bucket, and shards.Token has its fencing token.
	//
	// The bucket of a key depends on the key alone. The type of the keys must be
	// types.NamespacedName, a string, or made of strings, integers and bools in exported fields.
	// Add the set to the same group. Elected must not be set. Defaults to nil: this replica
	// reconciles all keys.
	Shards *shards.Set
}

func (o *Options) check() error {
	switch {
	case o.Workers < 0:
		return fmt.Errorf("Options.Workers is %d, less than 0", o.Workers)
	case o.Workers > maxWorkers:
		return fmt.Errorf("Options.Workers is %d, more than %d", o.Workers, maxWorkers)
	case o.MaxAttempts < 0:
		return fmt.Errorf("Options.MaxAttempts is %d, less than 0", o.MaxAttempts)
	case o.BaseDelay < 0:
		return fmt.Errorf("Options.BaseDelay is %v, less than 0", o.BaseDelay)
	case o.MaxDelay < 0:
		return fmt.Errorf("Options.MaxDelay is %v, less than 0", o.MaxDelay)
	case o.MaxDelay > 0 && o.BaseDelay > o.MaxDelay:
		return fmt.Errorf("Options.BaseDelay is %v, more than Options.MaxDelay, %v", o.BaseDelay, o.MaxDelay)
	case o.DrainTimeout < 0:
		return fmt.Errorf("Options.DrainTimeout is %v, less than 0", o.DrainTimeout)
	case o.CallTimeout < 0:
		return fmt.Errorf("Options.CallTimeout is %v, less than 0", o.CallTimeout)
	case o.StandbyDeletes < 0:
		return fmt.Errorf("Options.StandbyDeletes is %d, less than 0", o.StandbyDeletes)
	case o.StandbyDeletes > 0 && o.Elected == nil && o.Shards == nil:
		return errors.New("Options.StandbyDeletes is set, but neither Elected nor Shards")
	case o.Lost != nil && o.Elected == nil:
		return errors.New("Options.Lost is set, but not Elected")
	case o.Elected != nil && o.Shards != nil:
		return errors.New("Options.Elected and Options.Shards are set: every replica of a set works")
	}
	return nil
}

// checkRun returns an error if o has an option that is for a controller alone.
func (o *Options) checkRun() error {
	switch {
	case o.Reads != nil:
		return errors.New("Options.Reads is for a controller, see NewController")
	case o.Elected != nil:
		return errors.New("Options.Elected is for a controller, see NewController")
	case o.Shards != nil:
		return errors.New("Options.Shards is for a controller, see NewController")
	case o.HangTimeout != 0:
		return errors.New("Options.HangTimeout is for a controller, see NewController")
	case o.BaseDelay != 0:
		return errors.New("Options.BaseDelay is for a controller, see NewController; with Run, make the queue with package workqueue")
	case o.MaxDelay != 0:
		return errors.New("Options.MaxDelay is for a controller, see NewController; with Run, make the queue with package workqueue")
	}
	return o.check()
}

// delays returns the pauses between attempts, with their defaults.
func (o *Options) delays() (base, most time.Duration) {
	base, most = min(cmp.Or(o.BaseDelay, defaultBaseDelay), year), min(cmp.Or(o.MaxDelay, defaultMaxDelay), year)
	if o.BaseDelay == 0 {
		return min(base, most), most
	}
	return base, max(base, most)
}

// Informers feed a queue: an [informer.CustomCacheInformer], or an [informer.Group].
type Informers interface {
	WaitForSync(ctx context.Context) error
}

// Run calls reconcile for the keys in queue. A [Controller] is easier to use, is seen in Health,
// and loses no delete; Run is for a program that makes its queue and its watchers itself.
//
// Run waits until informers have synced, and with them the watchers that put keys into queue.
// Then it calls reconcile for each key in queue, with Options.Workers goroutines. It never
// calls reconcile twice at once for one key: if events put a key into the queue during its
// call, however often, one more call follows.
//
// Run blocks until ctx ends or queue is shut down, and then until every call has returned. It
// notices that queue is shut down only once the informers have synced. It returns nil, or an
// [*informer.SyncError] if the informers stop before they have synced and ctx has not ended.
// It shuts queue down, so that no other Run can use it; several queues may be fed by the same
// informers. Run does not run the informers: the caller must. If an argument is nil, an option
// is out of range or queue is shut down already, Run returns an error at once.
//
// reconcile brings about what the object of the key asks for. It gets only the key, and reads
// the rest from an informer. If there is no such object, it has been deleted, or the informer does
// not read it: one with a selector, of some namespaces or of a part knows no other objects. The
// results of reconcile decide when it is called for the key again:
//
//   - An error: after the time set by the queue's rate limiter, see [NewQueue], or of a
//     controller by Options.BaseDelay and MaxDelay. Meanwhile the workers go on with other keys.
//     NotFound and conflicts are errors like any other: the next attempt reads again.
//   - An error that wraps [informer.ErrPermanent]: when an event puts the key into the queue.
//   - No error, and again more than 0: after that time, or earlier if an event puts the key
//     into the queue. An again less than 0, which time.Until returns for a time that is
//     past, means at once. If calls for a key ask for less than 5 ms again and again, only the
//     first gets it. Later pauses are at least as long as those after failures.
//   - No error, and again 0: when an event puts the key into the queue.
//
// With a queue of [NewQueue], and in a controller, the result of a call replaces the time for which
// the key has been waiting. Any other queue of package workqueue keeps the earliest time of a key
// until it comes.
//
// The ctx of a call ends with the ctx of Run, or up to DrainTimeout later, or after CallTimeout.
// It does not end because somebody else has shut queue down. It has a logger (klog.FromContext)
// with the key.
// A call that does not return after its ctx has ended holds up Run, and its key is logged
// after 10 s. A call must not end its goroutine, as runtime.Goexit and a test's FailNow do.
func Run[K comparable](
	ctx context.Context,
	informers Informers,
	queue workqueue.TypedRateLimitingInterface[K],
	reconcile func(ctx context.Context, key K) (again time.Duration, err error),
	opts Options,
) error {
	switch {
	case isNil(informers):
		return errors.New("enqueue: Run: informers is nil")
	case isNil(queue):
		return errors.New("enqueue: Run: queue is nil")
	case reconcile == nil:
		return errors.New("enqueue: Run: reconcile is nil")
	case queue.ShuttingDown():
		return errors.New("enqueue: Run: queue has been shut down")
	}
	if err := opts.checkRun(); err != nil {
		return fmt.Errorf("enqueue: Run: %w", err)
	}
	defer queue.ShutDown()
	if q, ok := queue.(*planned[K]); ok {
		opts.Name = cmp.Or(opts.Name, q.name)
	}
	opts.Name = cmp.Or(opts.Name, "reconcile")
	if opts.ErrorHandler == nil {
		opts.ErrorHandler = logError
	}
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "queue", opts.Name)
	ctx = klog.NewContext(ctx, logger)
	if err := informers.WaitForSync(ctx); err != nil {
		if ctx.Err() != nil {
			logger.Info("Stopped before the workers have started", "reason", err)
			return nil
		}
		return fmt.Errorf("enqueue: Run: %s: %w", opts.Name, err)
	}
	newWorker(queue, reconcile, newState[K](), &opts).work(ctx)
	return nil
}

// work runs Options.Workers goroutines until ctx ends or the queue is shut down, and then until
// every call has returned.
func (w *worker[K]) work(ctx context.Context) {
	parent := ctx
	if w.opts.DrainTimeout > 0 || w.opts.Elected != nil {
		parent = context.WithoutCancel(ctx)
	}
	calls, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var running sync.WaitGroup
	for range max(1, w.opts.Workers) {
		running.Go(func() { w.run(ctx, calls) })
	}
	finished := make(chan struct{})
	go func() {
		running.Wait()
		close(finished)
	}()

	select {
	case <-finished: // the queue was shut down
		return
	case <-w.opts.Lost:
	case <-ctx.Done():
	}
	w.queue.ShutDown()
	if w.opts.mayWork(ctx) {
		await(finished, w.opts.DrainTimeout, w.opts.Lost)
	}
	cause := context.Cause(ctx)
	if w.opts.leaseLost(ctx) && !errors.Is(cause, informer.ErrLeaseLost) {
		cause = errors.Join(informer.ErrLeaseLost, cause)
	}
	cancel(cause)
	w.state.stop()
	if !await(finished, grace, nil) {
		klog.FromContext(ctx).Info("The workers cannot stop until calls return", "keys", w.state.busy())
		<-finished
	}
}

// leaseLost reports whether another replica may be the leader. ctx is that of Run.
func (o *Options) leaseLost(ctx context.Context) bool {
	return channel.Closed(o.Lost) || errors.Is(context.Cause(ctx), informer.ErrLeaseLost) ||
		o.Elected != nil && o.Lost == nil && ctx.Err() != nil
}

// mayWork reports whether calls may begin before the ctx of the calls ends. ctx is that of Run.
func (o *Options) mayWork(ctx context.Context) bool {
	return !o.leaseLost(ctx) && (ctx.Err() == nil || o.DrainTimeout > 0)
}

// await waits until done or lost is closed, but at most d, and reports whether done is closed.
func await(done <-chan struct{}, d time.Duration, lost <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-lost:
	case <-time.After(d):
	}
	return false
}
