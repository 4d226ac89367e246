package shards

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/shards/internal/leases"
)

// The defaults of Options.
const (
	defaultBuckets       = 64
	defaultLeaseDuration = 15 * time.Second
	defaultRenewEvery    = 5 * time.Second
	defaultMargin        = 2 * time.Second
	defaultDrainTimeout  = 30 * time.Second
)

const (
	// maxName leaves room in the name of a Lease, and in the value of a label.
	maxName = 40
	// maxIdentity leaves room for the random part of a session's id.
	maxIdentity = 200
	// maxLease is the longest LeaseDuration.
	maxLease = 24 * time.Hour
	// minTime is the least RenewEvery and the least Margin. A request may take as long as
	// RenewEvery, and a call needs Margin to return. With a nanosecond, each request would fail at
	// once and be repeated without a pause.
	minTime = 100 * time.Millisecond
	// maxMargin is the longest Margin. A replica that takes a bucket of a dead replica waits until
	// its watches have been open for Margin, and watches end after 5 to 10 minutes.
	maxMargin = time.Minute
)

// Options are the options of [New]. Only Name is required. All replicas of a set should have the same
// options, except Identity.
type Options struct {
	// Name is the name of the set, such as "website", in Health, in metrics and in log lines. The
	// names of its Leases begin with it. It is required, and must be a DNS label of at most 40
	// characters. Two sets in one namespace must have different names: a replica does not join a set
	// while it has no controller in common with a working replica of that set.
	Name string

	// Identity names this replica in its Leases and in Health, for people. It need not be unique,
	// because each session adds a random part to it. It must have at most 200 characters. Defaults to
	// the name of the host. In a Pod this is usually the name of the Pod.
	Identity string

	// Buckets is the number of buckets into which the keys are divided, a power of two up to 1024.
	// Choose several times the number of replicas, so that each gets about the same share. The Leases
	// record the number, and a replica with another number cannot join. To change it, stop all
	// replicas and delete the Leases of the set. Defaults to 64.
	Buckets int

	// ByNamespace puts all keys of a namespace into one bucket. Each bucket then holds the namespaces
	// whose hash is in a certain range. With [Set.Source], each replica caches only the objects of
	// its namespaces. The keys of a controller must be NamespacedNames. The first replica chooses the
	// ranges so that each holds about the same number of objects of the sources, and writes the
	// ranges into a Lease. Later namespaces may change the balance. To choose again, stop all
	// replicas and delete the Leases of the set. All keys without a namespace are in one bucket, so
	// one replica has all cluster-scoped objects. All replicas need the same value. Defaults to false:
	// the keys of each namespace are spread over all buckets, and every replica caches all objects.
	ByNamespace bool

	// LeaseDuration is how long a replica keeps its buckets after the last renewal of its session,
	// the Lease that shows that the replica is alive. After a replica has died, no replica works on
	// its buckets for this time. LeaseDuration must be a whole number of seconds, and at most a day.
	// Defaults to 15 s.
	LeaseDuration time.Duration

	// RenewEvery is the time between two renewals of the session. Apart from these and its watch, the
	// set makes requests only when a bucket moves to another replica, when replicas pass on deletes,
	// and after failures. RenewEvery is also the timeout of each request. It must be at least 100 ms.
	// Defaults to 5 s.
	RenewEvery time.Duration

	// Margin is how long a call of reconcile may still run after its ctx is done. A replica that
	// cannot renew its session ends the ctx of its calls this long before the end of LeaseDuration.
	// Margin is also how far the clocks of two replicas may drift apart within a LeaseDuration. It
	// must be from 100 ms to a minute, and RenewEvery and Margin together less than LeaseDuration.
	// Defaults to 2 s.
	Margin time.Duration

	// DrainTimeout is how long a bucket that moves to another replica waits for the calls under way
	// before their ctx is cancelled. The bucket stays until the calls have returned. Defaults to
	// 30 s. With -1, the ctx is cancelled at once. Any other value less than 0 is an error.
	DrainTimeout time.Duration

	// ErrorHandler is called with the failures of the set, such as a refused request or a lost
	// session. Failed lists and watches of the Leases are reported as [informer.Options].ErrorHandler
	// describes: once, if they keep failing for one reason. So is a wait for replicas of another program. Several goroutines may call it at once. It must not block. Defaults to
	// Group.ErrorHandler, if the set is a member of a group that has one, and otherwise to logging
	// the error.
	ErrorHandler func(ctx context.Context, err error)
}

func (o *Options) check() error {
	if len(o.Name) > maxName {
		return fmt.Errorf("Options.Name has %d characters, more than %d", len(o.Name), maxName)
	}
	if wrong := validation.IsDNS1123Label(o.Name); len(wrong) > 0 {
		return fmt.Errorf("Options.Name is %q, no DNS label: %s", o.Name, wrong[0])
	}
	switch {
	case len(o.Identity) > maxIdentity:
		return fmt.Errorf("Options.Identity has %d characters, more than %d", len(o.Identity), maxIdentity)
	case o.Buckets < 0 || o.Buckets > leases.MaxBuckets || o.Buckets&(o.Buckets-1) != 0:
		return fmt.Errorf("Options.Buckets is %d, not a power of two from 1 to %d", o.Buckets, leases.MaxBuckets)
	case o.LeaseDuration < 0 || o.LeaseDuration > maxLease || o.LeaseDuration%time.Second != 0:
		return fmt.Errorf("Options.LeaseDuration is %v, not a whole number of seconds up to a day", o.LeaseDuration)
	case o.RenewEvery != 0 && o.RenewEvery < minTime:
		return fmt.Errorf("Options.RenewEvery is %v, less than %v", o.RenewEvery, minTime)
	case o.Margin != 0 && (o.Margin < minTime || o.Margin > maxMargin):
		return fmt.Errorf("Options.Margin is %v, not from %v to %v", o.Margin, minTime, maxMargin)
	case o.DrainTimeout < 0 && o.DrainTimeout != -1:
		return fmt.Errorf("Options.DrainTimeout is %v, less than 0 and not -1", o.DrainTimeout)
	}
	return nil
}

// complete returns o with its defaults filled in, or an error if an option cannot be used.
func (o Options) complete() (Options, error) {
	if err := o.check(); err != nil {
		return o, err
	}
	o.Buckets = cmp.Or(o.Buckets, defaultBuckets)
	o.LeaseDuration = cmp.Or(o.LeaseDuration, defaultLeaseDuration)
	o.RenewEvery = cmp.Or(o.RenewEvery, defaultRenewEvery)
	o.Margin = cmp.Or(o.Margin, defaultMargin)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, defaultDrainTimeout)
	if o.ErrorHandler == nil {
		o.ErrorHandler = informer.Report
	}
	if o.RenewEvery >= o.LeaseDuration || o.Margin >= o.LeaseDuration-o.RenewEvery {
		return o, fmt.Errorf("Options.RenewEvery, %v, and Options.Margin, %v, are together not less than Options.LeaseDuration, %v",
			o.RenewEvery, o.Margin, o.LeaseDuration)
	}
	if o.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return o, fmt.Errorf("Options.Identity is empty, and the name of the host is not known: %w", err)
		}
		o.Identity = host[:min(len(host), maxIdentity)]
	}
	return o, nil
}

// backoff returns the pauses after failed lists and watches of the Leases. They are shorter than
// those of other informers, because after an outage a replica takes buckets only once it sees the
// Leases again.
func (o *Options) backoff() *wait.Backoff {
	return &wait.Backoff{Duration: min(100*time.Millisecond, o.RenewEvery), Cap: o.RenewEvery, Steps: 38, Factor: 2, Jitter: 0.5}
}
