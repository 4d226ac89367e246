package enqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/sharding"
)

// maxWorkers is the largest Options.Workers. A controller starts all of these goroutines at once.
const maxWorkers = 1 << 16

// Options are the options of [NewController]. Only Name is required. A number or a duration that is
// less than 0 is an error, except in HangTimeout.
type Options struct {
	// Name is the name of both the controller and its queue, such as "website". It appears in each log
	// line, as "queue", in each [*Error], in Health and in all metrics, including client-go's metrics
	// of workqueues. It is required. The members of an [informer.Group] need different names, so an
	// informer of the group must not have this name either.
	Name string

	// Workers is how many keys are reconciled at once, at most 65,536. With [InClusters], calls that
	// last longer than a second do not count, so more keys may be reconciled at once. Defaults to 1.
	Workers int

	// MaxAttempts is the number of failures in a row after which a key is given up. With the default
	// BaseDelay, 5 attempts take 75 ms, 10 take 2.6 s and 15 take 82 s. So a small number gives up in a
	// short outage of the API server. A key that was given up is reconciled again when an event puts it
	// into the queue, or after the next start. Until then Health shows it as failing. A delete that led
	// to the key is not handled, so a Durable keeps its tombstone. Defaults to 0, which means no limit.
	MaxAttempts int

	// BaseDelay and MaxDelay limit the pause before a key that has failed is tried again. The first
	// pause is BaseDelay. Each further failure of the key in a row doubles it, up to MaxDelay. Failures
	// of other keys do not matter. An event that puts the key into the queue ends the pause. A time
	// that reconcile asks for is not changed, with one exception: if several calls for a key in a row
	// ask for less than 5 ms, all but the first get at least these pauses. The default of BaseDelay is
	// 5 ms, or MaxDelay if that is less. The default of MaxDelay is 1000 s, or BaseDelay if that is
	// more. If both are set, BaseDelay must not be more than MaxDelay. A pause of more than a year
	// counts as a year.
	BaseDelay, MaxDelay time.Duration

	// CallTimeout is how long a call may take before its ctx ends. If the call then returns an error,
	// it has failed, and its key is tried again. A call that ignores its ctx continues. Defaults to 0:
	// no limit.
	CallTimeout time.Duration

	// HangTimeout is how long calls may occupy all workers while other keys wait. If no worker has
	// become free for that long, [Health.Live] returns an error, so that a kubelet restarts the
	// program. Live also returns an error if a call is still under way a minute after a stop has ended
	// its ctx, or after HangTimeout if that is shorter. Defaults to an hour. If HangTimeout is less
	// than 0, Live always returns nil.
	HangTimeout time.Duration

	// RecoverPanics turns a panic of reconcile into an [*informer.PanicError], so that the key is
	// retried as after any error. Defaults to false: a panic ends the process, because it may leave a
	// broken state behind.
	RecoverPanics bool

	// DrainTimeout is how long calls may continue after the ctx of Run is done. Until then the ctx of
	// calls stays alive, and workers still take the keys that were in the queue when Run's ctx ended.
	// Keys that wait for a pause to end are dropped. A Group stops its informers after its controllers
	// have drained, so calls still see new changes. Defaults to 0: the ctx of calls ends at once, and no
	// other call begins.
	//
	// A replica that has lost its lease must not drain. So DrainTimeout has no effect if Run's ctx ends
	// with a cause that wraps [informer.ErrLeaseLost]. With Elected, it has an effect only if Lost is
	// set and not closed.
	DrainTimeout time.Duration

	// ErrorHandler is called with an [*Error] after each call of reconcile that has failed. This
	// includes a call that returns an error because CallTimeout is over. The worker calls ErrorHandler
	// with a ctx that CallTimeout does not end, and waits until it returns. Several workers may call it
	// at once. It is not called if reconcile returns the error of its ctx after a stop, nor for any
	// error after the lease is lost. Nor is it called for a conflict (apierrors.IsConflict) that is the
	// first failure of its key in a row, unless the key is given up. With a conflict, reconcile has
	// used a state that was not the newest, and the next attempt usually works.
	//
	// ErrorHandler also gets an error that wraps [ErrStandbyDeletesDropped] when the first deletes are
	// dropped (see StandbyDeletes), and an error for the first key of the wrong scope (see [Owns]).
	// Defaults to Group.ErrorHandler, if the controller is a member of a group that has one, and
	// otherwise to logging the error.
	ErrorHandler func(ctx context.Context, err error)

	// Reads are the informers, and other members of a group, that reconcile reads in addition to the
	// informers of the sources. The workers start only when WaitForSync of each of them has returned
	// nil. If it returns an error, so does Run. Defaults to none.
	Reads []informer.Member

	// Elected is a channel that is closed when the program becomes the leader. Until then the
	// controller is on standby: it makes no call. When its informers have synced and the channel is
	// closed, it reconciles the key of every object, and the keys of objects deleted in the meantime.
	// With controller-runtime, use the channel that the manager's method Elected returns. With
	// client-go's leaderelection, close a channel in OnStartedLeading. Defaults to nil: no standby.
	Elected <-chan struct{}

	// Lost is a channel that is closed when another replica may have become the leader. Setting Lost
	// without Elected is an error. Once Lost is closed, no call begins any more, and the ctx of the
	// calls under way ends at once with a cause that wraps [informer.ErrLeaseLost]. Run then returns an
	// error that wraps ErrLeaseLost, unless its own ctx is done. With client-go's leaderelection, close
	// Lost in OnStoppedLeading, and then end the process. Defaults to nil: the end of the ctx of Run
	// counts as a lost lease.
	Lost <-chan struct{}

	// StandbyDeletes is how many keys of deleted objects the controller keeps while it is on standby (see
	// Elected), or in case other replicas fail (see Shards). Setting StandbyDeletes without
	// Elected or Shards is an error. If there are more keys, the controller drops the oldest:
	// [Health].Dropped counts them, ErrorHandler gets an error for the first, and a Durable may forget
	// their tombstones. A program that must not lose any delete needs finalizers. Defaults to 100,000.
	StandbyDeletes int

	// Shards is a *shards.Set, which divides the keys into buckets, and the buckets over the replicas
	// of the program. The controller reconciles only the keys of the buckets that this replica holds.
	// When the replica gets a bucket, the controller reconciles all keys of the bucket. The ctx of a
	// call also ends when the replica may no longer work on the bucket. shards.Token returns the
	// fencing token of that ctx.
	//
	// The bucket of a key depends only on the key. The type of the keys must be types.NamespacedName,
	// [Key], a string, or made of strings, integers and bools in exported fields. These fields must not
	// be embedded or have json tags. A set that divides by namespace allows only types.NamespacedName.
	// Add the set to the same group. Elected must not be set. Defaults to nil: this replica reconciles
	// all keys.
	Shards sharding.Option
}

// check returns an error if an option is out of range. shards reports whether Options.Shards is set.
func (o *Options) check(shards bool) error {
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
	case o.StandbyDeletes > 0 && o.Elected == nil && !shards:
		return errors.New("Options.StandbyDeletes is set, but neither Elected nor Shards")
	case o.Lost != nil && o.Elected == nil:
		return errors.New("Options.Lost is set, but not Elected")
	case o.Elected != nil && shards:
		return errors.New("Options.Elected and Options.Shards are set: every replica of a set works")
	}
	return nil
}

// delays returns the pauses between attempts, with their defaults.
func (o *Options) delays() (base, most time.Duration) {
	base, most = min(cmp.Or(o.BaseDelay, defaultBaseDelay), year), min(cmp.Or(o.MaxDelay, defaultMaxDelay), year)
	if o.BaseDelay == 0 {
		return min(base, most), most
	}
	return base, max(base, most)
}
