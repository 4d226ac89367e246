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

// maxWorkers is the largest Options.Workers. All of these goroutines are started at once.
const maxWorkers = 1 << 16

// Options are the options of [NewController].
type Options struct {
	// Name names both the controller and its queue, such as "website": in each log line, as
	// "queue", in each [*Error], in Health and in all metrics, also client-go's of workqueues. It must
	// be set.
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

	// BaseDelay and MaxDelay are the pauses before a key that has failed is tried again. A key waits only
	// because of its own failures. The first pause is BaseDelay. Each further failure in a row doubles it, up
	// to MaxDelay. They do not change when a key comes again that an event has put into the queue,
	// or for which reconcile has asked, except that calls which ask for another one at once, again
	// and again, get the same pauses from the second on. BaseDelay defaults to 5 ms, or to MaxDelay
	// if that is less. MaxDelay defaults to 1000 s, or to BaseDelay if that is more. A pause of
	// more than a year counts as a year.
	BaseDelay, MaxDelay time.Duration

	// CallTimeout is how long a call may take until its ctx ends. A call that then returns an error
	// has failed, and is tried again. A call that does not heed its ctx continues. Defaults to 0: no
	// limit.
	CallTimeout time.Duration

	// HangTimeout limits how long calls may keep all workers: if these have been in their calls for that
	// long, and keys wait for them, Live of the controller's Health fails, so that a kubelet starts
	// the program again. Live also fails if a call is still under way a minute after a stop has
	// ended its ctx, or after HangTimeout if that is shorter. Defaults to an hour. If it is less
	// than 0, Live does not look at calls.
	HangTimeout time.Duration

	// RecoverPanics turns a panic of reconcile into an error that wraps
	// [*informer.PanicError], so that the key is retried as after any error. Defaults to
	// false: a panic ends the process, because the state that the panic left behind is not known.
	RecoverPanics bool

	// DrainTimeout is how long, after ctx has ended, the ctx of the calls stays alive. For
	// that long, workers still take keys from the queue if they are in it when ctx ends; keys
	// that wait for a retry, or for their time, are dropped. A Group stops its informers when
	// its controllers have drained, so calls see the changes of that time. Defaults to 0: calls
	// are cancelled at once, and no other call is made.
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
	// the wrong scope (see [Owns]). Defaults to Group.ErrorHandler, if the controller is a member of
	// a group that has one, and otherwise to logging the error.
	ErrorHandler func(ctx context.Context, err error)

	// Reads are informers, or other members, that reconcile reads, and that are no Source of the controller.
	// Workers start when the WaitForSync of these has returned, too. Defaults to none.
	Reads []informer.Member

	// Elected is closed when the program is the leader. Until this channel is closed, the controller is on
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

	// Shards is a *shards.Set, which divides the keys over the replicas of the
	// program. The controller reconciles the keys of the buckets that this replica has. When the
	// replica gets a bucket, all keys of it are reconciled. The ctx of a call also ends when the
	// replica may no longer work on the bucket, and shards.Token has its fencing token.
	//
	// The bucket of a key depends on the key alone. The type of the keys must be
	// types.NamespacedName, a string, or made of strings, integers and bools in exported fields.
	// Add the set to the same group. Elected must not be set. Defaults to nil: this replica
	// reconciles all keys.
	Shards sharding.Option
}

// check returns an error if an option is out of range. shards is true if there is a set.
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
